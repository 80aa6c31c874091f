/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts from earlier text: the tokens that followed an earlier occurrence of a request's newest
 * tokens. */
#include "serve/serve.h"

static double ngram_find(sl_session *s, int n, draft *of) {
  int least = s->options.speculation.match ? s->options.speculation.match : SLI_LOOKUP_SHORTEST;
  for (int i = 0; i < n; i++) {
    request *r = of[i].part->request;
    if (!of[i].most) continue;
    if (!r->draft.lookup) r->draft.lookup = sli_lookup_create();
    of[i].n = sli_lookup_find(r->draft.lookup, r->text.tokens, r->text.count, least, of[i].most,
                              r->draft.tokens, &r->draft.match);
  }
  return 0;
}

static void ngram_leave(const sl_session *s, request *r) {
  (void)s;
  sli_lookup_destroy(r->draft.lookup);
  r->draft.lookup = NULL;
}

const sli_drafter sli_drafter_ngram = {.find = ngram_find, .leave = ngram_leave};
