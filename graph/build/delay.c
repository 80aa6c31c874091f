/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that make delays. */
#include "graph/build/delay.h"
#include "graph/build/build.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

static sl_status delayed_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  out[0] = ((const sli_delay *)attrs->user)->type;
  return SL_OK;
}

static sl_status delay_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void delay_cpu(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}

/* No call reads an earlier value: it is in the slot that its readers get. */
static void nothing_cpu(const sl_call *call) { (void)call; }

static uint64_t delay_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sli_delay *d = attrs->user;
  (void)nin;
  return sli_hash_word(sli_hash_type(hash, &d->type), (uint64_t)d->ticks << 1 | d->rows);
}

/* A copy of a delay is nothing beside the pass that makes its value. */
static void no_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                    double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in, (void)out;
  *flops = *bytes = 0;
}

const sl_op sli_op_delayed = {.name = "delayed",
                              .nout = 1,
                              .infer = delayed_infer,
                              .cost = no_cost,
                              .hash = delay_hash,
                              .kernels = SL_CPU_KERNEL(nothing_cpu)};

const sl_op sli_op_delayed_rows = {.name = "delayed_rows",
                                   .nout = 1,
                                   .infer = delayed_infer,
                                   .cost = no_cost,
                                   .hash = delay_hash,
                                   .rows = &(const sl_op_rows){.fills = 1, .second = 1},
                                   .kernels = SL_CPU_KERNEL(nothing_cpu)};

const sl_op sli_op_delay = {.name = "delay",
                            .min_in = 1,
                            .max_in = 1,
                            .nout = 1,
                            .traits = SL_OP_DETACHED,
                            .cut = &sl_cut_elements,
                            .cost = no_cost,
                            .infer = delay_infer,
                            .hash = delay_hash,
                            .kernels = SL_CPU_KERNEL(delay_cpu)};

/* ---- queries ------------------------------------------------------------------------------- */

static bool is_delayed(const sl_op *op) {
  return op == &sli_op_delayed || op == &sli_op_delayed_rows;
}

const sli_delay *sli_delay_before(const sl_tensor *t) {
  return t->producer && is_delayed(t->producer->op) ? t->producer->attrs.user : NULL;
}

const sli_delay *sli_delay_after(const sl_tensor *t) {
  return t->producer && t->producer->op == &sli_op_delay ? t->producer->attrs.user : NULL;
}

const sli_delay *sli_delay_first(const sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    if (is_delayed(g->nodes[i]->op)) return g->nodes[i]->attrs.user;
  return NULL;
}

sl_status sli_delays_check(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_delay *d = is_delayed(g->nodes[i]->op) ? g->nodes[i]->attrs.user : NULL;
    if (d && !d->next)
      return sli_graph_fail_at(g, d->at, SL_E_USAGE, "delay %s: no sl_delay() says its value",
                               d->name);
  }
  return SL_OK;
}

/* ---- calls --------------------------------------------------------------------------------- */

static sl_tensor *add_delayed(sl_here at, sl_graph *g, const sli_delay *delay) {
  sli_delay *d = sli_arena_alloc(&g->arena, sizeof *d);
  sl_tensor *out = NULL;
  *d = *delay;
  d->name = sli_arena_strdup(&g->arena, delay->name);
  sl_apply_at(at, g, d->rows ? &sli_op_delayed_rows : &sli_op_delayed, &(sl_attrs){.user = d}, 0,
              NULL, 0, &out);
  return out;
}

sl_tensor *sl_delayed_at(sl_here at, sl_graph *g, sl_type type, int ticks, bool rows,
                         const char *name) {
  if (g->status) return NULL;
  if (ticks < 1) {
    sli_graph_fail_at(g, at, SL_E_USAGE,
                      "delay %s: %d slots are full at the start: a loop without any would wait for "
                      "itself, so it needs at least 1",
                      name, ticks);
    return NULL;
  }
  return add_delayed(at, g, &(sli_delay){name, type, ticks, rows, NULL, at, NULL});
}

sl_tensor *sl_delayed_in_at(sl_here at, sl_graph *g, sl_type type, int ticks, bool rows,
                            const sl_delay_ticks *in, const char *name) {
  if (g->status) return NULL;
  int written = 0, m = g->options.microbatches;
  for (int i = 0; i < m; i++) written += in->writes[i] - in->reads[i];
  if (ticks >= 0 && !written)
    return add_delayed(at, g, &(sli_delay){name, type, ticks, rows, in, at, NULL});
  sli_graph_fail_at(g, at, SL_E_USAGE, "delay %s: written %d times %s than it is read in a step",
                    name, abs(written), written < 0 ? "less" : "more");
  return NULL;
}

int sli_delay_most(const sl_graph *g, const sli_delay *d) {
  int now = d->ticks, most = SLI_MAX(now, 1);
  for (int i = 0; i < g->options.microbatches && d->in; i++) {
    now += d->in->writes[i] - d->in->reads[i];
    most = SLI_MAX(most, now);
  }
  return most;
}

void sl_delay_at(sl_here at, sl_graph *g, sl_tensor *delayed, sl_tensor *value) {
  char want[SL_TYPE_TEXT], got[SL_TYPE_TEXT];
  if (g->status || !delayed || !value) return;
  sli_delay *d = (sli_delay *)sli_delay_before(delayed);
  if (!d || d->next)
    sli_graph_fail_at(g, at, SL_E_USAGE, "sl_delay: %s %s", delayed->name,
                      d ? "has a value already" : "does not come from sl_delayed()");
  else if (!sl_type_equal(&value->type, &d->type))
    sli_graph_fail_at(g, at, SL_E_SHAPE, "delay %s: its value %s is %s, not %s", d->name,
                      value->name, sl_type_format(got, &value->type),
                      sl_type_format(want, &d->type));
  if (!g->status) sl_apply_at(at, g, &sli_op_delay, &(sl_attrs){.user = d}, 1, &value, 0, &d->next);
}
