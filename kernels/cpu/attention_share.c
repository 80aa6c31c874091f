/* Rows of attention for a share of a piece's queries.
 *
 * Where sequences are cut in pieces and devices share out the positions of each, a device has the queries of
 * its own and brings itself the keys and values of the others: those of the whole piece are one array then.
 * Its record keeps them for the pieces behind, so each position crosses once there and its gradient once back.
 * What these queries send to the keys of earlier positions grows in a record of this device alone; a piece's
 * rows of that, complete when its turn comes, are this device's summand of the piece's gradient.
 *
 * Queries are one run of positions or two, each a view for the kernel of whole sequences
 * (vector/attention.h). A query's numbers are those that one device finds for it (attention_piece.c). */
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

/* What a call reads behind q and the record. */
enum { BACK_O = 2, BACK_LSE, BACK_DO, BACK_KV, BACK_IDS };

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type with_rows(sl_type type, int64_t rows) {
  type.dim[1] = rows;
  return type;
}

static sl_type ids_type(const sl_attrs *attrs, const sl_type *q) {
  return SL_TYPE(SL_I32, q->dim[0], attrs->length);
}

static sl_status want_piece(const sl_attrs *attrs, const sl_type *q, const sl_type *kv) {
  SLI_TRY(sli_want_share(attrs, q, kv));
  if (attrs->full)
    return sl_fail(SL_E_SHAPE, "queries see the keys behind them (attrs.full), which are in pieces"
                   " that are yet to come");
  if (kv->dim[1] <= attrs->length) return SL_OK;
  return sli_misfit(kv, "a piece has at most the %lld positions of its sequence", (long long)attrs->length);
}

static sl_status share_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_piece(attrs, &in[0], &in[1]));
  if (nin > 2) SLI_TRY(sli_want_ids(&in[2], &in[1]));
  out[0] = in[0];
  out[1] = SL_TYPE(SL_F32, in[0].dim[0], attrs->heads, in[0].dim[1]);
  out[2] = with_rows(in[1], attrs->length);
  if (nin > 2) out[3] = ids_type(attrs, &in[0]);
  return SL_OK;
}

static int share_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 2 ? 4 : 3;
}

/* A call that is made again has the records behind the inputs it had: how many those are. */
static int inputs_before(int nin) { return nin > 3 ? 3 : 2; }

static int again_outputs(const sl_attrs *attrs, int nin) {
  return share_outputs(attrs, inputs_before(nin));
}

static sl_status again_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int record = inputs_before(nin);
  SLI_TRY(share_infer(attrs, record, in, out));
  SLI_TRY(sli_want("record", &in[record], &out[2]));
  return nin > record + 1 ? sli_want("ids", &in[record + 1], &out[3]) : SL_OK;
}

static sl_status share_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[3], ids = ids_type(attrs, &in[0]), parts[] = {in[0], in[BACK_KV]};
  SLI_TRY(share_infer(attrs, 2, parts, forward));
  SLI_TRY(sli_want("record", &in[1], &forward[2]));
  SLI_TRY(sli_want("o", &in[BACK_O], &forward[0]));
  SLI_TRY(sli_want("lse", &in[BACK_LSE], &forward[1]));
  SLI_TRY(sli_want("do", &in[BACK_DO], &forward[0]));
  if (nin > BACK_IDS) SLI_TRY(sli_want("ids", &in[BACK_IDS], &ids));
  out[0] = in[0];
  out[1] = in[BACK_KV];
  out[2] = in[1];
  return SL_OK;
}

/* Sequences or heads, as whole sequences' rows say; positions as whoever shares them out says. */
static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){.out = {sli_split(2), sli_split(1), sli_split(2)}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < 2; i++) out[1].in[i] = sli_split(2);
  if (nin > 2) out[0].out[3] = sli_split(0);
  return 2;
}

/* Of a piece as long and as far along as the average; half of the record is there then. */
static void cost(const sl_attrs *attrs, const sl_type *o, const sl_type *record, int products, double *flops,
                 double *bytes) {
  *flops = products * (double)sl_type_elements(o) * sli_sight_pairs(attrs, attrs->length);
  *bytes = products * (double)sl_type_bytes(o) + 0.5 * products * (double)sl_type_bytes(record);
}

static void share_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs, &out[0], &out[2], 2, flops, bytes);
}

static void share_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs, &in[BACK_O], &in[1], 5, flops, bytes);
}

/* ---- rows from here to there ---------------------------------------------------- */

/* The piece's rows of a record, so many bytes a row, into it or out of it. */
typedef struct move {
  int64_t rows, row_bytes, tiles;
  const char *from;
  char *to;
  int64_t from_batch, to_batch; /* in rows */
} move;

enum { MOVE_ROWS = 64 };

/* Chunk i: sequence, tile of rows. */
static void move_chunk(void *arg, int i) {
  const move *m = arg;
  int64_t b = i / m->tiles;
  sli_range r = sli_chunk_range(m->rows, MOVE_ROWS, (int)(i % m->tiles));
  memcpy(m->to + (b * m->to_batch + r.begin) * m->row_bytes,
         m->from + (b * m->from_batch + r.begin) * m->row_bytes, (size_t)((r.end - r.begin) * m->row_bytes));
}

static void move_rows(const sl_call *call, int64_t batch, move m) {
  m.tiles = sli_chunk_count(m.rows, MOVE_ROWS);
  if (m.to) sl_team_for(call->team, (int)(batch * m.tiles), move_chunk, &m);
}

static int64_t row_bytes(const sl_type *type) {
  return (type->ndim > 2 ? type->dim[2] : 1) * (int64_t)sizeof(float);
}

/* What has come of the piece goes into the record of it. */
static void keep(const sl_call *call, const sl_type *type, const void *rows, void *record) {
  move_rows(call, type->dim[0],
            (move){.rows = type->dim[1], .row_bytes = row_bytes(type), .from = rows,
                   .to = (char *)record + call->tick.row * row_bytes(type), .from_batch = type->dim[1],
                   .to_batch = call->attrs->length});
}

static void give(const sl_call *call, const sl_type *type, const void *record, void *rows) {
  move_rows(call, type->dim[0],
            (move){.rows = type->dim[1], .row_bytes = row_bytes(type), .to = rows,
                   .from = (const char *)record + call->tick.row * row_bytes(type),
                   .from_batch = call->attrs->length, .to_batch = type->dim[1]});
}

/* ---- the kernels ------------------------------------------------------------------ */

/* The sizes of a run of queries, with the keys up to the end of the piece. */
static sli_attention view(const sl_call *call, const sli_query_run *run, int64_t keys, const void *record,
                          const void *ids) {
  const sl_attrs *attrs = call->attrs;
  const sl_type *q = &call->in_type[0];
  int64_t dim = q->dim[2] / attrs->heads, row = q->dim[2], batch = q->dim[1] * row;
  int64_t kv_row = 2 * sli_kv_heads(attrs) * dim;
  return (sli_attention){
      .batch = q->dim[0], .queries = run->rows, .q0 = run->at, .keys = keys, .heads = attrs->heads,
      .kv_heads = sli_kv_heads(attrs), .dim = dim, .sight = sli_sight_of(attrs, attrs->length, ids),
      .q = (const float *)call->in[0] + run->row * row, .q_row = row, .q_batch = batch, .dq_row = row,
      .dq_batch = batch, .o_row = row, .o_batch = batch, .k = record,
      .v = (const float *)record + kv_row / 2, .kv_row = kv_row, .kv_batch = attrs->length * kv_row,
      .part = {q->dim[1], attrs->length * kv_row, {0, keys}}, .scale = sli_attention_scale(attrs, dim),
      .bf16 = attrs->bf16};
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
  int record = inputs_before(call->nin);
  forward(call, call->tick.row + call->in_type[1].dim[1], call->in[record],
          sli_optional(call, record + 1));
}

static void share_b_cpu(const sl_call *call) {
  const sl_type *kv = &call->in_type[BACK_KV];
  int64_t keys = call->tick.row + kv->dim[1];
  float *dq = call->out[0], *record = call->out[2];
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, call->in_type[0].dim[1], runs);
  for (int i = 0; i < count; i++) {
    sli_attention a = view(call, &runs[i], keys, call->in[1], sli_optional(call, BACK_IDS));
    int64_t from = runs[i].row * a.o_row;
    a.o = (const float *)call->in[BACK_O] + from;
    a.do_ = (const float *)call->in[BACK_DO] + from;
    a.lse = (float *)call->in[BACK_LSE] + runs[i].row;
    a.dq = dq ? dq + from : NULL;
    a.dk = record;
    a.dv = record + a.kv_row / 2;
    a.part.adds_dkv = i > 0 || keys < call->attrs->length;
    sl_team_for(call->team, (int)(a.batch * a.kv_heads), sli_cpu()->attention_b, &a);
  }
  give(call, kv, record, call->out[1]);
}

const sl_op sl_op_attention_share = {
    .name = "attention_share", .min_in = 2, .max_in = 3, .nout = -1, .outputs = share_outputs,
    .narrow_in = 3, .narrow_out = 5,
    .pieces = SL_PIECES_STATE, .updates = 12, .again = &sl_op_attention_share_again,
    .rounds = true, .infer = share_infer, .cost = share_cost, .cpu = share_cpu, .signatures = signatures,
    .grad = {{.op = &sl_op_attention_share_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_IN(1), SL_OUTS(3)},
              .nof = 2, .of = {0, 1}}},
};

const sl_op sl_op_attention_share_b = {
    .name = "attention_share_b", .min_in = 6, .max_in = 7, .nout = 3,
    .narrow_in = 0x37, .narrow_out = 7, .unread = 1u << BACK_KV,
    .pieces = SL_PIECES_STATE, .updates = 4,
    .rounds = true, .infer = share_b_infer, .cost = share_b_cost, .cpu = share_b_cpu,
};

const sl_op sl_op_attention_share_again = {
    .name = "attention_share_again", .min_in = 3, .max_in = 5, .nout = -1,
    .outputs = again_outputs, .narrow_in = 31, .narrow_out = 5, .unread = 2,
    .pieces = SL_PIECES_STATE,
    .rounds = true, .infer = again_infer, .cost = share_cost, .cpu = again_cpu,
};
