/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and formatting of --cost: durations of passes on modelled devices. */
#include "tools/cli/cost.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------- */

/* One list of durations: "F=1", or "F=1:2:1" stage by stage, or "head.F=..." for a block that is
 * sharded over the stages. */
typedef struct seconds_list {
  const char *name, *block; /* block NULL: the stages themselves */
  int count;
  double *seconds; /* [count] */
} seconds_list;

typedef struct cost_lists {
  int count;
  seconds_list *lists; /* in text order */
} cost_lists;

static bool read_seconds(const char **at, double *out) {
  char *end;
  *out = strtod(*at, &end);
  bool good = end != *at && *out >= 0 && *out < 1e9;
  *at = end;
  return good;
}

/* Reads the part before '='. The last dot separates block and name. */
static bool read_name(settings *s, const char **at, seconds_list *out) {
  size_t chars = strcspn(*at, "=,");
  char *text = sli_arena_format(&s->arena, "%.*s", (int)chars, *at), *dot = strrchr(text, '.');
  bool good = (*at)[chars] == '=';
  if (dot) *dot = 0, out->block = text;
  out->name = dot ? dot + 1 : text;
  *at += chars;
  return good && (strlen(out->name) == 1
                      ? strchr("FBW", *out->name) != NULL
                      : !dot && (!strcmp(out->name, "comm") || !strcmp(out->name, "F&B")));
}

/* Reads one list and moves *at past it. Returns false if the text is not a list. */
static bool read_list(settings *s, const char **at, cost_lists *to) {
  seconds_list *list = &to->lists[to->count++];
  if (!read_name(s, at, list)) return false;
  size_t most = 1;
  for (const char *c = *at; *c && *c != ','; c++) most += *c == ':';
  list->seconds = sli_arena_alloc(&s->arena, most * sizeof *list->seconds);
  bool good = true;
  do {
    ++*at;
    good = read_seconds(at, &list->seconds[list->count++]);
  } while (good && **at == ':');
  return good && (!**at || **at == ',') && (list->count == 1 || strlen(list->name) == 1);
}

static bool same_block(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Returns a stage's value in the last list of this name. */
static double of_stage(const cost_lists *all, const char *block, const char *name, int stage) {
  double seconds = 0;
  for (int i = 0; i < all->count; i++) {
    const seconds_list *list = &all->lists[i];
    if (same_block(list->block, block) && !strcmp(list->name, name))
      seconds = list->seconds[list->count > 1 ? stage : 0];
  }
  return seconds;
}

static sl_stage_cost *of_stages(settings *s, const cost_lists *all, const char *block, int count) {
  sl_stage_cost *to = sli_arena_alloc(&s->arena, (size_t)count * sizeof *to);
  for (int i = 0; i < count; i++)
    to[i] = (sl_stage_cost){of_stage(all, block, "F", i), of_stage(all, block, "B", i),
                            of_stage(all, block, "W", i)};
  return to;
}

/* Stores one cost entry for each named block. */
static void keep_sharded(settings *s, const cost_lists *all) {
  sl_cost *to = &s->lower.simulation.cost;
  sl_sharded_cost *sharded = sli_arena_alloc(&s->arena, (size_t)all->count * sizeof *sharded);
  for (int i = 0; i < all->count; i++) {
    const char *block = all->lists[i].block;
    bool first = block != NULL;
    for (int b = 0; b < to->nsharded; b++) first &= !same_block(sharded[b].block, block);
    if (first)
      sharded[to->nsharded++] = (sl_sharded_cost){block, of_stages(s, all, block, to->nstages)};
  }
  to->sharded = sharded;
}

/* Checks the time of two passes beside each other: no shorter than that of either alone. */
static sl_status check_together(const sl_cost *c, const char *text) {
  double longest = c->F > c->B + c->W ? c->F : c->B + c->W;
  if (c->together <= 0) return SL_OK;
  if (c->nstages)
    return sl_fail(SL_E_USAGE, "--cost %s: F&B needs passes that are alike on all stages", text);
  if (c->together >= longest) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--cost %s: F&B is the time of two passes, one of which takes %g alone", text,
                 longest);
}

/* Stores F, B and W. A list with one number applies to all stages alike. Sharded blocks need one
 * number per stage. */
static sl_status keep_cost(settings *s, const char *text, const cost_lists *all) {
  sl_cost *to = &s->lower.simulation.cost;
  to->F = of_stage(all, NULL, "F", 0), to->B = of_stage(all, NULL, "B", 0);
  to->W = of_stage(all, NULL, "W", 0), to->comm = of_stage(all, NULL, "comm", 0);
  to->together = of_stage(all, NULL, "F&B", 0);
  for (int i = 0; i < all->count; i++) {
    int count = all->lists[i].count;
    if (count > 1 && to->nstages && to->nstages != count)
      return sl_fail(SL_E_USAGE, "--cost %s: one list has %d stages, another %d", text, to->nstages,
                     count);
    if (count > 1) to->nstages = count;
  }
  for (int i = 0; i < all->count; i++)
    if (all->lists[i].block && !to->nstages)
      return sl_fail(
          SL_E_USAGE,
          "--cost %s: block %s is on all stages; give one value per stage, such as 1:1:1", text,
          all->lists[i].block);
  to->stages = of_stages(s, all, NULL, to->nstages);
  keep_sharded(s, all);
  return check_together(to, text);
}

sl_status cost_read(settings *s, const char *text) {
  size_t most = 1;
  for (const char *c = text; *c; c++) most += *c == ',';
  cost_lists all = {.lists = sli_arena_alloc(&s->arena, most * sizeof *all.lists)};
  bool good = true;
  for (const char *at = text; *at && good; at += *at == ',') good = read_list(s, &at, &all);
  if (good) return keep_cost(s, text, &all);
  return sl_fail(SL_E_USAGE,
                 "--cost %s: not a list such as F=1,B=1,W=1,comm=0, or F=1:1:2,... stage "
                 "by stage",
                 text);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Prints enough digits to read the same number back. */
static void print_number(FILE *out, double value) {
  int digits = 6;
  char number[40];
  do snprintf(number, sizeof number, "%.*g", digits, value);
  while (strtod(number, NULL) != value && digits++ < 17);
  fputs(number, out);
}

typedef struct cost_writer {
  FILE *out;
  const char *comma;
} cost_writer;

/* Writes "F=1", or stage by stage "head.F=1:1:2"; writes nothing if all are 0. */
static void write_list(cost_writer *w, const char *block, const char *name, const double *of,
                       size_t step, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += of[(size_t)i * step];
  if (sum <= 0) return;
  fprintf(w->out, "%s%s%s%s=", w->comma, block, *block ? "." : "", name);
  w->comma = ",";
  for (int i = 0; i < count; i++) {
    if (i) fputc(':', w->out);
    print_number(w->out, of[(size_t)i * step]);
  }
}

static void write_passes(cost_writer *w, const char *block, const sl_stage_cost *of, int count) {
  enum { STEP = sizeof *of / sizeof of->F };
  write_list(w, block, "F", &of->F, STEP, count);
  write_list(w, block, "B", &of->B, STEP, count);
  write_list(w, block, "W", &of->W, STEP, count);
}

char *cost_text(const sl_cost *cost) {
  char *text;
  size_t size;
  cost_writer w = {sli_memory_stream(&text, &size), ""};
  sl_stage_cost alike = {cost->F, cost->B, cost->W};
  write_passes(&w, "", cost->nstages ? cost->stages : &alike, cost->nstages ? cost->nstages : 1);
  for (int i = 0; i < cost->nsharded; i++)
    write_passes(&w, cost->sharded[i].block, cost->sharded[i].stages, cost->nstages);
  write_list(&w, "", "comm", &cost->comm, 1, 1);
  write_list(&w, "", "F&B", &cost->together, 1, 1);
  fclose(w.out);
  return text;
}

/* ---- smaller and larger microbatches --------------------------------------------------------- */

static sl_stage_cost *scaled(sli_arena *arena, const sl_stage_cost *of, int count, double by) {
  sl_stage_cost *to = sli_arena_alloc(arena, (size_t)count * sizeof *to);
  for (int i = 0; i < count; i++) to[i] = (sl_stage_cost){of[i].F * by, of[i].B * by, of[i].W * by};
  return to;
}

sl_cost cost_scaled(sli_arena *arena, const sl_cost *cost, double by) {
  sl_cost to = *cost;
  to.F *= by, to.B *= by, to.W *= by, to.together *= by;
  to.stages = scaled(arena, cost->stages, cost->nstages, by);
  sl_sharded_cost *sharded = sli_arena_alloc(arena, (size_t)cost->nsharded * sizeof *sharded);
  for (int i = 0; i < cost->nsharded; i++)
    sharded[i] = (sl_sharded_cost){cost->sharded[i].block,
                                   scaled(arena, cost->sharded[i].stages, cost->nstages, by)};
  to.sharded = sharded;
  return to;
}
