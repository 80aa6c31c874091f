/* Pages of keys and values: who has which. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

int64_t sli_pages_of(int64_t positions) { return (positions + SL_PAGE - 1) / SL_PAGE; }

void sli_pages_init(sl_session *s) {
  int64_t n = s->nfree = s->stats.pages = s->about.pages;
  s->free_pages = sli_calloc((size_t)n, sizeof *s->free_pages);
  for (int64_t i = 0; i < n; i++) s->free_pages[i] = (int32_t)(n - 1 - i); /* the first on top */
}

void sli_pages_fini(sl_session *s) { free(s->free_pages); }

bool sli_pages_take(sl_session *s, request *r, int64_t positions) {
  int64_t more = sli_pages_of(positions) - r->npages, withheld = s->stats.pages - s->stats.limits.pages;
  if (more > 0 && more > s->nfree - withheld) return false;
  for (; more > 0; more--) r->pages[r->npages++] = s->free_pages[--s->nfree];
  s->stats.pages_used = s->stats.pages - s->nfree;
  s->stats.pages_most = SLI_MAX(s->stats.pages_most, s->stats.pages_used);
  return true;
}

void sli_pages_free(sl_session *s, request *r) {
  while (r->npages) s->free_pages[s->nfree++] = r->pages[--r->npages];
  s->stats.pages_used = s->stats.pages - s->nfree;
}
