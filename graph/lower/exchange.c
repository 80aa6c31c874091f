/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges between devices of a stage on modelled hardware: their durations and bytes.
 *
 * A collective is one node on each device, or a set of nodes that read other devices' data: a sum
 * of all parts, or a join of all parts. Each node moves the bytes of its op's cost through its
 * device's own memory, and receives the other members' parts over the link of its axis (links.c):
 *
 *     seconds = its bytes in memory / memory rate + bytes from others / link rate
 *
 * To this a task adds, once for all its nodes, ceil(log2(R)) times the link's latency, since their
 * messages travel together. This is the time of recursive halving (reduce-scatter) and doubling
 * (all-gather): (R-1)/R of the tensor each way and log2(R) messages. An all-reduce of n bytes is
 * both (Thakur, Rabenseifner & Gropp, "Optimization of Collective Communication Operations in
 * MPICH", IJHPCA 19(1), 2005). A ring moves as much in R-1 steps, and a direct exchange through a
 * switch in one; for large tensors all three take the same time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/ir.h"
#include "graph/sharding/sharding.h"
#include "ops/collective.h"

/* ---- time ---------------------------------------------------------------------------- */

/* Returns the bytes that a node receives in a tick, or in a step; if pieces differ, the mean. */
static double received(const sli_lowering *l, const sli_node *n) {
  if (!n->shapes) return n->remote_bytes;
  double sum = 0;
  for (int k = 0; k < l->in->k; k++) sum += n->shapes[l->cut.pieces[k].variant].remote_bytes;
  return sum / l->in->k;
}

static bool is_slice(const sli_node *n) {
  return n->op == &sl_op_slice || n->op == &sl_op_part_rows;
}

static sli_half half_of(const sli_node *n) {
  if (n->remote_axis == SLI_AXIS_EXPERT || n->op == &sl_op_all_to_all) return SLI_ALL_TO_ALL;
  if (n->op == &sl_op_all_gather) return SLI_ALL_GATHER;
  if (n->op != &sl_op_join && n->op != &sl_op_join_rows) return SLI_REDUCE_SCATTER;
  const sli_node *from = n->in[0] ? n->in[0]->producer : NULL;
  return from && from->cls == SL_CLASS_C && is_slice(from) ? SLI_ALL_TO_ALL : SLI_ALL_GATHER;
}

/* Returns the ratio of sent to computed bytes: gradients of parameters may be sent in a smaller
 * type. */
static double as_sent(const sl_hardware *h, const sli_node *n) {
  if (!h || h->gradient_bytes <= 0 || n->remote_axis != SLI_AXIS_DATA) return 1;
  bool gradient = n->phase == SLI_PHASE_NORM || (n->phase == SLI_PHASE_MAIN && n->accumulate_span);
  return gradient ? h->gradient_bytes / (double)sl_dtype_bytes(n->out_type[0].dtype) : 1;
}

bool sli_lower_is_measured(const sli_lowering *l, const sli_node *n) {
  const sli_axis_link *link = &l->in->grid.link[n->remote_axis];
  if (n->cls != SL_CLASS_C) return false;
  if (is_slice(n)) return link->measured && link->measured[SL_EXCHANGE_ALL_TO_ALL].seconds;
  bool gathers = n->op == &sl_op_all_reduce;
  return sli_exchange_is_measured(link, half_of(n)) &&
         (!gathers || sli_exchange_is_measured(link, SLI_ALL_GATHER));
}

void sli_lower_received(const sli_lowering *l, const sli_task *task,
                        double to[SLI_AXES][SLI_ALL_TO_ALL + 1]) {
  memset(to, 0, SLI_AXES * sizeof *to);
  for (int i = 0; i < task->nnodes; i++) {
    const sli_node *n = task->nodes[i];
    double bytes = received(l, n) * as_sent(l->in->options->simulation.hardware, n);
    double gathered = n->op == &sl_op_all_reduce ? bytes / 2 : 0;
    to[n->remote_axis][half_of(n)] += bytes - gathered;
    to[n->remote_axis][SLI_ALL_GATHER] += gathered;
  }
}

double sli_lower_exchange_seconds(const sli_lowering *l, const sli_task *task, double share) {
  double bytes[SLI_AXES][SLI_ALL_TO_ALL + 1], seconds = 0;
  sli_lower_received(l, task, bytes);
  for (int a = 0; a < SLI_AXES; a++)
    for (int h = 0; h <= SLI_ALL_TO_ALL; h++)
      seconds += sli_exchange_seconds(&l->in->grid.link[a], (sli_half)h, share * bytes[a][h]);
  return seconds;
}

/* ---- bytes --------------------------------------------------------------------------- */

double sli_lower_times(const sli_lowering *l, sli_rate rate) {
  return rate == SLI_PER_TICK ? l->in->m * l->in->k : rate == SLI_PER_MICROBATCH ? l->in->m : 1;
}

uint64_t (*sli_lower_exchanged(const sli_lowering *l, sli_arena *arena))[SLI_AXES] {
  double(*sum)[SLI_AXES] = sli_calloc((size_t)l->in->devices, sizeof *sum);
  uint64_t(*to)[SLI_AXES] = sli_arena_alloc(arena, (size_t)l->in->devices * sizeof *to);
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    for (int n = 0; n < g->nnodes; n++)
      sum[g->device][g->nodes[n]->remote_axis] +=
          received(l, g->nodes[n]) * sli_lower_times(l, g->rate);
  }
  for (int d = 0; d < l->in->devices; d++)
    for (int a = 0; a < SLI_AXES; a++) to[d][a] = (uint64_t)llround(sum[d][a]);
  free(sum);
  return to;
}
