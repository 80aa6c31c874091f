/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix caching: finds pages by the first tokens of a sequence.
 *
 * A full page gets a name, a number that is never reused. The page is keyed by its tokens and the
 * name of the page before it. A name therefore identifies all tokens up to the end of its page, and
 * no two texts have the same name. A page can be found as soon as the tick that fills it begins.
 * Stages run ticks in order, and a tick writes all its keys before any of its rows reads them, so
 * the writer always precedes every reader. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "serve/kept.h"
#include "serve/prefixes.h"

sl_status sli_prefixes_init(sli_pages *p, int64_t pages) {
  while ((int64_t)p->mask < pages) p->mask = 2 * p->mask + 1;
  SLI_TRY(SLI_ALLOCATE(p->tokens, (size_t)pages * SL_PAGE, "the tokens of pages"));
  SLI_TRY(SLI_ALLOCATE(p->first, p->mask + 1, "the index of pages"));
  for (uint64_t i = 0; i <= p->mask; i++) p->first[i] = -1;
  return SL_OK;
}

void sli_prefixes_fini(sli_pages *p) {
  free(p->tokens);
  free(p->first);
}

static int32_t *tokens_of(const sli_pages *p, int32_t page) {
  return p->tokens + (int64_t)page * SL_PAGE;
}

const int32_t *sli_prefixes_tokens(const sli_pages *p, int32_t page) { return tokens_of(p, page); }

static int32_t *bucket(const sli_pages *p, uint64_t before, const int32_t *tokens) {
  return &p->first[sli_prefixes_hash(before, tokens) & p->mask];
}

/* Page names count up from 1 and never reach the salted range, whose top bit is set. */
uint64_t sli_prefixes_root(const request *r) {
  const uint64_t salted = UINT64_C(1) << 63;
  return r->how.salt ? r->how.salt | salted : 0;
}

/* Returns the page with these tokens that follows the page named `before`, or -1 if none. */
static int32_t prefixes_find(const sli_pages *p, uint64_t before, const int32_t *tokens) {
  int32_t i = *bucket(p, before, tokens);
  while (i >= 0 && (p->pages[i].before != before ||
                    memcmp(tokens_of(p, i), tokens, SL_PAGE * sizeof *tokens)))
    i = p->pages[i].next;
  return i;
}

void sli_prefixes_drop(sli_pages *p, int32_t page) {
  sli_page *x = &p->pages[page];
  if (!x->name) return;
  int32_t *at = bucket(p, x->before, tokens_of(p, page));
  while (*at != page) at = &p->pages[*at].next;
  *at = x->next;
  x->name = 0;
  sli_states_drop(p, page);
}

void sli_prefixes_restore(sli_pages *p, int32_t page, uint64_t name, uint64_t before,
                          const int32_t *tokens) {
  int32_t *at = bucket(p, before, tokens);
  sli_page *x = &p->pages[page];
  x->name = name;
  x->before = before;
  x->next = *at;
  memcpy(tokens_of(p, page), tokens, SL_PAGE * sizeof *tokens);
  *at = page;
}

/* Names a page and returns it. If another page has the same contents, returns that page instead. If
 * a kept page has the same contents, the page takes its name. */
static int32_t give_name(const sl_session *s, int32_t page, uint64_t before,
                         const int32_t *tokens) {
  sli_pages *p = s->pages;
  int32_t had = prefixes_find(p, before, tokens), kept = sli_kept_find(s, before, tokens);
  if (had >= 0) return had;
  uint64_t name = kept >= 0 ? sli_kept_name(s, kept) : ++p->names;
  sli_prefixes_restore(p, page, name, before, tokens);
  return page;
}

/* Returns whether requests share no pages. Models with states can share only if states are kept. */
static bool are_apart(const sl_session *s) {
  return s->options.prefixes == SL_PREFIXES_APART || (s->serving.stateful && !s->pages->nkept);
}

int32_t sli_prefixes_note(sl_session *s, request *r) {
  int32_t page = -1;
  int64_t known =
      SLI_MIN(r->progress.fed, SLI_MIN(r->text.count, r->cache.known)); /* drafted tokens follow */
  if (are_apart(s)) return page;
  if (s->serving.prompt_blocks.chunk) known = SLI_MIN(known, sli_chunk_end(s, r));
  for (; (r->cache.named + 1) * SL_PAGE <= known; r->cache.named++) {
    page = give_name(s, r->cache.pages[r->cache.named], r->cache.name,
                     r->text.tokens + r->cache.named * SL_PAGE);
    r->cache.name = s->pages->pages[page].name;
  }
  return known % SL_PAGE ? -1 : page;
}

/* Drops pages after the last one that has a kept state. */
static int64_t find_state(const sl_session *s, request *r, int64_t n) {
  r->cache.resumes = -1;
  if (!s->serving.stateful) return n;
  while (n && !sli_states_has(s, r->cache.pages[n - 1])) n--;
  if (n) r->cache.resumes = s->pages->pages[r->cache.pages[n - 1]].state;
  return n;
}

int64_t sli_prefixes_find(const sl_session *s, request *r, int64_t most) {
  const sli_pages *p = s->pages;
  int64_t n = 0;
  most = are_apart(s) || r->sums || r->how.scored
             ? 0
             : SLI_MIN(most, (SLI_MIN(r->text.count, r->cache.known) - 1) / SL_PAGE);
  if (s->serving.prompt_blocks.chunk) most = SLI_MIN(most, sli_chunk_end(s, r) / SL_PAGE);
  uint64_t name = sli_prefixes_root(r);
  for (int32_t i; n < most && (i = prefixes_find(p, name, r->text.tokens + n * SL_PAGE)) >= 0;
       name = p->pages[i].name)
    r->cache.pages[n++] = i;
  if (s->serving.stateful) return find_state(s, r, n); /* kept pages have no states */
  for (int32_t i; n < most && (i = sli_kept_find(s, name, r->text.tokens + n * SL_PAGE)) >= 0;
       name = sli_kept_name(s, i))
    r->cache.pages[n++] = ~i;
  return n - n % SLI_MAX(s->serving.prompt_blocks.chunk / SL_PAGE, 1); /* whole chunks */
}
