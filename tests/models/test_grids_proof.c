/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of every grid can be proved: random models, grids, shards, grains, schedules, pieces and
 * processes give plans that finish with their default slots.
 *
 *   test_models_grids_proof [SEED [COUNT]]
 * labels: random unthreaded */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DRAWS = 12 };
#else
enum { DRAWS = 48 };
#endif

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }
#define ANY(...) \
  ((const char *[]){__VA_ARGS__})[below(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))]

/* Words of a model's command line, which own their memory. */
typedef struct words {
  int n;
  char *words[32];
} words;

static void say(words *w, const char *name, int value) {
  w->words[w->n++] = sli_strdup(name);
  if (value >= 0) w->words[w->n++] = sli_format("%d", value);
}

static void draw_model(grid_model *m, words *w, int rows, const grid *g) {
  int heads = 4 + below(3), width = heads * 2 * (1 + below(3));
  m->name = ANY("gpt", "llama");
  int layers = 1 + below(4), chunks = g->stages * sl_schedule_chunks(g->schedule);
  say(w, "--layers", SLI_MAX(layers, chunks - 1)); /* and a head, always on one stage */
  say(w, "--width", width);
  say(w, "--heads", heads);
  say(w, "--context", (g->sequence > 1 ? 24 : 6) + below(8)); /* for all devices and all pieces */
  say(w, "--vocab", 256 + below(8));
  say(w, "--batch", rows);
  if (!strcmp(m->name, "llama")) {
    say(w, "--ffn", 30 + below(30));
    if (heads % 2 == 0 && below(2)) say(w, "--kv-heads", heads / 2);
    if (below(2)) say(w, "--tied", -1);
  }
  m->words = w->words;
}

/* Draws options that save memory. */
static void draw_memory(grid *g, grid_model *m) {
  static const sl_home homes[] = {{"state", NULL, SL_SPACE_DISK, 0},
                                  {"weights", NULL, SL_SPACE_DISK, 0},
                                  {"act", NULL, SL_SPACE_DISK, 0},
                                  {"kv", NULL, SL_SPACE_DISK, 0}};
  bool whole = g->nquotas > 0; /* parameters in two slots are not moved */
  g->recompute = ANY(NULL, "selective", "full");
  if (m->pieces > 1) m->pieces += below(4);
  if (m->pieces > 1) g->piece_order = ANY("tokens", "layers");
  if (g->grain && !strcmp(g->grain, "pass")) g->grain = NULL;
  int first = whole ? 2 : below(3),
      end = g->piece_order && !strcmp(g->piece_order, "layers") ? 4 : 3;
  g->homes = (sl_home_options){.count = end - first, .homes = &homes[first], .disk = "."};
}

static void draw_grid(grid *g, grid_model *m) {
  *g = (grid){.data = 1 + below(4), .tensor = 1 + below(4), .stages = 1 + below(2)};
  if (!below(4)) g->sequence = 2;
  if (g->data * g->tensor * SLI_MAX(g->sequence, 1) == 1) g->tensor = 2;
  g->schedule =
      ANY("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "seq1f1b");
  g->grain = ANY(NULL, "pass", "layer");
  if (g->data > 1 || g->sequence > 1) g->shard = ANY(NULL, "optimizer", "gradients", "parameters");
  if (g->stages > 1) g->barriers = below(3);
  m->microbatches = 1 + below(4);
  m->pieces = !strcmp(g->schedule, "seq1f1b") ? 2 : 1 + below(2);
  if (!below(4)) g->quotas[g->nquotas++] = (sl_quota){"param", SL_NONE, 2};
  if (!below(4)) g->quotas[g->nquotas++] = (sl_quota){"grad", SL_NONE, 2};
  g->processes = 1 + below(g->data * SLI_MAX(g->sequence, 1) * g->tensor * g->stages);
  if (below(2)) draw_memory(g, m);
}

/* ---- aliased registers --------------------------------------------------------------------- */

/* Extends reached[actor * 2 + d]: the actor starts only after one of the marked firings d steps
 * earlier has ended. Paths through a delay of more than one step are ignored. */
static void follow(const sl_plan *plan, bool *reached) {
  for (bool more = true; more;) {
    more = false;
    for (int32_t a = 0; a < plan->nactors; a++)
      for (int32_t i = 0; i < plan->actors[a].nin; i++) {
        const sl_register *r = &plan->regs[plan->actors[a].in[i].reg];
        for (int d = r->initial; r->producer != SL_NONE && d < 2; d++) {
          if (!reached[r->producer * 2 + d - r->initial] || reached[a * 2 + d]) continue;
          reached[a * 2 + d] = more = true;
        }
      }
  }
}

/* Returns whether every reader of `reg` must finish before `actor` fires `steps` later. */
static bool all_come_before(const sl_plan *plan, int32_t reg, int32_t actor, int steps) {
  bool *reached = sli_calloc((size_t)plan->nactors * 2, sizeof *reached), all = true;
  for (int32_t a = 0; a < plan->nactors; a++)
    for (int32_t i = 0; i < plan->actors[a].nin; i++) {
      if (plan->actors[a].in[i].reg != reg) continue;
      memset(reached, 0, (size_t)plan->nactors * 2 * sizeof *reached);
      reached[a * 2] = true;
      follow(plan, reached);
      all &= reached[actor * 2 + steps];
    }
  free(reached);
  return all;
}

/* Checks that an aliasing register is written only after all readers of the memory below have
 * finished, and read before that memory is written again, with any timing. Returns the number of
 * such registers. */
static int check_over(const sl_plan *plan, const char *name) {
  int count = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (!r->aliases) continue;
    const sl_register *under = &plan->regs[r->aliases - 1];
    CHECK(all_come_before(plan, r->aliases - 1, r->producer, 0),
          "%s: %s is written while %s is read", name, r->name, under->name);
    CHECK(all_come_before(plan, i, under->producer, 1), "%s: %s is read while %s is written", name,
          r->name, under->name);
    for (int32_t j = 0; j < i; j++)
      CHECK(plan->regs[j].aliases != r->aliases, "%s: %s and %s both lie over %s", name,
            plan->regs[j].name, r->name, under->name);
    count++;
  }
  return count;
}

/* ---- whole plans -------------------------------------------------------------------------- */

static int over; /* aliasing registers in all plans */

static void prove_one(uint64_t seed) {
  grid_model m = {0};
  grid g;
  words w = {0};
  char name[GRID_TEXT];
  seed_random(seed);
  draw_grid(&g, &m);
  draw_model(&m, &w, m.microbatches * (g.data + below(g.data + 1)), &g);
  lowered_model x;
  if (g.homes.count && !grid_saves(&m, &g)) g.homes = (sl_home_options){0};
  grid_lower(&x, &m, &g, NULL);
  grid_format(name, &m, &g);
  CHECK(!sl_plan_prove(x.plan), "seed %llu: %s: %s", (unsigned long long)seed, name, sl_detail());
  over += check_over(x.plan, name);
  lowered_model_fini(&x);
  for (int i = 0; i < w.n; i++) free(w.words[i]);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(prove_one, seed);
  CHECK(over || seeds_count(s) < DRAWS, "in no plan does anything lie over anything");
  return 0;
}
