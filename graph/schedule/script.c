/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts: the published order of a device's passes, phase by phase.
 *
 * Most schedules need none, because quotas and priorities make their order emerge. A schedule that
 * runs a forward pass beside a backward one must say which of them go together. A phase repeats a
 * few words:
 *
 *     F0 F1   forward passes of chunk 0 and of chunk 1
 *     B1      both halves of a backward pass, one after the other
 *     b1      only its input gradient; the weight gradient is put off
 *     W       the oldest weight gradient that was put off
 *     F0+B1   both at once, on the shares that they ask for
 *
 * The words say nothing of microbatches: each pass takes them in order. */
#include "graph/schedule/schedule.h"

#include "base/base.h"

/* A script while it is written out. */
typedef struct writing {
  int n, most, number[SL_CLASS_COUNT][2]; /* number: passes so far, by chunk */
  int first, last, *put_off;              /* chunks of weight gradients that were put off */
  sli_scripted *items;
} writing;

static void add(writing *w, sl_class cls, int chunk, bool beside) {
  SLI_CHECK(w->n < w->most && chunk >= 0 && chunk < 2, "a script is longer than its step");
  w->items[w->n++] = (sli_scripted){cls, chunk, w->number[cls][chunk]++, beside};
}

static void add_backward(writing *w, int chunk, bool whole, bool beside) {
  add(w, SL_CLASS_B, chunk, beside);
  if (whole) add(w, SL_CLASS_W, chunk, beside);
  else w->put_off[w->last++] = chunk;
}

/* Writes out the word at `at`, which goes beside its neighbour or not; returns its end. */
static const char *add_word(writing *w, const char *at, bool beside) {
  int chunk = at[1] - '0';
  if (*at == 'W') return add(w, SL_CLASS_W, w->put_off[w->first++], beside), at + 1;
  if (*at == 'F') add(w, SL_CLASS_F, chunk, beside);
  else add_backward(w, chunk, *at == 'B', beside);
  return at + 2;
}

static void add_phase(writing *w, const char *passes) {
  for (const char *at = passes; *at;) {
    bool first = *at != 'W' && at[2] == '+';
    at = add_word(w, at, first);
    if (*at == '+') at = add_word(w, at + 1, true);
    if (*at == ' ') at++;
  }
}

int sli_schedule_script(const sli_schedule *row, const sli_at *at, sli_arena *arena,
                        sli_scripted **out) {
  if (!row->phases || at->v != 2 || at->k > 1 || at->m < row->fewest(at)) return 0;
  int most = 6 * at->m; /* F, B and W of two chunks */
  writing w = {.most = most,
               .items = sli_arena_alloc(arena, (size_t)most * sizeof *w.items),
               .put_off = sli_arena_alloc(arena, (size_t)most * sizeof *w.put_off)};
  for (const sli_phase *phase = row->phases; phase->passes; phase++)
    for (int i = phase->times(at); i > 0; i--) add_phase(&w, phase->passes);
  SLI_CHECK(w.n == most, "the script of %s has %d passes, a step has %d", row->name, w.n, most);
  *out = w.items;
  return w.n;
}
