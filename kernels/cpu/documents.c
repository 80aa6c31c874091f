/* Rows that tell the documents of a row of tokens apart. What pieces have seen of a row so far, a
 * record keeps: how many documents have ended, and where the one that goes on began. */
#include "kernels/kernels.h"

enum { COUNT, BEGIN, RECORD };

static sl_status documents_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("tokens", &in[0], SL_I32, 2));
  out[0] = out[1] = in[0];
  return SL_OK;
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(documents_infer(attrs, nin, in, out));
  out[2] = SL_TYPE(SL_I32, in[0].dim[0], RECORD);
  return SL_OK;
}

static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0), sli_split(0)}};
  return 1;
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int n = signatures(attrs, nin, in, out);
  out[0].out[2] = sli_split(0);
  return n;
}

/* Tokens of one row, of which the first stands at position `row`. */
static void tell(const sl_call *call, const int32_t *tokens, int64_t row, int64_t n,
                 int32_t *record, int32_t *ids, int32_t *positions) {
  for (int64_t t = 0; t < n; t++) {
    int32_t at = (int32_t)(row + t);
    if (ids) ids[t] = record[COUNT];
    if (positions) positions[t] = at - record[BEGIN];
    if (tokens[t] != call->attrs->end) continue;
    record[COUNT]++;
    record[BEGIN] = at + 1;
  }
}

static void documents_cpu(const sl_call *call) {
  int64_t batch = call->in_type[0].dim[0], n = call->in_type[0].dim[1];
  const int32_t *tokens = call->in[0];
  int32_t *ids = call->out[0], *positions = call->out[1];
  for (int64_t b = 0; b < batch; b++) {
    int32_t none[RECORD] = {0}, *record = call->nout > 2 ? (int32_t *)call->out[2] + b * RECORD : none;
    if (!call->tick.row) record[COUNT] = record[BEGIN] = 0;
    tell(call, tokens + b * n, call->tick.row, n, record, ids ? ids + b * n : NULL,
         positions ? positions + b * n : NULL);
  }
}

const sl_op sl_op_documents = {
    .name = "documents", .min_in = 1, .max_in = 1, .nout = 2,
    .pieced = &sl_op_documents_piece,
    .infer = documents_infer, .cpu = documents_cpu, .signatures = signatures,
};

const sl_op sl_op_documents_piece = {
    .name = "documents_piece", .min_in = 1, .max_in = 1, .nout = 3,
    .pieces = SL_PIECES_STATE, .updates = 4,
    .infer = piece_infer, .cpu = documents_cpu, .signatures = piece_signatures,
};
