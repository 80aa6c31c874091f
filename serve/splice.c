/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder rows that replace the embeddings of some prompt tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph.h"
#include "serve/serve.h"

int64_t sl_session_width(const sl_session *s) { return s->graph->spans.width; }

/* ---- submission ----------------------------------------------------------------------------- */

/* Checks the rows of a request. In a session within a training plan, the plan's encoder computes
 * them. */
static sl_status check_rows(const sl_session *s, const sl_request *request, const sl_spliced *x) {
  if (!sl_session_width(s))
    return sl_fail(SL_E_USAGE,
                   "the prompt has rows in place of embeddings, which this model does not support");
  if (!s->steps.ticks && (!x->rows || x->count < 1))
    return sl_fail(SL_E_USAGE, "the prompt has placeholders for rows, but no rows");
  for (int64_t i = 0; i < request->nprompt; i++)
    if (x->at[i] < -1 || x->at[i] >= x->count)
      return sl_fail(SL_E_USAGE,
                     "token %lld of the prompt stands for row %d, but there are %lld rows",
                     (long long)i, x->at[i], (long long)x->count);
  return SL_OK;
}

/* Copies the rows and adds them to the salt, since prompts with different rows must not share
 * pages. */
static sl_status copy_rows(const sl_session *s, const sl_spliced *x, request *r) {
  size_t places = (size_t)r->text.prompt * sizeof *r->text.splice;
  SLI_TRY(SLI_ALLOCATE(r->text.splice, (size_t)r->text.prompt, "the placeholders of a request"));
  memcpy(r->text.splice, x->at, places);
  r->how.salt = sli_hash(sli_hash(SLI_HASH_SEED, &r->how.salt, sizeof r->how.salt), x->at, places);
  if (s->steps.ticks) return SL_OK;
  size_t count = (size_t)(x->count * sl_session_width(s)), bytes = count * sizeof *r->text.rows;
  SLI_TRY(SLI_ALLOCATE(r->text.rows, count, "the rows of a request"));
  memcpy(r->text.rows, x->rows, bytes);
  r->how.salt = sli_hash(r->how.salt, r->text.rows, bytes);
  return SL_OK;
}

sl_status sl_session_submit_spliced(sl_session *s, const sl_request *q, const sl_spliced *x,
                                    uint64_t *id) {
  SLI_TRY(sli_session_may_submit(s, q));
  SLI_TRY(check_rows(s, q, x));
  request *r = sli_session_make(s, q);
  sl_status status = copy_rows(s, x, r);
  if (!status) return sli_session_append(s, r, id);
  sli_session_forget(r);
  return status;
}

/* ---- ticks ---------------------------------------------------------------------------------- */

/* Writes the row that replaces the embedding at position `at` of a request, as row `row` of the
 * batch. */
static void splice(const request *r, const float *rows, int64_t at, int64_t width, sl_batch *batch,
                   int32_t row) {
  bool all = rows && rows == r->draft.hidden;
  int32_t from = all                                     ? (int32_t)at
                 : r->text.splice && at < r->text.prompt ? r->text.splice[at]
                                                         : -1;
  int32_t *to = (int32_t *)sl_batch_spliced(batch) + row;
  *to = from;
  if (from < 0 || !rows) return;
  *to = row;
  memcpy((float *)sl_batch_spliced_rows(batch) + row * width, rows + from * width,
         (size_t)width * sizeof(float));
}

void sli_session_splice(const sl_session *s, const part *p, sl_batch *batch, int32_t row) {
  int64_t width = sl_session_width(s);
  const float *rows = s->speculation.target ? p->request->draft.hidden : p->request->text.rows;
  for (int32_t i = 0; i < p->rows && width; i++)
    splice(p->request, rows, p->from + i, width, batch, row + i);
}
