/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention over one piece of a sequence whose keys and values arrive piece by piece
 * (Yao et al., arXiv 2408.16978). ops/attention_sweep.c describes the running state. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* ---- moving columns -------------------------------------------------------------------------- */

/* Columns of rows, moved from one array to another. */
typedef struct columns {
  const float *from;
  float *to;
  int64_t from_row, to_row, width;
} columns;

typedef struct move {
  int64_t rows;
  int count;
  columns columns[3];
} move;

enum { MOVE_ROWS = 64 };

static void move_chunk(void *arg, int i) {
  const move *m = arg;
  sli_range rows = sli_chunk_range(m->rows, MOVE_ROWS, i);
  for (int b = 0; b < m->count; b++) {
    const columns *x = &m->columns[b];
    for (int64_t r = rows.begin; x->to && r < rows.end; r++)
      memcpy(x->to + r * x->to_row, x->from + r * x->from_row, (size_t)x->width * sizeof *x->to);
  }
}

static void move_rows(const sl_call *call, move *m) {
  sl_team_for(call->team, sli_chunk_count(m->rows, MOVE_ROWS), move_chunk, m);
}

static int64_t attention_sweep_rows_of(const sl_type *type) { return type->dim[0] * type->dim[1]; }

static void parts_cpu(const sl_call *call) {
  int64_t q = call->in_type[0].dim[2], kv = call->in_type[1].dim[2];
  float *to = call->out[1];
  move_rows(call, &(move){.rows = attention_sweep_rows_of(&call->in_type[0]),
                          .count = 3,
                          .columns = {{call->in[0], call->out[0], q, q, q},
                                      {call->in[1], to, kv, 2 * kv, kv},
                                      {call->in[2], to ? to + kv : NULL, kv, 2 * kv, kv}}});
}

static void parts_b_cpu(const sl_call *call) {
  int64_t q = call->in_type[0].dim[2], kv = call->in_type[1].dim[2] / 2;
  const float *dkv = call->in[1];
  move_rows(call, &(move){.rows = attention_sweep_rows_of(&call->in_type[0]),
                          .count = 3,
                          .columns = {{call->in[0], call->out[0], q, q, q},
                                      {dkv, call->out[1], 2 * kv, kv, kv},
                                      {dkv + kv, call->out[2], 2 * kv, kv, kv}}});
}

static void packed_parts_cpu(const sl_call *call) {
  int64_t row = call->in_type[0].dim[2], q = call->out_type[0].dim[2], kv = row - q;
  const float *qkv = call->in[0];
  move_rows(call, &(move){.rows = attention_sweep_rows_of(&call->in_type[0]),
                          .count = 2,
                          .columns = {{qkv, call->out[0], row, q, q},
                                      {qkv + q, call->out[1], row, kv, kv}}});
}

static void packed_parts_b_cpu(const sl_call *call) {
  int64_t row = call->out_type[0].dim[2], q = call->in_type[0].dim[2], kv = row - q;
  float *dqkv = call->out[0];
  move_rows(call, &(move){.rows = attention_sweep_rows_of(&call->in_type[0]),
                          .count = 2,
                          .columns = {{call->in[0], dqkv, q, row, q},
                                      {call->in[1], dqkv + q, kv, row, kv}}});
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Returns the number of this call's piece of keys. The previous call left it in row `row` of an
 * output, an extra row that holds no position. With `falls`, pieces descend from the call's own. */
static int next_piece(const sl_call *call, int output, int64_t row, bool falls) {
  const sl_type *type = &call->out_type[output];
  int64_t width = type->dim[2], batch = type->dim[1] * width;
  float *at = (float *)call->out[output] + row * width;
  int j = call->accumulate >> output & 1 ? (int)*at : 0, own = call->tick.piece;
  float next = (float)(falls ? (j ? j - 1 : own + 1) : j == own ? 0 : j + 1);
  for (int64_t b = 0; b < type->dim[0]; b++)
    for (int64_t i = 0; i < width; i++) at[b * batch + i] = next;
  return j;
}

/* Fills the sizes of a run of a call's queries, for piece j of the keys. */
static sli_attention view(const sl_call *call, const sli_query_run *run, int j, const void *ids) {
  const sl_call_cut *cut = call->attrs->user;
  const sl_type *q = &call->in_type[0];
  int64_t dim = q->dim[2] / call->attrs->attention.heads,
          kv_row = 2 * sli_kv_heads(call->attrs) * dim;
  SLI_CHECK(j >= 0 && j <= call->tick.piece,
            "%s: keys of piece %d are later than queries of piece %d", call->op->name, j,
            call->tick.piece);
  int64_t from = cut->starts[j], to = cut->starts[j + 1];
  return (sli_attention){.batch = q->dim[0],
                         .queries = run->rows,
                         .q0 = run->at,
                         .keys = cut->starts[call->tick.piece + 1],
                         .heads = call->attrs->attention.heads,
                         .kv_heads = sli_kv_heads(call->attrs),
                         .dim = dim,
                         .mask = sli_mask_of(call->attrs, call->attrs->place.length, ids),
                         .q = (const float *)call->in[0] + run->row * q->dim[2],
                         .q_row = q->dim[2],
                         .q_batch = q->dim[1] * q->dim[2],
                         .k = call->in[1],
                         .v = (const float *)call->in[1] + kv_row / 2,
                         .kv_row = kv_row,
                         .kv_batch = (to - from) * kv_row,
                         .part = {.lse_row = q->dim[1], .has = {from, to}},
                         .o_row = q->dim[2],
                         .o_batch = q->dim[1] * q->dim[2],
                         .scale = sli_attention_scale(call->attrs, dim),
                         .bf16 = call->attrs->numbers.bf16};
}

/* Copies the piece's ids into the record of all ids. */
static const void *keep_ids(const sl_call *call) {
  int64_t n = call->in_type[2].dim[1], batch = call->in_type[2].dim[0];
  const int32_t *ids = call->in[2];
  int32_t *record = call->out[4];
  for (int64_t b = 0; b < batch; b++)
    memcpy(record + b * call->attrs->place.length + call->tick.row, ids + b * n,
           (size_t)n * sizeof *ids);
  return record;
}

/* Stores the keys of the tile that the next piece completes, each at its place in the tile. */
static void keep_tail(const sli_sweep *w, float *tail) {
  const sli_attention *a = &w->a;
  sli_range has = a->part.has;
  int64_t at = has.begin % SLI_KEY_TILE;
  int64_t rows = SLI_MIN(has.end - has.begin, SLI_KEY_TILE - at);
  for (int64_t b = 0; b < a->batch && at; b++)
    memcpy(tail + b * w->tail_batch + at * a->kv_row, a->k + b * a->kv_batch,
           (size_t)(rows * a->kv_row) * sizeof *tail);
}

static void sweep_cpu(const sl_call *call) {
  int k = call->tick.piece;
  const sl_type *tails = &call->out_type[2];
  float *tail = call->out[2];
  int j = next_piece(call, 2, SLI_KEY_TILE, true);
  const void *ids = call->nin > 2 ? keep_ids(call) : NULL;
  sli_sweep w = {
      .begins = j == k, .ends = j == 0, .tail = tail, .tail_batch = tails->dim[1] * tails->dim[2]};
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, call->in_type[0].dim[1], runs);
  for (int i = 0; i < count; i++) {
    w.a = view(call, &runs[i], j, ids);
    w.a.out = (float *)call->out[0] + runs[i].row * w.a.o_row;
    w.a.lse = call->out[1] ? (float *)call->out[1] + runs[i].row : NULL;
    w.seen = (float *)call->out[3] + runs[i].row;
    sl_team_for(call->team, (int)(w.a.batch * w.a.heads * sli_query_tiles(&w.a)),
                sli_cpu()->attention_sweep, &w);
  }
  if (!w.ends) keep_tail(&w, tail);
}

/* Copies complete rows of dkv to the output. */
static void hand_on(const sl_call *call, const sli_attention *a, const float *dkv) {
  float *to = call->out[1];
  for (int64_t b = 0; to && b < a->batch; b++)
    memcpy(to + b * a->kv_batch, dkv + b * a->part.dkv_batch + a->part.has.begin * a->kv_row,
           (size_t)a->kv_batch * sizeof *to);
}

/* Fills the sizes of the backward pass of a run of queries, for piece j of the keys. */
static sli_attention view_back(const sl_call *call, const sli_query_run *run, int j) {
  const sl_type *all = &call->out_type[2];
  float *dq = call->out[0];
  sli_attention a = view(call, run, j, sli_optional(call, 5));
  int64_t from = run->row * a.o_row;
  a.o = (const float *)call->in[2] + from;
  a.lse = (float *)call->in[3] + run->row;
  a.do_ = (const float *)call->in[4] + from;
  a.dq = dq ? dq + from : NULL;
  a.dq_row = a.q_row;
  a.dq_batch = a.q_batch;
  a.dk = call->out[2];
  a.dv = a.dk + a.kv_row / 2;
  a.part.dkv_batch = all->dim[1] * all->dim[2];
  a.resumes = j > 0;
  return a;
}

static void sweep_b_cpu(const sl_call *call) {
  const sl_call_cut *cut = call->attrs->user;
  int k = call->tick.piece, j = next_piece(call, 2, call->attrs->place.length, false);
  sli_attention a;
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, call->in_type[0].dim[1], runs);
  for (int i = 0; i < count; i++) {
    a = view_back(call, &runs[i], j);
    a.part.adds_dkv = i > 0 || k < cut->pieces - 1;
    sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  }
  if (j == k) hand_on(call, &a, call->out[2]);
}

const sl_kernel sli_cpu_attention_parts = {.backend = "cpu", .run = parts_cpu};

const sl_kernel sli_cpu_attention_parts_b = {.backend = "cpu", .run = parts_b_cpu};

const sl_kernel sli_cpu_attention_packed_parts = {.backend = "cpu", .run = packed_parts_cpu};

const sl_kernel sli_cpu_attention_packed_parts_b = {.backend = "cpu", .run = packed_parts_b_cpu};

const sl_kernel sli_cpu_attention_sweep = {.backend = "cpu", .run = sweep_cpu};

const sl_kernel sli_cpu_attention_sweep_b = {.backend = "cpu", .run = sweep_b_cpu};
