/* SPDX-License-Identifier: Apache-2.0 */
/* The search: servers are simulated with the requests, best first by a bound of what they can
 * reach.
 *
 * Latency is not monotonic in any dimension: more pages admit more requests at once, which then
 * wait for each other. Each server that could be the best is therefore simulated, with the prices
 * of its shape, and the best of these with their own plans. Servers are tried in batches of one
 * size, so that the result does not depend on the number of threads. The set of servers does not
 * depend on the budget, so more memory only adds choices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

enum { BATCH = 16 };

/* ---- order --------------------------------------------------------------------------------- */

static bool is_good(const server *c) { return c->tried && c->off <= 1; }

/* Orders by the result, then by devices and memory. */
static int better_first(const void *a, const void *b) {
  const server *x = a, *y = b;
  if (x->tried != y->tried) return x->tried ? -1 : 1;
  if (!x->tried && (x->bytes > 0) != (y->bytes > 0)) return x->bytes ? -1 : 1;
  if (!x->tried) return (x->bytes > y->bytes) - (x->bytes < y->bytes);
  bool good = x->off <= 1, other = y->off <= 1;
  if (good != other) return good ? -1 : 1;
  if (!good && x->off != y->off) return x->off < y->off ? -1 : 1;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  if (x->devices != y->devices) return x->devices < y->devices ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* Orders servers by what they may reach. */
static int hopeful_first(const void *a, const void *b) {
  const server *x = a, *y = b;
  if (x->hopeful != y->hopeful) return x->hopeful ? -1 : 1;
  if (x->guess != y->guess) return x->guess > y->guess ? -1 : 1;
  if (x->devices != y->devices) return x->devices < y->devices ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Servers that are tried at once. */
typedef struct batch {
  hunt *hunt;
  size_t count;
  bool exact;
  server *servers[BATCH];
  sl_status wrong[BATCH];
  char *why[BATCH];
} batch;

static void try_one(void *ctx, size_t i) {
  batch *b = ctx;
  const hunt *h = b->hunt;
  sl_arrival *arrivals = sli_calloc((size_t)h->came.count, sizeof *arrivals);
  b->wrong[i] = server_try(h, b->servers[i], arrivals, b->exact, &b->why[i]);
  free(arrivals);
}

static void try_batch(batch *b, int threads) {
  hunt *h = b->hunt;
  memset(b->wrong, 0, sizeof b->wrong);
  memset(b->why, 0, sizeof b->why);
  each(threads, interrupted, 0, b->count, try_one, b);
  for (size_t i = 0; i < b->count; i++) {
    if (b->wrong[i] && !h->wrong) h->wrong = b->wrong[i], h->why = b->why[i], b->why[i] = NULL;
    free(b->why[i]);
    if (b->exact) continue;
    if (is_good(b->servers[i])) h->best = fmax(h->best, b->servers[i]->score);
    h->tried += b->servers[i]->tried;
  }
  b->count = 0;
}

/* Returns whether a server could be better than the best by more than a hundredth. */
static bool is_worthwhile(const hunt *h, const server *c) {
  static const double enough = 1.01;
  return h->all || c->most > h->best * enough;
}

/* Returns the most simulations: those of some ten million tokens, and no fewer than a few. */
static size_t most_trials(const hunt *h) {
  enum { FEW = 64, TOKENS = 15000000 };
  double tokens = 1;
  for (int64_t i = 0; i < h->came.count; i++)
    tokens += (double)h->came.items[i].answer + (double)h->came.items[i].prompt / 64;
  return h->all ? SIZE_MAX : SLI_MAX((size_t)(TOKENS / tokens), FEW);
}

static void try_all(hunt *h, int threads) {
  batch b = {.hunt = h};
  size_t most = most_trials(h);
  for (size_t i = 0; i < h->count && h->tried < most && !interrupted(); i++) {
    server *c = &h->servers[i];
    if (is_worthwhile(h, c)) b.servers[b.count++] = c;
    if (b.count == BATCH) try_batch(&b, threads);
  }
  if (b.count) try_batch(&b, threads);
}

/* Returns whether a good server with another value of the dimension was tried. */
static bool has_second(const hunt *h, slo_dim dim, int64_t value) {
  for (size_t i = 0; i < h->count; i++)
    if (is_good(&h->servers[i]) && h->servers[i].at[dim] != value) return true;
  return false;
}

static const server *best_of(const hunt *h) {
  const server *best = NULL;
  for (size_t i = 0; i < h->count; i++)
    if (is_good(&h->servers[i]) && (!best || better_first(&h->servers[i], best) < 0))
      best = &h->servers[i];
  return best;
}

/* Tries some servers with another value of a dimension than the best has, so that these compare. */
static void try_second(hunt *h, slo_dim dim, int threads) {
  batch b = {.hunt = h};
  const server *best = best_of(h);
  if (!best || has_second(h, dim, best->at[dim])) return;
  int64_t value = best->at[dim];
  for (size_t i = 0; i < h->count && b.count < BATCH; i++) {
    server *c = &h->servers[i];
    if (c->hopeful && !c->bytes && c->at[dim] != value) b.servers[b.count++] = c;
  }
  try_batch(&b, threads);
}

static int faster_first(const void *a, const void *b) {
  const server *x = *(const server *const *)a, *y = *(const server *const *)b;
  double fast = x->guess * x->devices, other = y->guess * y->devices;
  if (x->hopeful != y->hopeful) return x->hopeful ? -1 : 1;
  if (fast != other) return fast > other ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

/* Tries some servers that may be the fastest, however many devices they have, so that energy
 * compares. */
static void try_fastest(hunt *h, int threads) {
  batch b = {.hunt = h};
  if (!energy_is_known(&h->settings->modelled.hardware) || h->levels.energy || h->all) return;
  server **all = sli_calloc(h->count + 1, sizeof *all);
  for (size_t i = 0; i < h->count; i++) all[i] = &h->servers[i];
  qsort(all, h->count, sizeof *all, faster_first);
  for (size_t i = 0; i < h->count && b.count < BATCH / 2; i++)
    if (!all[i]->bytes) b.servers[b.count++] = all[i];
  free(all);
  try_batch(&b, threads);
}

/* Returns whether two servers give the same answers with as many devices. Only the smallest, which
 * comes first, is shown. */
static bool is_like(const hunt *h, const server *a, const server *b) {
  return a->rate == b->rate && a->tokens == b->tokens && a->devices == b->devices &&
         !memcmp(a->seconds, b->seconds, (size_t)h->levels.count * sizeof *a->seconds);
}

int hunt_best(const hunt *h, server **out) {
  int n = 0;
  for (size_t i = 0; i < h->count && n < h->points && is_good(&h->servers[i]); i++) {
    bool alike = false;
    for (int k = 0; k < n; k++) alike |= is_like(h, out[k], &h->servers[i]);
    if (!alike) out[n++] = &h->servers[i];
  }
  return n;
}

/* Simulates the best servers with their own plans, until these are the best. */
static void confirm(hunt *h, int threads) {
  server **best = sli_calloc((size_t)h->points, sizeof *best);
  batch b = {.hunt = h, .exact = true};
  do {
    if (h->count) qsort(h->servers, h->count, sizeof *h->servers, better_first);
    int n = hunt_best(h, best);
    for (int i = 0; i < n && b.count < BATCH; i++)
      if (!best[i]->exact) b.servers[b.count++] = best[i];
    for (size_t i = 0; i < b.count; i++) b.servers[i]->exact = true;
    n = (int)b.count;
    try_batch(&b, threads);
    if (!n) break;
  } while (!interrupted());
  free(best);
}

/* Leaves out servers whose shape is impossible. */
static void drop_impossible(hunt *h) {
  size_t kept = 0;
  for (size_t i = 0; i < h->nshapes && !h->wrong; i++)
    if (h->shapes[i].wrong) h->wrong = h->shapes[i].wrong, h->why = sli_strdup(h->shapes[i].why);
  for (size_t i = 0; i < h->count; i++) {
    const server *c = &h->servers[i];
    bool good =
        hunt_shape(h, c)->prices && (!c->at[SLO_PREFILL] || hunt_prompts_shape(h, c)->prices);
    if (good) h->servers[kept++] = *c;
  }
  h->count = kept;
}

void hunt_search(hunt *h, int threads) {
  static const slo_dim compared[] = {SLO_STAGES,  SLO_TENSOR, SLO_REPLICAS,
                                     SLO_PREFILL, SLO_DTYPE,  SLO_KV};
  enum { FEW = 64 };
  uint64_t begun = sli_now_ns();
  hunt_bytes bytes = {.lock = PTHREAD_MUTEX_INITIALIZER};
  h->bytes = &bytes;
  hunt_price(h, threads);
  drop_impossible(h);
  h->all |= h->costed || h->count <= FEW;
  for (size_t i = 0; i < h->count; i++) server_bound(h, &h->servers[i]);
  if (h->count) qsort(h->servers, h->count, sizeof *h->servers, hopeful_first);
  try_all(h, threads);
  for (size_t i = 0; i < SLI_COUNT(compared); i++) try_second(h, compared[i], threads);
  try_fastest(h, threads);
  confirm(h, threads);
  free(bytes.items);
  h->took = (double)(sli_now_ns() - begun) * 1e-9;
}

const server *hunt_second(const hunt *h, slo_dim dim) {
  for (size_t i = 1; i < h->count; i++) {
    const server *c = &h->servers[i];
    if (!is_good(c)) break;
    if (c->at[dim] != h->servers[0].at[dim]) return c;
  }
  return NULL;
}

void hunt_fini(hunt *h) {
  space_fini(&h->space);
  words_fini(&h->model);
  for (size_t i = 0; i < h->nshapes; i++) {
    sl_session_prices_free(h->shapes[i].prices);
    free(h->shapes[i].why);
  }
  for (int i = 0; i < h->dtypes.count; i++) free(h->dtypes.words[i]);
  for (int i = 0; i < h->kvs.count; i++) free(h->kvs.words[i]);
  free(h->dtypes.words);
  free(h->kvs.words);
  free(h->shapes);
  free(h->servers);
  free(h->why);
}
