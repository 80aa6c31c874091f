/* SPDX-License-Identifier: Apache-2.0 */
/* Valid lengths in programs. A set of tensors with the same valid length has one index in each
 * program that uses it. The value arrives with a slot that holds one of the tensors, or a call that
 * fills one sets it. */
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

static int number_of(sli_lowering *l, sl_tensor *valid_length, sl_program *program, int32_t *rows) {
  if (!valid_length) return SL_NONE;
  int *number = &l->numbers[valid_length->id];
  if (*number == SL_NONE) {
    *number = program->nlengths++;
    rows[*number] = (int32_t)valid_length->rows;
  }
  return *number;
}

static void number_node(sli_lowering *l, const sli_node *n, sl_program *program, int32_t *rows) {
  for (int i = 0; i < n->nin; i++) number_of(l, sli_valid_length(n->in[i]), program, rows);
  for (int o = 0; o < n->nout; o++) number_of(l, sli_valid_length(n->out[o]), program, rows);
}

static size_t most_lengths(const sli_task *task) {
  size_t most = (size_t)(task->ninputs + task->noutputs);
  for (int i = 0; i < task->nnodes; i++)
    most += (size_t)(task->nodes[i]->nin + task->nodes[i]->nout);
  return most;
}

static sl_tensor *port_length(const sli_lowering *l, const sli_task *task, int port) {
  bool in = port < task->ninputs;
  const sli_buffer *b = &l->buffers[in ? task->inputs[port] : task->outputs[port - task->ninputs]];
  const sl_tensor *delayed = l->buffers[b->origin].delayed;
  return in && delayed && !task->transfer ? sli_valid_length(l->in->g->tensors[delayed->id])
                                          : b->valid_length;
}

static bool forget(sli_lowering *l, const sl_tensor *valid_length) {
  if (valid_length) l->numbers[valid_length->id] = SL_NONE;
  return valid_length;
}

/* Clears the numbers of an earlier program; returns true if the task has valid lengths. */
static bool begin_numbers(sli_lowering *l, const sli_task *task, int nports) {
  bool any = false;
  for (int p = 0; p < nports; p++) any |= forget(l, port_length(l, task, p));
  for (int i = 0; i < task->nnodes; i++) {
    const sli_node *n = task->nodes[i];
    for (int a = 0; a < n->nin; a++) any |= forget(l, sli_valid_length(n->in[a]));
    for (int o = 0; o < n->nout; o++) any |= forget(l, sli_valid_length(n->out[o]));
  }
  return any;
}

void sli_lower_lengths(sli_lowering *l, const sli_task *task, sl_program *program) {
  int nports = task->ninputs + task->noutputs;
  if (!begin_numbers(l, task, nports)) return;
  int32_t *rows = sl_plan_alloc(l->plan, most_lengths(task) * sizeof *rows);
  int16_t *base = sl_plan_alloc(l->plan, (size_t)(nports + 1) * sizeof *base);
  for (int p = 0; p < nports; p++)
    base[p] = (int16_t)number_of(l, port_length(l, task, p), program, rows);
  base[nports] = SL_NONE;
  for (int i = 0; i < task->nnodes; i++) number_node(l, task->nodes[i], program, rows);
  program->nread = task->ninputs;
  program->length_rows = rows;
  program->base_length = base;
}

const int16_t *sli_lower_lengths_of(const sli_lowering *l, int count, sl_tensor *const *tensors) {
  bool any = false;
  for (int i = 0; i < count; i++) any |= sli_valid_length(tensors[i]) != NULL;
  if (!any) return NULL;
  int16_t *which = sl_plan_alloc(l->plan, (size_t)count * sizeof *which);
  for (int i = 0; i < count; i++) {
    const sl_tensor *valid_length = sli_valid_length(tensors[i]);
    which[i] = (int16_t)(valid_length ? l->numbers[valid_length->id] : SL_NONE);
  }
  return which;
}

/* ---- expected rows ------------------------------------------------------------------------ */

/* Returns the rows expected by the op that fills the first tensor of the set. */
int64_t sli_lower_expected(const sl_tensor *valid_length, int32_t tick) {
  if (!sli_op_rows(valid_length->producer->op)->expects) return valid_length->rows;
  const sli_node *n = valid_length->producer;
  int64_t rows = sli_op_rows(n->op)->expects(&n->attrs, valid_length->output,
                                             &n->out_type[valid_length->output], tick);
  return SLI_MAX(SLI_MIN(rows, valid_length->rows), 0);
}

const int32_t *sli_lower_expected_table(const sli_lowering *l, const sl_tensor *valid_length,
                                        const sli_visits *visits) {
  if (!valid_length || !l->in->kind->modelled || !sli_op_rows(valid_length->producer->op)->expects)
    return NULL;
  int32_t ticks = visits ? visits->count : sli_lower_ticks(l, SLI_PACE_TRAINING);
  int32_t *table = sl_plan_alloc(l->plan, (size_t)ticks * sizeof *table);
  for (int32_t t = 0; t < ticks; t++)
    table[t] = (int32_t)sli_lower_expected(valid_length, visits ? visits->tick[t] : t);
  return table;
}
