/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention over one piece of a sequence (Sun et al., arXiv 2406.03488).
 * ops/attention_piece.c describes the records of keys, values, gradients and ids.
 *
 * All are views for the whole-sequence kernel (vector/attention.h), with query 0 at position q0. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_piece.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* ---- moving rows ---------------------------------------------------------------- */

/* A block of columns, in all rows of a batch of sequences. Strides in floats. */
typedef struct block {
  const float *from;
  float *to;
  int64_t from_row, from_batch, to_row, to_batch, width;
} block;

typedef struct move {
  int64_t rows, tiles;
  int nblocks;
  block blocks[3];
} move;

enum { MOVE_ROWS = 64 };

/* Moves chunk i, one sequence's tile of rows. */
static void move_chunk(void *arg, int i) {
  const move *m = arg;
  int64_t sequence = i / m->tiles;
  sli_range rows = sli_chunk_range(m->rows, MOVE_ROWS, (int)(i % m->tiles));
  for (int b = 0; b < m->nblocks; b++) {
    const block *x = &m->blocks[b];
    const float *from = x->from + sequence * x->from_batch;
    float *to = x->to + sequence * x->to_batch;
    for (int64_t r = rows.begin; x->to && r < rows.end; r++)
      memcpy(to + r * x->to_row, from + r * x->from_row, (size_t)x->width * sizeof *to);
  }
}

static void move_rows(const sl_call *call, int64_t sequences, move *m) {
  m->tiles = sli_chunk_count(m->rows, MOVE_ROWS);
  sl_team_for(call->team, (int)(sequences * m->tiles), move_chunk, m);
}

/* ---- kernels ---------------------------------------------------------------------- */

/* Fills the sizes of a call, and all strides but those of q and dq. `ids` covers the whole
 * sequence. */
static sli_attention view(const sl_call *call, const sl_type *o, const void *ids) {
  int64_t dim = o->dim[2] / call->attrs->attention.heads,
          kv_row = 2 * sli_kv_heads(call->attrs) * dim;
  return (sli_attention){
      .batch = o->dim[0],
      .queries = o->dim[1],
      .q0 = call->tick.row,
      .keys = call->tick.row + o->dim[1],
      .heads = call->attrs->attention.heads,
      .kv_heads = sli_kv_heads(call->attrs),
      .dim = dim,
      .mask = sli_mask_of(call->attrs, call->attrs->place.length, ids),
      .kv_row = kv_row,
      .kv_batch = call->attrs->place.length * kv_row,
      .part.dkv_batch = call->attrs->place.length * kv_row,
      .part.has = {0, call->tick.row + o->dim[1]},
      .o_row = o->dim[2],
      .o_batch = o->dim[1] * o->dim[2],
      .scale = sli_attention_scale(call->attrs, dim),
      .bf16 = call->attrs->numbers.bf16,
  };
}

/* Returns the move of the piece's k and v, with rows x_row floats apart, into the record. */
static block into_record(const sli_attention *a, const float *x, int64_t x_row, float *record) {
  return (block){.from = x,
                 .from_row = x_row,
                 .from_batch = a->queries * x_row,
                 .to = record + a->q0 * a->kv_row,
                 .to_row = a->kv_row,
                 .to_batch = a->kv_batch,
                 .width = a->kv_heads * a->dim};
}

static block out_of_record(const sli_attention *a, const float *record, float *x, int64_t x_row) {
  return (block){.from = record + a->q0 * a->kv_row,
                 .from_row = a->kv_row,
                 .from_batch = a->kv_batch,
                 .to = x,
                 .to_row = x_row,
                 .to_batch = a->queries * x_row,
                 .width = a->kv_heads * a->dim};
}

static void forward(const sl_call *call, sli_attention *a, const float *q, int64_t q_row,
                    const float *record) {
  a->q = q;
  a->q_row = q_row;
  a->q_batch = a->queries * q_row;
  a->k = record;
  a->v = a->k + a->kv_heads * a->dim;
  a->out = call->out[0];
  a->lse = call->out[1];
  sl_team_for(call->team, sli_attention_cut(a, call->team), sli_cpu()->attention, a);
}

/* Copies the piece's ids, the call's last input, into their record, the last output. */
static const void *keep_ids(const sl_call *call) {
  int64_t n = call->in_type[0].dim[1], batch = call->in_type[0].dim[0];
  const int32_t *ids = call->in[call->nin - 1];
  int32_t *record = call->out[call->nout - 1];
  for (int64_t b = 0; b < batch; b++)
    memcpy(record + b * call->attrs->place.length + call->tick.row, ids + b * n,
           (size_t)n * sizeof *ids);
  return record;
}

static void piece_cpu(const sl_call *call) {
  sli_attention a = view(call, &call->out_type[0], call->nin > 3 ? keep_ids(call) : NULL);
  int64_t own = a.kv_heads * a.dim;
  float *record = call->out[2];
  move_rows(call, a.batch,
            &(move){.rows = a.queries,
                    .nblocks = 2,
                    .blocks = {into_record(&a, call->in[1], own, record),
                               into_record(&a, call->in[2], own, record + own)}});
  forward(call, &a, call->in[0], a.o_row, record);
}

static void again_cpu(const sl_call *call) {
  int kv = sli_piece_inputs(3, call->nin);
  sli_attention a = view(call, &call->out_type[0], sli_optional(call, kv + 1));
  forward(call, &a, call->in[0], a.o_row, call->in[kv]);
}

/* Returns the move of the piece's queries out of the packed tensor, for the backward pass. */
static block keep_queries(const sl_call *call, const sli_attention *a) {
  int64_t row = call->in_type[0].dim[2];
  return (block){.from = call->in[0],
                 .from_row = row,
                 .from_batch = a->queries * row,
                 .to = call->out[3],
                 .to_row = a->o_row,
                 .to_batch = a->o_batch,
                 .width = a->o_row};
}

static void packed_cpu(const sl_call *call) {
  sli_attention a = view(call, &call->out_type[0], call->nin > 1 ? keep_ids(call) : NULL);
  int64_t own = a.kv_heads * a.dim, row = call->in_type[0].dim[2];
  const float *q = call->in[0], *k = q + a.heads * a.dim;
  float *record = call->out[2];
  move_rows(
      call, a.batch,
      &(move){.rows = a.queries,
              .nblocks = 3,
              .blocks = {into_record(&a, k, row, record),
                         into_record(&a, k + own, row, record + own), keep_queries(call, &a)}});
  forward(call, &a, q, row, record);
}

static void packed_again_cpu(const sl_call *call) {
  int kv = sli_piece_inputs(1, call->nin);
  sli_attention a = view(call, &call->out_type[0], sli_optional(call, kv + 1));
  move_rows(call, a.batch,
            &(move){.rows = a.queries, .nblocks = 1, .blocks = {keep_queries(call, &a)}});
  forward(call, &a, call->in[0], call->in_type[0].dim[2], call->in[kv]);
}

/* Computes dq, with rows dq_row floats apart, and dk and dv, with rows kv_row floats apart. */
static void backward(const sl_call *call, float *record, float *dq, int64_t dq_row, float *dk,
                     float *dv, int64_t kv_row) {
  sli_attention a = view(call, &call->in_type[SLI_PIECE_O], sli_optional(call, SLI_PIECE_MORE));
  int64_t own = a.kv_heads * a.dim;
  a.q = call->in[0];
  a.q_row = a.o_row;
  a.q_batch = a.o_batch;
  a.k = call->in[SLI_PIECE_KV];
  a.v = a.k + own;
  a.o = call->in[SLI_PIECE_O];
  a.lse = (float *)call->in[SLI_PIECE_LSE];
  a.do_ = call->in[SLI_PIECE_DO];
  a.dq = dq;
  a.dq_row = dq_row;
  a.dq_batch = a.queries * dq_row;
  a.dk = record;
  a.dv = record + own;
  a.part.adds_dkv = a.keys < call->attrs->place.length;
  sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  move_rows(call, a.batch,
            &(move){.rows = a.queries,
                    .nblocks = 2,
                    .blocks = {out_of_record(&a, record, dk, kv_row),
                               out_of_record(&a, record + own, dv, kv_row)}});
}

static void piece_b_cpu(const sl_call *call) {
  backward(call, call->out[3], call->out[0], call->in_type[0].dim[2], call->out[1], call->out[2],
           call->out_type[1].dim[2]);
}

static void packed_b_cpu(const sl_call *call) {
  int64_t row = call->out_type[0].dim[2], queries = call->in_type[0].dim[2];
  float *dq = call->out[0];
  float *dk = dq ? dq + queries : NULL, *dv = dk ? dk + (row - queries) / 2 : NULL;
  backward(call, call->out[1], dq, row, dk, dv, row);
}

const sl_kernel sli_cpu_attention_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_attention_piece_b = {.backend = "cpu", .run = piece_b_cpu};

const sl_kernel sli_cpu_attention_packed_piece = {.backend = "cpu", .run = packed_cpu};

const sl_kernel sli_cpu_attention_packed_piece_b = {.backend = "cpu", .run = packed_b_cpu};

const sl_kernel sli_cpu_attention_piece_again = {.backend = "cpu", .run = again_cpu};

const sl_kernel sli_cpu_attention_packed_piece_again = {.backend = "cpu", .run = packed_again_cpu};
