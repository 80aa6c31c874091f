/* SPDX-License-Identifier: Apache-2.0 */
/* Speculative decoding: one tick checks the drafted tokens of an answer.
 *
 * Drafted tokens occupy the rows after the last known token of an answer. The tick samples a token
 * after each of these rows, with the settings and random number of its position. As long as the
 * sampled tokens match the drafted ones, they are the tokens that ticks without drafts would have
 * sampled. An answer is therefore bitwise identical with and without drafts. The next tick
 * overwrites the keys and values of wrong tokens before anything reads them.
 *
 * A drafted token is right with probability a, measured separately for each class of match length.
 * A draft of g tokens yields 1 + a + ... + a^g tokens on average. g is chosen to maximize tokens
 * per second, given the measured durations of ticks and, if drafting is expensive, of drafting. */
#include <math.h>

#include "base/monotonic.h"
#include "serve/serve.h"

/* ---- drafts -------------------------------------------------------------------------------- */

/* Updates a running mean and caps outliers, since a tick may be slow for unrelated reasons. */
static void note_seconds(sli_draft_time *of, int64_t rows, double seconds) {
  enum { NEWEST = 8 };
  if (rows < 1 || rows >= SLI_DRAFT_ROWS) return;
  sli_draft_time *t = &of[rows];
  if (t->count) seconds = fmin(seconds, 2 * t->seconds);
  t->count = SLI_MIN(t->count + 1, NEWEST);
  t->seconds += (seconds - t->seconds) / t->count;
}

/* Returns the most tokens that may be drafted. They must fit in the context and the answer's limit,
 * and the last token of an answer is never computed. All of them must lie on the same side of
 * min_tokens, so that the same stop tokens are banned after each. */
static int64_t most_drafted(const request *r) {
  int64_t place = r->text.count - r->text.prompt, most = r->text.most - r->text.count - 1;
  return place < r->how.min_tokens ? SLI_MIN(most, r->how.min_tokens - place - 1) : most;
}

/* Counts the drafted tokens before the first stop token. */
static int count_unstopped(const request *r, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < r->how.nstop; k++)
      if (r->stop[k] == r->draft.tokens[i]) return i;
  return n;
}

static int count_wanted(const sl_session *s, const draft *d) {
  int64_t most = SLI_MIN(d->most, s->options.speculation.tokens);
  return (int)SLI_MAX(SLI_MIN(most, most_drafted(d->part->request)), 0);
}

void sli_drafts_find(sl_session *s, tick *t, int n, draft *of) {
  int wanted = 0, count = 0;
  for (int i = 0; i < n; i++) {
    of[i].most = count_wanted(s, &of[i]);
    count += of[i].most > 0;
    wanted = SLI_MAX(wanted, of[i].most);
  }
  if (!wanted) return;
  uint64_t begin = sli_now_ns();
  double each = s->speculation.drafter->find(s, n, of);
  t->drafting += (double)(sli_now_ns() - begin) * 1e-9;
  if (each > 0) note_seconds(s->speculation.drafts.drafting, count, each);
  for (int i = 0; i < n; i++) of[i].n = count_unstopped(of[i].part->request, of[i].n);
}

/* ---- whether drafts pay ---------------------------------------------------------------------- */

static struct draft_class *class_of(drafts *d, const request *r) {
  int class = 0;
  for (int n = r->draft.match / SLI_LOOKUP_SHORTEST; n > 1 && class + 1 < SLI_DRAFT_CLASSES; n /= 2)
    class ++;
  return &d->classes[class];
}

/* Returns the probability that a drafted token is right; optimistic while there are few
 * measurements. */
static double chance_of(const struct draft_class *c) {
  const double hope = 0.7, weight = 4;
  return (c->right + hope * weight) / (c->checked + weight);
}

/* Decays older measurements, so that a class that did not pay is tried again. */
static void forget(struct draft_class *c) {
  const double keep = 1 - 1.0 / 64;
  c->checked *= keep;
  c->right *= keep;
}

void sli_drafts_note(sl_session *s, const request *r, int right) {
  struct draft_class *c = class_of(&s->speculation.drafts, r);
  c->checked += SLI_MIN(right + 1, r->draft.count);
  c->right += right;
  s->stats.rounds++;
  s->stats.checked += (uint64_t)SLI_MIN(right + 1, r->draft.count);
  s->stats.drafted += (uint64_t)r->draft.count;
}

void sli_drafts_time(drafts *d, int64_t rows, double seconds) {
  note_seconds(d->ticks, rows, seconds);
}

/* Returns the seconds for `rows` rows, interpolated between measured row counts. Beyond the largest
 * measured count its time is returned, so that larger counts get tried. Returns 0 if no count up to
 * `rows` is measured. */
static double seconds_of(const sli_draft_time *of, int64_t rows) {
  int64_t low = SLI_MIN(rows, SLI_DRAFT_ROWS - 1), high = low;
  while (low > 0 && !of[low].count) low--;
  while (high < SLI_DRAFT_ROWS && !of[high].count) high++;
  if (!low || high == SLI_DRAFT_ROWS || high == low) return of[low].seconds;
  double share = (double)(rows - low) / (double)(high - low);
  return of[low].seconds + share * (of[high].seconds - of[low].seconds);
}

int sli_drafts_worth(sl_session *s, const request *r, int n, int64_t rows, double *tokens) {
  struct draft_class *c = class_of(&s->speculation.drafts, r);
  double chance = chance_of(c), power = 1, gain = 0, found = 0, seconds;
  double most = *tokens / seconds_of(s->speculation.drafts.ticks, rows);
  int best = 0;
  forget(c);
  for (int g = 1; g <= n && most < INFINITY; g++) {
    power *= chance;
    gain += power;
    seconds = seconds_of(s->speculation.drafts.ticks, rows + g);
    if ((*tokens + gain) / seconds > most)
      most = (*tokens + gain) / seconds, best = g, found = gain;
  }
  *tokens += found;
  return best;
}

/* ---- draft length --------------------------------------------------------------------------- */

/* Returns whether to run this tick without drafts as a measurement: the first few ticks, then one
 * at regular intervals. */
static bool is_plain(drafts *d) {
  enum { FIRST = 4, EACH = 32 };
  uint64_t occasion = d->occasions++;
  return occasion < FIRST || occasion % EACH == 0;
}

/* Decays the measured drafting times slowly, since trying again is expensive. */
static void forget_drafting(drafts *d) {
  const double keep = 1 - 1.0 / 512;
  for (int i = 0; i < SLI_DRAFT_ROWS; i++) d->drafting[i].seconds *= keep;
}

/* Counts the requests for which a g-th token can be drafted, and adds up the probabilities that it
 * is accepted. */
static int count_drafted(const sl_session *s, int n, const draft *of, int g, double *gain) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    if (count_wanted(s, &of[i]) < g) continue;
    *gain += pow(chance_of(class_of((drafts *)&s->speculation.drafts, of[i].part->request)), g);
    count++;
  }
  return count;
}

/* Returns the draft length with the most tokens per second. */
static int best_length(const sl_session *s, int n, const draft *of, const load *l, int64_t rows) {
  double tokens = (double)l->picks, drafting = 0,
         most = tokens / seconds_of(s->speculation.drafts.ticks, l->rows);
  int64_t drafted = 0;
  int best = 0;
  for (int g = 1, count; g <= s->options.speculation.tokens && most < INFINITY; g++) {
    count = count_drafted(s, n, of, g, &tokens);
    drafted += count;
    if (!count || drafted > rows) break;
    drafting += seconds_of(s->speculation.drafts.drafting, count);
    double rate = tokens / (seconds_of(s->speculation.drafts.ticks, l->rows + drafted) + drafting);
    if (rate > most) most = rate, best = g;
  }
  return best;
}

void sli_drafts_limit(sl_session *s, int n, draft *of, const load *l, int64_t rows) {
  if (!s->speculation.drafter->costs || !n) return;
  bool always = s->options.speculation.always;
  int fit = (int)SLI_MIN(SLI_MAX(rows / n, 1), SL_SESSION_DRAFTED);
  int best = always ? fit : best_length(s, n, of, l, rows);
  bool plain = !always && is_plain(&s->speculation.drafts);
  for (int i = 0; i < n; i++) of[i].most = SLI_MIN(of[i].most, plain ? 0 : best);
  if (best) return;
  forget(class_of(&s->speculation.drafts, of->part->request));
  forget_drafting(&s->speculation.drafts);
}
