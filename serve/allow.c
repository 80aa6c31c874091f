/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the constraints of a tick's requests allow. */
#include <string.h>

#include "serve/serve.h"

/* Returns the tick whose turn it is; it stays as it is until it is back. */
static const tick *next_allowed(sl_session *s) {
  pthread_mutex_lock(&s->lock);
  const tick *t = &s->ticks.of[s->ticks.allowed++ % (uint64_t)s->ticks.most];
  pthread_mutex_unlock(&s->lock);
  return t;
}

/* A request whose token is under way stays until the tick is back, so no lock is held meanwhile. */
void sli_session_allow(void *ctx, const sl_batch *batch, uint32_t *rows) {
  (void)batch;
  sl_session *s = ctx;
  const tick *t = next_allowed(s);
  for (int i = 0; i < t->count; i++) {
    request *r = t->parts[i].of;
    const sl_constraint *c = &r->how.constraint;
    uint32_t *row = rows + i * s->serving.words;
    if (!t->parts[i].picked || !c->allow) continue;
    memset(row, 0, (size_t)s->serving.words * sizeof *row);
    r->stuck = !c->allow(c->ctx, row);
  }
}
