/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of attention for one device's share of a piece's queries. ops/attention_piece.c
 * describes the sharding and the records.
 *
 * Queries are one or two runs of positions, each a view for the whole-sequence kernel
 * (vector/attention.h). Results per query equal those on one device (attention_piece.c). */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/attention_piece.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* ---- moving rows ---------------------------------------------------------------- */

/* Moves the piece's rows, row_bytes each, into a record or out of it. */
typedef struct move {
  int64_t rows, row_bytes, tiles;
  const char *from;
  char *to;
  int64_t from_batch, to_batch; /* in rows */
} move;

enum { MOVE_ROWS = 64 };

/* Moves chunk i, one sequence's tile of rows. */
static void move_chunk(void *arg, int i) {
  const move *m = arg;
  int64_t b = i / m->tiles;
  sli_range r = sli_chunk_range(m->rows, MOVE_ROWS, (int)(i % m->tiles));
  memcpy(m->to + (b * m->to_batch + r.begin) * m->row_bytes,
         m->from + (b * m->from_batch + r.begin) * m->row_bytes,
         (size_t)((r.end - r.begin) * m->row_bytes));
}

static void move_rows(const sl_call *call, int64_t batch, move m) {
  m.tiles = sli_chunk_count(m.rows, MOVE_ROWS);
  if (m.to) sl_team_for(call->team, (int)(batch * m.tiles), move_chunk, &m);
}

static int64_t row_bytes(const sl_type *type) {
  return (type->ndim > 2 ? type->dim[2] : 1) * (int64_t)sizeof(float);
}

/* Copies the piece's gathered rows into their record. */
static void keep(const sl_call *call, const sl_type *type, const void *rows, void *record) {
  move_rows(call, type->dim[0],
            (move){.rows = type->dim[1],
                   .row_bytes = row_bytes(type),
                   .from = rows,
                   .to = (char *)record + call->tick.row * row_bytes(type),
                   .from_batch = type->dim[1],
                   .to_batch = call->attrs->place.length});
}

static void give(const sl_call *call, const sl_type *type, const void *record, void *rows) {
  move_rows(call, type->dim[0],
            (move){.rows = type->dim[1],
                   .row_bytes = row_bytes(type),
                   .to = rows,
                   .from = (const char *)record + call->tick.row * row_bytes(type),
                   .from_batch = call->attrs->place.length,
                   .to_batch = type->dim[1]});
}

/* ---- kernels ---------------------------------------------------------------------- */

/* Fills the sizes of a run of queries, with the keys up to the end of the piece. */
static sli_attention view(const sl_call *call, const sli_query_run *run, int64_t keys,
                          const void *record, const void *ids) {
  const sl_attrs *attrs = call->attrs;
  const sl_type *q = &call->in_type[0];
  int64_t dim = q->dim[2] / attrs->attention.heads, row = q->dim[2], batch = q->dim[1] * row;
  int64_t kv_row = 2 * sli_kv_heads(attrs) * dim;
  return (sli_attention){.batch = q->dim[0],
                         .queries = run->rows,
                         .q0 = run->at,
                         .keys = keys,
                         .heads = attrs->attention.heads,
                         .kv_heads = sli_kv_heads(attrs),
                         .dim = dim,
                         .mask = sli_mask_of(attrs, attrs->place.length, ids),
                         .q = (const float *)call->in[0] + run->row * row,
                         .q_row = row,
                         .q_batch = batch,
                         .dq_row = row,
                         .dq_batch = batch,
                         .o_row = row,
                         .o_batch = batch,
                         .k = record,
                         .v = (const float *)record + kv_row / 2,
                         .kv_row = kv_row,
                         .kv_batch = attrs->place.length * kv_row,
                         .part = {q->dim[1], attrs->place.length * kv_row, {0, keys}, false, 0},
                         .scale = sli_attention_scale(attrs, dim),
                         .bf16 = attrs->numbers.bf16};
}

static void forward(const sl_call *call, int64_t keys, const void *record, const void *ids) {
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, call->in_type[0].dim[1], runs);
  for (int i = 0; i < count; i++) {
    sli_attention a = view(call, &runs[i], keys, record, ids);
    float *lse = call->out[1], *out = call->out[0];
    a.out = out ? out + runs[i].row * a.o_row : NULL;
    a.lse = lse ? lse + runs[i].row : NULL;
    sl_team_for(call->team, sli_attention_cut(&a, call->team), sli_cpu()->attention, &a);
  }
}

static void share_cpu(const sl_call *call) {
  bool ids = call->nin > 2;
  keep(call, &call->in_type[1], call->in[1], call->out[2]);
  if (ids) keep(call, &call->in_type[2], call->in[2], call->out[3]);
  forward(call, call->tick.row + call->in_type[1].dim[1], call->out[2], ids ? call->out[3] : NULL);
}

static void again_cpu(const sl_call *call) {
  int record = sli_piece_inputs(2, call->nin);
  forward(call, call->tick.row + call->in_type[1].dim[1], call->in[record],
          sli_optional(call, record + 1));
}

static void share_b_cpu(const sl_call *call) {
  const sl_type *kv = &call->in_type[SLI_PIECE_MORE];
  int64_t keys = call->tick.row + kv->dim[1];
  float *dq = call->out[0], *record = call->out[2];
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, call->in_type[0].dim[1], runs);
  for (int i = 0; i < count; i++) {
    sli_attention a =
        view(call, &runs[i], keys, call->in[SLI_PIECE_KV], sli_optional(call, SLI_PIECE_MORE + 1));
    int64_t from = runs[i].row * a.o_row;
    a.o = (const float *)call->in[SLI_PIECE_O] + from;
    a.do_ = (const float *)call->in[SLI_PIECE_DO] + from;
    a.lse = (float *)call->in[SLI_PIECE_LSE] + runs[i].row;
    a.dq = dq ? dq + from : NULL;
    a.dk = record;
    a.dv = record + a.kv_row / 2;
    a.part.adds_dkv = i > 0 || keys < call->attrs->place.length;
    sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  }
  give(call, kv, record, call->out[1]);
}

const sl_kernel sli_cpu_attention_share = {.backend = "cpu", .run = share_cpu};

const sl_kernel sli_cpu_attention_share_b = {.backend = "cpu", .run = share_b_cpu};

const sl_kernel sli_cpu_attention_share_again = {.backend = "cpu", .run = again_cpu};
