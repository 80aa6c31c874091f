/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts from a draft model: a smaller model in a separate session.
 *
 * Each running request has a mirror in that session: a request with the same tokens, settings and
 * random numbers. The mirror pauses until drafts are wanted, then receives the tokens that its
 * request has gained. From the first token that differs from the mirror's draft, tokens are
 * recomputed and overwrite the wrong keys and values. The mirror pauses again once it has drafted
 * the wanted number of tokens. A mirror with a long text to read reads one part of it per round and
 * drafts after the last part, so that no round takes much longer than others.
 *
 * A draft model that reads hidden states reads each token with the one of the position before it.
 * Its text therefore begins with the second token. Hidden states of drafted tokens are its own.
 *
 * The thread that chooses a tick waits for the mirrors with its own session's lock released; the
 * requests of the tick cannot end meanwhile. Lock order: the target session's lock, then the draft
 * session's. A mirror that gets no pages yields fewer tokens, or none. */
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "serve/serve.h"

/* ---- a mirror ----------------------------------------------------------------------------------
 */

/* Writes which tokens the request's constraint allows after the mirror's tokens. Where it allows
 * none, token 0 is allowed; the target discards the rest of that draft. */
static bool mirror_allow(void *ctx, int n, const int32_t *drafted, uint32_t *allowed) {
  const request *m = ctx, *r = m->user;
  const sl_constraint *c = &r->how.constraint;
  (void)n, (void)drafted;
  if (!c->allow(c->ctx, (int)(m->text.count - m->cache.known), m->text.tokens + m->cache.known,
                allowed))
    allowed[0] |= 1;
  return true;
}

static bool mirror_fits(const sl_session *d, const request *r) {
  return !r->draft.unmirrored && r->text.count + 1 < d->about.context;
}

/* The tokens of a request that its mirror has. */
typedef struct text {
  const int32_t *tokens;
  int64_t count, nprompt;
} text;

static text text_of(const sl_session *d, const request *r) {
  int64_t without = d->speculation.target->options.speculation.hidden;
  return (text){r->text.tokens + without, r->text.count - without,
                SLI_MAX(r->text.prompt - without, 1)};
}

/* ---- hidden states -----------------------------------------------------------------------------
 */

static float *hidden_at(const sl_session *s, request *r, int64_t at) {
  size_t width = (size_t)s->about.width, need = (size_t)(at + 1) * width;
  if (need > r->draft.hidden_capacity) {
    size_t more = SLI_MAX(2 * r->draft.hidden_capacity, need);
    r->draft.hidden = sli_realloc(r->draft.hidden, more, sizeof *r->draft.hidden);
    memset(r->draft.hidden + r->draft.hidden_capacity, 0,
           (more - r->draft.hidden_capacity) * sizeof *r->draft.hidden);
    r->draft.hidden_capacity = more;
  }
  return r->draft.hidden + (size_t)at * width;
}

void sli_mirror_hidden(const sl_session *s, request *r, int64_t at, const float *row) {
  bool mirror = s->speculation.target && s->speculation.target->options.speculation.hidden;
  if (!mirror && !s->options.speculation.hidden) return;
  if (mirror && at + 1 < r->draft.nhidden) return;
  memcpy(hidden_at(s, r, at + mirror), row, (size_t)s->about.width * sizeof *row);
}

/* Gives a mirror the hidden states before the tokens of its text. Those that its request found in
 * shared pages are zeros. */
static void copy_hidden(const sl_session *d, request *m, request *r, int64_t count) {
  if (!d->speculation.target->options.speculation.hidden) return;
  for (; m->draft.nhidden < count; m->draft.nhidden++)
    memcpy(hidden_at(d, m, m->draft.nhidden), hidden_at(d->speculation.target, r, m->draft.nhidden),
           (size_t)d->about.width * sizeof *m->draft.hidden);
}

static request *mirror_make(const sl_session *d, request *r) {
  text own = text_of(d, r);
  sl_request how = {.prompt = own.tokens,
                    .nprompt = own.nprompt,
                    .max_tokens = r->text.most,
                    .temperature = r->how.temperature,
                    .top_k = r->how.top_k,
                    .top_p = r->how.top_p,
                    .min_p = r->how.min_p,
                    .seed = r->how.seed,
                    .salt = r->how.salt,
                    .logprobs = -1,
                    .user = r};
  request *m = sli_session_make(d, &how);
  m->cache.known = 0;
  if (r->how.constraint.allow) m->how.constraint = (sl_constraint){.allow = mirror_allow, .ctx = m};
  return m;
}

static int64_t count_same(const request *m, const text *own) {
  int64_t same = m->cache.known;
  while (same < SLI_MIN(m->text.count, own->count) && m->text.tokens[same] == own->tokens[same])
    same++;
  return same;
}

/* Gives a mirror its request's edits, updated with the mirror's own tokens. */
static void copy_edits(request *m, const request *r, const text *own) {
  sli_edits_free(m->edits);
  m->edits = sli_edits_copy(r->edits);
  for (int64_t i = own->count; i < m->text.count && m->edits; i++)
    sli_edits_note(m->edits, m->text.tokens[i]);
}

/* Gives a mirror the tokens of its request. If all earlier drafted tokens were right, tokens
 * drafted beyond them stay. */
static void copy_tokens(request *m, const text *own) {
  int64_t same = count_same(m, own);
  m->cache.known = own->count;
  if (same == own->count) return;
  m->progress.fed = SLI_MIN(m->progress.fed, same);
  m->progress.computed = SLI_MIN(m->progress.computed, same);
  m->text.count = same;
  for (; m->text.count < own->count; m->text.count++) {
    SLI_GROW(m->text.tokens, (size_t)m->text.count, m->text.capacity);
    m->text.tokens[m->text.count] = own->tokens[m->text.count];
  }
}

/* Gives a mirror the tokens of its request, and a goal. The mirror reads at most *left tokens;
 * *left is reduced by the number read. */
static void mirror_follow(const sl_session *d, request *m, request *r, int wanted, int64_t *left) {
  text own = text_of(d, r);
  copy_tokens(m, &own);
  copy_edits(m, r, &own);
  copy_hidden(d, m, r, own.count);
  int64_t read =
      m->standing == RUNNING ? m->progress.fed : sli_prefixes_find(d, m, INT64_MAX) * SL_PAGE;
  bool whole = m->text.count - read <= *left;
  if (!whole) m->text.count = m->cache.known = read + *left;
  m->cache.goal = !*left  ? 0
                  : whole ? SLI_MIN(own.count + wanted, m->text.most - 1)
                          : m->text.count + 1;
  *left -= m->text.count - read;
}

/* ---- rounds ------------------------------------------------------------------------------------
 */

/* Starts the mirrors of the requests; returns the rows that they have to compute. In a replay,
 * drafts are made one by one as the log lists them, so a mirror may read its whole text at once. */
static int64_t begin_round(sl_session *d, int n, const draft *of) {
  enum { CHUNKS = 4 };
  int64_t rows = 0, left = d->speculation.target->log.from ? INT64_MAX : CHUNKS * d->about.rows;
  for (int i = 0; i < n; i++) {
    request *r = of[i].part->request;
    if (!of[i].most || !mirror_fits(d, r)) continue;
    if (!r->draft.mirror) sli_session_queue(d, r->draft.mirror = mirror_make(d, r));
    mirror_follow(d, r->draft.mirror, r, of[i].most, &left);
    rows += SLI_MAX(r->draft.mirror->cache.goal - 1 - r->draft.mirror->progress.fed, 0);
  }
  d->resting = false;
  pthread_cond_signal(&d->work);
  return rows;
}

/* Collects the mirrors' drafts; returns the length of the longest. */
static int end_round(const sl_session *d, int n, draft *of) {
  int longest = 0;
  for (int i = 0; i < n; i++) {
    request *r = of[i].part->request, *m = r->draft.mirror;
    if (m) m->cache.goal = 0;
    if (!of[i].most || !m || m->cache.known != text_of(d, r).count) continue;
    of[i].n = (int)SLI_MAX(SLI_MIN(m->text.count - m->cache.known, of[i].most), 0);
    memcpy(r->draft.tokens, m->text.tokens + m->cache.known,
           (size_t)of[i].n * sizeof *r->draft.tokens);
    longest = SLI_MAX(longest, of[i].n);
  }
  return longest;
}

/* Aborts the session because its draft session failed. */
static void fail_with(const sl_session *s, const sl_session *d) {
  char *text = sli_format("the draft model failed: %s", d->end.detail);
  sl_runtime_abort(s->about.rt, d->end.status, text);
  free(text);
}

static int run_round(sl_session *s, int n, draft *of, int64_t *rows) {
  sl_session *d = s->speculation.draft;
  pthread_mutex_lock(&d->lock);
  *rows = d->end.closing ? 0 : begin_round(d, n, of);
  s->speculation.drafting = true;
  pthread_mutex_unlock(&s->lock);
  while (!d->resting && !d->end.closing) pthread_cond_wait(&d->idle, &d->lock);
  int longest = d->end.closing ? 0 : end_round(d, n, of);
  if (d->end.status) fail_with(s, d);
  pthread_mutex_unlock(&d->lock);
  pthread_mutex_lock(&s->lock);
  s->speculation.drafting = false;
  return longest;
}

/* Rounds in which mirrors read long texts are not used as measurements. */
static double model_find(sl_session *s, int n, draft *of) {
  int64_t rows, usual = 0;
  uint64_t begin = sli_now_ns();
  int longest = run_round(s, n, of, &rows);
  for (int i = 0; i < n; i++) usual += of[i].most ? of[i].most + 2 : 0;
  if (!longest || rows > usual) return 0;
  return (double)(sli_now_ns() - begin) * 1e-9 / longest;
}

/* Ends a request's mirror, whose ticks in flight may outlive the request. */
static void model_leave(const sl_session *s, request *r) {
  sl_session *d = s->speculation.draft;
  if (!d) return;
  pthread_mutex_lock(&d->lock);
  if (r->draft.mirror) {
    r->draft.mirror->user = NULL;
    sli_session_hang_up(d, r->draft.mirror);
  }
  r->draft.mirror = NULL;
  pthread_mutex_unlock(&d->lock);
}

const sli_drafter sli_drafter_model = {.costs = true, .find = model_find, .leave = model_leave};

void sli_mirror_note(void *ctx, const sl_session_event *e) {
  (void)ctx;
  request *r = e->kind == SL_EVENT_END ? e->user : NULL;
  if (!r) return;
  r->draft.mirror = NULL;
  r->draft.unmirrored = true;
}

/* ---- the session -------------------------------------------------------------------------------
 */

/* Returns the bytes that a session leaves of its first device's budget, or 0 if there is no
 * budget. */
static size_t budget_left(const sl_session *s) {
  size_t all = s->options.lower.devices.budget_bytes,
         used = sl_device_bytes(&s->about.plan->devices[0]);
  return !all ? 0 : all > used ? all - used : 1;
}

sl_session_options sli_mirror_options(const sl_session *s) {
  const sl_session_options *own = &s->options;
  sl_session_options o = *own->speculation.draft;
  o.context = s->about.context;
  o.rows = s->about.rows;
  o.sequences = s->about.sequences;
  o.groups = 1;
  o.pages = s->about.pages;
  o.admit = SL_ADMIT_RECOMPUTE;
  o.prefixes = own->prefixes;
  o.kept = (sl_kept_pages){0};
  o.speculation = (sl_speculation){0};
  o.job = NULL;
  o.log = o.replay = o.trace = NULL;
  o.cost = NULL;
  o.hash = false;
  o.embeddings = own->speculation.hidden;
  o.penalties = own->penalties;
  o.constraints = own->constraints;
  o.nadapters = o.adapter_places = 0;
  o.lower.parallel.stages = o.lower.parallel.tensor = o.lower.parallel.sequence =
      o.lower.parallel.processes = 1;
  o.lower.schedule.chunks = 1;
  o.lower.devices.count = 0;
  o.lower.devices.budget_bytes = budget_left(s);
  return o;
}

sl_status sli_mirror_check(const sl_session *s) {
  const sl_session *target = s->speculation.target;
  if (!target) return SL_OK;
  bool hidden = target->options.speculation.hidden;
  if (hidden ? s->about.width != sl_session_width(s) || s->about.width != target->about.width
             : sl_session_width(s) > 0)
    return sl_fail(SL_E_USAGE, "model %s reads other hidden states than model %s makes",
                   s->options.model->name, target->options.model->name);
  const sl_session *with = s->serving.sinks ? s : target;
  if (with->serving.sinks)
    return sl_fail(SL_E_UNSUPPORTED,
                   "model %s has sink tokens, which are not supported with a draft model",
                   with->options.model->name);
  if (s->about.vocabulary == target->about.vocabulary) return SL_OK;
  return sl_fail(SL_E_USAGE, "the vocabularies differ: model %s has %lld tokens, model %s has %lld",
                 s->options.model->name, (long long)s->about.vocabulary,
                 target->options.model->name, (long long)target->about.vocabulary);
}

const sl_session *sl_session_draft(const sl_session *s) { return s->speculation.draft; }
