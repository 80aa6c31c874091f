/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the masks of tokens that the constraints of a tick's requests allow. */
#include <string.h>

#include "serve/serve.h"

/* Returns the next tick to constrain; it does not change until it completes. */
static const tick *next_allowed(sl_session *s) {
  pthread_mutex_lock(&s->lock);
  const tick *t = &s->ticks.ring[s->ticks.allowed++ % (uint64_t)s->ticks.most];
  pthread_mutex_unlock(&s->lock);
  return t;
}

/* Writes the masks of a part's picks. A pick after a drafted token that is not allowed is discarded
 * later. */
static void allow_part(const sl_session *s, const part *p, uint32_t *row) {
  request *r = p->request;
  const sl_constraint *c = &r->how.constraint;
  r->progress.stuck = -1;
  for (int i = 0; i <= p->drafted; i++, row += s->serving.words) {
    memset(row, 0, (size_t)s->serving.words * sizeof *row);
    if (!c->allow(c->ctx, i, r->draft.tokens, row) && r->progress.stuck < 0)
      r->progress.stuck = r->text.count + i;
  }
}

/* A request with a token in flight lives until the tick completes, so the constraints are called
 * without the lock. */
void sli_session_allow(void *ctx, const sl_batch *batch, uint32_t *rows) {
  (void)batch;
  sl_session *s = ctx;
  const tick *t = next_allowed(s);
  for (int i = 0; i < t->count; i++) {
    const part *p = &t->parts[i];
    rows += p->scored * s->serving.words;
    if (p->picked && p->request->how.constraint.allow) allow_part(s, p, rows);
    rows += (p->picked ? p->drafted + 1 : 0) * s->serving.words;
  }
}
