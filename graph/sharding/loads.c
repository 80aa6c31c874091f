/* SPDX-License-Identifier: Apache-2.0 */
/* Expected number of rows per expert, on devices that hold no values (--routing): equal, by Zipf's
 * law, or from a file. The file has one number per expert; the numbers of a line add up to the rows
 * of a microbatch. It has one line per layer, or one line for all layers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/sharding/sharding.h"
#include "io/file.h"

static void note_line(sli_loads *l, int numbers) {
  if (!numbers) return;
  l->width = l->lines && l->width != numbers ? 0 : numbers;
  l->lines++;
}

/* Reads a line of numbers separated by blanks; text after a # is ignored. */
static sl_status read_numbers(sli_loads *l, char *text, int line, size_t *capacity) {
  text[strcspn(text, "#")] = 0;
  char *end;
  int before = l->count;
  for (char *at = text + strspn(text, " \t\r\n"); *at; at = end + strspn(end, " \t\r\n")) {
    errno = 0;
    long long rows = strtoll(at, &end, 10);
    bool fine =
        end != at && (!*end || strchr(" \t\r\n", *end)) && !errno && rows >= 0 && rows <= 1LL << 40;
    if (!fine)
      return sl_fail(SL_E_INPUT, "routing %s:%d: must be the numbers of rows for expert 0, 1, ...",
                     l->text, line);
    SLI_GROW(l->rows, (size_t)l->count, *capacity);
    l->rows[l->count++] = (int64_t)rows;
  }
  note_line(l, l->count - before);
  return SL_OK;
}

typedef struct reading {
  sli_loads *loads;
  size_t capacity;
} reading;

static sl_status read_line(void *ctx, int line, char *text, size_t length) {
  reading *r = ctx;
  if (strlen(text) != length)
    return sl_fail(SL_E_INPUT, "routing %s:%d: must be the numbers of rows for expert 0, 1, ...",
                   r->loads->text, line);
  return read_numbers(r->loads, text, line, &r->capacity);
}

static sl_status read_file(sli_loads *l, sli_arena *arena) {
  if (access(l->text, F_OK))
    return sl_fail(SL_E_USAGE, "routing %s: must be learned, balanced, zipf:S or a file: %m",
                   l->text);
  reading r = {.loads = l};
  sl_status status = sli_file_lines(l->text, read_line, &r);
  if (status)
    status =
        sl_fail(status, "%s%s", strncmp(sl_detail(), "routing", 7) ? "routing: " : "", sl_detail());
  int64_t *rows = sli_arena_alloc(arena, (size_t)(l->count + 1) * sizeof *rows);
  if (l->count) memcpy(rows, l->rows, (size_t)l->count * sizeof *rows);
  free(l->rows);
  l->rows = rows;
  return status;
}

sl_status sli_loads_read(const char *text, sli_arena *arena, sli_loads **out) {
  *out = NULL;
  if (!text || !strcmp(text, "learned") || !strcmp(text, "balanced")) return SL_OK;
  sli_loads *l = sli_arena_alloc(arena, sizeof *l);
  *l = (sli_loads){
      .text = text, .arena = arena, .latest = sli_arena_alloc(arena, sizeof *l->latest)};
  *out = l;
  if (strncmp(text, "zipf:", 5)) return read_file(l, arena);
  char *end;
  l->zipf = strtod(text + 5, &end);
  if (end != text + 5 && !*end && l->zipf >= 0 && l->zipf <= 100) return SL_OK;
  return sl_fail(SL_E_USAGE, "routing %s: the S of zipf:S must be from 0 to 100", text);
}

/* Experts of a layer, without copies. */
static int64_t experts_of(const sli_loads *l, const sli_layer *layer) {
  return layer->experts - l->replicas;
}

static bool is_for_all(const sli_loads *l, const sli_layer *layer) {
  return l->count == experts_of(l, layer);
}

static sl_status check_tables(const sli_loads *l, const sli_layer *layer) {
  if (is_for_all(l, layer)) return SL_OK;
  int64_t experts = experts_of(l, layer);
  if (l->lines > 1 && l->width != experts)
    return sl_fail(
        SL_E_INPUT,
        "routing %s: its %d lines must each have %lld numbers, one for each of the model's experts",
        l->text, l->lines, (long long)experts);
  if (l->width != experts)
    return sl_fail(SL_E_INPUT, "routing %s has rows for %d experts, but the model has %lld",
                   l->text, l->count, (long long)experts);
  if (l->lines == layer->count) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "routing %s has %d lines, but the model has %d layers with experts: must be one line per "
      "layer, or one for all",
      l->text, l->lines, layer->count);
}

/* Returns the rows [experts] of a layer's experts. */
static const int64_t *loads_rows_of(const sli_loads *l, const sli_layer *layer) {
  return is_for_all(l, layer) ? l->rows : l->rows + layer->number * experts_of(l, layer);
}

sl_status sli_loads_check(const sli_loads *l, const sli_layer *layer, int64_t rows) {
  int64_t sum = 0;
  if (!l || !l->rows) return SL_OK;
  sl_status status = check_tables(l, layer);
  for (int e = 0; e < experts_of(l, layer) && !status; e++) sum += loads_rows_of(l, layer)[e];
  if (status || sum == rows) return status;
  return sl_fail(
      SL_E_INPUT,
      "routing %s: %lld rows go to the experts of layer %d, but the tokens of a microbatch have "
      "%lld expert ids in total",
      l->text, (long long)sum, layer->number, (long long)rows);
}

/* Returns the weight of an expert among those of its layer. */
static double weight_of(const sli_loads *l, const sli_layer *layer, int64_t expert) {
  return l->rows ? (double)loads_rows_of(l, layer)[expert] : pow((double)(expert + 1), -l->zipf);
}

/* ---- placement by load ---------------------------------------------------------------------- */

/* Gives each copy to the expert that then has most rows per place. Returns the numbers of places
 * [experts], which the caller frees. */
static int *count_places(const sli_loads *l, const sli_layer *layer) {
  int64_t experts = experts_of(l, layer);
  int *places = sli_calloc((size_t)experts, sizeof *places);
  for (int64_t e = 0; e < experts; e++) places[e] = 1;
  for (int i = 0; i < l->replicas; i++) {
    int64_t most = 0;
    for (int64_t e = 1; e < experts; e++)
      if (weight_of(l, layer, e) / places[e] > weight_of(l, layer, most) / places[most]) most = e;
    places[most]++;
  }
  return places;
}

static int by_weight(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* Adds the places, the heaviest first, each to the device of least weight that has room. */
static void fill_members(int64_t count, const double *parts, int members, double *weights) {
  int64_t *room = sli_calloc((size_t)members, sizeof *room);
  for (int m = 0; m < members; m++)
    room[m] = sli_first_expert(count, m + 1, members) - sli_first_expert(count, m, members);
  for (int64_t i = 0; i < count; i++) {
    int least = -1;
    for (int m = 0; m < members; m++)
      if (room[m] && (least < 0 || weights[m] < weights[least])) least = m;
    weights[least] += parts[i];
    room[least]--;
  }
  free(room);
}

/* Computes the fractions of rows before each member. */
static void place(const sli_loads *l, const sli_layer *layer, int members) {
  int *places = count_places(l, layer);
  double *parts = sli_calloc((size_t)layer->experts, sizeof *parts), all = 0;
  int64_t n = 0;
  for (int64_t e = 0; e < experts_of(l, layer); e++)
    for (int i = 0; i < places[e]; i++) parts[n++] = weight_of(l, layer, e) / places[e];
  qsort(parts, (size_t)n, sizeof *parts, by_weight);
  *l->latest = (struct sli_placed_loads){layer->number, members, NULL};
  double *before = l->latest->before =
      sli_arena_alloc(l->arena, (size_t)(members + 1) * sizeof *before);
  fill_members(n, parts, members, before + 1);
  for (int m = 0; m < members; m++) before[m + 1] += before[m];
  all = before[members];
  for (int m = 1; m <= members && all > 0; m++) before[m] /= all;
  free(places);
  free(parts);
}

/* Returns the fraction of rows that go to members before this one. */
static double share_before(const sli_loads *l, const sli_layer *layer, int member, int members) {
  if (l->placed) {
    const struct sli_placed_loads *latest = l->latest;
    if (!latest->before || latest->layer != layer->number || latest->members != members)
      place(l, layer, members);
    return latest->before[member];
  }
  double before = 0, all = 0;
  int64_t end = sli_first_expert(layer->experts, member, members);
  for (int64_t e = 0; e < layer->experts; e++) {
    double weight = weight_of(l, layer, e);
    all += weight;
    before += e < end ? weight : 0;
  }
  return all > 0 ? before / all : 0;
}

static int64_t rows_before(const sli_loads *l, const sli_layer *layer, int64_t rows, int member,
                           int members) {
  if (!l) return rows * sli_first_expert(layer->experts, member, members) / layer->experts;
  return (int64_t)llround((double)rows * share_before(l, layer, member, members));
}

int64_t sli_loads_of_member(const sli_loads *l, const sli_layer *layer, int64_t rows, int member,
                            int members) {
  return rows_before(l, layer, rows, member + 1, members) -
         rows_before(l, layer, rows, member, members);
}
