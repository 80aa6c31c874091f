/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention with sinks: the kernels of plain attention, followed by scaling of the
 * rows. For a row with l = log sum e^s and sink t, the result is the result without the sink times
 * 1 / (1 + e^(t - l)), and the lse is log(e^l + e^t). With both, the backward pass of plain
 * attention gives the gradients of q, k and v; the gradient of a sink is -e^(t - lse) dO . O. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served_attention.h"
#include "ops/attention_piece.h"
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

/* ---- whole sequences and pieces -------------------------------------------------------------- */

enum { SINKS = 3 }; /* their input in forward calls, and their gradient's output */

/* A call of plain attention: that with sinks, without these and their gradient. */
typedef struct plain_call {
  sl_call call;
  const void *in[SL_GRAD_ARGS];
  void *out[SL_GRAD_OUTS];
  sl_type in_type[SL_GRAD_ARGS], out_type[SL_GRAD_OUTS];
} plain_call;

/* Leaves out an input and, if it is not negative, an output. */
static void leave_out(const sl_call *call, int input, int output, plain_call *to) {
  to->call = *call;
  to->call.nin = to->call.nout = 0;
  for (int i = 0; i < call->nin; i++) {
    if (i == input) continue;
    to->in[to->call.nin] = call->in[i];
    to->in_type[to->call.nin++] = call->in_type[i];
  }
  for (int o = 0; o < call->nout; o++) {
    if (o == output) continue;
    to->out[to->call.nout] = call->out[o];
    to->out_type[to->call.nout++] = call->out_type[o];
  }
  to->call.in = to->in;
  to->call.in_type = to->in_type;
  to->call.out = to->out;
  to->call.out_type = to->out_type;
}

static sink_rows rows_of(const sl_call *call, int sinks) {
  const sl_type *q = &call->in_type[0];
  return (sink_rows){.heads = call->attrs->attention.heads,
                     .dim = q->dim[2] / call->attrs->attention.heads,
                     .length = q->dim[1],
                     .sinks = call->in[sinks]};
}

/* Returns the scratch for absent outputs. */
static size_t sinks_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sl_type_bytes(&call->in_type[0]) + sl_type_bytes(&call->in_type[SINKS]);
}

/* Attends, then scales the rows. */
static void forward(const sl_call *call, const sl_kernel *kernel) {
  const sl_type *q = &call->in_type[0];
  sink_rows s = rows_of(call, SINKS);
  float *room = call->scratch;
  plain_call plain;
  leave_out(call, SINKS, -1, &plain);
  if (!plain.out[0]) plain.out[0] = room;
  if (!plain.out[1]) plain.out[1] = room + sl_type_elements(q);
  s.out = plain.out[0];
  s.lse = plain.out[1];
  kernel->run(&plain.call);
  sl_team_for(call->team, (int)(q->dim[0] * q->dim[1]), scale_chunk, &s);
}

/* Computes the gradients of plain attention, then those of the sinks; `o`: the input o, which lse
 * and do follow. */
static void backward(const sl_call *call, const sl_kernel *kernel, int sinks, int o) {
  const sl_type *q = &call->in_type[0];
  sink_rows s = rows_of(call, sinks);
  plain_call plain;
  leave_out(call, sinks, SINKS, &plain);
  s.o = call->in[o];
  s.lse = (float *)call->in[o + 1];
  s.do_ = call->in[o + 2];
  s.dsinks = call->out[SINKS];
  bool any = false;
  for (int i = 0; i < plain.call.nout; i++) any |= plain.out[i] != NULL;
  if (any) kernel->run(&plain.call);
  if (s.dsinks) sl_team_for(call->team, (int)(q->dim[0] * q->dim[1]), sinks_chunk, &s);
}

static void sinks_cpu(const sl_call *call) { forward(call, &sli_cpu_attention); }
static void piece_cpu(const sl_call *call) { forward(call, &sli_cpu_attention_piece); }
static void again_cpu(const sl_call *call) { forward(call, &sli_cpu_attention_piece_again); }

static void sinks_b_cpu(const sl_call *call) { backward(call, &sli_cpu_attention_b, SINKS, 4); }
static void piece_b_cpu(const sl_call *call) {
  backward(call, &sli_cpu_attention_piece_b, SLI_PIECE_MORE, SLI_PIECE_O);
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

const sl_kernel sli_cpu_attention_sinks_piece = {
    .backend = "cpu", .run = piece_cpu, .scratch = sinks_scratch};

const sl_kernel sli_cpu_attention_sinks_piece_b = {.backend = "cpu", .run = piece_b_cpu};

const sl_kernel sli_cpu_attention_sinks_piece_again = {
    .backend = "cpu", .run = again_cpu, .scratch = sinks_scratch};

const sl_kernel sli_cpu_attention_sinks_served = {
    .backend = "cpu", .run = served_cpu, .scratch = served_scratch};
