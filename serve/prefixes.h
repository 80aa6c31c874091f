/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the KV cache and the index of their contents, shared by pages.c and prefixes.c. */
#ifndef SLUICE_SERVE_PREFIXES_H
#define SLUICE_SERVE_PREFIXES_H

#include "serve/serve.h"

typedef struct sli_page {
  int holders;          /* requests that use the page; 0: the page is free */
  int32_t older, newer; /* neighbours in the free list; -1: none */
  uint64_t used;        /* number of the last tick that used the page */
  int32_t place;        /* index of the page within its sequence */
  /* names of this page and of the page before it; name 0: the page is not in the index */
  uint64_t name, before;
  int32_t next;  /* next named page in the same hash bucket; -1: none */
  int32_t state; /* index of the state kept for this page; -1: none */
} sli_page;

/* A state kept for a page, in a slot after those of the sequences. */
typedef struct sli_kept_state {
  int32_t page;           /* -1: none */
  uint64_t written, used; /* numbers of the ticks that wrote it and last used it */
} sli_kept_state;

struct sli_pages {
  sli_page *pages; /* [session's pages] */
  int64_t nfree;
  int32_t oldest, newest; /* ends of the free list */
  int32_t *tokens;        /* [pages, SL_PAGE] tokens of the named pages */
  int32_t *first;         /* [mask + 1] first named page of each hash bucket; -1: none */
  uint64_t mask, names;   /* names: number of names given so far */
  int nslots;
  int32_t *slots; /* [nslots] free slots for sequence states */
  int nkept;
  sli_kept_state *kept; /* [nkept] */
};

sl_status sli_prefixes_init(sli_pages *p, int64_t pages);
void sli_prefixes_fini(sli_pages *p);
/* Returns the name that precedes a request's first page. */
uint64_t sli_prefixes_root(const request *r);
/* Returns the hash of a page's tokens and the name of the page before it. */
static inline uint64_t sli_prefixes_hash(uint64_t before, const int32_t *tokens) {
  uint64_t h = before;
  for (int i = 0; i < SL_PAGE; i++) {
    h = (h ^ (uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  return h;
}
/* Returns the tokens of a named page. */
const int32_t *sli_prefixes_tokens(const sli_pages *p, int32_t page);
/* Enters a page into the index under the given name, for example after kept contents were copied
 * into it. */
void sli_prefixes_restore(sli_pages *p, int32_t page, uint64_t name, uint64_t before,
                          const int32_t *tokens);
/* Removes a page from the index before the page is reused. */
void sli_prefixes_drop(sli_pages *p, int32_t page);

/* states.c */
sl_status sli_states_init(sl_session *s);
void sli_states_fini(sli_pages *p);
/* Frees the state kept for a page. */
void sli_states_drop(sli_pages *p, int32_t page);
/* Returns whether a tick that begins now can read the state kept for a page. */
bool sli_states_has(const sl_session *s, int32_t page);

#endif
