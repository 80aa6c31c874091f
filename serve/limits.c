/* SPDX-License-Identifier: Apache-2.0 */
/* Limits below a session's sizes, which may change while the session runs. */
#include "serve/serve.h"

static sl_status limits_check(const char *name, int64_t n, int64_t least, int64_t most) {
  if (!n || (n >= least && n <= most)) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s=%lld: must be from %lld to %lld", name, (long long)n,
                 (long long)least, (long long)most);
}

/* Returns the rows that a tick must have: room for a chunk that chooses its pages. */
static int64_t least_rows(const sl_session *s) {
  int64_t chunk = s->serving.prompt_blocks.chunk;
  return chunk ? chunk + s->about.sequences - 1 : 1;
}

static sl_status check_all(const sl_session *s, const sl_session_limits *l) {
  enum { MOST_WAITING = 1 << 20 };
  const sl_session_info *a = &s->about;
  int64_t pages = sli_pages_of(sli_session_positions(s));
  sl_status status = limits_check("rows", l->rows, least_rows(s), a->rows);
  if (!status) status = limits_check("pages", l->pages, pages, a->pages);
  if (!status) status = limits_check("sequences", l->sequences, 1, a->sequences);
  if (!status) status = limits_check("groups", l->groups, 1, a->groups);
  return status ? status : limits_check("queue", l->queue, 1, MOST_WAITING);
}

sl_status sl_session_limit(sl_session *s, const sl_session_limits *limits) {
  sl_status status = check_all(s, limits);
  if (status) return status;
  pthread_mutex_lock(&s->lock);
  sl_session_limits *l = &s->stats.limits;
  if (limits->rows) l->rows = limits->rows;
  if (limits->pages) l->pages = limits->pages;
  if (limits->sequences) l->sequences = limits->sequences;
  if (limits->groups) l->groups = limits->groups;
  if (limits->queue) l->queue = limits->queue;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  return SL_OK;
}
