/* SPDX-License-Identifier: Apache-2.0 */
/* Modelled durations of a served graph's tasks by the number of rows of a tick.
 *
 * A tick rarely has all the rows that its plan has room for. A call on fewer rows takes less time,
 * but not in proportion: it reads the same weights. Each task is therefore priced at a ladder of
 * row counts, call by call, with the function that prices training; a session interpolates between
 * them. Calls after `pick` depend on the picked rows instead, and have a ladder of their own.
 * Attention to pages depends on the positions of each sequence: a session adds it (serve/price.c).
 */
#include <string.h>

#include "graph/cost/cost.h"
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

static const sl_hardware *hardware_of(const sli_lowering *l) {
  const sl_hardware *h = l->in->options->simulation.hardware;
  return h ? h : &sli_default_core;
}

/* Rows and picked rows of a tick. */
typedef struct amount {
  int64_t rows, picks;
} amount;

static bool is_picked(const sl_tensor *set) { return set->producer->op == &sl_op_picks; }

/* Returns the valid rows of a set. Sets of other ops, such as rows sent to experts, grow in
 * proportion to the tick's rows. */
static int64_t rows_in(const sli_lowering *l, const sl_tensor *set, const amount *a) {
  const sl_op *op = set->producer->op;
  if (is_picked(set)) return SLI_MIN(a->picks, set->rows);
  if (op == &sl_op_begin) return SLI_MIN(a->rows, set->rows);
  int64_t most = l->in->g->options.serve->rows, full = sli_lower_expected(set, 0);
  return SLI_MAX((full * a->rows + most - 1) / most, a->rows > 0);
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* Returns the type at the tick's rows, with activations in the width that the hardware keeps. */
static sl_type type_at(const sli_lowering *l, const sli_node *n, sl_tensor *t, const sl_type *type,
                       const amount *a) {
  const sl_hardware *h = hardware_of(l);
  const sl_tensor *set = t ? sli_valid_length(t) : sli_lower_set_of(n);
  sl_type cut = *type;
  if (set) sli_lower_cut(&cut, set->rows, rows_in(l, set, a));
  if (h->half_activations && cut.dtype == SL_F32 && !(t && t->param)) cut.dtype = SL_BF16;
  return cut;
}

/* Returns the columns of earlier products of the task that read the same rows. */
static int64_t columns_before(const sli_task *task, int index) {
  const sli_node *n = task->nodes[index];
  int64_t sum = 0;
  for (int i = 0; i < index; i++)
    if (task->nodes[i]->op == n->op && task->nodes[i]->in[0] == n->in[0])
      sum += sl_type_last(&task->nodes[i]->out_type[0]);
  return sum;
}

/* Returns the seconds of a product with `columns` more columns than the node's. */
static double widened_seconds(const sl_hardware *h, const sli_node *n, const sl_type *in,
                              const sl_type *out, int64_t columns) {
  sl_type x[n->nin], y = out[0];
  memcpy(x, in, sizeof x);
  x[1].dim[n->attrs.product.transposed ? 1 : 0] += columns;
  y.dim[y.ndim - 1] += columns;
  return sli_call_seconds(h, n, x, &y);
}

/* Returns the seconds of a node. Where the hardware's engine joins products of the same rows, a
 * product takes the time that it adds to those before it. */
static double seconds_at(const sli_lowering *l, const sli_task *task, int index, const amount *a) {
  const sl_hardware *h = hardware_of(l);
  const sli_node *n = task->nodes[index];
  sl_type in[n->nin + 1], out[n->nout + 1];
  for (int i = 0; i < n->nin; i++) in[i] = type_at(l, n, n->in[i], &n->in_type[i], a);
  for (int o = 0; o < n->nout; o++) out[o] = type_at(l, n, n->out[o], &n->out_type[o], a);
  bool joins = h->joins_products && n->op == &sl_op_linear_served;
  int64_t before = joins ? columns_before(task, index) : 0;
  if (!before) return sli_call_seconds(h, n, in, out);
  int64_t own = sl_type_last(&out[0]);
  double all = widened_seconds(h, n, in, out, before),
         earlier = widened_seconds(h, n, in, out, before - own);
  return SLI_MAX(all - earlier, 0);
}

/* ---- tasks --------------------------------------------------------------------------------- */

static bool is_picks(const sli_node *n) {
  const sl_tensor *set = sli_lower_set_of(n);
  return set && is_picked(set);
}

/* Attention to pages is priced by the positions of each sequence. */
static bool reads_pages(const sli_node *n) {
  bool loads = sli_op_is(n->op, SL_OP_LOADS); /* which keeps what it has read */
  return sli_op_memory(n->op)->updates && !loads && !sli_op_serve(n->op)->slots;
}

static double task_seconds(const sli_lowering *l, const sli_task *task, const amount *a,
                           bool picks) {
  double seconds = 0;
  for (int i = 0; i < task->nnodes; i++) {
    const sli_node *n = task->nodes[i];
    if (is_picks(n) == picks && !reads_pages(n) && !sli_lower_is_measured(l, n))
      seconds += seconds_at(l, task, i, a);
  }
  if (picks) return seconds;
  int64_t most = l->in->g->options.serve->rows;
  double share = (double)a->rows / (double)most;
  if (hardware_of(l)->half_activations) share /= 2;
  return seconds + (task->cls == SL_CLASS_C ? sli_lower_exchange_seconds(l, task, share) : 0);
}

/* ---- ladders ------------------------------------------------------------------------------- */

enum { MOST_RUNGS = 4 * 64 }; /* four for each power of two */

/* Writes 1, 2, 3, 4, 5, 6, 7, 8, 10, ... and `most`; returns how many. */
static int32_t make_rungs(int64_t most, double rungs[MOST_RUNGS]) {
  int32_t n = 0;
  for (int64_t power = 1; power < most; power *= 2)
    for (int64_t quarter = 0; quarter < 4; quarter++) {
      int64_t rung = power + power * quarter / 4;
      if (rung < most && (!n || (double)rung > rungs[n - 1])) rungs[n++] = (double)rung;
    }
  rungs[n++] = (double)most;
  return n;
}

static sl_rows_seconds make_ladder(const sli_lowering *l, const sli_task *task, bool picks) {
  const sl_serving *s = l->in->g->options.serve;
  double rungs[MOST_RUNGS];
  int32_t n = make_rungs(picks ? s->picks : s->rows, rungs);
  double *rows = sl_plan_alloc(l->plan, (size_t)n * sizeof *rows);
  double *seconds = sl_plan_alloc(l->plan, (size_t)n * sizeof *seconds);
  for (int32_t i = 0; i < n; i++) {
    const amount a = {(int64_t)rungs[i], SLI_MIN((int64_t)rungs[i], s->picks)};
    rows[i] = rungs[i];
    seconds[i] = task_seconds(l, task, &a, picks);
  }
  return (sl_rows_seconds){n, rows, seconds};
}

/* True if the task has calls on picked rows. */
static bool has_picks(const sli_task *task) {
  bool any = false;
  for (int i = 0; i < task->nnodes; i++) any |= is_picks(task->nodes[i]);
  return any;
}

void sli_lower_rows_seconds(const sli_lowering *l, const sli_task *task, sl_rows_seconds *by_rows,
                            sl_rows_seconds *by_picks) {
  const sl_lower_options *o = l->in->options;
  bool priced = l->in->g->options.serve && l->in->kind->modelled &&
                !sli_cost_is_given(&o->simulation.cost) &&
                (task->rate == SLI_PER_TICK || task->rate == SLI_PER_TURN);
  if (!priced || task->host || task->transfer) return;
  *by_rows = make_ladder(l, task, false);
  if (has_picks(task)) *by_picks = make_ladder(l, task, true);
}
