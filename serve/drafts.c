/* SPDX-License-Identifier: Apache-2.0 */
/* Speculation: drafted tokens of an answer, checked by one tick.
 *
 * A draft stands in rows behind the last known token of an answer. The tick chooses a token behind
 * each of these rows, by the settings and the random number of its place. As long as the tokens are
 * the drafted ones, each is the token that ticks without drafts would have chosen, so an answer has
 * the same bits with and without. The keys and values of the others are overwritten by the next
 * tick before anything reads them.
 *
 * A drafted token is right with probability a, which is measured by the length of the match that it
 * came from. A draft of g tokens then brings 1 + a + ... + a^g tokens. It is made as long as gives
 * most tokens a second by the measured durations of ticks. */
#include <math.h>

#include "serve/serve.h"

/* ---- drafts -------------------------------------------------------------------------------- */

/* Returns the most tokens that may be drafted: the context and the answer's limit have room for
 * them, and the last token of an answer is never computed. Stop tokens that may not come yet are
 * the same behind all of them. */
static int64_t most_drafted(const request *r) {
  int64_t place = r->count - r->nprompt, most = r->most - r->count - 1;
  return place < r->how.min_tokens ? SLI_MIN(most, r->how.min_tokens - place - 1) : most;
}

/* Counts drafted tokens in front of the first stop token, behind which nothing is wanted. */
static int count_unstopped(const request *r, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < r->how.nstop; k++)
      if (r->stop[k] == r->drafted[i]) return i;
  return n;
}

int sli_drafts_find(const sl_session *s, request *r, int64_t most) {
  const sl_speculation *o = &s->options.speculation;
  int n = (int)SLI_MIN(SLI_MIN(most, o->tokens), most_drafted(r));
  if (n <= 0) return 0;
  if (!r->lookup) r->lookup = sli_lookup_create();
  int least = o->match ? o->match : SLI_LOOKUP_SHORTEST;
  n = sli_lookup_find(r->lookup, r->tokens, r->count, least, n, r->drafted, &r->match);
  return count_unstopped(r, n);
}

/* ---- whether they pay ------------------------------------------------------------------------ */

static struct draft_class *class_of(drafts *d, const request *r) {
  int class = 0;
  for (int n = r->match / SLI_LOOKUP_SHORTEST; n > 1 && class + 1 < SLI_DRAFT_CLASSES; n /= 2)
    class ++;
  return &d->classes[class];
}

/* Returns the probability that a drafted token is right. Few measurements give a hopeful one. */
static double chance_of(const struct draft_class *c) {
  const double hope = 0.7, weight = 4;
  return (c->right + hope * weight) / (c->checked + weight);
}

/* Lets older measurements count less, so that what did not pay is tried again. */
static void forget(struct draft_class *c) {
  const double keep = 1 - 1.0 / 64;
  c->checked *= keep;
  c->right *= keep;
}

void sli_drafts_note(sl_session *s, const request *r, int right) {
  struct draft_class *c = class_of(&s->drafts, r);
  c->checked += SLI_MIN(right + 1, r->ndrafted);
  c->right += right;
  s->stats.rounds++;
  s->stats.drafted += (uint64_t)r->ndrafted;
}

/* Follows the machine slowly, as a tick may take long for other reasons. */
void sli_drafts_time(drafts *d, int64_t rows, double seconds) {
  if (rows < 1 || rows >= SLI_DRAFT_ROWS) return;
  double *mean = &d->seconds[rows];
  *mean = *mean > 0 ? *mean + (fmin(seconds, 2 * *mean) - *mean) / 8 : seconds;
}

/* Returns the seconds of a tick of so many rows, between those that are measured. Behind the last
 * one they are its own, so that more are tried; 0: none of so few is measured. */
static double seconds_of(const drafts *d, int64_t rows) {
  int64_t low = SLI_MIN(rows, SLI_DRAFT_ROWS - 1), high = low;
  while (low > 0 && d->seconds[low] <= 0) low--;
  while (high < SLI_DRAFT_ROWS && d->seconds[high] <= 0) high++;
  if (!low || high == SLI_DRAFT_ROWS || high == low) return d->seconds[low];
  double share = (double)(rows - low) / (double)(high - low);
  return d->seconds[low] + share * (d->seconds[high] - d->seconds[low]);
}

int sli_drafts_worth(sl_session *s, const request *r, int n, int64_t rows, double *tokens) {
  struct draft_class *c = class_of(&s->drafts, r);
  double chance = chance_of(c), power = 1, gain = 0, found = 0, seconds;
  double most = *tokens / seconds_of(&s->drafts, rows);
  int best = 0;
  forget(c);
  for (int g = 1; g <= n && most < INFINITY; g++) {
    power *= chance;
    gain += power;
    seconds = seconds_of(&s->drafts, rows + g);
    if ((*tokens + gain) / seconds > most)
      most = (*tokens + gain) / seconds, best = g, found = gain;
  }
  *tokens += found;
  return best;
}
