/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that number the documents in a row of tokens. A record keeps the state between pieces of a
 * row: how many documents have ended, and where the current one began. */
#include "ops/documents.h"
#include "ops/ops.h"

static sl_status documents_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("tokens", &in[0], SL_I32, 2));
  out[0] = out[1] = in[0];
  return SL_OK;
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(documents_infer(attrs, nin, in, out));
  out[2] = SL_TYPE(SL_I32, in[0].dim[0], SLI_DOCUMENTS_RECORD);
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

const sl_op sl_op_documents = {
    .name = "documents",
    .attrs = {&sl_attrs_tokens},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .cut = &(const sl_op_cut){.pieced = &sl_op_documents_piece},
    .infer = documents_infer,
    .shard = &(const sl_op_shard){.signatures = signatures},
};

const sl_op sl_op_documents_piece = {
    .name = "documents_piece",
    .attrs = {&sl_attrs_tokens},
    .min_in = 1,
    .max_in = 1,
    .nout = 3,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = piece_infer,
    .shard = &(const sl_op_shard){.signatures = piece_signatures},
};
