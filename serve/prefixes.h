/* Pages, and what is known of what they hold: between pages.c and prefixes.c. */
#ifndef SLUICE_PREFIXES_H
#define SLUICE_PREFIXES_H

#include "serve/serve.h"

typedef struct sli_page {
  int holders;           /* requests that have it; 0: it is free */
  int32_t older, newer;  /* of the free ones, those that go before and after it; -1: none */
  uint64_t used;         /* number of the last tick that did */
  int32_t place;         /* which page of its sequence it is */
  uint64_t name, before; /* of what it holds, and of what the page in front of it does; name 0: it cannot be found */
  int32_t next;          /* of those with names that have the same hash; -1: none */
} sli_page;

struct sli_pages {
  sli_page *of;          /* [session's pages] */
  int64_t nfree;
  int32_t oldest, newest; /* of the free ones */
  int32_t *tokens;       /* [pages, SL_PAGE] of those with names */
  int32_t *first;        /* [mask + 1] by hash, those with names; -1: none */
  uint64_t mask, names;  /* given so far */
};

void sli_prefixes_init(sli_pages *p, int64_t pages);
void sli_prefixes_fini(sli_pages *p);
/* The name in front of a request's first page. */
uint64_t sli_prefixes_root(const request *r);
/* A page is to hold something else. */
void sli_prefixes_drop(sli_pages *p, int32_t page);

#endif
