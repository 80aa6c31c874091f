/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serving/arrivals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/file.h"

/* ---- files ------------------------------------------------------------------------------ */

typedef struct reading {
  const char *path;
  sli_arena *arena;
  size_t capacity;
  arrivals out;
} reading;

static sl_status read_fields(reading *r, const sli_json *doc) {
  sl_arrival a = {0};
  const sli_json_field fields[] = {{"time", SLI_JSON_NUMBER, &a.seconds, 0, 1e9, true},
                                   {"prompt", SLI_JSON_WHOLE, &a.prompt, 1, 1e9, true},
                                   {"answer", SLI_JSON_WHOLE, &a.answer, 1, 1e9, true}};
  sl_status status = sli_json_pick(doc, doc->root, fields, SLI_COUNT(fields));
  if (status) return status;
  if (r->out.count && a.seconds < r->out.items[r->out.count - 1].seconds)
    return sl_fail(SL_E_INPUT, "%s: its time is earlier than that of the previous line", doc->name);
  size_t count = (size_t)r->out.count++;
  SLI_GROW(r->out.items, count, r->capacity);
  r->out.items[count] = a;
  return SL_OK;
}

static sl_status read_line(void *ctx, int line, char *text, size_t bytes) {
  reading *r = ctx;
  if (strspn(text, " \t\r") == bytes) return SL_OK;
  char *name = sli_format("%s, line %d", r->path, line);
  sli_json doc;
  sl_status status = sli_json_read(name, text, bytes, 0, &doc);
  free(name);
  if (status) return status;
  status = read_fields(r, &doc);
  sli_json_fini(&doc);
  return status;
}

static void keep(reading *r, arrivals *out) {
  size_t bytes = (size_t)r->out.count * sizeof *r->out.items;
  *out = r->out;
  out->items = memcpy(sli_arena_alloc(r->arena, bytes), r->out.items, bytes);
}

sl_status arrivals_read(const char *path, sli_arena *arena, arrivals *out) {
  reading r = {.path = path, .arena = arena};
  sl_status status = sli_file_lines(path, read_line, &r);
  if (!status && !r.out.count) status = sl_fail(SL_E_INPUT, "%s: nobody comes", path);
  if (!status) keep(&r, out);
  free(r.out.items);
  return status;
}

void arrivals_make(int64_t clients, int64_t count, const load_lengths *lengths, uint64_t seed,
                   sli_arena *arena, arrivals *out) {
  *out = (arrivals){count, clients, sli_arena_alloc(arena, (size_t)count * sizeof *out->items)};
  for (int64_t i = 0; i < count; i++) {
    uint64_t hash = sli_hash_word(sli_hash_word(SLI_HASH_SEED, seed), (uint64_t)i);
    double even = (double)(hash >> 11) * 0x1p-53; /* from 0 to 1 */
    double answer = (double)lengths->answer * (1 + lengths->variation * (2 * even - 1));
    out->items[i] = (sl_arrival){0, lengths->prompt, SLI_MAX(llround(answer), 1)};
  }
}

/* ---- outcome --------------------------------------------------------------------------------- */

const double outcome_shares[OUTCOME_SHARES] = {0.5, 0.9, 0.99};

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the smallest sorted value that at least the fraction `share` of the values do not
 * exceed. */
static double share_of(const double *sorted, int64_t n, double share) {
  return n ? sorted[SLI_MAX((int64_t)ceil(share * (double)n - 1e-9), 1) - 1] : 0;
}

static double mean_of(const double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  return n ? sum / (double)n : 0;
}

static void shares_of(double *x, int64_t n, double *out) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  for (int i = 0; i < OUTCOME_SHARES; i++) out[i] = share_of(x, n, outcome_shares[i]);
}

static double to_first(const sl_answered *x) { return x->first - x->came; }

static double between(const sl_answered *x) {
  return (x->last - x->first) / (double)(x->tokens - 1);
}

outcome outcome_of(const arrivals *a, const sl_answered *answered, double seconds) {
  double *first = sli_calloc((size_t)a->count, sizeof *first),
         *each = sli_calloc((size_t)a->count, sizeof *each);
  int64_t tokens = 0, several = 0;
  outcome o = {0};
  for (int64_t i = 0; i < a->count; i++) {
    const sl_answered *x = &answered[i];
    if (!x->tokens) continue;
    first[o.answered++] = to_first(x);
    if (x->tokens > 1) each[several++] = between(x);
    tokens += x->tokens;
  }
  o.refused = a->count - o.answered;
  o.tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0;
  o.ttft_mean = mean_of(first, o.answered);
  o.tpot_mean = mean_of(each, several);
  shares_of(first, o.answered, o.ttft);
  shares_of(each, several, o.tpot);
  free(first);
  free(each);
  return o;
}

double outcome_share(const arrivals *a, const sl_answered *answered, bool between_tokens,
                     double share) {
  double *all = sli_calloc((size_t)a->count, sizeof *all);
  int64_t n = 0;
  for (int64_t i = 0; i < a->count; i++) {
    const sl_answered *x = &answered[i];
    if (!x->tokens) all[n++] = INFINITY;
    else if (!between_tokens) all[n++] = to_first(x);
    else if (x->tokens > 1) all[n++] = between(x);
  }
  qsort(all, (size_t)n, sizeof *all, ascending);
  double found = share_of(all, n, share);
  free(all);
  return found;
}
