/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention, on separate q, k, v, on one packed tensor, and to chosen blocks. All
 * are views for the same strided kernel (vector/attention.h). */
#include <stddef.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_blocks.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* Fills the sizes and strides of a call. q rows are q_row floats apart, k and v rows kv_row. */
static sli_attention view(const sl_call *call, const sl_type *o, int64_t q_row, int64_t kv_row,
                          const void *ids) {
  int64_t length = o->dim[1];
  return (sli_attention){
      .batch = o->dim[0],
      .queries = length,
      .keys = length,
      .mask = sli_mask_of(call->attrs, length, ids),
      .heads = call->attrs->attention.heads,
      .kv_heads = sli_kv_heads(call->attrs),
      .dim = o->dim[2] / call->attrs->attention.heads,
      .q_row = q_row,
      .q_batch = length * q_row,
      .dq_row = q_row,
      .dq_batch = length * q_row,
      .kv_row = kv_row,
      .kv_batch = length * kv_row,
      .part.dkv_batch = length * kv_row,
      .part.has = {0, length},
      .o_row = o->dim[2],
      .o_batch = length * o->dim[2],
      .scale = sli_attention_scale(call->attrs, o->dim[2] / call->attrs->attention.heads),
      .bf16 = call->attrs->numbers.bf16,
  };
}

static sli_attention separate_view(const sl_call *call, const void *ids) {
  sli_attention a =
      view(call, &call->in_type[0], call->in_type[0].dim[2], call->in_type[1].dim[2], ids);
  a.q = call->in[0];
  a.k = call->in[1];
  a.v = call->in[2];
  return a;
}

static sli_attention packed_view(const sl_call *call, const sl_type *o, const void *ids) {
  int64_t row = call->in_type[0].dim[2];
  sli_attention a = view(call, o, row, row, ids);
  a.q = call->in[0];
  a.k = a.q + a.heads * a.dim;
  a.v = a.k + a.kv_heads * a.dim;
  return a;
}

static void forward(const sl_call *call, sli_attention *a) {
  a->out = call->out[0];
  a->lse = call->out[1];
  sl_team_for(call->team, sli_attention_cut(a, call->team), sli_cpu()->attention, a);
}

/* Sets o, lse and do from inputs i, i + 1 and i + 2, and runs the backward pass. */
static void backward(const sl_call *call, sli_attention *a, int i) {
  a->o = call->in[i];
  a->lse = (float *)call->in[i + 1];
  a->do_ = call->in[i + 2];
  sl_team_for(call->team, (int)(a->batch * a->kv_heads), sli_cpu()->attention_b, a);
}

/* Runs the backward pass with dq, dk and dv as separate outputs. */
static void separate_backward(const sl_call *call, sli_attention *a, int i) {
  a->dq = call->out[0];
  a->dk = call->out[1];
  a->dv = call->out[2];
  backward(call, a, i);
}

static void attention_cpu(const sl_call *call) {
  sli_attention a = separate_view(call, sli_optional(call, 3));
  forward(call, &a);
}

static void attention_b_cpu(const sl_call *call) {
  sli_attention a = separate_view(call, sli_optional(call, 6));
  separate_backward(call, &a, 3);
}

static void packed_cpu(const sl_call *call) {
  sli_attention a = packed_view(call, &call->out_type[0], sli_optional(call, 1));
  forward(call, &a);
}

static void packed_b_cpu(const sl_call *call) {
  sli_attention a = packed_view(call, &call->in_type[1], sli_optional(call, 4));
  a.dq = call->out[0];
  a.dk = a.dq + a.heads * a.dim;
  a.dv = a.dk + a.kv_heads * a.dim;
  backward(call, &a, 1);
}

static sli_attention blocks_view(const sl_call *call) {
  sli_attention a = separate_view(call, NULL);
  a.chosen.of = call->in[3];
  a.chosen.blocks = call->in_type[3].dim[2];
  a.chosen.width = call->in_type[3].dim[3];
  return a;
}

static void blocks_cpu(const sl_call *call) {
  sli_attention a = blocks_view(call);
  forward(call, &a);
}

static void blocks_b_cpu(const sl_call *call) {
  sli_attention a = blocks_view(call);
  separate_backward(call, &a, 4);
}

/* Returns the view of a dual-chunk call; inputs 3 and 4 are the other forms of the queries. */
static sli_attention dual_view(const sl_call *call) {
  sli_attention a = separate_view(call, NULL);
  a.dual.chunk = call->attrs->attention.chunk;
  for (int i = 0; i < 2; i++) a.dual.q[i] = call->in[3 + i];
  return a;
}

static void dual_cpu(const sl_call *call) {
  sli_attention a = dual_view(call);
  forward(call, &a);
}

static void dual_b_cpu(const sl_call *call) {
  sli_attention a = dual_view(call);
  for (int i = 0; i < 2; i++) a.dual.dq[i] = call->out[3 + i];
  separate_backward(call, &a, 5);
}

/* ---- choice of blocks ---------------------------------------------------------------------- */

static size_t choose_scratch(const sl_call *call, int threads) {
  const sl_type *q = &call->in_type[0];
  (void)threads;
  int64_t heads = q->dim[0] * call->attrs->attention.heads;
  return (size_t)(heads * sli_block_room(q->dim[1], sli_blocks(q->dim[1]),
                                         q->dim[2] / call->attrs->attention.heads)) *
         sizeof(float);
}

static void choose_cpu(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  sli_block_choice c = {.attrs = call->attrs,
                        .a = view(call, q, q->dim[2], call->in_type[1].dim[2], NULL),
                        .q = call->in[0],
                        .blocks = call->out_type[0].dim[2],
                        .width = call->out_type[0].dim[3],
                        .chosen = call->out[0],
                        .recall = call->out[1],
                        .room = call->scratch};
  c.a.queries = SLI_MIN(c.a.keys, SLI_BLOCK);
  c.a.q0 = c.a.keys - c.a.queries;
  c.a.q = c.q + c.a.q0 * c.a.q_row;
  c.a.k = call->in[1];
  c.a.bf16 = false;
  sl_team_for(call->team, (int)(c.a.batch * c.a.heads), sli_cpu()->choose_blocks, &c);
}

const sl_kernel sli_cpu_attention_dual = {.backend = "cpu", .run = dual_cpu};

const sl_kernel sli_cpu_attention_dual_b = {.backend = "cpu", .run = dual_b_cpu};

const sl_kernel sli_cpu_attention_blocks = {.backend = "cpu", .run = blocks_cpu};

const sl_kernel sli_cpu_attention_blocks_b = {.backend = "cpu", .run = blocks_b_cpu};

const sl_kernel sli_cpu_choose_blocks = {
    .backend = "cpu", .run = choose_cpu, .scratch = choose_scratch};

const sl_kernel sli_cpu_attention = {.backend = "cpu", .run = attention_cpu};

const sl_kernel sli_cpu_attention_b = {.backend = "cpu", .run = attention_b_cpu};

const sl_kernel sli_cpu_attention_packed = {.backend = "cpu", .run = packed_cpu};

const sl_kernel sli_cpu_attention_packed_b = {.backend = "cpu", .run = packed_b_cpu};
