/* SPDX-License-Identifier: Apache-2.0 */
/* States of prefixes: in a model that keeps states, a request cannot resume from pages alone.
 *
 * The state after some full pages is therefore kept in a separate slot. These are every
 * state_every-th page of a sequence, a prompt's last full page, from which the next turn of a chat
 * continues, and the sink tokens' last page, shared by all sequences. A part of a tick ends at such
 * a page, so the state after its last row is the one to keep. If no slot is free, the least
 * recently used state is evicted. Only ticks after the one that writes a state can read it, since
 * the sequences of a tick run in no defined order. */
#include <stdlib.h>

#include "base/memory.h"
#include "serve/prefixes.h"

int32_t sli_states_slots(const sl_session *s) { return 1 + s->serving.drafted; }

sl_status sli_states_init(sl_session *s) {
  sli_pages *p = s->pages;
  p->nkept = s->serving.kept;
  SLI_TRY(SLI_ALLOCATE(p->kept, (size_t)p->nkept + 1, "the table of kept states"));
  for (int i = 0; i < p->nkept; i++) p->kept[i].page = -1;
  for (int64_t i = 0; i < s->about.pages; i++) p->pages[i].state = -1;
  return SL_OK;
}

void sli_states_fini(sli_pages *p) { free(p->kept); }

void sli_states_drop(sli_pages *p, int32_t page) {
  int32_t state = p->pages[page].state;
  if (state >= 0) p->kept[state].page = -1;
  p->pages[page].state = -1;
}

/* Returns the number of the tick being chosen. */
static uint64_t this_tick(const sl_session *s) { return s->ticks.begun + 1; }

bool sli_states_has(const sl_session *s, int32_t page) {
  int32_t state = s->pages->pages[page].state;
  return state >= 0 && s->pages->kept[state].written < this_tick(s);
}

/* ---- pages whose states are kept --------------------------------------------------------------
 */

/* Returns the positions up to the end of the last full page of a prompt from which other requests
 * can resume. */
static int64_t last_of_prompt(const request *r) { return (r->text.prompt - 1) / SL_PAGE * SL_PAGE; }

/* Returns the positions up to the end of the last full page of sink tokens. */
static int64_t last_of_sinks(const sl_session *s) { return s->serving.sinks / SL_PAGE * SL_PAGE; }

static bool is_wanted(const sl_session *s, const request *r, int64_t positions) {
  return positions == last_of_prompt(r) || positions == last_of_sinks(s) ||
         positions % (s->options.state_every * SL_PAGE) == 0;
}

int64_t sli_states_rows(const sl_session *s, const request *r, int64_t rows) {
  if (!s->pages->nkept || !s->serving.stateful) return rows;
  int64_t step = s->options.state_every * SL_PAGE, next = (r->progress.fed / step + 1) * step;
  if (r->progress.fed < last_of_sinks(s)) next = SLI_MIN(next, last_of_sinks(s));
  if (r->progress.fed < last_of_prompt(r)) next = SLI_MIN(next, last_of_prompt(r));
  return SLI_MIN(rows, next - r->progress.fed);
}

/* ---- slots ------------------------------------------------------------------------------------
 */

static bool goes_before(const sli_kept_state *a, const sli_kept_state *b) {
  bool free = a->page < 0;
  return free != (b->page < 0) ? free : a->used < b->used;
}

/* Returns a free state slot, else the least recently used one, or -1 if this tick uses all. */
static int32_t find_slot(const sl_session *s) {
  const sli_kept_state *of = s->pages->kept;
  int32_t found = -1;
  for (int32_t i = 0; i < s->pages->nkept; i++)
    if (of[i].used < this_tick(s) && (found < 0 || goes_before(&of[i], &of[found]))) found = i;
  return found;
}

static int32_t keep(sl_session *s, int32_t page) {
  sli_pages *p = s->pages;
  int32_t state = find_slot(s);
  if (state < 0) return -1;
  if (p->kept[state].page >= 0) p->pages[p->kept[state].page].state = -1;
  p->kept[state] = (sli_kept_state){page, this_tick(s), this_tick(s)};
  p->pages[page].state = state;
  s->stats.states_kept++;
  return state;
}

void sli_states_place(sl_session *s, part *p, int32_t page) {
  request *r = p->request;
  const int32_t slots = sli_states_slots(s), first = s->about.sequences * slots;
  p->reads = p->from ? r->cache.slot * slots + (int32_t)((p->from - 1) % slots) : -1;
  p->keeps = -1;
  if (r->cache.resumes >= 0) {
    s->pages->kept[r->cache.resumes].used = this_tick(s);
    p->reads = first + r->cache.resumes;
    r->cache.resumes = -1;
  }
  if (!s->serving.stateful || page < 0 || s->pages->pages[page].state >= 0) return;
  if (!is_wanted(s, r, p->from + p->rows)) return;
  int32_t state = keep(s, page);
  if (state >= 0) p->keeps = first + state;
}
