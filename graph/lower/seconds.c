/* SPDX-License-Identifier: Apache-2.0 */
/* Modelled durations: given by the user, measured, or estimated by the cost of ops. */
#include <stdlib.h>
#include <string.h>

#include "graph/cost/cost.h"
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

const sl_tensor *sli_lower_set_of(const sli_node *n) {
  const sl_tensor *set = NULL;
  for (int i = 0; i < n->nin && !set; i++) set = sli_valid_length(n->in[i]);
  for (int o = 0; o < n->nout && !set; o++) set = sli_valid_length(n->out[o]);
  return set;
}

void sli_lower_cut(sl_type *type, int64_t capacity, int64_t rows) {
  int d = type->ndim > 0 && type->dim[0] == capacity ? 0 : 1;
  if (d < type->ndim && type->dim[d] == capacity) type->dim[d] = rows;
}

/* Returns the type with the rows that are expected to be valid in a tick. Absent arguments get
 * the rows of the others. */
static sl_type expected_type(const sli_node *n, sl_tensor *t, const sl_type *type, int32_t tick) {
  const sl_tensor *valid_length = t ? sli_valid_length(t) : sli_lower_set_of(n);
  sl_type cut = *type;
  if (valid_length) sli_lower_cut(&cut, valid_length->rows, sli_lower_expected(valid_length, tick));
  return cut;
}

/* Returns the seconds of a node in a tick of a step. A call on no rows takes no time. */
static double expected_seconds(const sli_lowering *l, const sli_node *n, int32_t tick) {
  sl_type in[n->nin + 1], out[n->nout + 1];
  bool empty = false;
  for (int i = 0; i < n->nin; i++) {
    in[i] = expected_type(n, n->in[i], &n->in_type[i], tick);
    empty |= n->in[i] && n->in[i]->valid_length && !sl_type_elements(&in[i]);
  }
  for (int o = 0; o < n->nout; o++) out[o] = expected_type(n, n->out[o], &n->out_type[o], tick);
  return empty ? 0 : sli_call_seconds(l->in->options->simulation.hardware, n, in, out);
}

/* Returns the seconds of a node in a tick: as measured by an earlier run, or by its op's cost for
 * the expected rows, not for the capacity. If pieces differ, returns their mean. */
static double node_seconds(const sli_lowering *l, const sli_node *n, int32_t tick) {
  const sl_lower_options *o = l->in->options;
  double seconds = o->simulation.op_seconds
                       ? o->simulation.op_seconds(o->simulation.op_seconds_ctx, n->name)
                       : -1,
         sum = 0;
  if (seconds >= 0) return seconds;
  if (sli_lower_set_of(n)) return expected_seconds(l, n, tick);
  if (!n->shapes) return sli_call_seconds(o->simulation.hardware, n, n->in_type, n->out_type);
  for (int k = 0; k < l->in->k; k++) {
    const sli_shapes *shapes = &n->shapes[l->cut.pieces[k].variant];
    sum += sli_call_seconds(o->simulation.hardware, n, shapes->in, shapes->out);
  }
  return sum / l->in->k;
}

bool sli_cost_is_given(const sl_cost *c) { return c->nstages || c->F > 0 || c->B > 0 || c->W > 0; }

/* True if a block, such as "head@3", is a stage's part of a block, such as "head". */
static bool is_part_of(const sli_block *part, const char *block) {
  size_t chars = part->sharded ? (size_t)(strrchr(part->name, '@') - part->name) : 0;
  return chars && strlen(block) == chars && !strncmp(block, part->name, chars);
}

/* Returns the given cost of a stage's part of a block sharded over all stages. */
static sl_stage_cost sharded_cost(const sli_lowering *l, const sli_task *task) {
  const sl_cost *c = &l->in->options->simulation.cost;
  const sli_block *block = &l->in->g->blocks[task->nodes[0]->block];
  for (int i = 0; i < c->nsharded; i++)
    if (is_part_of(block, c->sharded[i].block)) return c->sharded[i].stages[task->stage];
  return (sl_stage_cost){0};
}

static sl_stage_cost pass_cost(const sli_lowering *l, const sli_task *task) {
  const sl_cost *c = &l->in->options->simulation.cost;
  if (sli_is_sharded_task(l, task)) return sharded_cost(l, task);
  return c->nstages ? c->stages[task->stage] : (sl_stage_cost){c->F, c->B, c->W};
}

/* Returns the seconds of a node in its task's pass. */
static double pass_seconds(const sli_lowering *l, const sli_node *n, int32_t tick) {
  return (n->rematerialized ? sli_lower_rematerialized(l) : 1) * node_seconds(l, n, tick);
}

double sli_lower_node_seconds(const sli_lowering *l, const sli_node *n) {
  return pass_seconds(l, n, 0);
}

static double estimate(const sli_lowering *l, const sli_task *task, int32_t tick) {
  double seconds = 0;
  for (int i = 0; i < task->nnodes && !task->host; i++)
    if (!sli_lower_is_measured(l, task->nodes[i])) seconds += pass_seconds(l, task->nodes[i], tick);
  return seconds;
}

/* Returns a task's share of its stage's pass. If a pass has several tasks, the given time is
 * divided in proportion to the cost of their ops. */
static double share_of_pass(const sli_lowering *l, const sli_task *task) {
  bool sharded = sli_is_sharded_task(l, task);
  double all = 0;
  int count = 0;
  for (int i = *sli_newest_on(l, task->stage, task->rank); i != SL_NONE; i = l->tasks[i].before) {
    const sli_task *other = &l->tasks[i];
    bool same = other->cls == task->cls && other->phase == task->phase && other->host == task->host;
    if (!same || sli_is_sharded_task(l, other) != sharded) continue;
    if (sharded && other->part != task->part) continue;
    all += estimate(l, other, 0);
    count++;
  }
  return count < 2 ? 1 : all > 0 ? estimate(l, task, 0) / all : 1.0 / count;
}

/* Returns the user's seconds, which are given for a whole microbatch. Unless the number of
 * chunks is known, they cover all chunks of the device. */
static double given_seconds(const sli_lowering *l, const sli_task *task) {
  const sl_cost *c = &l->in->options->simulation.cost;
  if (task->stage == SL_NONE) return 0;
  sl_stage_cost of = pass_cost(l, task);
  double share = (l->in->options->schedule.chunks || c->nstages ? 1 : 1.0 / l->pick.v) / l->in->k;
  share *= share_of_pass(l, task);
  if (task->cls == SL_CLASS_F) return share * of.F;
  if (task->cls == SL_CLASS_B) return share * (l->pick.split ? of.B : of.B + of.W);
  return task->cls == SL_CLASS_W ? share * of.W : 0;
}

sl_status sli_lower_check_cost(const sli_lowering *l) {
  const sl_cost *c = &l->in->options->simulation.cost;
  const sl_graph *g = l->in->g;
  int given = c->nstages;
  for (int i = 0; i < c->nsharded; i++) {
    int b = sli_blocks_in_line(g);
    while (b < g->nblocks && !is_part_of(&g->blocks[b], c->sharded[i].block)) b++;
    if (b == g->nblocks)
      return sl_fail(
          SL_E_USAGE,
          "the cost of block %s is given separately, but no such block is spread over the stages",
          c->sharded[i].block);
  }
  if (!given || given == l->stages) return SL_OK;
  return sl_fail(SL_E_USAGE, "costs are given for %d stages, but the model has %d", given,
                 l->stages);
}

bool sli_updates_on_host(const sli_task *task) {
  return task->host && task->phase == SLI_PHASE_UPDATE && task->stage != SL_NONE;
}

/* Returns the seconds of an update on the host, which is bound by its memory or by its cores. */
static double host_update_seconds(const sli_lowering *l, const sli_task *task) {
  double memory = sli_lower_host_rate(l->in), cores = sli_lower_update_rate(l->in);
  double sum = 0, parameters = 0;
  for (int i = 0; i < task->nnodes; i++) {
    const sli_node *n = task->nodes[i];
    double flops, bytes;
    sli_call_cost(n, n->in_type, n->out_type, &flops, &bytes);
    sum += bytes;
    parameters += (double)sl_type_elements(&n->out_type[0]);
  }
  return SLI_MAX(memory > 0 ? sum / memory : 0, cores > 0 ? parameters / cores : 0);
}

/* Returns the fixed seconds of a step. Each device counts them once, with the updates of its
 * first chunk. */
static double step_seconds(const sli_lowering *l, const sli_task *task) {
  const sl_hardware *h = l->in->options->simulation.hardware;
  if (!h || h->step_seconds <= 0 || task->phase != SLI_PHASE_UPDATE || task->stage == SL_NONE ||
      task->chunk)
    return 0;
  for (int i = task->before; i != SL_NONE; i = l->tasks[i].before)
    if (l->tasks[i].phase == SLI_PHASE_UPDATE) return 0;
  return h->step_seconds;
}

static bool reads_of_others(const sli_lowering *l, const sli_task *task) {
  bool any = false;
  for (int i = 0; i < task->ninputs; i++) any |= l->buffers[task->inputs[i]].device != task->device;
  return any;
}

/* Returns the seconds to begin and end a firing, and to wake up when another device triggers it. */
static double firing_seconds(const sli_lowering *l, const sli_task *task) {
  const sl_hardware *h = l->in->options->simulation.hardware;
  if (!h || task->host || task->transfer) return 0;
  return h->firing_seconds +
         (h->wake_seconds > 0 && reads_of_others(l, task) ? h->wake_seconds : 0);
}

static double alone(const sli_lowering *l, const sli_task *task, int32_t tick) {
  if (sli_updates_on_host(task)) return host_update_seconds(l, task);
  double seconds = estimate(l, task, tick) + step_seconds(l, task) + firing_seconds(l, task);
  return task->cls == SL_CLASS_C ? seconds + sli_lower_exchange_seconds(l, task, 1) : seconds;
}

static bool is_pass(const sli_task *task) {
  return !task->transfer && !task->host && !task->phase && task->cls <= SL_CLASS_W;
}

/* Passes and exchanges of a device share its memory bandwidth: while exchanges run, passes are
 * slower. */
double *sli_lower_slowdowns(const sli_lowering *l) {
  const sl_hardware *h = l->in->options->simulation.hardware;
  int n = l->in->devices;
  double slow =
      h && !sli_cost_is_given(&l->in->options->simulation.cost) ? h->slowdown_while_exchanging : 0;
  if (slow <= 1 || l->in->in_line) return NULL;
  double *passes = sli_calloc((size_t)n, sizeof *passes),
         *exchanges = sli_calloc((size_t)n, sizeof *exchanges);
  for (int i = 0; i < l->ncomputing; i++) {
    const sli_task *g = &l->tasks[i];
    double seconds = alone(l, g, 0) * sli_lower_firings(l, g);
    if (is_pass(g)) passes[g->device] += seconds;
    else if (g->cls == SL_CLASS_C && !g->transfer) exchanges[g->device] += seconds;
  }
  for (int d = 0; d < n; d++)
    passes[d] = passes[d] > 0 ? 1 + (slow - 1) * SLI_MIN(exchanges[d] / passes[d], 1) : 1;
  free(exchanges);
  return passes;
}

double sli_lower_seconds(const sli_lowering *l, const sli_task *task) {
  if (sli_cost_is_given(&l->in->options->simulation.cost)) return given_seconds(l, task);
  return alone(l, task, 0);
}

double sli_lower_slowdown(const double *slowdowns, const sli_task *task) {
  return slowdowns && is_pass(task) ? slowdowns[task->device] : 1;
}

double sli_home_seconds(const sli_lowering *l, sl_space home, bool backward, size_t bytes) {
  const sl_hardware *h = l->in->options->simulation.hardware;
  if (!h) return 0;
  const double rates[SL_SPACE_COUNT][2] = {
      [SL_SPACE_HOST] = {h->copy_bytes_per_second, h->copy_bytes_per_second},
      [SL_SPACE_DISK] = {h->disk_write_bytes_per_second, h->disk_read_bytes_per_second}};
  double rate = rates[home][backward];
  return rate > 0 ? (double)bytes / rate : 0;
}

/* ---- durations by tick, where the number of valid rows varies -------------------------------- */

/* Scales the seconds of a full slot to the expected rows. */
double sli_lower_copied(const sli_lowering *l, const sli_task *task, int32_t tick) {
  const sl_tensor *valid_length = task->transfer->kind == SLI_TRANSFER_FLIGHT
                                      ? NULL
                                      : l->buffers[task->outputs[0]].valid_length;
  return valid_length ? task->seconds * (double)sli_lower_expected(valid_length, tick) /
                            (double)valid_length->rows
                      : task->seconds;
}

/* Returns the first rows of a task whose number is known in each tick, or NULL. */
static const sl_tensor *counted_rows(const sli_task *task) {
  const sl_tensor *set = NULL;
  for (int i = 0; i < task->nnodes && !set; i++) {
    set = sli_lower_set_of(task->nodes[i]);
    if (set && !sli_op_rows(set->producer->op)->expects) set = NULL;
  }
  return set;
}

/* Returns the given seconds in a tick of a graph that generates: in proportion to its rows. */
static double given_in_tick(const sli_lowering *l, const sli_task *task, int32_t tick) {
  const sl_tensor *set = counted_rows(task);
  double share = set ? (double)sli_lower_expected(set, tick) / (double)set->rows : 1;
  return share * given_seconds(l, task);
}

const double *sli_lower_seconds_table(const sli_lowering *l, const sli_task *task,
                                      double slowdown) {
  bool any = task->transfer && task->transfer->kind != SLI_TRANSFER_FLIGHT &&
             l->buffers[task->outputs[0]].valid_length;
  for (int i = 0; i < task->nnodes; i++) any |= sli_lower_set_of(task->nodes[i]) != NULL;
  bool given = sli_cost_is_given(&l->in->options->simulation.cost);
  if (!any || !l->in->kind->modelled || task->rate != SLI_PER_TICK || task->host ||
      (given && !l->in->g->options.generate))
    return NULL;
  int32_t ticks = sli_lower_ticks(l, SLI_PACE_TRAINING);
  double *table = sl_plan_alloc(l->plan, (size_t)ticks * sizeof *table);
  for (int32_t t = 0; t < ticks; t++)
    table[t] = task->transfer ? sli_lower_copied(l, task, t)
               : given        ? given_in_tick(l, task, t)
                              : slowdown * alone(l, task, t);
  return table;
}
