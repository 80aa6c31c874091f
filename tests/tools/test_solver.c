/* SPDX-License-Identifier: Apache-2.0 */
/* --home auto: the choice is never worse than the best of all plans that differ in what each block
 * keeps, and never exceeds a budget. The options that it prints make the same plan.
 * labels: random unthreaded */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/command_line.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { WAYS = 4, MOST_PLANS = 1024, MOST_WORDS = 160 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KINDS = 2, SEEDS = 6 }; /* only the first of the kinds below */
#else
enum { KINDS = 3, SEEDS = 21 };
#endif

static const char *const blocks[] = {"head", "embedding", "h.0", "h.1", "h.2"};
/* options for one block */
static const char *const ways[WAYS] = {"", "--recompute full@%s", "--home act@%s=host",
                                       "--home act@%s=disk"};

static const char machine_file[] =
    "{\"flops_per_second\": {\"f32\": 1e12}, \"flops_efficiency\": 1, \"bytes_per_second\": 1e11,"
    " \"bytes_efficiency\": 1, \"op_seconds\": 1e-6, \"memory_bytes\": 1e15, \"link_seconds\": 0,"
    " \"link_bytes_per_second\": 0, \"copy_bytes_per_second\": %g,"
    " \"host_memory_bytes_per_second\": 2e10, \"disk_read_bytes_per_second\": %g,"
    " \"disk_write_bytes_per_second\": %g}";

static const char *const rest =
    "--microbatches 4 --quota fill=1 --quota spill=1 llama --width 32 "
    "--heads 2 --context 256 --vocab 64 --batch 4";

/* A model, its devices, and the results of all its plans. With four blocks the search tries all
 * plans; with five there are too many. */
typedef struct kind {
  int layers;
  double copies, disks; /* bytes per second */
  int plans;
  char *file; /* machine file */
  struct worth *all;
} kind;
static kind kinds[] = {{.layers = 2, .copies = 8e9, .disks = 1e9, .plans = 256},
                       {.layers = 2, .copies = 2e9, .disks = 4e9, .plans = 256},
                       {.layers = 3, .copies = 4e9, .disks = 2e9, .plans = MOST_PLANS}};

typedef struct worth {
  double seconds; /* 0 if the plan is impossible */
  size_t bytes[SL_SPACE_COUNT];
} worth;

/* ---- one command line ------------------------------------------------------------------------ */

/* Parses a command line, split at spaces. */
static void read_line(const char *line, char **text, settings *s) {
  char *words[MOST_WORDS] = {(char *)command_line_tool.name};
  int n = 1;
  *text = sli_strdup(line);
  for (char *word = strtok(*text, " "); word; word = strtok(NULL, " ")) {
    CHECK(n < MOST_WORDS, "%s: too many words", line);
    words[n++] = word;
  }
  CHECK(!settings_read(&command_line_tool, n, words, s), "%s: %s", line, sl_detail());
}

static worth weigh(const settings *s) {
  planned p;
  worth w = {0};
  sl_statistics f = {0};
  if (plan_make(s, NULL, &p)) return w;
  for (int i = 0; i < SL_SPACE_COUNT; i++) w.bytes[i] = p.plan->devices[0].room[i].arena_bytes;
  if (!sl_plan_predict(p.plan, NULL, &f)) { /* otherwise the plan deadlocks */
    w.seconds = f.step_seconds;
    free(f.devices);
  }
  plan_free(&p);
  return w;
}

static char *line_of(const kind *k, const char *options) {
  return sli_format("--devices timed:1 --machine %s %s %s --layers %d", k->file, options, rest,
                    k->layers);
}

static worth weigh_line(const kind *k, const char *options) {
  char *line = line_of(k, options), *text;
  settings s;
  read_line(line, &text, &s);
  worth w = weigh(&s);
  settings_fini(&s);
  free(text);
  free(line);
  return w;
}

/* ---- all plans ------------------------------------------------------------------------------- */

static char *say(int plan) {
  char *all = sli_strdup("");
  for (int b = 0; plan; b++, plan /= WAYS) {
    char word[64];
    snprintf(word, sizeof word, ways[plan % WAYS], blocks[b]);
    char *more = sli_format("%s %s", all, word);
    free(all);
    all = more;
  }
  return all;
}

static void weigh_all(kind *k) {
  k->all = sli_calloc((size_t)k->plans, sizeof *k->all);
  for (int i = 0; i < k->plans; i++) {
    char *options = say(i);
    k->all[i] = weigh_line(k, options);
    free(options);
  }
}

static void prepare(kind *k) {
  k->file = sli_format("solver.%d.%d.json", (int)getpid(), (int)(k - kinds));
  FILE *f = fopen(k->file, "w");
  CHECK(f, "%s cannot be written", k->file);
  fprintf(f, machine_file, k->copies, k->disks, k->disks);
  fclose(f);
  weigh_all(k);
}

static void forget(kind *k) {
  remove(k->file);
  free(k->file);
  free(k->all);
}

static bool fits(const worth *w, const size_t budget[SL_SPACE_COUNT]) {
  bool good = w->seconds > 0;
  for (int i = 0; i < SL_SPACE_COUNT; i++) good &= !budget[i] || w->bytes[i] <= budget[i];
  return good;
}

static double best_of(const kind *k, const size_t budget[SL_SPACE_COUNT]) {
  double best = INFINITY;
  for (int i = 0; i < k->plans; i++)
    if (fits(&k->all[i], budget)) best = fmin(best, k->all[i].seconds);
  return best;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Draws a number between the smallest and the largest use of a memory space over all plans. */
static size_t draw(rng *d, const kind *k, sl_space space) {
  size_t least = SIZE_MAX, most = 0;
  for (int i = 0; i < k->plans; i++) {
    if (!(k->all[i].seconds > 0)) continue;
    least = SLI_MIN(least, k->all[i].bytes[space]);
    most = SLI_MAX(most, k->all[i].bytes[space]);
  }
  least -= least / 16;
  return least + (size_t)((double)(most + 1 - least) * rng_below(d, 1 << 20) / (1 << 20));
}

static void same_by_hand(const kind *k, const solved *x, uint64_t seed) {
  worth w = weigh_line(k, x->said);
  CHECK(w.seconds == x->seconds && !memcmp(w.bytes, x->bytes, sizeof w.bytes),
        "seed %llu: %s makes another plan", (unsigned long long)seed, x->said);
}

static void choose(const kind *k, uint64_t seed) {
  rng d = {.key = seed};
  char *line = line_of(k, "--home auto"), *text;
  settings s;
  read_line(line, &text, &s);
  size_t budget[SL_SPACE_COUNT] = {[SL_SPACE_DEVICE] = draw(&d, k, SL_SPACE_DEVICE)};
  if (rng_below(&d, 2)) budget[SL_SPACE_HOST] = draw(&d, k, SL_SPACE_HOST) + 1;
  if (rng_below(&d, 2)) budget[SL_SPACE_DISK] = draw(&d, k, SL_SPACE_DISK) + 1;
  s.lower.devices.budget_bytes = budget[SL_SPACE_DEVICE];
  s.lower.memory.homes.host_bytes = budget[SL_SPACE_HOST];
  s.lower.memory.homes.disk_bytes = budget[SL_SPACE_DISK];
  solved x = {0};
  double best = best_of(k, budget);
  sl_status status = solve_homes(&s, NULL, &x);
  CHECK(!status || (status == SL_E_BUDGET && best == INFINITY), "seed %llu: %s, but one takes %g s",
        (unsigned long long)seed, sl_detail(), best);
  if (!status) {
    CHECK(x.seconds <= best * (1 + 1e-9), "seed %llu: %s takes %g s, another %g s",
          (unsigned long long)seed, x.said, x.seconds, best);
    worth made = weigh(&s);
    CHECK(fits(&made, budget), "seed %llu: %s is over budget", (unsigned long long)seed, x.said);
    same_by_hand(k, &x, seed);
  }
  free(x.said);
  settings_fini(&s);
  free(text);
  free(line);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  for (int i = 0; i < KINDS; i++) prepare(&kinds[i]);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(choose, &kinds[seed % KINDS], seed);
  for (int i = 0; i < KINDS; i++) forget(&kinds[i]);
  return 0;
}
