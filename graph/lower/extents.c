/* SPDX-License-Identifier: Apache-2.0 */
/* Valid lengths (extents) in programs. The rows of a set of tensors have one number in each
 * program that uses them. Its value arrives with a slot that holds one of them, or is set by a
 * call that fills one. */
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

static int number_of(sli_lowering *l, sl_tensor *extent, sl_program *program, int32_t *rows) {
  if (!extent) return SL_NONE;
  int *number = &l->numbers[extent->id];
  if (*number == SL_NONE) {
    *number = program->nextents++;
    rows[*number] = (int32_t)extent->rows;
  }
  return *number;
}

static void number_node(sli_lowering *l, const sli_node *n, sl_program *program, int32_t *rows) {
  for (int i = 0; i < n->nin; i++) number_of(l, sli_tensor_extent(n->in[i]), program, rows);
  for (int o = 0; o < n->nout; o++) number_of(l, sli_tensor_extent(n->out[o]), program, rows);
}

static size_t most_extents(const sli_task *g) {
  size_t most = (size_t)(g->ninputs + g->noutputs);
  for (int i = 0; i < g->nnodes; i++) most += (size_t)(g->nodes[i]->nin + g->nodes[i]->nout);
  return most;
}

static sl_tensor *port_extent(const sli_lowering *l, const sli_task *g, int port) {
  return l->buffers[port < g->ninputs ? g->inputs[port] : g->outputs[port - g->ninputs]].extent;
}

static bool forget(sli_lowering *l, const sl_tensor *extent) {
  if (extent) l->numbers[extent->id] = SL_NONE;
  return extent;
}

/* Clears the numbers of an earlier program; returns true if the task has valid lengths. */
static bool begin_numbers(sli_lowering *l, const sli_task *g, int nports) {
  bool any = false;
  for (int p = 0; p < nports; p++) any |= forget(l, port_extent(l, g, p));
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++) any |= forget(l, sli_tensor_extent(n->in[a]));
    for (int o = 0; o < n->nout; o++) any |= forget(l, sli_tensor_extent(n->out[o]));
  }
  return any;
}

void sli_lower_extents(sli_lowering *l, const sli_task *g, sl_program *program) {
  int nports = g->ninputs + g->noutputs;
  if (!begin_numbers(l, g, nports)) return;
  int32_t *rows = sl_plan_alloc(l->plan, most_extents(g) * sizeof *rows);
  int16_t *base = sl_plan_alloc(l->plan, (size_t)(nports + 1) * sizeof *base);
  for (int p = 0; p < nports; p++) base[p] = (int16_t)number_of(l, port_extent(l, g, p), program, rows);
  base[nports] = SL_NONE;
  for (int i = 0; i < g->nnodes; i++) number_node(l, g->nodes[i], program, rows);
  program->nread = g->ninputs;
  program->extent_rows = rows;
  program->base_extent = base;
}

const int16_t *sli_lower_extents_of(const sli_lowering *l, int count, sl_tensor *const *tensors) {
  bool any = false;
  for (int i = 0; i < count; i++) any |= sli_tensor_extent(tensors[i]) != NULL;
  if (!any) return NULL;
  int16_t *which = sl_plan_alloc(l->plan, (size_t)count * sizeof *which);
  for (int i = 0; i < count; i++) {
    const sl_tensor *extent = sli_tensor_extent(tensors[i]);
    which[i] = (int16_t)(extent ? l->numbers[extent->id] : SL_NONE);
  }
  return which;
}

/* ---- expected rows ------------------------------------------------------------------------ */

/* Asks the op that fills the first tensor of the set. */
int64_t sli_lower_expected(const sl_tensor *extent, int32_t tick) {
  if (!extent->producer->op->expects) return extent->rows;
  const sli_node *n = extent->producer;
  int64_t rows = n->op->expects(&n->attrs, extent->output, &n->out_type[extent->output], tick);
  return SLI_MAX(SLI_MIN(rows, extent->rows), 0);
}

const int32_t *sli_lower_expected_table(const sli_lowering *l, const sl_tensor *extent,
                                        const sli_visits *visits) {
  if (!extent || !l->in->kind->modelled || !extent->producer->op->expects) return NULL;
  int32_t ticks = visits ? visits->count : sli_lower_ticks(l, false);
  int32_t *table = sl_plan_alloc(l->plan, (size_t)ticks * sizeof *table);
  for (int32_t t = 0; t < ticks; t++)
    table[t] = (int32_t)sli_lower_expected(extent, visits ? visits->tick[t] : t);
  return table;
}
