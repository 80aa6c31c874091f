/* SPDX-License-Identifier: Apache-2.0 */
/* Formats and parses the result of a search: the schedule, all non-zero numbers, and the paths if
 * microbatches skip stages.
 *
 *     zb-h1 chunks=1 split=1 act.b=1 act.b@2=-1 pool.most=6 paths=0.2.3,0.1.3 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/plan.h>

#include "base/memory.h"
#include "graph/schedule/schedule.h"

/* Returns the number called `name`, at a stage or, for SL_NONE, at all stages. Returns NULL if
 * there is none. */
static int *number_of(sli_pick *p, const char *name, int stage) {
  sli_tune *t = &p->tune;
  const struct {
    const char *name;
    int *wide, *stages;
  } numbers[] = {{"chunks", &p->v, NULL},
                 {"act.b", &t->act_b, t->stage_b},
                 {"act.w", &t->act_w, t->stage_w},
                 {"pool", &t->pool, NULL},
                 {"watermark", &t->watermark, NULL},
                 {"pool.most", &t->pool_most, NULL},
                 {"order", &t->order, NULL}};
  for (size_t i = 0; i < SLI_COUNT(numbers); i++) {
    if (strcmp(numbers[i].name, name)) continue;
    if (stage == SL_NONE) return numbers[i].wide;
    return numbers[i].stages && stage < SLI_TUNED_STAGES ? &numbers[i].stages[stage] : NULL;
  }
  return NULL;
}

static void print_paths(FILE *out, const sli_paths *paths) {
  for (int i = 0; i < paths->microbatches; i++)
    for (int n = 0; n < paths->items[i].length; n++)
      fprintf(out, "%s%d", n ? "." : i ? "," : " paths=", paths->items[i].stage[n]);
}

char *sli_pick_format(const sli_pick *pick) {
  static const char *const wide[] = {"act.b", "act.w", "pool", "watermark", "pool.most", "order"};
  static const char *const staged[] = {"act.b", "act.w"};
  sli_pick p = *pick;
  char *text = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  fprintf(out, "%s chunks=%d split=%d", p.schedule->name, p.v, p.split);
  for (size_t i = 0; i < SLI_COUNT(wide); i++) {
    int value = *number_of(&p, wide[i], SL_NONE);
    if (value) fprintf(out, " %s=%d", wide[i], value);
  }
  for (size_t i = 0; i < SLI_COUNT(staged); i++)
    for (int s = 0; s < SLI_TUNED_STAGES; s++) {
      int value = *number_of(&p, staged[i], s);
      if (value) fprintf(out, " %s@%d=%d", staged[i], s, value);
    }
  if (p.paths) print_paths(out, p.paths);
  fclose(out);
  return text;
}

/* Reads "0.2.3", of at most `most` stages. */
static bool read_path(const char *text, size_t most, sli_arena *arena, sli_path *out) {
  out->stage = sli_arena_alloc(arena, most * sizeof *out->stage);
  for (char *end;; text = end + 1) {
    long stage = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (stage < 0 || stage > 1 << 20) return false;
    out->stage[out->length++] = (int)stage;
    if (*end != '.') return !*end;
  }
}

static size_t count_of(const char *text, char c) {
  size_t n = 0;
  for (; *text; text++) n += *text == c;
  return n;
}

/* Reads "0.2.3,0.1.3"; modifies the text. */
static bool read_paths(char *text, sli_arena *arena, const sli_paths **out) {
  sli_paths *paths = sli_arena_alloc(arena, sizeof *paths);
  *paths = (sli_paths){
      .file = "paths found",
      .items = sli_arena_alloc(arena, (count_of(text, ',') + 1) * sizeof *paths->items)};
  *out = paths;
  for (char *end; text; text = end) {
    end = strchr(text, ',');
    if (end) *end++ = 0;
    if (!read_path(text, count_of(text, '.') + 1, arena, &paths->items[paths->microbatches++]))
      return false;
  }
  return true;
}

/* Reads "act.b@2=-1"; modifies the text. */
static bool read_number(char *word, sli_pick *out) {
  char *value = strchr(word, '='), *at = strchr(word, '@'), *end;
  if (!value) return false;
  *value++ = 0;
  errno = 0;
  long number = strtol(value, &end, 10), stage = SL_NONE;
  bool good = end != value && !*end && !errno && labs(number) <= 1 << 24;
  if (at) {
    *at++ = 0;
    stage = strtol(at, &end, 10);
    good &= end != at && !*end && stage >= 0 && stage < SLI_TUNED_STAGES;
  }
  if (!strcmp(word, "split")) {
    out->split = number != 0;
    return good && !at;
  }
  int *to = good ? number_of(out, word, (int)stage) : NULL;
  if (to) *to = (int)number;
  return to;
}

static bool read_pick(char *text, sli_arena *arena, sli_pick *out) {
  char *state = NULL, *word = strtok_r(text, " ", &state);
  *out = (sli_pick){.schedule = word ? sli_schedule_find(word) : NULL};
  if (!out->schedule) return false;
  while ((word = strtok_r(NULL, " ", &state))) {
    bool paths = !strncmp(word, "paths=", 6);
    if (!(paths ? read_paths(word + 6, arena, &out->paths) : read_number(word, out))) return false;
  }
  return out->v > 0 && (!out->schedule->chunks_fixed || out->v == out->schedule->chunks);
}

sl_status sli_pick_read(const char *text, sli_arena *arena, sli_pick *out) {
  char *words = sli_strdup(text);
  bool good = read_pick(words, arena, out);
  free(words);
  return good ? SL_OK : sl_fail(SL_E_USAGE, "not a valid schedule choice: %s", text);
}
