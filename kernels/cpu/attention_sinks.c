/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention with sinks: the kernels of plain attention, followed by scaling of the
 * rows. For a row with l = log sum e^s and sink t, the result is the result without the sink times
 * 1 / (1 + e^(t - l)), and the lse is log(e^l + e^t). With both, the backward pass of plain
 * attention gives the gradients of q, k and v; the gradient of a sink is -e^(t - lse) dO . O. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served_attention.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* Rows of heads and their sinks: row r of o has heads * dim numbers. */
typedef struct sink_rows {
  int64_t heads, dim, length;   /* length: rows per sequence, in lse [B, heads, length] */
  const float *sinks, *o, *do_; /* [rows, heads], [rows, heads * dim] */
  float *out, *lse, *dsinks;
} sink_rows;

static int64_t lse_at(const sink_rows *s, int64_t row, int64_t h) {
  return (row / s->length * s->heads + h) * s->length + row % s->length;
}

/* Returns the factor of a row whose log of the sum is l. A row without keys has l = 0 and zeros. */
static float part_of(float l, float sink) { return 1 / (1 + expf(sink - l)); }

static float sum_of(float l, float sink) {
  float most = l > sink ? l : sink;
  return most + logf(expf(l - most) + expf(sink - most));
}

/* Scales row i of all heads. */
static void scale_chunk(void *arg, int i) {
  const sink_rows *s = arg;
  for (int64_t h = 0; h < s->heads; h++) {
    float *lse = &s->lse[lse_at(s, i, h)], sink = s->sinks[i * s->heads + h];
    float part = part_of(*lse, sink), *o = s->out + (i * s->heads + h) * s->dim;
    for (int64_t d = 0; d < s->dim; d++) o[d] *= part;
    *lse = sum_of(*lse, sink);
  }
}

/* Computes the gradients of row i's sinks. */
static void sinks_chunk(void *arg, int i) {
  const sink_rows *s = arg;
  for (int64_t h = 0; h < s->heads; h++) {
    int64_t at = i * s->heads + h;
    const float *o = s->o + at * s->dim, *d = s->do_ + at * s->dim;
    float product = 0;
    for (int64_t n = 0; n < s->dim; n++) product += o[n] * d[n];
    s->dsinks[at] = -expf(s->sinks[at] - s->lse[lse_at(s, i, h)]) * product;
  }
}

static sink_rows rows_of(const sl_call *call, const sl_type *o) {
  return (sink_rows){.heads = call->attrs->heads,
                     .dim = o->dim[2] / call->attrs->heads,
                     .length = o->dim[1],
                     .sinks = call->in[3]};
}

/* ---- whole sequences ----------------------------------------------------------------------- */

static sli_attention sinks_view(const sl_call *call, const void *ids) {
  const sl_type *q = &call->in_type[0], *k = &call->in_type[1];
  int64_t length = q->dim[1], dim = q->dim[2] / call->attrs->heads;
  return (sli_attention){.batch = q->dim[0],
                         .queries = length,
                         .keys = length,
                         .mask = sli_mask_of(call->attrs, length, ids),
                         .heads = call->attrs->heads,
                         .kv_heads = sli_kv_heads(call->attrs),
                         .dim = dim,
                         .q = call->in[0],
                         .k = call->in[1],
                         .v = call->in[2],
                         .q_row = q->dim[2],
                         .q_batch = length * q->dim[2],
                         .dq_row = q->dim[2],
                         .dq_batch = length * q->dim[2],
                         .kv_row = k->dim[2],
                         .kv_batch = length * k->dim[2],
                         .part.dkv_batch = length * k->dim[2],
                         .part.has = {0, length},
                         .o_row = q->dim[2],
                         .o_batch = length * q->dim[2],
                         .scale = sli_attention_scale(call->attrs, dim),
                         .bf16 = call->attrs->bf16};
}

/* Returns the scratch for absent outputs. */
static size_t sinks_scratch(const sl_call *call, int threads) {
  (void)threads;
  size_t o = sl_type_bytes(&call->in_type[0]);
  return o + o / (size_t)(call->in_type[0].dim[2] / call->attrs->heads);
}

static void sinks_cpu(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  sli_attention a = sinks_view(call, sli_optional(call, 4));
  sink_rows s = rows_of(call, q);
  float *room = call->scratch;
  a.out = s.out = call->out[0] ? call->out[0] : room;
  a.lse = s.lse = call->out[1] ? call->out[1] : room + sl_type_elements(q);
  sl_team_for(call->team, sli_attention_cut(&a, call->team), sli_cpu()->attention, &a);
  sl_team_for(call->team, (int)(a.batch * a.queries), scale_chunk, &s);
}

static void sinks_b_cpu(const sl_call *call) {
  sli_attention a = sinks_view(call, sli_optional(call, 7));
  sink_rows s = rows_of(call, &call->in_type[0]);
  a.o = s.o = call->in[4];
  a.lse = s.lse = (float *)call->in[5];
  a.do_ = s.do_ = call->in[6];
  a.dq = call->out[0];
  a.dk = call->out[1];
  a.dv = call->out[2];
  s.dsinks = call->out[3];
  if (a.dq || a.dk || a.dv)
    sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  if (s.dsinks) sl_team_for(call->team, (int)(a.batch * a.queries), sinks_chunk, &s);
}

/* ---- pages --------------------------------------------------------------------------------- */

typedef struct served_sinks {
  sli_served_attention a;
  const float *sinks; /* [rows, heads] */
} served_sinks;

/* Scales row i of all heads. */
static void served_chunk(void *arg, int i) {
  const served_sinks *s = arg;
  for (int64_t h = 0; h < s->a.heads; h++) {
    int64_t at = i * s->a.heads + h;
    float part = part_of(s->a.lse[at], s->sinks[at]);
    float *o = s->a.out + i * s->a.o_row + h * s->a.dim;
    for (int64_t d = 0; d < s->a.dim; d++) o[d] *= part;
  }
}

/* Returns the bytes of the runs, which come first in the scratch. */
static size_t runs_bytes(const sl_call *call) {
  return (sli_served_scratch(call, 1) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static size_t served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return runs_bytes(call) + sl_type_bytes(&call->in_type[3]);
}

static void served_cpu(const sl_call *call) {
  served_sinks s = {.a = {.q = call->in[0],
                          .k = call->in[1],
                          .v = call->in[2],
                          .q_row = call->in_type[0].dim[2],
                          .kv_row = call->in_type[1].dim[2],
                          .lse = (float *)((char *)call->scratch + runs_bytes(call))},
                    .sinks = call->in[3]};
  sli_served_attend(call, &s.a);
  sl_team_for(call->team, s.a.batch->rows, served_chunk, &s);
}

const sl_kernel sli_cpu_attention_sinks = {
    .backend = "cpu", .run = sinks_cpu, .scratch = sinks_scratch};

const sl_kernel sli_cpu_attention_sinks_b = {.backend = "cpu", .run = sinks_b_cpu};

const sl_kernel sli_cpu_attention_sinks_served = {
    .backend = "cpu", .run = served_cpu, .scratch = served_scratch};
