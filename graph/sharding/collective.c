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

sli_forms sli_exchange_forms(const sli_grid *grid, int axis, int size, sl_sbp_kind from,
                             sl_sbp_kind to, double bytes) {
  const sli_axis_link *link = &grid->link[axis];
  bool sums = from == SL_PARTIAL, joins = to == SL_BROADCAST;
  double part = bytes * (size - 1) / size, wire = 0;
  if (sums) wire += sli_exchange_seconds(link, SLI_REDUCE_SCATTER, part);
  if (joins) wire += sli_exchange_seconds(link, SLI_ALL_GATHER, part);
  touched once = {from == to ? 2 : joins && sums ? 2 : 1 + 1.0 / size, 1};
  touched parts = touched_by_parts(size, sums, joins);
  sli_forms forms = {wire + touch_seconds(grid->hardware, once, bytes),
                     wire + touch_seconds(grid->hardware, parts, bytes)};
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

/* True if every member's part is an equal range of a few rows, in the order of members. */
static bool has_equal_parts(const sli_boxing *b, sl_sbp split) {
  enum { ROWS_MOST = 64 }; /* each is a call of the library */
  if (split.kind != SL_SPLIT) return true;
  bool equal = true;
  for (int r = 0; r < b->ranks && equal; r++)
    for (int m = 0; m < b->members && equal; m++) {
      const sl_part *parts = sli_box_parts(b, r, split.dim, m);
      const sl_part *first = sli_box_parts(b, r, split.dim, 0);
      for (int v = 0; v < b->x->nvariants; v++)
        equal &= parts[v].nranges == 1 && parts[v].count[0] == first[v].count[0] &&
                 parts[v].begin[0] == m * parts[v].count[0] &&
                 rows_before(sli_expand_type(b->x, b->from->on[r], v), split.dim) <= ROWS_MOST;
    }
  return equal;
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
  return from.kind == SL_SPLIT && to.kind == SL_BROADCAST ? &sl_op_all_gather : NULL;
}

const sl_op *sli_box_collective(const sli_boxing *b) {
  int axis = sli_box_axis(b->along);
  sl_sbp from = b->from->layout.axis[axis], to = b->to->layout.axis[axis];
  const sl_op *op = op_of(from, to);
  const sl_type *type = sli_expand_type(b->x, b->from->on[0], 0);
  bool fits = op && b->x->grid->collectives && b->members > 1 && !b->to->gathered &&
              !sli_box_between_stages(b) && !sli_box_crosses(b) && may_collect(b) &&
              (op == &sl_op_all_gather || type->dtype != SL_I32) && type->ndim;
  if (!fits || !has_equal_parts(b, from) || !has_equal_parts(b, to)) return NULL;
  double whole = (double)sl_type_bytes(type) * (from.kind == SL_SPLIT ? b->members : 1);
  sli_forms forms =
      sli_exchange_forms(b->x->grid, sli_box_link(b), b->members, from.kind, to.kind, whole);
  return forms.collective <= forms.parts ? op : NULL;
}

sl_status sli_box_collect(sli_boxing *b, const sl_op *op) {
  sli_expansion *x = b->x;
  sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
  int axis = sli_box_axis(b->along);
  int dim = SLI_MAX(b->from->layout.axis[axis].dim, b->to->layout.axis[axis].dim);
  for (int v = 0; v < x->nvariants; v++) {
    attrs[v].count = b->members;
    attrs[v].axes = 1u << dim;
  }
  for (int r = 0; r < b->ranks; r++) {
    const sli_box_making m = {
        op, op->name, SL_CLASS_C, op == &sl_op_reduce_scatter, r, 1, &b->from->on[r], attrs, NULL};
    sli_node *n;
    SLI_TRY(sli_box_node(b, &m, &n, &b->to->on[r]));
    n->along = b->along;
  }
  return SL_OK;
}
