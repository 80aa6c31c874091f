/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: chooses the rows of each tick.
 *
 * Sequences whose last token is known take one row each. The remaining rows go to prompts, chunk by
 * chunk, oldest request first. Then new requests are admitted in turn: in order of arrival, or
 * client by client. Rows of a prompt depend on no sampled token, so the next chunk can go into the
 * next tick. In a decode-only tick, drafted tokens take the remaining rows (drafts.c). */
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "serve/serve.h"

typedef struct choice {
  sl_session *s;
  tick *tick;
  int64_t rows; /* rows left in the tick */
} choice;

/* Counts the leading rows, of those that follow, whose next tokens are still to be reported. */
static int64_t count_scored(const request *r, int64_t rows) {
  if (!r->how.scored || r->progress.reported >= r->text.prompt) return 0;
  return SLI_MAX(SLI_MIN(r->progress.fed + rows, r->text.prompt - 1) - r->progress.fed, 0);
}

static void take_rows(choice *c, request *r, int64_t rows) {
  sli_log_part(c->s, r, rows);
  part *p = &c->tick->parts[c->tick->count++];
  *p = (part){.request = r,
              .from = r->progress.fed,
              .rows = rows,
              .picked = r->progress.fed + rows == r->text.count,
              .scored = (int)count_scored(r, rows)};
  load *l = &c->tick->load;
  l->rows += rows;
  l->picks += p->picked + p->scored;
  l->sequences++;
  if (r->edits) l->edits += sli_edits_count(r->edits);
  l->positions += (double)r->progress.fed;
  l->pairs += sli_chunk_work(c->s, r->progress.fed, rows);
  c->rows -= rows;
  r->progress.fed += rows;
  r->progress.ticks++;
  r->progress.last_tick = c->s->ticks.begun + 1;
  sli_states_place(c->s, p, sli_prefixes_note(c->s, r));
}

static bool has_room(const choice *c) {
  return c->rows > 0 && c->tick->count < c->s->about.sequences &&
         c->tick->load.picks < c->s->serving.picks;
}

/* Returns whether the edits of the request's logits fit in the tick. */
static bool has_edits(const choice *c, const request *r) {
  return !r->edits || c->tick->load.edits + sli_edits_count(r->edits) <= c->s->serving.edits;
}

/* ---- preemption ---------------------------------------------------------------------------- */

/* Preempts a request; it is recomputed later from its first token. */
static void yield(sl_session *s, request *r) {
  sli_log_yield(s, r);
  if (s->speculation.drafter) s->speculation.drafter->leave(s, r);
  s->stats.preemptions++;
  s->stats.running--;
  s->stats.queued++;
  r->standing = r->progress.ticks ? YIELDING : QUEUED;
  r->progress.fed = r->cache.brought = 0;
  if (!r->progress.ticks) sli_pages_free(s, r);
}

static request *youngest(const sl_session *s) {
  request *found = NULL;
  for (request *r = s->requests; r; r = r->next)
    if (r->standing == RUNNING) found = r;
  return found;
}

static bool is_in(const tick *t, const request *r) {
  for (int i = 0; i < t->count; i++)
    if (t->parts[i].request == r) return true;
  return false;
}

/* Allocates pages for the request's rows. Returns false if the request gets no rows in this tick.
 * Preempts younger requests first, then the request itself, so the oldest always makes progress. */
static bool find_pages(choice *c, request *r, int64_t rows) {
  while (!sli_pages_take(c->s, r, r->progress.fed + rows)) {
    request *last = youngest(c->s);
    if (is_in(c->tick, last)) return false;
    yield(c->s, last);
    if (last == r) return false;
  }
  return true;
}

/* ---- running requests ------------------------------------------------------------------------ */

static bool rests(const request *r) { return r->text.count >= r->cache.goal; }

static bool is_ready(const request *r) {
  return r->standing == RUNNING && !r->cancelled && !rests(r) && r->progress.fed < r->text.count;
}

/* Returns whether the prompt has been fed and the last token is known. */
static bool decodes(const request *r) {
  return r->progress.fed + 1 == r->text.count && r->progress.fed >= r->text.prompt;
}

/* Returns the rows that a request gets in the tick; 0 if its next chunk does not fit. */
static int64_t next_rows(const choice *c, request *r) {
  int64_t whole = sli_chunk_whole(c->s, r, r->progress.fed);
  if (whole) {
    int64_t picks = c->s->serving.picks - c->tick->load.picks;
    return whole <= c->rows && count_scored(r, whole) <= picks ? whole : 0;
  }
  int64_t rows = SLI_MIN(r->text.count - r->progress.fed, sli_chunk_rows(c->s, r, c->rows));
  if (count_scored(r, rows)) rows = SLI_MIN(rows, c->s->serving.picks - c->tick->load.picks);
  return sli_states_rows(c->s, r, rows);
}

static void take_running(choice *c, bool decoding) {
  for (request *r = c->s->requests; r && has_room(c); r = r->next) {
    if (!is_ready(r) || decodes(r) != decoding || !has_edits(c, r)) continue;
    int64_t rows = next_rows(c, r);
    if (rows && find_pages(c, r, rows)) take_rows(c, r, rows);
  }
}

/* Returns the positions to reserve at admission: all that the request may ever need, or its current
 * tokens plus one. In the second case a preempted request is readmitted when another request
 * ends. */
static int64_t positions_let_in(const sl_session *s, const request *r) {
  return s->options.admit == SL_ADMIT_RESERVE ? r->text.most
                                              : SLI_MIN(r->text.count + 1, r->text.most);
}

/* Skips the tokens held by the first `shared` pages, or brought from another server. */
static void begin_behind(sl_session *s, request *r, int64_t shared) {
  r->progress.fed = SLI_MAX(shared * SL_PAGE, r->cache.brought);
  s->stats.pages_shared += (uint64_t)shared;
  s->stats.rows_shared += (uint64_t)SLI_MAX(r->progress.fed - r->progress.computed, 0);
  r->progress.computed = SLI_MAX(r->progress.computed, r->progress.fed);
  if (!r->begun) r->cache.cached = r->progress.fed;
}

/* Admits a request; `shared` is the number of pages that sli_prefixes_find found. */
static bool let_in(sl_session *s, request *r, int64_t shared) {
  if (s->stats.running >= s->stats.limits.sequences) return false;
  if (!sli_pages_let_in(s, r, positions_let_in(s, r), &shared)) return false;
  begin_behind(s, r, shared);
  r->standing = RUNNING;
  s->turn = SLI_MAX(s->turn, r->turn);
  s->stats.queued--;
  s->stats.running++;
  s->stats.requests += !r->begun;
  r->begun = true;
  return true;
}

static void admit(choice *c) {
  for (request *r = c->s->requests; r && has_room(c); r = r->next) {
    if (r->standing == YIELDING) return; /* its pages go to older requests */
    if (r->standing != QUEUED || rests(r)) continue;
    if (!has_edits(c, r)) return;
    if (!let_in(c->s, r, sli_prefixes_find(c->s, r, INT64_MAX))) return;
    int64_t rows = next_rows(c, r);
    if (!rows) return; /* its first chunk goes into a later tick */
    take_rows(c, r, rows);
  }
}

/* ---- drafts ---------------------------------------------------------------------------------- */

/* Returns the maximum number of drafted rows that fit in the tick after an answer's row. None
 * follow the last row before a state to keep. */
static int64_t draft_room(const choice *c, const part *p) {
  const sl_serving *v = &c->s->serving;
  const load *l = &c->tick->load;
  if (!p->picked || p->rows > 1 || p->from < p->request->text.prompt) return 0;
  int64_t most = SLI_MIN(c->rows, v->picks - l->picks);
  most = sli_states_rows(c->s, p->request, most + 1) - 1;
  return p->request->edits ? SLI_MIN(most, v->edits - l->edits) : most;
}

/* Appends n drafted rows to an answer's row. Returns false if no pages are free. */
static bool add_draft(choice *c, part *p, int n) {
  request *r = p->request;
  if (!n || !sli_pages_take(c->s, r, r->progress.fed + n)) return !n;
  load *l = &c->tick->load;
  sli_log_draft(c->s, r, n);
  p->rows += n;
  r->draft.count = p->drafted = n;
  r->progress.fed += n;
  c->rows -= n;
  l->rows += n;
  l->picks += n;
  if (r->edits) l->edits += n;
  l->pairs += (double)n * (double)(2 * (p->from + 1) + n);
  return true;
}

/* Lists the parts for which drafted rows fit in the tick, and returns their number. */
static int list_wanted(const choice *c, draft *out) {
  int n = 0;
  for (int i = 0; i < c->tick->count; i++) {
    part *p = &c->tick->parts[i];
    int64_t most = draft_room(c, p);
    if (most > 0) out[n++] = (draft){.part = p, .most = (int)SLI_MIN(most, SL_SESSION_DRAFTED)};
  }
  return n;
}

/* Unless drafts are always made, a tick that contains prompt rows gets none: prompt rows are worth
 * more. */
static void take_drafts(choice *c) {
  const load *l = &c->tick->load;
  const sl_speculation *o = &c->s->options.speculation;
  double tokens = (double)l->picks;
  draft *of = c->s->speculation.wanted;
  if (!o->tokens || (!o->always && l->rows > l->picks)) return;
  int n = list_wanted(c, of);
  sli_drafts_limit(c->s, n, of, l, c->rows);
  sli_drafts_find(c->s, c->tick, n, of);
  for (int i = 0; i < n; i++) {
    int found = (int)SLI_MIN(of[i].n, draft_room(c, of[i].part));
    if (found && !o->always)
      found = sli_drafts_worth(c->s, of[i].part->request, found, l->rows, &tokens);
    add_draft(c, of[i].part, found);
  }
}

/* ---- replay of a log ------------------------------------------------------------------------- */

static request *choose_find(const sl_session *s, uint64_t id) {
  request *r = s->requests;
  while (r && r->id != id) r = r->next;
  return r;
}

/* Aborts the session: the line cannot come from a run of these requests. */
static bool refuse_line(const sl_session *s, const sli_log_entry *e, const char *why) {
  char *text = sli_format("%s: line %lld takes %lld rows from row %lld of request %llu, %s",
                          s->options.replay, s->log.number, (long long)e->rows, (long long)e->from,
                          (unsigned long long)e->id, why);
  sl_runtime_abort(s->about.rt, SL_E_INPUT, text);
  free(text);
  return false;
}

/* Returns whether the tick may contain these rows, now or once the token in flight is known. */
static bool is_possible(const choice *c, const request *r, const sli_log_entry *e) {
  bool runs = r->standing == RUNNING, behind = e->from >= 0 && e->from % SL_PAGE == 0;
  return has_room(c) && has_edits(c, r) && e->rows > 0 && e->rows <= c->rows &&
         (runs ? e->from == r->progress.fed : behind) &&
         e->from + e->rows <= r->text.count + (e->rows == 1) &&
         sli_chunk_may_be(c->s, r, e->from, e->rows);
}

/* Admits a request that resumes after the pages named by the log. Returns false if it cannot be
 * admitted yet, or ever. */
static bool let_in_again(sl_session *s, request *r, const sli_log_entry *e) {
  int64_t shared = e->from / SL_PAGE;
  if (shared != sli_prefixes_find(s, r, shared))
    return refuse_line(s, e, "but the pages before them are not cached");
  return let_in(s, r, shared);
}

static bool follow_part(choice *c, request *r, const sli_log_entry *e) {
  if (r->draft.count) return false;
  if (!is_possible(c, r, e)) return refuse_line(c->s, e, "which the request does not have");
  if (r->standing == YIELDING || e->from + e->rows > r->text.count) return false;
  bool queued = r->standing == QUEUED;
  if (queued ? !let_in_again(c->s, r, e) : !sli_pages_take(c->s, r, e->from + e->rows))
    return false;
  take_rows(c, r, e->rows);
  return true;
}

static bool follow_draft(choice *c, request *r, const sli_log_entry *e) {
  part *p = c->tick->parts, *end = p + c->tick->count;
  while (p < end && p->request != r) p++;
  draft one = {.part = p};
  if (p < end && e->rows <= SLI_MIN(draft_room(c, p), SL_SESSION_DRAFTED)) one.most = (int)e->rows;
  if (one.most > 0) sli_drafts_find(c->s, c->tick, 1, &one);
  if (!one.n || one.n != e->rows)
    return refuse_line(c->s, e, "but the session drafts other tokens");
  return add_draft(c, p, one.n);
}

/* Cancels a request. Returns false if it does not have all of its logged tokens yet. */
static bool follow_cancel(sl_session *s, request *r) {
  if (r->text.count < r->text.until) return false;
  sli_session_hang_up(s, r);
  return true;
}

/* Replays one word. Returns false if its request, tokens or pages are not available yet. Skips
 * requests that have ended. */
static bool follow_word(choice *c, const sli_log_entry *e) {
  request *r = choose_find(c->s, e->id);
  if (!e->id) return refuse_line(c->s, e, "which does not exist");
  if (!r) return e->id <= c->s->last_id;
  if (e->kind == SLI_LOG_CANCELS) return follow_cancel(c->s, r);
  if (e->kind == SLI_LOG_ROWS) return r->cancelled || follow_part(c, r, e);
  if (e->kind == SLI_LOG_DRAFTS) return r->cancelled || follow_draft(c, r, e);
  if (r->standing == RUNNING) yield(c->s, r);
  return true;
}

/* Replays a line from where it last had to wait. Returns whether the line is complete. */
static bool follow(choice *c) {
  sli_session_log *l = &c->s->log;
  sli_log_entry e;
  for (const char *next; (next = sli_log_word(l->at, &e)); l->at = next)
    if (!follow_word(c, &e)) return false;
  l->at = NULL;
  return true;
}

/* Chooses the parts of a tick. Returns whether the tick has any, or the session is closing. */
static bool serve_choose(sl_session *s, tick *t) {
  choice c = {s, t, s->about.rows};
  if (!s->log.at) t->count = 0, t->load = (load){0}, t->drafting = 0;
  if (s->end.closing) return true;
  if (s->paused || sli_session_is_behind(s)) return false;
  for (c.rows -= t->load.rows; sli_log_next(s);)
    if (!follow(&c) || t->count) return t->count && !s->log.at;
  sli_session_end_unwanted(s); /* cancelled requests that the finished log did not end */
  if (s->ticks.begun - s->ticks.back >= (uint64_t)s->stats.limits.groups) return false;
  c.rows = s->stats.limits.rows;
  take_running(&c, true);
  take_running(&c, false);
  admit(&c);
  take_drafts(&c);
  return t->count;
}

/* ---- the batch register ---------------------------------------------------------------------- */

/* Writable pointers into the batch arrays. */
typedef struct writer {
  sl_batch *batch;
  int32_t *tokens, *position, *sequence, *pick, *given;
  sl_batch_sequence *settings;
} writer;

static writer open_batch(const sl_session *s, int32_t *tokens, sl_batch *b) {
  *b = (sl_batch){.most_rows = (int32_t)s->about.rows,
                  .most_sequences = s->about.sequences,
                  .most_picks = s->serving.picks,
                  .pages = (int32_t)sli_pages_of(s->serving.context),
                  .most_edits = (int32_t)s->serving.edits};
  memset(tokens, 0, (size_t)s->about.rows * sizeof *tokens);
  return (writer){b,
                  tokens,
                  (int32_t *)sl_batch_position(b),
                  (int32_t *)sl_batch_sequence_of(b),
                  (int32_t *)sl_batch_pick(b),
                  (int32_t *)sl_batch_given(b),
                  (sl_batch_sequence *)sl_batch_settings(b)};
}

static void write_pick(const writer *w, int32_t row, int32_t given) {
  w->pick[w->batch->picks] = row;
  w->given[w->batch->picks++] = given;
}

/* Writes the picks of the part whose rows begin at `first` and were just added. */
static void write_picks(const writer *w, const part *p, int32_t first) {
  for (int i = 0; i < p->scored; i++)
    write_pick(w, first + i, p->request->text.tokens[p->from + i + 1] + 1);
  for (int i = p->drafted; i >= 0 && p->picked; i--) write_pick(w, w->batch->rows - 1 - i, 0);
}

static void write_part(const sl_session *s, const writer *w, const part *p) {
  sl_batch *b = w->batch;
  const request *r = p->request;
  sli_session_splice(s, p, b, b->rows);
  int32_t sequence = b->sequences++;
  for (int64_t i = 0; i < p->rows; i++, b->rows++) {
    int64_t at = p->from + i;
    w->tokens[b->rows] =
        at < r->text.count ? r->text.tokens[at] : r->draft.tokens[at - r->text.count];
    w->position[b->rows] = (int32_t)at;
    w->sequence[b->rows] = sequence;
  }
  write_picks(w, p, b->rows - (int32_t)p->rows);
  int32_t edit = b->edits, edits = 0;
  if (p->picked && r->edits)
    edits = (int32_t)sli_edits_write(r->edits, r->text.count - r->text.prompt, p->drafted,
                                     r->draft.tokens, (sl_batch_edit *)sl_batch_edits(b) + edit);
  b->edits += edits + (r->edits ? p->drafted : 0);
  w->settings[sequence] =
      (sl_batch_sequence){.seed = {(uint32_t)r->how.seed, (uint32_t)(r->how.seed >> 32)},
                          .temperature = r->how.temperature,
                          .top_p = r->how.top_p,
                          .top_k = r->how.top_k,
                          .logprobs = r->how.logprobs,
                          .place = (int32_t)(r->text.count - p->scored),
                          .hash = s->options.hash,
                          .min_p = r->how.min_p,
                          .edit = edit,
                          .edits = edits,
                          .more = r->edits && !p->scored,
                          .constrained = p->picked && r->how.constraint.allow,
                          .slot = r->cache.slot * sli_states_slots(s),
                          .slots = sli_states_slots(s),
                          .drafted = p->drafted,
                          .from = p->reads,
                          .kept = p->keeps};
  memcpy((int32_t *)sl_batch_table(b, sequence), r->cache.pages,
         (size_t)r->cache.npages * sizeof *r->cache.pages);
}

/* ---- source callbacks ------------------------------------------------------------------------ */

static tick *next_tick(const sl_session *s) {
  return &s->ticks.ring[s->ticks.begun % (uint64_t)s->ticks.most];
}

/* Signals that the session is idle, if no tick is in flight. */
static void rest(sl_session *s) {
  s->resting = s->ticks.begun == s->ticks.back;
  if (s->resting) pthread_cond_broadcast(&s->idle);
}

static void wait_for_tick(sl_session *s, tick *t) {
  while (!serve_choose(s, t) && !sl_runtime_ends(s->about.rt)) {
    rest(s);
    sli_cond_wait_a_while(&s->work, &s->lock);
  }
}

static void begin_tick(sl_session *s, tick *t) {
  s->ticks.begun++;
  sli_price_parts(s, t);
  sli_log_tick(s, t);
}

uint64_t sli_session_await(void *ctx, const sl_tick *at) {
  (void)at;
  sl_session *s = ctx;
  pthread_mutex_lock(&s->lock);
  tick *t = next_tick(s);
  uint64_t again = s->simulator ? s->simulator->go_on(s->simulator, s) : 0;
  if (!s->simulator) wait_for_tick(s, t);
  if (!s->simulator || serve_choose(s, t)) {
    begin_tick(s, t);
    again = 0;
  }
  pthread_mutex_unlock(&s->lock);
  return again;
}

/* Begins a training step, which has its own requests. */
static void begin_step(sl_session *s, int64_t step) {
  pthread_mutex_lock(&s->lock);
  if (!s->ticks.begun) s->ticks.first = step;
  s->ticks.step = step;
  sli_session_end_step(s, step - 1);
  pthread_mutex_unlock(&s->lock);
  s->steps.begin(s->steps.ctx, step);
}

void sli_session_choose(void *ctx, const sl_tick *at, int32_t *tokens, sl_batch *batch) {
  sl_session *s = ctx;
  if (s->steps.ticks && !at->microbatch) begin_step(s, at->step);
  pthread_mutex_lock(&s->lock);
  tick *t = next_tick(s);
  if (s->steps.ticks) serve_choose(s, t); /* may be empty: the training step does not wait */
  else wait_for_tick(s, t);
  begin_tick(s, t);
  writer w = open_batch(s, tokens, batch);
  for (int i = 0; i < t->count; i++) write_part(s, &w, &t->parts[i]);
  pthread_mutex_unlock(&s->lock);
}
