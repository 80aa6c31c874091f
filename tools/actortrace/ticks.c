/* SPDX-License-Identifier: Apache-2.0 */
/* --log: durations of a server's ticks, from the file of actorserve --log. It has a line per tick,
 * with a word request:position+rows for each of its sequences, and request~rows for drafted
 * rows. */
#include <stdlib.h>
#include <string.h>

#include <sluice/lower.h>

#include "io/file.h"
#include "tools/actortrace/actortrace.h"

/* Reads a word of a line. Other words, of preempted or cancelled requests, are ignored. */
static void read_word(const char *word, tick_taken *to) {
  unsigned long long id;
  long long from, rows;
  int used = 0;
  if (sscanf(word, "%llu~%lld%n", &id, &rows, &used) == 2 && !word[used]) {
    if (rows > 0 && rows <= INT32_MAX - to->rows) to->rows += (int32_t)rows;
    return;
  }
  if (sscanf(word, "%llu:%lld+%lld%n", &id, &from, &rows, &used) < 3 || word[used]) return;
  if (from < 0 || rows < 1 || from > INT32_MAX || rows > INT32_MAX - to->rows) return;
  to->sequences++;
  to->rows += (int32_t)rows;
  to->chunk_rows += rows > 1 ? (int32_t)rows : 0;
  to->behind = SLI_MAX(to->behind, from);
}

static void read_line(char *line, ticks *to) {
  tick_taken t = {0};
  char *state = NULL;
  for (char *word = strtok_r(line, " ", &state); word; word = strtok_r(NULL, " ", &state))
    read_word(word, &t);
  SLI_GROW(to->items, to->count, to->capacity);
  to->items[to->count++] = t;
}

const tick_taken *tick_of(const sl_trace *t, const ticks *all, const sl_trace_firing *f) {
  const sl_actor *a = &t->plan->actors[f->record.actor];
  bool pass = a->cls == SL_CLASS_F && a->stage != SL_NONE;
  return pass && f->tick.number < (int64_t)all->count ? &all->items[f->tick.number] : NULL;
}

/* True if the device of a firing computes, so that its slots have the rows of its tick. */
static bool knows_rows(const sl_trace *t, const sl_trace_firing *f) {
  const sl_actor *a = &t->plan->actors[f->record.actor];
  return sl_device_computes(t->plan->devices[t->plan->queues[a->queue].device].kind);
}

/* Fills in the rows of passes, which modelled devices do not know. */
static sl_status fill_in(const char *path, sl_trace *t, ticks *to) {
  size_t found = 0;
  to->firings = sli_calloc(t->nfirings, sizeof *to->firings);
  for (size_t i = 0; i < t->nfirings; i++) {
    sl_trace_firing *f = &to->firings[i];
    *f = t->firings[i];
    if (!knows_rows(t, f)) f->rows = SL_NONE;
    const tick_taken *taken = tick_of(t, to, f);
    if (!taken) continue;
    if (f->rows > 0 && f->rows != taken->rows)
      return sl_fail(
          SL_E_INPUT,
          "%s belongs to another run: line %lld has %d rows, but its tick in the trace has %d",
          path, (long long)f->tick.number + 1, taken->rows, f->rows);
    f->rows = taken->rows;
    found++;
  }
  t->firings = to->firings;
  return found ? SL_OK
               : sl_fail(SL_E_INPUT,
                         "%s belongs to another run: none of its %zu lines is a tick of the trace",
                         path, to->count);
}

sl_status ticks_open(const char *path, sl_trace *t, ticks *out) {
  char *text, *state = NULL;
  *out = (ticks){0};
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
    read_line(line, out);
  free(text);
  return fill_in(path, t, out);
}

void ticks_close(ticks *all) {
  free(all->items);
  free(all->firings);
}

/* ---- statistics ------------------------------------------------------------------------- */

/* Statistics of ticks with a prompt chunk, or of ticks with answers only. */
typedef struct kind {
  size_t count;
  double seconds, rows, sequences;
} kind;

static void print_kind(const char *what, const kind *k, FILE *out) {
  char text[32];
  if (!k->count) return;
  fprintf(out, "%-14s%7zu  %10s  %8.1f  %9.1f\n", what, k->count,
          format_ns(text, k->seconds * 1e9 / (double)k->count), k->rows / (double)k->count,
          k->sequences / (double)k->count);
}

void ticks_print(const sl_trace *t, const ticks *all, FILE *out) {
  kind kinds[2] = {0};
  int64_t behind = 0;
  for (size_t i = 0; i < t->nfirings; i++) {
    const tick_taken *x = tick_of(t, all, &t->firings[i]);
    if (!x || t->plan->actors[t->firings[i].record.actor].stage) continue;
    kind *k = &kinds[x->chunk_rows > 0];
    k->count++;
    k->seconds += (double)(t->firings[i].record.end_ns - t->firings[i].record.start_ns) * 1e-9;
    k->rows += x->rows;
    k->sequences += x->sequences;
    behind = SLI_MAX(behind, x->behind);
  }
  fprintf(out, "\nTicks of          so many       take      rows  sequences\n");
  print_kind("answers alone", &kinds[0], out);
  print_kind("chunks too", &kinds[1], out);
  fprintf(out, "rows stand behind %lld positions at most\n", (long long)behind);
}
