/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the KV cache: ownership and reuse order.
 *
 * A page without holders keeps its contents until it is reused; until then it can be found by its
 * tokens (prefixes.c). Free pages are reused in order of their last tick, oldest first. Among pages
 * of one sequence the last is reused first, since more requests share the pages before it. The
 * order does not depend on when ticks complete, and a page is free once its last tick has
 * completed. A replay, whose ticks complete at other times, therefore reuses the same page or waits
 * for it. The contents of a reused page can be kept elsewhere (kept.c). */
#include <stdlib.h>

#include "base/memory.h"
#include "serve/kept.h"
#include "serve/prefixes.h"

int64_t sli_pages_of(int64_t positions) { return (positions + SL_PAGE - 1) / SL_PAGE; }

/* ---- free list ----------------------------------------------------------------------------- */

/* Returns whether page i is reused before page j. */
static bool goes_before(const sli_pages *p, int32_t i, int32_t j) {
  const sli_page *a = &p->pages[i], *b = &p->pages[j];
  if (a->used != b->used) return a->used < b->used;
  return a->place != b->place ? a->place > b->place : i < j;
}

static void link_behind(sli_pages *p, int32_t i, int32_t older) {
  int32_t newer = older < 0 ? p->oldest : p->pages[older].newer;
  p->pages[i].older = older;
  p->pages[i].newer = newer;
  *(older < 0 ? &p->oldest : &p->pages[older].newer) = i;
  *(newer < 0 ? &p->newest : &p->pages[newer].older) = i;
  p->nfree++;
}

static void unlink_free(sli_pages *p, int32_t i) {
  const sli_page *x = &p->pages[i];
  *(x->older < 0 ? &p->oldest : &p->pages[x->older].newer) = x->newer;
  *(x->newer < 0 ? &p->newest : &p->pages[x->newer].older) = x->older;
  p->nfree--;
}

static void release(sli_pages *p, int32_t i, uint64_t used) {
  sli_page *x = &p->pages[i];
  x->used = SLI_MAX(x->used, used);
  if (--x->holders) return;
  int32_t older = p->newest;
  while (older >= 0 && goes_before(p, i, older)) older = p->pages[older].older;
  link_behind(p, i, older);
}

/* ---- pages of requests ----------------------------------------------------------------------- */

sl_status sli_pages_init(sl_session *s) {
  int64_t n = s->stats.pages = s->about.pages;
  sli_pages *p = s->pages = sli_calloc(1, sizeof *p);
  SLI_TRY(SLI_ALLOCATE(p->pages, (size_t)n, "the table of pages"));
  p->oldest = p->newest = -1;
  for (int64_t i = 0; i < n; i++) link_behind(p, (int32_t)i, p->newest);
  SLI_TRY(sli_prefixes_init(p, n));
  SLI_TRY(SLI_ALLOCATE(p->slots, (size_t)s->about.sequences, "the slots of sequences"));
  while (p->nslots < s->about.sequences) p->slots[p->nslots] = p->nslots, p->nslots++;
  return sli_states_init(s);
}

void sli_pages_fini(sl_session *s) {
  if (!s->pages) return;
  sli_prefixes_fini(s->pages);
  sli_states_fini(s->pages);
  free(s->pages->pages);
  free(s->pages->slots);
  free(s->pages);
}

static void count_used(sl_session *s) {
  s->stats.pages_used = s->stats.pages - s->pages->nfree;
  s->stats.pages_most = SLI_MAX(s->stats.pages_most, s->stats.pages_used);
}

/* Returns the number of pages that can be allocated. */
static int64_t free_now(const sl_session *s) {
  return s->pages->nfree - (s->stats.pages - s->stats.limits.pages);
}

static void add_page(sl_session *s, request *r) {
  sli_pages *p = s->pages;
  int32_t i = p->oldest;
  const sli_page *x = &p->pages[i];
  unlink_free(p, i);
  if (x->name) sli_kept_write(s, i, x->name, x->before, sli_prefixes_tokens(p, i));
  sli_prefixes_drop(p, i);
  p->pages[i].holders = 1;
  p->pages[i].place = (int32_t)r->cache.npages;
  r->cache.pages[r->cache.npages++] = i;
}

bool sli_pages_take(sl_session *s, request *r, int64_t positions) {
  int64_t more = sli_pages_of(positions) - r->cache.npages;
  if (more > 0 && more > free_now(s)) return false;
  while (more-- > 0) add_page(s, r);
  count_used(s);
  return true;
}

/* Copies the next kept page of a request's prefix into a newly allocated page. Returns false if it
 * is lost. */
static bool fetch(sl_session *s, request *r) {
  sli_pages *p = s->pages;
  int64_t n = r->cache.npages;
  int32_t kept = ~r->cache.pages[n];
  uint64_t before = n ? p->pages[r->cache.pages[n - 1]].name : sli_prefixes_root(r);
  add_page(s, r);
  if (!sli_kept_read(s, kept, r->cache.pages[n])) return false;
  sli_prefixes_restore(p, r->cache.pages[n], sli_kept_name(s, kept), before,
                       r->text.tokens + n * SL_PAGE);
  return true;
}

/* Takes shared pages first, then copies kept pages back. Touches kept pages from last to first, so
 * that the first pages of a prefix count as used most recently. Returns the number of pages that
 * are shared: from a lost one on, they are computed again. */
static int64_t share(sl_session *s, request *r, int64_t n) {
  sli_pages *p = s->pages;
  for (; r->cache.npages < n && r->cache.pages[r->cache.npages] >= 0; r->cache.npages++) {
    int32_t i = r->cache.pages[r->cache.npages];
    if (!p->pages[i].holders++) unlink_free(p, i);
  }
  for (int64_t i = n; i-- > r->cache.npages;) sli_kept_touch(s, ~r->cache.pages[i]);
  sli_kept_hold(s, true);
  while (r->cache.npages < n)
    if (!fetch(s, r)) n = r->cache.npages - 1;
  sli_kept_hold(s, false);
  r->cache.named = n;
  r->cache.name = n ? p->pages[r->cache.pages[n - 1]].name : sli_prefixes_root(r);
  return n;
}

bool sli_pages_let_in(sl_session *s, request *r, int64_t positions, int64_t *shared) {
  int64_t more = sli_pages_of(positions) - *shared;
  for (int64_t i = 0; i < *shared; i++)
    more += r->cache.pages[i] < 0 || !s->pages->pages[r->cache.pages[i]].holders;
  if (more > free_now(s) || !s->pages->nslots) return false;
  r->cache.slot = s->pages->slots[--s->pages->nslots];
  *shared = share(s, r, *shared);
  return sli_pages_take(s, r, positions);
}

void sli_pages_free(sl_session *s, request *r) {
  while (r->cache.npages)
    release(s->pages, r->cache.pages[--r->cache.npages], r->progress.last_tick);
  if (r->cache.slot >= 0) s->pages->slots[s->pages->nslots++] = r->cache.slot;
  r->cache.slot = -1;
  count_used(s);
}
