#include "tools/common/arrivals.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------ */

typedef struct reading {
  const char *path;
  sli_arena *arena;
  size_t line, capacity;
  arrivals out;
} reading;

static sl_status bad(const reading *r, const char *what) {
  return sl_fail(SL_E_INPUT, "%s, line %zu: %s", r->path, r->line, what);
}

/* Is it a whole number of tokens? */
static bool read_tokens(const cJSON *of, const char *name, int64_t *out) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(of, name);
  if (!cJSON_IsNumber(x) || !(x->valuedouble >= 1 && x->valuedouble <= 1e9) || floor(x->valuedouble) != x->valuedouble)
    return false;
  *out = (int64_t)x->valuedouble;
  return true;
}

static sl_status read_fields(reading *r, const cJSON *of) {
  const cJSON *time = cJSON_GetObjectItemCaseSensitive(of, "time");
  sl_arrival a = {0};
  if (!cJSON_IsNumber(time) || !(time->valuedouble >= 0 && time->valuedouble < 1e9))
    return bad(r, "\"time\" is no number of seconds");
  a.seconds = time->valuedouble;
  if (r->out.count && a.seconds < r->out.of[r->out.count - 1].seconds)
    return bad(r, "its \"time\" is before that of the line before");
  if (!read_tokens(of, "prompt", &a.prompt)) return bad(r, "\"prompt\" is no number of tokens");
  if (!read_tokens(of, "answer", &a.answer)) return bad(r, "\"answer\" is no number of tokens");
  size_t count = (size_t)r->out.count++;
  SLI_GROW(r->out.of, count, r->capacity);
  r->out.of[count] = a;
  return SL_OK;
}

static sl_status read_line(reading *r, const char *text) {
  r->line++;
  if (!text[strspn(text, " \t\r\n")]) return SL_OK;
  cJSON *root = cJSON_Parse(text);
  sl_status status = cJSON_IsObject(root) ? read_fields(r, root) : bad(r, "no JSON object");
  cJSON_Delete(root);
  return status;
}

static void keep(reading *r, arrivals *out) {
  size_t bytes = (size_t)r->out.count * sizeof *r->out.of;
  *out = r->out;
  out->of = memcpy(sli_arena_alloc(r->arena, bytes), r->out.of, bytes);
}

sl_status arrivals_read(const char *path, sli_arena *arena, arrivals *out) {
  reading r = {.path = path, .arena = arena};
  FILE *file = fopen(path, "re");
  if (!file) return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  sl_status status = SL_OK;
  while (!status && getline(&text, &capacity, file) > 0) status = read_line(&r, text);
  if (!status && !r.out.count) status = sl_fail(SL_E_INPUT, "%s: nobody comes", path);
  if (!status) keep(&r, out);
  free(r.out.of);
  free(text);
  fclose(file);
  return status;
}

/* ---- how they were answered ------------------------------------------------------------------ */

const double outcome_shares[OUTCOME_SHARES] = {0.5, 0.9, 0.99};

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The least that so many have or less. */
static double share_of(const double *sorted, int64_t n, double share) {
  return n ? sorted[SLI_MAX((int64_t)ceil(share * (double)n - 1e-9), 1) - 1] : 0;
}

static void shares_of(double *x, int64_t n, double *out) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  for (int i = 0; i < OUTCOME_SHARES; i++) out[i] = share_of(x, n, outcome_shares[i]);
}

static double to_first(const sl_arrival *a, const sl_answered *x) { return x->first - a->seconds; }

static double between(const sl_answered *x) { return (x->last - x->first) / (double)(x->tokens - 1); }

outcome outcome_of(const arrivals *a, const sl_answered *answered, double seconds) {
  double *first = sli_calloc((size_t)a->count, sizeof *first), *each = sli_calloc((size_t)a->count, sizeof *each);
  int64_t tokens = 0, several = 0;
  outcome o = {0};
  for (int64_t i = 0; i < a->count; i++) {
    const sl_answered *x = &answered[i];
    if (!x->tokens) continue;
    first[o.answered++] = to_first(&a->of[i], x);
    if (x->tokens > 1) each[several++] = between(x);
    tokens += x->tokens;
  }
  o.refused = a->count - o.answered;
  o.tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0;
  shares_of(first, o.answered, o.ttft);
  shares_of(each, several, o.tpot);
  free(first);
  free(each);
  return o;
}

double outcome_share(const arrivals *a, const sl_answered *answered, bool between_tokens, double share) {
  double *all = sli_calloc((size_t)a->count, sizeof *all);
  int64_t n = 0;
  for (int64_t i = 0; i < a->count; i++) {
    const sl_answered *x = &answered[i];
    if (!x->tokens) all[n++] = INFINITY;
    else if (!between_tokens) all[n++] = to_first(&a->of[i], x);
    else if (x->tokens > 1) all[n++] = between(x);
  }
  qsort(all, (size_t)n, sizeof *all, ascending);
  double found = share_of(all, n, share);
  free(all);
  return found;
}
