/* SPDX-License-Identifier: Apache-2.0 */
/* Boxing: converts a tensor from its layout on the devices to the layout that its readers want.
 *
 * Axes are converted one at a time, with three ops:
 *
 *     B -> S   a slice, for the device itself
 *     B -> P   the tensor on the first member, zeros on the others
 *     S -> B   a join of all parts                          (all-gather)
 *     P -> S   slices for all members, and a sum of the slices received;
 *              or a sum of that part of all summands        (reduce-scatter)
 *     P -> B   the same with flat parts, and a join         (all-reduce)
 *     S -> S   slices for all members, and a join           (all-to-all)
 *
 * F32 sums use a binary tree over the members. Each slice goes to one reader, so devices exchange
 * exactly the bytes that the collective must move. Small tensors are not worth three transfers:
 * every member reads all summands and computes the sum itself. Where devices can make collectives
 * together, and that is cheaper, one op replaces these (collective.c). */
#include "graph/build/build.h"
#include "graph/sharding/box.h"
#include "ops/collective.h"

static sl_status add_node(sli_boxing *b, const sl_op *op, const char *what, sl_class cls, bool near,
                          int rank, int nin, sl_tensor *const *in, const sl_attrs *attrs,
                          const sl_type *type, sl_tensor **out) {
  const sli_box_making m = {op, what, cls, near, rank, nin, in, attrs, type};
  sli_node *n;
  return sli_box_node(b, &m, &n, out);
}

/* Returns the same attributes for all variants: [nvariants]. */
static const sl_attrs *same_attrs(const sli_boxing *b, const void *user) {
  int n = b->x->nvariants;
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, (size_t)n * sizeof *attrs);
  for (int v = 0; v < n; v++) attrs[v].user = user;
  return attrs;
}

/* ---- parts ----------------------------------------------------------------------- */

/* Returns attributes with the part of each variant: [nvariants]. */
static const sl_attrs *part_attrs(const sli_boxing *b, int rank, int dim, int member) {
  const sl_part *parts = sli_box_parts(b, rank, dim, member);
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, (size_t)b->x->nvariants * sizeof *attrs);
  for (int v = 0; v < b->x->nvariants; v++) attrs[v].user = &parts[v];
  return attrs;
}

static sl_status slice(sli_boxing *b, int rank, sl_tensor *t, int dim, int member, sl_class cls,
                       sl_tensor **out) {
  const sl_attrs *attrs = part_attrs(b, rank, dim, member);
  const char *what = sli_arena_format(&b->x->g->arena, "slice%d", member);
  return add_node(b, &sl_op_slice, what, cls, cls == SL_CLASS_C, rank, 1, &t, attrs, NULL, out);
}

/* Joins the members' parts into `whole` [nvariants]; if one device represents all, the parts may be
 * larger. */
static sl_status join(sli_boxing *b, int rank, sl_tensor *const *in, const sl_type *whole,
                      const sl_part *const *parts, sl_class cls, sl_tensor **out) {
  sli_arena *arena = &b->x->g->arena;
  sl_attrs *attrs = sli_arena_alloc(arena, (size_t)b->x->nvariants * sizeof *attrs);
  for (int v = 0; v < b->x->nvariants; v++) {
    sl_part *all = sli_arena_alloc(arena, (size_t)b->members * sizeof *all);
    for (int m = 0; m < b->members; m++) all[m] = parts[m][v];
    sl_joint *joint = sli_arena_alloc(arena, sizeof *joint);
    *joint = (sl_joint){whole[v], all};
    attrs[v].user = joint;
  }
  return add_node(b, &sl_op_join, "join", cls, false, rank, b->members, in, attrs,
                  b->x->grid->alike ? whole : NULL, out);
}

/* ---- conversions, for one device ---------------------------------------------------- */

/* Lists the tensors of all members of a device's row. */
static void row_of(const sli_boxing *b, int rank, sl_tensor *const *on, sl_tensor **out) {
  for (int m = 0; m < b->members; m++) out[m] = on[sli_rank_at(b->x->grid, rank, b->along, m)];
}

static sl_status box_zeros(sli_boxing *b, int rank) {
  sli_expansion *x = b->x;
  if (!sli_rank_member(x->grid, rank, b->along)) {
    b->to->on[rank] = b->from->on[rank];
    return SL_OK;
  }
  sl_type *types = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *types);
  sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
  for (int v = 0; v < x->nvariants; v++) {
    types[v] = *sli_expand_type(x, b->from->on[rank], v);
    attrs[v].user = &types[v];
  }
  return add_node(b, &sl_op_fill, "zeros", sli_box_class(b), false, rank, 0, NULL, attrs, NULL,
                  &b->to->on[rank]);
}

/* Cuts slices for all members: slices[member * ranks + rank]. */
static sl_status cut_for_all(sli_boxing *b, int dim, sl_tensor **slices) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks; r++)
    for (int m = 0; m < b->members && !status; m++)
      status = slice(b, r, b->from->on[r], dim, m, SL_CLASS_C, &slices[m * b->x->ranks + r]);
  return status;
}

/* Takes the rows of all members: slices[member * ranks + rank]. */
static sl_status part_rows_for_all(sli_boxing *b, sl_tensor **slices) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks; r++)
    for (int m = 0; m < b->members && !status; m++)
      status = sli_box_part_rows(b, r, m, &slices[m * b->x->ranks + r]);
  return status;
}

/* Lists the slices that all members cut for this device. */
static void slices_for(const sli_boxing *b, int rank, sl_tensor *const *slices, sl_tensor **out) {
  const sli_grid *grid = b->x->grid;
  int own = sli_rank_member(grid, rank, b->along);
  for (int m = 0; m < b->members; m++)
    out[m] =
        grid->alike ? slices[m] : slices[own * b->x->ranks + sli_rank_at(grid, rank, b->along, m)];
}

static sl_status sum_slices(sli_boxing *b, int dim, sl_tensor **sums) {
  sli_expansion *x = b->x;
  sl_tensor **slices =
      sli_arena_alloc(&x->g->arena, (size_t)(b->members * x->ranks) * sizeof *slices);
  sl_status status = cut_for_all(b, dim, slices);
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    slices_for(b, r, slices, in);
    const sl_type *part = sli_expand_type(x, in[sli_rank_share(x->grid, r, b->along)], 0);
    status = add_node(b, &sl_op_sum, "sum", SL_CLASS_C, true, r, b->members, in,
                      same_attrs(b, NULL), x->grid->alike ? part : NULL, &sums[r]);
  }
  return status;
}

static sl_status sum_in_place(sli_boxing *b, int dim, sl_tensor **sums) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    int member = sli_rank_share(b->x->grid, r, b->along);
    row_of(b, r, b->from->on, in);
    status = add_node(b, &sl_op_sum_part, "sum", SL_CLASS_C, true, r, b->members, in,
                      part_attrs(b, r, dim, member), NULL, &sums[r]);
  }
  return status;
}

/* Computes each device's part of the sum, from slices sent to it or, if devices can address each
 * other's memory, from the summands. */
static sl_status sum_parts(sli_boxing *b, int dim, sl_tensor **sums) {
  bool apart = false;
  for (int a = 0; a < SLI_AXES; a++) apart |= (b->along >> a & 1) && b->x->grid->apart[a];
  return apart ? sum_slices(b, dim, sums) : sum_in_place(b, dim, sums);
}

static sl_status box_sum_whole(sli_boxing *b) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    row_of(b, r, b->from->on, in);
    status = add_node(b, &sl_op_sum, "sum", SL_CLASS_C, false, r, b->members, in,
                      same_attrs(b, NULL), NULL, &b->to->on[r]);
  }
  return status;
}

/* Joins parts along `dim` (-1: equal numbers of elements) on all devices. */
static sl_status join_all(sli_boxing *b, int dim, sl_tensor *const *sent) {
  sli_expansion *x = b->x;
  sl_tensor *arrived[x->ranks], *const *on = sent;
  sl_status status = SL_OK;
  if (b->to->gathered || sli_box_crosses(b)) {
    status = sli_box_arrive(b, sent, arrived);
    on = arrived;
  }
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    const sl_part *parts[b->members];
    sl_type whole[x->nvariants];
    row_of(b, r, on, in);
    for (int m = 0; m < b->members; m++) parts[m] = sli_box_parts(b, r, dim, m);
    for (int v = 0; v < x->nvariants; v++)
      whole[v] = sli_local_type(x, b->from->tensor, b->to->layout, r, v);
    status = join(b, r, in, whole, parts, SL_CLASS_C, &b->to->on[r]);
  }
  return status;
}

static sl_status box_all_reduce(sli_boxing *b) {
  sl_tensor **sums = sli_arena_alloc(&b->x->g->arena, (size_t)b->x->ranks * sizeof *sums);
  sl_status status = sum_parts(b, -1, sums);
  return status ? status : join_all(b, -1, sums);
}

/* Makes a device's share of a tensor that all have, with the pass that makes the tensor. */
static sl_status share_out(sli_boxing *b, int rank, sl_tensor **out) {
  int member = sli_rank_share(b->x->grid, rank, b->along);
  const char *what = sli_arena_format(&b->x->g->arena, "slice%d", member);
  return add_node(b, &sl_op_slice, what, b->from->made.cls, true, rank, 1, &b->from->on[rank],
                  part_attrs(b, rank, -1, member), NULL, out);
}

/* Converts parts along one dim to parts along another. The dims differ, so every device cuts the
 * same ranges of its part for the members. */
static sl_status box_all_to_all(sli_boxing *b, int from, int to, bool collective) {
  sli_expansion *x = b->x;
  size_t n = (size_t)(b->members * x->ranks);
  sl_tensor **slices = sli_arena_alloc(&x->g->arena, n * sizeof *slices), **arrived = NULL;
  sl_status status = cut_for_all(b, to, slices);
  if (!status && collective) {
    arrived = sli_arena_alloc(&x->g->arena, n * sizeof *arrived);
    status = sli_box_swap(b, slices, arrived);
  }
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    const sl_part *parts[b->members];
    sl_type whole[x->nvariants];
    slices_for(b, r, slices, in);
    for (int m = 0; m < b->members && arrived; m++) in[m] = arrived[m * x->ranks + r];
    for (int v = 0; v < x->nvariants; v++)
      whole[v] = sli_local_type(x, b->from->tensor, b->to->layout, r, v);
    for (int m = 0; m < b->members; m++) parts[m] = sli_box_parts(b, r, from, m);
    status = join(b, r, in, whole, parts, SL_CLASS_C, &b->to->on[r]);
  }
  return status;
}

/* ---- rows of a served tick ---------------------------------------------------------------- */

enum { TICK_DIM = 1 };

/* Converts a whole tick to shared rows, or back. */
static sl_status box_tick(sli_boxing *b, bool shares) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    row_of(b, r, b->from->on, in);
    status =
        shares ? sli_box_own_rows(b, r, &b->to->on[r]) : sli_box_join_rows(b, r, in, &b->to->on[r]);
  }
  return status;
}

/* Converts columns of all rows to shared rows. */
static sl_status box_columns_to_rows(sli_boxing *b, int from) {
  size_t n = (size_t)(b->members * b->x->ranks);
  sl_tensor **slices = sli_arena_alloc(&b->x->g->arena, n * sizeof *slices);
  sl_status status = part_rows_for_all(b, slices);
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    const sl_part *parts[b->members];
    slices_for(b, r, slices, in);
    sl_type whole = sli_local_type(b->x, b->from->tensor, b->to->layout, r, 0);
    for (int m = 0; m < b->members; m++) parts[m] = sli_box_parts(b, r, from, m);
    status = join(b, r, in, &whole, parts, SL_CLASS_C, &b->to->on[r]);
  }
  return status;
}

/* Converts shared rows to columns of all rows. */
static sl_status box_rows_to_columns(sli_boxing *b, int to) {
  size_t n = (size_t)(b->members * b->x->ranks);
  sl_tensor **slices = sli_arena_alloc(&b->x->g->arena, n * sizeof *slices);
  sl_status status = cut_for_all(b, to, slices);
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    slices_for(b, r, slices, in);
    status = sli_box_join_rows(b, r, in, &b->to->on[r]);
  }
  return status;
}

static sl_status box_ticks(sli_boxing *b, sl_sbp from, sl_sbp to) {
  if (from.kind != SL_SPLIT || to.kind != SL_SPLIT) return box_tick(b, to.kind == SL_SPLIT);
  return to.dim == TICK_DIM ? box_columns_to_rows(b, from.dim) : box_rows_to_columns(b, to.dim);
}

/* ---- one axis, or several as one ------------------------------------------------------------- */

/* True if each device computes the whole sum. Serving always does, since equal parts would not line
 * up with valid rows. */
static bool is_summed_whole(const sli_boxing *b) {
  const sl_type *type = sli_expand_type(b->x, b->from->on[0], 0);
  return sl_type_bytes(type) <= SLI_SUMMED_WHOLE_BYTES || sli_box_between_stages(b) ||
         b->x->g->options.serve;
}

static sl_status box_own_slices(sli_boxing *b, int dim) {
  sl_status status = SL_OK;
  for (int r = 0; r < b->ranks && !status; r++)
    status = slice(b, r, b->from->on[r], dim, sli_rank_share(b->x->grid, r, b->along),
                   sli_box_class(b), &b->to->on[r]);
  return status;
}

static bool is_forward(sl_class cls) { return cls == SL_CLASS_F || cls == SL_CLASS_L; }

/* Returns a member's part [nvariants], which follows those of the members before it. */
static const sl_part *place_behind(const sli_boxing *b, sl_tensor *const *in, int member) {
  sli_expansion *x = b->x;
  sl_part *parts = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *parts);
  for (int v = 0; v < x->nvariants; v++) {
    parts[v] = (sl_part){.axis = SL_PART_FLAT,
                         .nranges = 1,
                         .count = {sl_type_elements(sli_expand_type(x, in[member], v))}};
    for (int m = 0; m < member; m++)
      parts[v].begin[0] += sl_type_elements(sli_expand_type(x, in[m], v));
  }
  return parts;
}

/* Flattens a device's tensor. */
static sl_status flatten(sli_boxing *b, int rank, sl_tensor **out) {
  sl_tensor *t = b->from->on[rank];
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, (size_t)b->x->nvariants * sizeof *attrs);
  for (int v = 0; v < b->x->nvariants; v++) attrs[v].user = &place_behind(b, &t, 0)[v];
  return add_node(b, &sl_op_slice, "flat", sli_box_class(b), false, rank, 1, &t, attrs, NULL, out);
}

/* Concatenates the members' tensors, regardless of their place in the whole. */
static sl_status box_in_line(sli_boxing *b) {
  sl_status status = SL_OK;
  sl_tensor *flat[b->x->ranks];
  b->x->nboxes++;
  for (int r = 0; r < b->ranks && !status; r++) status = flatten(b, r, &flat[r]);
  for (int r = 0; r < b->ranks && !status; r++) {
    sl_tensor *in[b->members];
    const sl_part *parts[b->members];
    sl_type whole[b->x->nvariants];
    row_of(b, r, flat, in);
    for (int m = 0; m < b->members; m++) parts[m] = place_behind(b, in, m);
    for (int v = 0; v < b->x->nvariants; v++)
      whole[v] = sli_local_type(b->x, b->from->tensor, b->to->layout, r, v);
    status = join(b, r, in, whole, parts, SL_CLASS_C, &b->to->on[r]);
  }
  return status;
}

/* Gathers all ids routed to one device, source by source; their order in the whole tensor may
 * differ. */
static sl_status gather_ids(sli_expansion *x, const sli_array *own, sli_moment at,
                            sli_array **all) {
  enum { IN_LINE = 1 };
  sli_along along = sli_grid_experts();
  sli_layout lies = own->layout;
  for (int a = 0; a < SLI_AXES; a++)
    if (along >> a & 1) lies.axis[a] = (sl_sbp){SL_BROADCAST, 0};
  if (!x->grid->folded) return sli_box(x, own->tensor, lies, at, all);
  lies.axis[SLI_AXIS_EXPERT].dim = IN_LINE;
  *all = sli_array_find(x, own->tensor, &lies, &at);
  if (*all) return SL_OK;
  *all = sli_array_add(x, own->tensor, lies, at);
  (*all)->kept = at.phase == SLI_PHASE_MAIN && is_forward(at.cls);
  sli_boxing b = {x, own, *all, along, sli_grid_size(x->grid, along), x->own};
  return box_in_line(&b);
}

/* Boxes rows to or from experts, with their origin's ids and all ids for one device. */
static sl_status box_dispatched(sli_boxing *b, sli_moment at, bool back) {
  sli_expansion *x = b->x;
  const sl_tensor *ids = sli_router_ids(sli_router_of(x, b->from->tensor));
  sli_array *own, *all;
  sl_status status = sli_box(x, ids, sli_ids_layout(x, ids), at, &own);
  if (!status) status = gather_ids(x, own, at, &all);
  if (status) return status;
  return back ? sli_box_from_experts(b, own, all) : sli_box_to_experts(b, own, all);
}

sl_status sli_box_leaves(sli_expansion *x, const sl_tensor *ids, sli_layout lies, sli_moment at,
                         sli_array **out) {
  enum { LEAVES = SL_MAX_DIMS }; /* marks an array of leaf numbers */
  sli_array *own, *all;
  lies.axis[SLI_AXIS_EXPERT].dim = LEAVES;
  *out = sli_array_find(x, ids, &lies, &at);
  if (*out) return SL_OK;
  SLI_TRY(sli_box(x, ids, sli_ids_layout(x, ids), at, &own));
  SLI_TRY(gather_ids(x, own, at, &all));
  *out = sli_array_add(x, ids, lies, at);
  sli_along along = sli_grid_experts();
  sli_boxing b = {x, own, *out, along, sli_grid_size(x->grid, along), x->own};
  return sli_box_own_leaves(&b, own, all);
}

/* True for counts, which f32 adds exactly up to 2^24. */
static bool is_count(const sl_tensor *t) {
  const sli_node *n = t->producer;
  while (n && n->op == &sl_op_reduce_sum) n = n->in[0]->producer;
  return n && n->op == &sl_op_one_hot;
}

/* Rejects sums of an exact graph along row axes in f32, except counts, and of values of the forward
 * pass. On other axes signatures add only sums of groups (groups.c). */
static sl_status want_exact(const sli_boxing *b) {
  const sl_tensor *of = b->from->tensor;
  const sli_array *subject = b->x->arrays[b->x->shaped[of->id]];
  bool gradient = subject && subject->tensor->param;
  bool forward = of->producer && sli_is_forward(of->producer);
  bool rounded = of->type.dtype == SL_F32 || (of->type.dtype == SL_F64 && forward);
  if (!sli_is_exact(b->x->g) || !rounded || is_count(of)) return SL_OK;
  if (!gradient && !(b->along & sli_grid_rows())) return SL_OK;
  return sli_graph_fail_at(b->x->g, of->at, SL_E_UNSUPPORTED,
                           "numbers.exact: devices would sum %s in %s, in the order of the grid",
                           of->name, sl_dtype_name(of->type.dtype));
}

static sl_status box_along(sli_boxing *b, sli_moment at) {
  int axis = sli_box_axis(b->along);
  sl_sbp from = b->from->layout.axis[axis], to = b->to->layout.axis[axis];
  if (from.kind == SL_DISPATCHED || to.kind == SL_DISPATCHED)
    return box_dispatched(b, at, from.kind == SL_DISPATCHED);
  b->x->nboxes++;
  if (sli_box_shares_ticks(b, from, to)) return box_ticks(b, from, to);
  const sl_op *collective = sli_box_collective(b);
  if (collective && collective != &sl_op_all_to_all) return sli_box_collect(b, collective);
  sl_status status = SL_OK;
  switch (from.kind) {
  case SL_BROADCAST:
    if (to.kind == SL_SPLIT) return box_own_slices(b, to.dim);
    for (int r = 0; r < b->ranks && !status; r++) status = box_zeros(b, r);
    return status;
  case SL_PARTIAL:
    status = want_exact(b);
    if (status) return status;
    if (to.kind == SL_SPLIT) return sum_parts(b, to.dim, b->to->on);
    return is_summed_whole(b) ? box_sum_whole(b) : box_all_reduce(b);
  case SL_SPLIT:
    if (to.kind == SL_SPLIT) return box_all_to_all(b, from.dim, to.dim, collective);
    return join_all(b, from.dim, b->from->on);
  case SL_DISPATCHED: break;
  }
  return SL_OK;
}

/* ---- all axes -------------------------------------------------------------------------- */

sli_array *sli_array_add(sli_expansion *x, const sl_tensor *of, sli_layout lies, sli_moment made) {
  sli_array *a = sli_arena_alloc(&x->g->arena, sizeof *a);
  *a = (sli_array){.tensor = of, .layout = lies, .made = made};
  a->on = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *a->on);
  sli_array **end = &x->arrays[of->id];
  while (*end) end = &(*end)->next;
  return *end = a;
}

/* True if an array boxed for other readers can serve these. */
static bool serves(const sli_array *a, const sli_moment *at) {
  const sli_moment *made = &a->made;
  return made->phase == at->phase && made->block == at->block &&
         (made->phase != SLI_PHASE_MAIN || a->kept || is_forward(made->cls) == is_forward(at->cls));
}

static bool is_part(sl_sbp a) { return a.kind == SL_SPLIT; }

/* True if the backward pass should keep a boxed tensor instead of boxing it again. That holds for
 * parts no larger than the parts they come from and for the joined tensor of a piece, which later
 * pieces read. It also holds for ids of experts, which are small compared to their rows. */
static bool is_worth_keeping(const sli_expansion *x, const sli_array *from, const sli_array *to,
                             sli_along along) {
  int axis = sli_box_axis(along), block = to->made.block;
  bool dispatched = sli_is_dispatched(&from->layout) || sli_is_dispatched(&to->layout);
  sl_sbp was = from->layout.axis[axis], is = to->layout.axis[axis];
  bool parts = dispatched || (is_part(was) && is_part(is)),
       joins = was.kind == SL_SPLIT && is.kind == SL_BROADCAST;
  bool looks = block >= 0 && x->g->blocks[block].gathers && !to->tensor->param &&
               along == 1u << SLI_AXIS_SEQUENCE;
  bool ids = axis == SLI_AXIS_EXPERT && to->tensor->type.dtype == SL_I32;
  return sli_axes[axis].rows && (parts || (joins && (looks || ids))) &&
         to->made.phase == SLI_PHASE_MAIN && is_forward(to->made.cls);
}

sli_array *sli_array_find(const sli_expansion *x, const sl_tensor *t, const sli_layout *want,
                          const sli_moment *at) {
  sli_array *first = x->arrays[t->id];
  if (sli_layout_equal(&first->layout, want)) return first;
  for (sli_array *a = first->next; a; a = a->next)
    if (sli_layout_equal(&a->layout, want) && serves(a, at)) return a;
  return NULL;
}

static bool splits(sl_sbp a, sl_sbp b) {
  return a.kind == SL_SPLIT && b.kind == SL_SPLIT && a.dim == b.dim;
}

static bool changes(const sli_layout *from, const sli_layout *want, int axis) {
  return !sli_sbp_equal(from->axis[axis], want->axis[axis]);
}

/* True if another axis, which splits the dim first that this place's axis will split, must change
 * before. */
static bool waits(const sli_expansion *x, const sl_tensor *t, const sli_layout *from,
                  const sli_layout *want, int place) {
  sl_sbp to = want->axis[sli_splitting[place]];
  for (int i = 0; i < SLI_AXES && to.kind == SL_SPLIT; i++) {
    int a = sli_splitting[i];
    bool there = splits(from->axis[a], to) || splits(want->axis[a], to);
    if (i != place && there && sli_splits_first(x, t, to.dim, i, place) && changes(from, want, a))
      return true;
  }
  return false;
}

/* True if an axis that shards no rows has summands. */
static bool has_summands(const sli_layout *lies, int place) {
  int axis = sli_splitting[place];
  return lies->axis[axis].kind == SL_PARTIAL && !sli_axes[axis].rows;
}

/* Returns the axis to convert first, by its place in sli_splitting. The axis that splits a dim
 * first changes first; next_dense() undoes later splits before. Among axes with summands the
 * outermost comes first, because its members' parts of a dim are adjacent. */
static int first_place(const sli_expansion *x, const sl_tensor *t, const sli_layout *from,
                       const sli_layout *want) {
  int place = -1;
  for (int i = 0; i < SLI_AXES; i++) {
    int a = sli_splitting[i];
    if (!changes(from, want, a)) continue;
    bool later = waits(x, t, from, want, i);
    if (from->axis[a].kind == SL_SPLIT && !later) return i;
    if (later && place >= 0 && !sli_axes[a].rows) continue; /* row axes split its dim first */
    if (place < 0 || !has_summands(from, place) || !has_summands(from, i)) place = i;
  }
  return SLI_MAX(place, 0);
}

static bool splits_later(const sli_expansion *x, const sl_tensor *t, sl_sbp sbp, sl_sbp other,
                         int place, int at) {
  return splits(other, sbp) && sli_splits_first(x, t, sbp.dim, place, at);
}

/* Returns the place of the axis that splits last among those that must be made whole before the
 * axis at this place can change, because they split its parts, present or wanted, again. */
static int last_place(const sli_expansion *x, const sl_tensor *t, const sli_layout *from,
                      const sli_layout *want, int place) {
  sl_sbp is = from->axis[sli_splitting[place]], to = want->axis[sli_splitting[place]];
  int last = place;
  for (int i = 0; i < SLI_AXES; i++) {
    sl_sbp other = from->axis[sli_splitting[i]];
    if (i == place || (last != place && sli_splits_first(x, t, other.dim, i, last))) continue;
    if (splits_later(x, t, is, other, place, i) || splits_later(x, t, to, other, place, i))
      last = i;
  }
  return last;
}

/* Returns the row axes and factors that change together with this axis: their current and wanted
 * layouts are the same. */
static sli_along together(const sli_layout *from, const sli_layout *want, sli_along row, int axis,
                          sl_sbp to) {
  sli_along along = 1u << axis;
  for (int a = 0; a < SLI_AXES; a++) {
    bool split = from->axis[a].kind == SL_SPLIT;
    if (row >> a & 1 && sli_sbp_equal(from->axis[a], from->axis[axis]) &&
        (split || sli_sbp_equal(want->axis[a], to)))
      along |= 1u << a;
  }
  return along;
}

/* Returns the layout one step closer to the wanted one. Split tensors become whole before they
 * become summands. */
static sli_layout next_dense(const sli_expansion *x, const sl_tensor *t, const sli_layout *from,
                             const sli_layout *want, sli_along *along) {
  sli_layout next = *from;
  int first = first_place(x, t, from, want), place = last_place(x, t, from, want, first);
  int axis = sli_splitting[place];
  sl_sbp is = from->axis[axis], to = want->axis[axis];
  if (place != first || (is.kind == SL_SPLIT && to.kind == SL_PARTIAL))
    to = (sl_sbp){SL_BROADCAST, 0};
  *along = together(from, want, sli_share_row(x, t, axis), axis, to);
  for (int a = 0; a < SLI_AXES; a++)
    if (*along >> a & 1) next.axis[a] = to;
  return next;
}

/* Returns the next layout. Rows go to experts last and come back first. */
static sli_layout next_step(const sli_expansion *x, const sl_tensor *t, const sli_layout *from,
                            const sli_layout *want, sli_along *along) {
  bool was = sli_is_dispatched(from), is = sli_is_dispatched(want), back = was && !is,
       there = !was && is;
  sli_layout rows = sli_rows_layout(x, was ? from : want);
  *along = sli_grid_experts();
  if (back) return rows;
  if (there && sli_layout_equal(from, &rows)) return *want;
  return next_dense(x, t, from, there ? &rows : want, along);
}

/* True if stages differ in the result. Tensors made whole between stages are made at their
 * reader. */
static bool stays_sharded(const sli_array *from, const sli_array *to, sli_along along,
                          bool reader) {
  if (along != 1u << SLI_AXIS_STAGES) return from->sharded;
  return reader || sli_is_stage_sharded(&to->layout);
}

/* Moves boxing nodes of a weight's gradient, W, into the pass of the inputs' gradient, B, which
 * also reads their result and must not wait for W. */
static void move_to_b(const sl_tensor *t) {
  sli_node *n = t ? t->producer : NULL;
  if (!n || n->rule || sli_is_forward(n) || (n->cls != SL_CLASS_W && n->cls != SL_CLASS_C)) return;
  if (n->cls == SL_CLASS_W) n->cls = SL_CLASS_B;
  for (int i = 0; i < n->nin; i++) move_to_b(n->in[i]);
}

/* Returns a tensor of another stage as the readers' stage gathers it from parts. */
static sl_status box_scattered(sli_expansion *x, const sl_tensor *t, sli_layout want, sli_moment at,
                               sli_array **out) {
  *out = sli_find_gathered(x, t, &at);
  if (*out) return SL_OK;
  sli_array *to = sli_array_add(x, t, want, at);
  to->gathered = true;
  to->kept = is_forward(at.cls);
  sli_along along = sli_axis_factors(SLI_AXIS_TENSOR);
  sli_boxing b = {x, x->arrays[t->id], to, along, sli_grid_size(x->grid, along), x->own};
  sl_tensor *parts[x->ranks];
  x->nboxes++;
  for (int r = 0; r < b.ranks; r++) SLI_TRY(share_out(&b, r, &parts[r]));
  SLI_TRY(join_all(&b, -1, parts));
  for (int r = 0; r < b.ranks; r++) to->on[r]->producer->arrives = true;
  sli_stand_for_all(x, to);
  *out = to;
  return SL_OK;
}

sl_status sli_box(sli_expansion *x, const sl_tensor *t, sli_layout want, sli_moment at,
                  sli_array **out) {
  sli_array *have = x->arrays[t->id];
  SLI_CHECK(have, "tensor %s is read before it is made", t->name);
  if (sli_is_scattered(x, t, &want, &at)) return box_scattered(x, t, want, at, out);
  for (*out = sli_array_find(x, t, &want, &at); !*out; *out = sli_array_find(x, t, &want, &at)) {
    sli_along along;
    sli_layout next = next_step(x, t, &have->layout, &want, &along);
    sli_array *to = sli_array_find(x, t, &next, &at);
    if (!to) {
      to = sli_array_add(x, t, next, at);
      to->sharded = stays_sharded(have, to, along, at.sharded);
      to->kept = is_worth_keeping(x, have, to, along);
      sli_boxing b = {
          x, have, to, along, sli_grid_size(x->grid, along), sli_own_ranks(x, to->sharded)};
      sl_status status = box_along(&b, at);
      if (status) return status;
      sli_stand_for_all(x, to);
    }
    have = to;
  }
  for (int r = 0; r < x->ranks && at.cls == SL_CLASS_B && (*out)->made.cls == SL_CLASS_W; r++)
    move_to_b((*out)->on[r]);
  return SL_OK;
}

sl_status sli_box_join(sli_expansion *x, const sli_array *from, sli_along along, int dim,
                       const sl_type *whole, sli_array *to) {
  sli_boxing b = {x, from, to, along, sli_grid_size(x->grid, along), sli_own_ranks(x, to->sharded)};
  x->nboxes++;
  sl_status status = SL_OK;
  for (int r = 0; r < b.ranks && !status; r++) {
    sl_tensor *in[b.members];
    const sl_part *parts[b.members];
    row_of(&b, r, from->on, in);
    for (int m = 0; m < b.members; m++) {
      sl_part *own = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *own);
      for (int v = 0; v < x->nvariants; v++) {
        int64_t n = sli_expand_type(x, in[m], v)->dim[dim];
        own[v] = (sl_part){dim, 1, {n * m}, {n}};
      }
      parts[m] = own;
    }
    status = join(&b, r, in, &whole[r * x->nvariants], parts, SL_CLASS_C, &to->on[r]);
  }
  return status;
}
