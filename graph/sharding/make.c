/* SPDX-License-Identifier: Apache-2.0 */
/* Creates nodes and tensors of one device, and computes its parts of logical tensors; used by
 * expansion and boxing. */
#include "graph/build/build.h"
#include "graph/sharding/expand.h"

#include <math.h>
#include <string.h>

/* ---- types ---------------------------------------------------------------------- */

sl_type sli_logical_type(const sl_tensor *t, int variant) {
  const sli_node *n = t->producer;
  return n && n->shapes ? n->shapes[variant].out[t->output] : t->type;
}

const sl_type *sli_expand_type(const sli_expansion *x, const sl_tensor *t, int variant) {
  return &x->types[t->id * x->nvariants + variant];
}

bool sli_is_of_experts(const sli_expansion *x, const sl_tensor *t) {
  const sli_array *subject = x->arrays[x->shaped[t->id]];
  const sl_tensor *of = t->param || !subject ? t : subject->tensor;
  return of->param && x->choice[SLI_AXIS_EXPERT].routers &&
         x->choice[SLI_AXIS_EXPERT].params[of->param_index].kind == SL_SPLIT;
}

/* For expert weights, all axes along which experts are not sharded form one row axis. */
sli_along sli_share_row(const sli_expansion *x, const sl_tensor *t, int axis) {
  sli_along experts = sli_grid_experts(), stages = 1u << SLI_AXIS_STAGES;
  if (!x->grid->folded || !sli_is_of_experts(x, t))
    return sli_axes[axis].rows ? sli_grid_rows() : sli_axis_factors(axis);
  if (experts >> axis & 1) return experts;
  return axis == SLI_AXIS_STAGES ? stages : SLI_ALONG_ALL & ~(experts | stages);
}

static sli_cutting *cut_with(sli_cutting *all, int count, sli_along row, int dim) {
  for (int i = 0; i < count; i++)
    if (all[i].dim == dim && !(all[i].along & ~row)) return &all[i];
  return NULL;
}

/* True for a dim of rows or positions of an activation, and not of heads. */
static bool has_rows(const sli_expansion *x, const sl_tensor *t, int dim) {
  const sli_array *subject = x->arrays[x->shaped[t->id]];
  return dim <= 1 && !t->param && !(subject && subject->tensor->param) &&
         !x->dims[x->shaped[t->id] * SL_MAX_DIMS + dim].heads;
}

/* True for a row axis and a dim that it splits before other axes do. */
static bool comes_first(const sli_expansion *x, const sl_tensor *t, int dim, int place) {
  return sli_axes[sli_splitting[place]].rows && has_rows(x, t, dim);
}

bool sli_splits_first(const sli_expansion *x, const sl_tensor *t, int dim, int a, int b) {
  bool first = comes_first(x, t, dim, a);
  return first == comes_first(x, t, dim, b) ? a > b : first;
}

int sli_layout_cuttings(const sli_expansion *x, const sl_tensor *t, const sli_layout *lies,
                        sli_cutting out[SLI_AXES]) {
  int count = 0;
  for (int k = 2 * SLI_AXES - 1; k >= 0; k--) { /* first the axes that come first */
    int place = k % SLI_AXES, a = sli_splitting[place];
    sl_sbp sbp = lies->axis[a];
    if (sbp.kind != SL_SPLIT || comes_first(x, t, sbp.dim, place) != (k >= SLI_AXES)) continue;
    sli_cutting *with = cut_with(out, count, sli_share_row(x, t, a), sbp.dim);
    if (with) with->along |= 1u << a;
    else out[count++] = (sli_cutting){1u << a, sbp.dim};
  }
  return count;
}

/* True if the split keeps units together. Row axes split parameters by single rows; activations may
 * have groups of rows that stay together, such as those of a head. */
static bool is_by_units(const sli_expansion *x, const sl_tensor *t, const sli_cutting *cut) {
  const sli_array *subject = x->arrays[x->shaped[t->id]];
  const sli_dim *dim = &x->dims[x->shaped[t->id] * SL_MAX_DIMS + cut->dim];
  if (!(cut->along & ~sli_axis_factors(SLI_AXIS_TENSOR)) &&
      !(x->grid->folded && sli_is_of_experts(x, t)))
    return true;
  if (t->param && x->g->options.serve) return dim->nsegments;
  return !t->param && !(subject && subject->tensor->param) && dim->nsegments && !dim->cut;
}

/* Returns what inner axes leave of a dim, now `length` long. */
static sli_dim dim_left(const sli_dim *whole, int64_t length) {
  sli_dim left = *whole;
  int64_t sum = 0;
  for (int s = 0; s < whole->nsegments; s++) sum += whole->segment[s];
  left.units = whole->units * length / sum;
  for (int s = 0; s < whole->nsegments; s++) left.segment[s] = whole->segment[s] * length / sum;
  return left;
}

/* Returns the first position of run i of n. Longer runs always come last, so that a device never
 * has fewer positions in a longer piece: its memory is sized for the longest piece. */
static int64_t run_begin(int64_t length, int64_t n, int64_t i) {
  return length / n * i + SLI_MAX(i - (n - length % n), 0);
}

/* Returns runs r and 2P-1-r of 2P, for member r of P. */
static sl_part zigzag_part(int dim, int64_t length, int size, int member) {
  int64_t n = 2 * size, runs[] = {member, n - 1 - member};
  sl_part part = {.axis = dim, .nranges = 2};
  for (int i = 0; i < 2; i++) {
    part.begin[i] = run_begin(length, n, runs[i]);
    part.count[i] = run_begin(length, n, runs[i] + 1) - part.begin[i];
  }
  return part;
}

static sl_part contiguous_part(int dim, int64_t length, int size, int member) {
  sl_part part = {.axis = dim, .nranges = 1, .begin = {run_begin(length, size, member)}};
  part.count[0] = run_begin(length, size, member + 1) - part.begin[0];
  return part;
}

/* True for positions of activations split only by the sequence axis; false for heads. */
static bool are_positions(const sli_expansion *x, const sl_tensor *t, const sli_cutting *cut) {
  const sli_array *subject = x->arrays[x->shaped[t->id]];
  bool heads = x->dims[x->shaped[t->id] * SL_MAX_DIMS + cut->dim].heads;
  return cut->along == 1u << SLI_AXIS_SEQUENCE && !heads && !t->param &&
         !(subject && subject->tensor->param);
}

sl_part sli_cut_part(const sli_expansion *x, const sl_tensor *t, sli_cutting cut, int member,
                     const sl_type *base) {
  int64_t length = base->dim[cut.dim];
  int devices = sli_grid_size(x->grid, cut.along);
  bool positions = are_positions(x, t, &cut);
  if (positions && x->grid->zigzag) return zigzag_part(cut.dim, length, devices, member);
  sli_dim dims[SL_MAX_DIMS] = {0}, *d = &dims[cut.dim];
  *d = is_by_units(x, t, &cut)
           ? dim_left(&x->dims[x->shaped[t->id] * SL_MAX_DIMS + cut.dim], length)
           : (sli_dim){.nsegments = 1, .segment = {length}, .units = length};
  if (positions && d->nsegments == 1 && d->units == length)
    return contiguous_part(cut.dim, length, devices, member);
  return sli_dim_part(dims, cut.dim, devices, member);
}

const sli_node *sli_router_of(const sli_expansion *x, const sl_tensor *t) {
  return x->routers[t->id];
}

bool sli_is_dispatched(const sli_layout *lies) {
  return lies->axis[SLI_AXIS_EXPERT].kind == SL_DISPATCHED;
}

/* Returns the layout of tokens along an axis. */
static sl_sbp tokens_along(const sli_expansion *x, int axis) {
  if (x->grid->size[axis] < 2 || (!sli_axes[axis].rows && !x->grid->folded))
    return (sl_sbp){SL_BROADCAST, 0};
  return (sl_sbp){SL_SPLIT, sli_axes[axis].rows ? 0 : x->grid->tokens};
}

sli_layout sli_rows_layout(const sli_expansion *x, const sli_layout *lies) {
  sli_layout rows = *lies;
  for (int a = 0; a < SLI_AXES && sli_is_dispatched(lies); a++)
    if (sli_grid_experts() >> a & 1) rows.axis[a] = tokens_along(x, a);
  return rows;
}

sli_layout sli_ids_layout(const sli_expansion *x, const sl_tensor *ids) {
  sli_layout lies = x->arrays[ids->id]->layout;
  for (int a = 0; a < SLI_AXES; a++)
    if (!sli_axes[a].rows)
      lies.axis[a] = a == SLI_AXIS_STAGES ? (sl_sbp){SL_BROADCAST, 0} : tokens_along(x, a);
  return lies;
}

/* Returns the number of rows for which a device's experts have room: one per id, or a multiple of
 * an even share of the ids. */
static int64_t room_for_rows(const sli_expansion *x, const sl_tensor *t, int rank, int variant) {
  const sl_tensor *ids = sli_router_ids(sli_router_of(x, t));
  sli_layout lies = sli_ids_layout(x, ids);
  for (int a = 0; a < SLI_AXES; a++)
    if (sli_grid_experts() >> a & 1) lies.axis[a] = (sl_sbp){SL_BROADCAST, 0};
  sl_type all = sli_local_type(x, ids, lies, rank, variant);
  int64_t rows = sl_type_elements(&all);
  if (!x->grid->expert_rows) return rows;
  double room =
      ceil(x->grid->expert_rows * (double)rows / sli_choice_size(x->grid, SLI_AXIS_EXPERT));
  return room < (double)rows ? (int64_t)room : rows;
}

/* Returns the type at the experts: one row per id routed there. */
static sl_type dispatched_type(const sli_expansion *x, const sl_tensor *t, int last, int rank,
                               int variant, const sl_type *rows) {
  sl_type type = *rows;
  for (int d = 0; d <= last && d < type.ndim; d++) type.dim[d] = 1; /* leaf numbers: all dims */
  type.dim[1] = room_for_rows(x, t, rank, variant);
  return type;
}

sl_type sli_local_type(const sli_expansion *x, const sl_tensor *t, sli_layout lies, int rank,
                       int variant) {
  sl_type type = sli_logical_type(t, variant);
  sli_cutting cut[SLI_AXES];
  int count = sli_layout_cuttings(x, t, &lies, cut);
  for (int i = 0; i < count; i++) {
    int member = sli_rank_share(x->grid, rank, cut[i].along);
    sl_part part = sli_cut_part(x, t, cut[i], member, &type);
    type = sl_part_type(&type, &part);
  }
  sl_sbp experts = lies.axis[SLI_AXIS_EXPERT];
  return experts.kind == SL_DISPATCHED ? dispatched_type(x, t, experts.dim, rank, variant, &type)
                                       : type;
}

const char *sli_layout_format(const sli_expansion *x, const sli_layout *lies) {
  const char *text = "";
  for (int a = 0; a < SLI_AXES; a++) {
    char sbp[SLI_SBP_TEXT];
    if (x->grid->size[a] < 2) continue;
    text = sli_arena_format(&x->g->arena, "%s%s%s %s", text, *text ? ", " : "", sli_axes[a].name,
                            sli_sbp_format(sbp, lies->axis[a]));
  }
  return text;
}

/* ---- nodes ---------------------------------------------------------------------- */

const char *sli_expand_name(sli_expansion *x, const char *name, int rank) {
  return rank ? sli_arena_format(&x->g->arena, "%s#%d", name, rank) : name;
}

static void input_types(const sli_expansion *x, const sli_making *m, int variant, sl_type *in) {
  for (int i = 0; i < SLI_MAX(m->nin, m->op->max_in); i++) {
    bool there = i < m->nin && m->in[i], typed = i < m->nin && m->unread;
    in[i] = there   ? *sli_expand_type(x, m->in[i], variant)
            : typed ? m->unread[variant * m->nin + i]
                    : *sl_tensor_type(NULL);
  }
}

static sl_status add_shapes(sli_expansion *x, const sli_making *m, sli_node *n) {
  sli_arena *arena = &x->g->arena;
  size_t nin = (size_t)SLI_MAX(m->nin, m->op->max_in);
  n->shapes = sli_arena_alloc(arena, (size_t)x->nvariants * sizeof *n->shapes);
  sl_status status = SL_OK;
  for (int v = 0; v < x->nvariants && !status; v++) {
    sli_shapes *s = &n->shapes[v];
    *s = (sli_shapes){m->attrs[v], sli_arena_alloc(arena, nin * sizeof *s->in),
                      sli_arena_alloc(arena, (size_t)m->nout * sizeof *s->out), 0};
    input_types(x, m, v, s->in);
    if (m->out) memcpy(s->out, m->out + v * m->nout, (size_t)m->nout * sizeof *s->out);
    else status = m->op->infer(&s->attrs, m->nin, s->in, s->out);
  }
  n->in_type = n->shapes[0].in;
  n->out_type = n->shapes[0].out;
  return status;
}

sl_status sli_expand_node(sli_expansion *x, const sli_making *m, sli_node **out) {
  sl_graph *g = x->g;
  int block = sli_block_of(x, m->at.block, m->at.sharded, m->rank);
  sli_node *n = sli_graph_node(g, m->op, sli_expand_name(x, m->name, m->rank), &m->attrs[0], m->cls,
                               block, m->nin, m->in, m->nout);
  n->rank = m->rank;
  n->at = m->where;
  n->phase = m->at.phase;
  n->per_step = m->at.phase != SLI_PHASE_MAIN;
  n->pace = m->at.phase == SLI_PHASE_ROLLOUT ? SLI_PACE_ROLLOUT : SLI_PACE_TRAINING;
  sl_status status = SL_OK;
  if (m->unread) sli_node_own_types(g, n), input_types(x, m, 0, n->in_type);
  if (g->cut.nvariants && !n->per_step) status = add_shapes(x, m, n);
  else if (m->out) memcpy(n->out_type, m->out, (size_t)m->nout * sizeof *n->out_type);
  else status = sli_node_infer(n);
  if (status)
    return sli_graph_fail_at(g, m->where, status, "op %s, split over %d devices: on device %d, %s",
                             m->name, x->ranks, m->rank, sl_detail());
  *out = n;
  return SL_OK;
}

void sli_note_types(sli_expansion *x, const sl_tensor *t, const sl_type *types, int stride) {
  while ((size_t)(t->id + 1) * (size_t)x->nvariants > x->type_capacity)
    SLI_GROW(x->types, x->type_capacity, x->type_capacity);
  for (int v = 0; v < x->nvariants; v++) x->types[t->id * x->nvariants + v] = types[v * stride];
}

sl_tensor *sli_expand_output(sli_expansion *x, sli_node *n, int o, const char *name) {
  sl_tensor *t = sli_node_output(x->g, n, o, name);
  sl_type types[x->nvariants];
  for (int v = 0; v < x->nvariants; v++)
    types[v] = n->shapes ? n->shapes[v].out[o] : n->out_type[o];
  t->rank = n->rank;
  sli_note_types(x, t, types, 1);
  return t;
}
