/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that number the documents in a row of tokens. A record keeps the state between pieces
 * of a row: how many documents have ended, and where the current one began. */
#include "kernels/cpu/kernels.h"
#include "ops/documents.h"
#include "ops/ops.h"

/* Numbers the documents in n tokens of one row, the first of which is at position `row`. */
static void tell(const sl_call *call, const int32_t *tokens, int64_t row, int64_t n,
                 int32_t *record, int32_t *ids, int32_t *positions) {
  for (int64_t t = 0; t < n; t++) {
    int32_t at = (int32_t)(row + t);
    if (ids) ids[t] = record[SLI_DOCUMENTS_COUNT];
    if (positions) positions[t] = at - record[SLI_DOCUMENTS_BEGIN];
    if (tokens[t] != call->attrs->tokens.end) continue;
    record[SLI_DOCUMENTS_COUNT]++;
    record[SLI_DOCUMENTS_BEGIN] = at + 1;
  }
}

static void documents_cpu(const sl_call *call) {
  int64_t batch = call->in_type[0].dim[0], n = call->in_type[0].dim[1];
  const int32_t *tokens = call->in[0];
  int32_t *ids = call->out[0], *positions = call->out[1];
  for (int64_t b = 0; b < batch; b++) {
    int32_t none[SLI_DOCUMENTS_RECORD] = {0},
            *record = call->nout > 2 ? (int32_t *)call->out[2] + b * SLI_DOCUMENTS_RECORD : none;
    if (!call->tick.row) record[SLI_DOCUMENTS_COUNT] = record[SLI_DOCUMENTS_BEGIN] = 0;
    tell(call, tokens + b * n, call->tick.row, n, record, ids ? ids + b * n : NULL,
         positions ? positions + b * n : NULL);
  }
}

const sl_kernel sli_cpu_documents = {.backend = "cpu", .run = documents_cpu};

const sl_kernel sli_cpu_documents_piece = {.backend = "cpu", .run = documents_cpu};
