/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/rates.h"

#include "base/base.h"

static struct rates_sample rates_take(const sl_session_stats *x) {
  return (struct rates_sample){(double)sli_now_ns() * 1e-9, (double)x->ticks, (double)x->rows,
                               (double)x->tokens};
}

void rates_note(rates *r, const sl_session_stats *x) {
  struct rates_sample now = rates_take(x);
  pthread_mutex_lock(&r->lock);
  bool due = !r->count || now.seconds - r->samples[(r->count - 1) % RATES_SECONDS].seconds >= 1;
  if (due) r->samples[r->count++ % RATES_SECONDS] = now;
  pthread_mutex_unlock(&r->lock);
}

struct rates_sample rates_now(rates *r, const sl_session_stats *x) {
  struct rates_sample now = rates_take(x), from = now;
  pthread_mutex_lock(&r->lock);
  if (r->count) from = r->samples[r->count < RATES_SECONDS ? 0 : r->count % RATES_SECONDS];
  pthread_mutex_unlock(&r->lock);
  double seconds = now.seconds - from.seconds;
  if (seconds <= 0) return (struct rates_sample){0};
  return (struct rates_sample){seconds, (now.ticks - from.ticks) / seconds,
                               (now.rows - from.rows) / seconds,
                               (now.tokens - from.tokens) / seconds};
}
