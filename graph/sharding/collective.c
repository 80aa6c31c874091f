/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges as collectives: which boxing steps become one call on each device (ops/collective.h)
 * instead of slices, sums and joins.
 *
 * A collective moves as many bytes between devices as parts do, but each device reads its tensor
 * once and writes the result once. Parts are also cut, copied and joined in the devices' memories,
 * by more calls. A small tensor, which every member sums itself (boxing.c), takes one round of
 * messages instead of two, and then may be cheaper in parts. */
#include "graph/sharding/box.h"
#include "ops/collective.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that a device reads and writes per byte of the tensor, and its calls. */
typedef struct touched {
  double bytes;
  int calls;
} touched;

static touched touched_by_parts(int size, bool sums, bool joins) {
  touched t = {0};
  if (sums) t.bytes += 2 + (size + 1.0) / size, t.calls += size + 1; /* a slice for each, a sum */
  if (joins) t.bytes += 2, t.calls++;
  return t;
}

static double touch_seconds(const sl_hardware *h, touched t, double bytes) {
  const double rate = 1e10; /* of the default core */
  return t.bytes * bytes / (h ? h->bytes_per_second : rate) + (h ? t.calls * h->op_seconds : 0);
}

/* From parts to other parts: in both forms slices are cut and joined. What arrives is also written
 * to the device's memory, by one call or by a copy from each device, unless devices read each
 * other's slices in place. */
static sli_forms swap_forms(const sli_grid *grid, int axis, int size, double bytes) {
  double own = 1.0 / size, wire = sli_exchange_seconds(&grid->link[axis], SLI_ALL_TO_ALL,
                                                       bytes * own * (size - 1) / size);
  touched once = {6 * own, size + 2}, parts = {4 * own, size + 1};
  if (grid->apart[axis]) parts = (touched){6 * own, 2 * size};
  return (sli_forms){wire + touch_seconds(grid->hardware, once, bytes),
                     wire + touch_seconds(grid->hardware, parts, bytes)};
}

sli_forms sli_exchange_forms(const sli_grid *grid, int axis, int size, sl_sbp_kind from,
                             sl_sbp_kind to, int times, double bytes) {
  const sli_axis_link *link = &grid->link[axis];
  bool sums = from == SL_PARTIAL, joins = to == SL_BROADCAST;
  double part = bytes * (size - 1) / size, wire = 0;
  if (from == SL_SPLIT && to == SL_SPLIT) return swap_forms(grid, axis, size, bytes);
  if (sums) wire += sli_exchange_seconds(link, SLI_REDUCE_SCATTER, part);
  if (joins) wire += sli_exchange_seconds(link, SLI_ALL_GATHER, part);
  touched once = {joins && sums ? 2 : 1 + 1.0 / size, 1};
  touched parts = touched_by_parts(size, sums, joins);
  sli_forms forms = {times * (wire + touch_seconds(grid->hardware, once, bytes)),
                     wire + times * touch_seconds(grid->hardware, parts, bytes)};
  if (!sums || !joins || bytes > SLI_SUMMED_WHOLE_BYTES) return forms;
  touched whole = {size + 1, 1};
  forms.parts = sli_exchange_seconds(link, SLI_ALL_GATHER, bytes * (size - 1)) +
                touch_seconds(grid->hardware, whole, bytes);
  return forms;
}

/* ---- which steps -------------------------------------------------------------------- */

/* Returns the product of the dims before the split one: a part is a contiguous range of each row.
 */
static int64_t rows_before(const sl_type *type, int dim) {
  int64_t rows = 1;
  for (int d = 0; d < dim; d++) rows *= type->dim[d];
  return rows;
}

enum { CALLS_MOST = 64 }; /* of the library, for one operation */

/* True if the members' parts are ranges that follow each other in the order of members, in few
 * rows. Sets whether all are equal. */
static bool has_parts(const sli_boxing *b, sl_sbp split, bool *equal) {
  bool fits = true;
  *equal = true;
  if (split.kind != SL_SPLIT) return true;
  for (int r = 0; r < b->ranks; r++) {
    int64_t end[b->x->nvariants];
    memset(end, 0, sizeof end);
    for (int m = 0; m < b->members; m++) {
      const sl_part *parts = sli_box_parts(b, r, split.dim, m);
      const sl_part *first = sli_box_parts(b, r, split.dim, 0);
      for (int v = 0; v < b->x->nvariants; v++) {
        fits &= parts[v].nranges == 1 && parts[v].count[0] > 0 && parts[v].begin[0] == end[v];
        *equal &= parts[v].count[0] == first[v].count[0];
        end[v] += parts[v].count[0];
      }
    }
    for (int v = 0; v < b->x->nvariants; v++)
      fits &= rows_before(sli_expand_type(b->x, b->from->on[r], v), split.dim) *
                  (*equal ? 1 : b->members) <=
              CALLS_MOST;
  }
  return fits;
}

/* True if collectives may replace sums and joins: not with numbers.exact, whose sums have one order
 * on any grid, and not in serving, whose bits do not depend on the batch. They fire in every step,
 * so that all devices can make them in one order. */
static bool may_collect(const sli_boxing *b) {
  const sl_graph *g = b->x->g;
  if (sli_is_exact(g) || g->options.serve || g->options.infer) return false;
  bool other_paces = g->options.eval_every || g->rollouts.count || g->spans.count;
  other_paces |= b->x->choice[SLI_AXIS_EXPERT].routers != NULL;
  return b->to->made.phase == SLI_PHASE_NORM || !other_paces;
}

static const sl_op *op_of(sl_sbp from, sl_sbp to) {
  if (from.kind == SL_PARTIAL && to.kind == SL_BROADCAST) return &sl_op_all_reduce;
  if (from.kind == SL_PARTIAL && to.kind == SL_SPLIT) return &sl_op_reduce_scatter;
  if (from.kind != SL_SPLIT) return NULL;
  return to.kind == SL_BROADCAST ? &sl_op_all_gather
         : to.kind == SL_SPLIT   ? &sl_op_all_to_all
                                 : NULL;
}

/* Returns how often devices gather a tensor: blocks and passes that read it. Between separate
 * memories copies of parts serve all, and stay there until the last; those of a parameter would
 * keep it whole, which its shards avoid. */
static int times_gathered(const sli_boxing *b, const sl_op *op) {
  const sli_expansion *x = b->x;
  const sl_tensor *t = b->from->tensor;
  if (op != &sl_op_all_gather || t->param || !x->grid->apart[sli_box_link(b)]) return 1;
  int count = 0;
  bool *seen = sli_calloc(2 * ((size_t)x->g->nblocks + 1), sizeof *seen);
  for (int i = 0; i < x->nlogical; i++) {
    const sli_node *n = x->logical[i];
    bool reads = false;
    for (int a = 0; a < n->nin; a++) reads |= n->in[a] == t;
    bool *at = &seen[2 * (n->block + 1) + sli_is_forward(n)];
    count += reads && !*at;
    *at |= reads;
  }
  free(seen);
  return SLI_MAX(count, 1);
}

const sl_op *sli_box_collective(const sli_boxing *b) {
  int axis = sli_box_axis(b->along);
  sl_sbp from = b->from->layout.axis[axis], to = b->to->layout.axis[axis];
  const sl_op *op = op_of(from, to);
  const sl_type *type = sli_expand_type(b->x, b->from->on[0], 0);
  bool moves = op == &sl_op_all_gather || op == &sl_op_all_to_all, equal;
  bool fits = op && b->x->grid->collectives && b->members > 1 && !b->to->gathered &&
              !sli_box_between_stages(b) && !sli_box_crosses(b) && may_collect(b) &&
              (moves || type->dtype != SL_I32) && type->ndim;
  if (!fits ||
      (op != &sl_op_all_to_all && !(has_parts(b, from, &equal) && has_parts(b, to, &equal))))
    return NULL;
  double whole = (double)sl_type_bytes(type) * (from.kind == SL_SPLIT ? b->members : 1);
  sli_forms forms = sli_exchange_forms(b->x->grid, sli_box_link(b), b->members, from.kind, to.kind,
                                       times_gathered(b, op), whole);
  return forms.collective <= forms.parts ? op : NULL;
}

/* Returns the members' parts of a rank: [nvariants] joints. */
static const sl_joint *joints_of(const sli_boxing *b, int rank, int dim) {
  sli_expansion *x = b->x;
  sl_joint *joints = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *joints);
  sli_layout whole = b->to->layout;
  for (int a = 0; a < SLI_AXES; a++)
    if (b->along >> a & 1) whole.axis[a] = (sl_sbp){SL_BROADCAST, 0};
  for (int v = 0; v < x->nvariants; v++) {
    sl_part *parts = sli_arena_alloc(&x->g->arena, (size_t)b->members * sizeof *parts);
    for (int m = 0; m < b->members; m++) parts[m] = sli_box_parts(b, rank, dim, m)[v];
    joints[v] = (sl_joint){sli_local_type(x, b->from->tensor, whole, rank, v), parts};
  }
  return joints;
}

sl_status sli_box_collect(sli_boxing *b, const sl_op *op) {
  sli_expansion *x = b->x;
  int axis = sli_box_axis(b->along);
  sl_sbp from = b->from->layout.axis[axis], to = b->to->layout.axis[axis];
  int dim = SLI_MAX(from.dim, to.dim);
  bool equal;
  has_parts(b, from.kind == SL_SPLIT ? from : to, &equal);
  for (int r = 0; r < b->ranks; r++) {
    sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
    const sl_joint *joints = equal ? NULL : joints_of(b, r, dim);
    for (int v = 0; v < x->nvariants; v++)
      attrs[v] = (sl_attrs){.members.count = b->members,
                            .members.axes = 1u << dim,
                            .members.own = sli_rank_share(x->grid, r, b->along),
                            .user = joints ? &joints[v] : NULL};
    const sli_box_making m = {
        op, op->name, SL_CLASS_C, op == &sl_op_reduce_scatter, r, 1, &b->from->on[r], attrs, NULL};
    sli_node *n;
    SLI_TRY(sli_box_node(b, &m, &n, &b->to->on[r]));
    n->along = b->along;
  }
  return SL_OK;
}

sl_status sli_box_swap(sli_boxing *b, sl_tensor *const *slices, sl_tensor **arrived) {
  sli_expansion *x = b->x;
  const sli_grid *grid = x->grid;
  for (int r = 0; r < b->ranks; r++) {
    sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
    int own = sli_rank_share(grid, r, b->along);
    size_t n = (size_t)(x->nvariants * b->members);
    sl_type *types = sli_arena_alloc(&x->g->arena, n * sizeof *types);
    sl_tensor *in[b->members], *out[b->members];
    for (int m = 0; m < b->members; m++) {
      int from = grid->alike ? r : sli_rank_at(grid, r, b->along, m);
      in[m] = slices[m * x->ranks + r];
      for (int v = 0; v < x->nvariants; v++)
        types[v * b->members + m] = *sli_expand_type(x, slices[own * x->ranks + from], v);
    }
    for (int v = 0; v < x->nvariants; v++)
      attrs[v] = (sl_attrs){.members.count = b->members,
                            .members.axes = 1,
                            .members.own = own,
                            .user = &types[v * b->members]};
    const sli_box_making m = {&sl_op_all_to_all, "all_to_all", SL_CLASS_C, true, r,
                              b->members,        in,           attrs,      NULL};
    sli_node *node;
    SLI_TRY(sli_box_node(b, &m, &node, out));
    node->along = b->along;
    for (int i = 0; i < b->members; i++) arrived[i * x->ranks + r] = out[i];
  }
  return SL_OK;
}
