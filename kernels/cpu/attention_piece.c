/* Rows of attention over one piece of a sequence that is cut along its
 * positions, after Sun et al., arXiv 2406.03488.
 *
 * A causal query needs the keys and values of every earlier position, so they
 * are kept: kv [B, T, 2 Hkv*D] belongs to the whole sequence, and each piece
 * forward writes its rows into it and attends to all rows up to its own. On the
 * way back the pieces come in reverse. A piece's queries send gradients to the
 * keys and values of all positions before them, which belong to pieces whose
 * turn is yet to come; dkv keeps them until then. When a piece's turn comes,
 * all later ones have had theirs, so its rows of dkv, with its own share added,
 * are complete and leave as dk and dv.
 *
 * Where documents are told apart by ids, those of every position so far are kept likewise: the
 * forward pieces write theirs, and the way back finds all that it needs.
 *
 * A call that is made again on the way back finds the record as the way there has left it, with
 * the piece's own keys and values in it, and writes none of it.
 *
 * All are views for the kernel of whole sequences (vector/attention.h), whose
 * query 0 then stands at position q0. */
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

/* Of kv and dkv, where o is [B, n, Hq*D]. */
static sl_type record_type(const sl_attrs *attrs, const sl_type *o) {
  return SL_TYPE(SL_F32, o->dim[0], attrs->length, o->dim[2] / attrs->heads * 2 * sli_kv_heads(attrs));
}

/* Of the record of ids. */
static sl_type ids_type(const sl_attrs *attrs, const sl_type *x) {
  return SL_TYPE(SL_I32, x->dim[0], attrs->length);
}

static sl_status want_length(const sl_attrs *attrs, const sl_type *x) {
  if (attrs->full)
    return sl_fail(SL_E_SHAPE, "queries see the keys behind them (attrs.full), which are in pieces"
                   " that are yet to come");
  if (x->dim[1] <= attrs->length) return SL_OK;
  return sli_misfit(x, "a piece has at most the %lld positions of its sequence",
                    (long long)attrs->length);
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_infer(attrs, nin, in, out));
  SLI_TRY(want_length(attrs, &in[0]));
  out[2] = record_type(attrs, &out[0]);
  if (nin > 3) out[3] = ids_type(attrs, &in[0]);
  return SL_OK;
}

static sl_status packed_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_packed_infer(attrs, nin, in, out));
  SLI_TRY(want_length(attrs, &in[0]));
  out[2] = record_type(attrs, &out[0]);
  out[3] = out[0];
  if (nin > 1) out[4] = ids_type(attrs, &in[0]);
  return SL_OK;
}

/* The records that come behind the others where there are ids. */
static int piece_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 3 ? 4 : 3;
}

static int packed_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 1 ? 5 : 4;
}

/* A call that is made again has the records behind the inputs it had: how many those are. */
static int piece_inputs(int nin) { return nin > 4 ? 4 : 3; }
static int packed_inputs(int nin) { return nin > 2 ? 2 : 1; }

static int again_outputs(const sl_attrs *attrs, int nin) {
  return piece_outputs(attrs, piece_inputs(nin));
}

static int packed_again_outputs(const sl_attrs *attrs, int nin) {
  return packed_outputs(attrs, packed_inputs(nin));
}

/* kv is input i; behind it come the ids of the whole sequence, if any. */
static sl_status want_records(const sl_attrs *attrs, int nin, const sl_type *in, int i,
                              const sl_type *kv) {
  SLI_TRY(sli_want("kv", &in[i], kv));
  sl_type ids = ids_type(attrs, kv);
  return nin > i + 1 ? sli_want("ids", &in[i + 1], &ids) : SL_OK;
}

static sl_status again_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(piece_infer(attrs, piece_inputs(nin), in, out));
  return want_records(attrs, nin, in, piece_inputs(nin), &out[2]);
}

static sl_status packed_again_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  SLI_TRY(packed_infer(attrs, packed_inputs(nin), in, out));
  return want_records(attrs, nin, in, packed_inputs(nin), &out[2]);
}

/* in: q, kv, o, lse, do, [ids]. *own: k and v of the piece. */
static sl_status backward_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *own) {
  if (attrs->heads < 1 || in[0].ndim != 3)
    return sli_misfit(&in[0], "q must be f32[b, t, n] and heads positive");
  *own = sli_type_with_last(&in[0], in[0].dim[2] / attrs->heads * sli_kv_heads(attrs));
  const sl_type forward[] = {in[0], *own, *own};
  sl_type out[3];
  SLI_TRY(piece_infer(attrs, 3, forward, out));
  SLI_TRY(sli_want("kv", &in[1], &out[2]));
  SLI_TRY(sli_want("o", &in[2], &out[0]));
  SLI_TRY(sli_want("lse", &in[3], &out[1]));
  sl_type ids = ids_type(attrs, &in[0]);
  if (nin > 5) SLI_TRY(sli_want("ids", &in[5], &ids));
  return sli_want("do", &in[4], &out[0]);
}

static sl_status piece_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(backward_infer(attrs, nin, in, &out[1]));
  out[0] = in[0];
  out[2] = out[1];
  out[3] = in[1];
  return SL_OK;
}

static sl_status packed_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type own;
  SLI_TRY(backward_infer(attrs, nin, in, &own));
  out[0] = sli_type_with_last(&in[0], in[0].dim[2] + 2 * own.dim[2]);
  out[1] = in[1];
  return SL_OK;
}

/* What whole sequences' rows say, of the record and of q as well: both are by heads in their
 * last dim, the record first k's and then v's. Of ids all heads have all. */
static int with_records(int n, sl_signature *out, int outputs, bool ids) {
  for (int i = 0; i < n; i++)
    for (int o = 2; o < outputs; o++) out[i].out[o] = out[i].out[0];
  for (int i = 0; i < n && ids; i++)
    if (!out[i].heads) out[i].out[outputs] = out[i].out[0];
  return n;
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                            sl_signature *out) {
  return with_records(sli_attention_signatures(attrs, nin, in, out), out, 3, nin > 3);
}

static int packed_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  return with_records(sli_attention_packed_signatures(attrs, nin, in, out), out, 4, nin > 1);
}

/* Of a piece as long and as far along as the average: the pieces' sum is the
 * whole's cost. Half of the record is there then. */
static void cost(const sl_attrs *attrs, const sl_type *o, int products, double *flops,
                 double *bytes) {
  sl_type record = record_type(attrs, o);
  *flops = products * (double)sl_type_elements(o) * sli_sight_pairs(attrs, attrs->length);
  *bytes = products * (double)sl_type_bytes(o) + 0.5 * products * (double)sl_type_bytes(&record);
}

static void piece_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs, &out[0], 2, flops, bytes);
}

static void backward_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs, &in[2], 5, flops, bytes);
}

/* ---- rows from here to there ---------------------------------------------------- */

/* One block of columns in all rows of a batch of sequences. Strides in floats. */
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

/* Chunk i: sequence, tile of rows. */
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

/* ---- the kernels ------------------------------------------------------------------ */

/* The sizes of a call, and the strides of everything but q and dq; ids are those of the whole
 * sequence. */
static sli_attention view(const sl_call *call, const sl_type *o, const void *ids) {
  int64_t dim = o->dim[2] / call->attrs->heads, kv_row = 2 * sli_kv_heads(call->attrs) * dim;
  return (sli_attention){
      .batch = o->dim[0],
      .queries = o->dim[1],
      .q0 = call->tick.row,
      .keys = call->tick.row + o->dim[1],
      .heads = call->attrs->heads,
      .kv_heads = sli_kv_heads(call->attrs),
      .dim = dim,
      .sight = sli_sight_of(call->attrs, call->attrs->length, ids),
      .kv_row = kv_row,
      .kv_batch = call->attrs->length * kv_row,
      .part.dkv_batch = call->attrs->length * kv_row,
      .part.has = {0, call->tick.row + o->dim[1]},
      .o_row = o->dim[2],
      .o_batch = o->dim[1] * o->dim[2],
      .scale = sli_attention_scale(call->attrs, dim),
      .bf16 = call->attrs->bf16,
  };
}

/* k and v of the piece, k_row floats from row to row, go into the record. */
static block into_record(const sli_attention *a, const float *x, int64_t x_row, float *record) {
  return (block){.from = x, .from_row = x_row, .from_batch = a->queries * x_row,
                 .to = record + a->q0 * a->kv_row, .to_row = a->kv_row, .to_batch = a->kv_batch,
                 .width = a->kv_heads * a->dim};
}

static block out_of_record(const sli_attention *a, const float *record, float *x, int64_t x_row) {
  return (block){.from = record + a->q0 * a->kv_row, .from_row = a->kv_row,
                 .from_batch = a->kv_batch, .to = x, .to_row = x_row,
                 .to_batch = a->queries * x_row, .width = a->kv_heads * a->dim};
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

/* The piece's ids, the call's last input, go into the record of them, its last output. */
static const void *keep_ids(const sl_call *call) {
  int64_t n = call->in_type[0].dim[1], batch = call->in_type[0].dim[0];
  const int32_t *ids = call->in[call->nin - 1];
  int32_t *record = call->out[call->nout - 1];
  for (int64_t b = 0; b < batch; b++)
    memcpy(record + b * call->attrs->length + call->tick.row, ids + b * n, (size_t)n * sizeof *ids);
  return record;
}

static void piece_cpu(const sl_call *call) {
  sli_attention a = view(call, &call->out_type[0], call->nin > 3 ? keep_ids(call) : NULL);
  int64_t own = a.kv_heads * a.dim;
  float *record = call->out[2];
  move_rows(call, a.batch,
            &(move){.rows = a.queries, .nblocks = 2,
                    .blocks = {into_record(&a, call->in[1], own, record),
                               into_record(&a, call->in[2], own, record + own)}});
  forward(call, &a, call->in[0], a.o_row, record);
}

static void again_cpu(const sl_call *call) {
  int kv = piece_inputs(call->nin);
  sli_attention a = view(call, &call->out_type[0], sli_optional(call, kv + 1));
  forward(call, &a, call->in[0], a.o_row, call->in[kv]);
}

/* The piece's queries out of the packed tensor, for the way back. */
static block keep_queries(const sl_call *call, const sli_attention *a) {
  int64_t row = call->in_type[0].dim[2];
  return (block){.from = call->in[0], .from_row = row, .from_batch = a->queries * row,
                 .to = call->out[3], .to_row = a->o_row, .to_batch = a->o_batch, .width = a->o_row};
}

static void packed_cpu(const sl_call *call) {
  sli_attention a = view(call, &call->out_type[0], call->nin > 1 ? keep_ids(call) : NULL);
  int64_t own = a.kv_heads * a.dim, row = call->in_type[0].dim[2];
  const float *q = call->in[0], *k = q + a.heads * a.dim;
  float *record = call->out[2];
  move_rows(call, a.batch,
            &(move){.rows = a.queries, .nblocks = 3,
                    .blocks = {into_record(&a, k, row, record),
                               into_record(&a, k + own, row, record + own),
                               keep_queries(call, &a)}});
  forward(call, &a, q, row, record);
}

static void packed_again_cpu(const sl_call *call) {
  int kv = packed_inputs(call->nin);
  sli_attention a = view(call, &call->out_type[0], sli_optional(call, kv + 1));
  move_rows(call, a.batch,
            &(move){.rows = a.queries, .nblocks = 1, .blocks = {keep_queries(call, &a)}});
  forward(call, &a, call->in[0], call->in_type[0].dim[2], call->in[kv]);
}

/* dq, dk and dv are rows dq_row floats apart, dk and dv kv_row. */
static void backward(const sl_call *call, float *record, float *dq, int64_t dq_row, float *dk,
                     float *dv, int64_t kv_row) {
  sli_attention a = view(call, &call->in_type[2], sli_optional(call, 5));
  int64_t own = a.kv_heads * a.dim;
  a.q = call->in[0];
  a.q_row = a.o_row;
  a.q_batch = a.o_batch;
  a.k = call->in[1];
  a.v = a.k + own;
  a.o = call->in[2];
  a.lse = (float *)call->in[3];
  a.do_ = call->in[4];
  a.dq = dq;
  a.dq_row = dq_row;
  a.dq_batch = a.queries * dq_row;
  a.dk = record;
  a.dv = record + own;
  a.part.adds_dkv = a.keys < call->attrs->length;
  sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  move_rows(call, a.batch,
            &(move){.rows = a.queries, .nblocks = 2,
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

const sl_op sl_op_attention_piece = {
    .name = "attention_piece", .min_in = 3, .max_in = 4, .nout = -1, .outputs = piece_outputs,
    .narrow_in = 7, .narrow_out = 5,
    .pieces = SL_PIECES_STATE, .updates = 12, .again = &sl_op_attention_piece_again,
    .rounds = true, .infer = piece_infer, .cost = piece_cost, .cpu = piece_cpu,
    .signatures = piece_signatures,
    .grad = {{.op = &sl_op_attention_piece_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(3)},
              .nof = 3, .of = {0, 1, 2}}},
};

const sl_op sl_op_attention_piece_b = {
    .name = "attention_piece_b", .min_in = 5, .max_in = 6, .nout = 4,
    .narrow_in = 0x17, .narrow_out = 15,
    .pieces = SL_PIECES_STATE, .updates = 8,
    .rounds = true, .infer = piece_b_infer, .cost = backward_cost, .cpu = piece_b_cpu,
};

const sl_op sl_op_attention_packed_piece = {
    .name = "attention_packed_piece", .min_in = 1, .max_in = 2, .nout = -1,
    .outputs = packed_outputs,
    .narrow_in = 1, .narrow_out = 13,
    .pieces = SL_PIECES_STATE, .updates = 20, .again = &sl_op_attention_packed_piece_again,
    .rounds = true, .infer = packed_infer, .cost = piece_cost, .cpu = packed_cpu,
    .signatures = packed_signatures,
    .grad = {{.op = &sl_op_attention_packed_piece_b, .cls = SL_CLASS_B,
              .in = {SL_OUT(3), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(4)},
              .nof = 1, .of = {0}}},
};

const sl_op sl_op_attention_packed_piece_b = {
    .name = "attention_packed_piece_b", .min_in = 5, .max_in = 6, .nout = 2,
    .narrow_in = 0x17, .narrow_out = 3,
    .pieces = SL_PIECES_STATE, .updates = 2,
    .rounds = true, .infer = packed_b_infer, .cost = backward_cost, .cpu = packed_b_cpu,
};

const sl_op sl_op_attention_piece_again = {
    .name = "attention_piece_again", .min_in = 4, .max_in = 6, .nout = -1,
    .outputs = again_outputs, .narrow_in = 31, .narrow_out = 5, .unread = 6,
    .pieces = SL_PIECES_STATE,
    .rounds = true, .infer = again_infer, .cost = piece_cost, .cpu = again_cpu,
};

const sl_op sl_op_attention_packed_piece_again = {
    .name = "attention_packed_piece_again", .min_in = 2, .max_in = 4, .nout = -1,
    .outputs = packed_again_outputs, .narrow_in = 7, .narrow_out = 13,
    .pieces = SL_PIECES_STATE,
    .rounds = true, .infer = packed_again_infer, .cost = piece_cost, .cpu = packed_again_cpu,
};
