/* Every grid's plan can be proved: random models, grids, shards, grains, schedules, pieces
 * and processes make plans that finish with the slots they get by themselves.
 *
 *   test_models_grids_proof [SEED [COUNT]] */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tests/grids.h"
#include "tests/kernel_call.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DRAWS = 12 };
#else
enum { DRAWS = 40 };
#endif

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }
#define ANY(...) ((const char *[]){__VA_ARGS__})[below(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))]

/* Words of a model's command line, in memory of their own. */
typedef struct words {
  int n;
  char *words[32];
} words;

static void say(words *w, const char *name, int value) {
  w->words[w->n++] = sli_strdup(name);
  if (value >= 0) w->words[w->n++] = sli_format("%d", value);
}

static void draw_model(grid_model *m, words *w, int rows) {
  int heads = 4 + below(3), width = heads * 2 * (1 + below(3));
  m->name = ANY("gpt", "llama");
  say(w, "--layers", 2 * (1 + below(2)));
  say(w, "--width", width);
  say(w, "--heads", heads);
  say(w, "--context", 6 + below(8));
  say(w, "--vocab", 256 + below(8));
  say(w, "--batch", rows);
  if (!strcmp(m->name, "llama")) {
    say(w, "--ffn", 30 + below(30));
    if (heads % 2 == 0 && below(2)) say(w, "--kv-heads", heads / 2);
    if (below(2)) say(w, "--tied", -1);
  }
  m->words = w->words;
}

static void draw_grid(grid *g, grid_model *m) {
  *g = (grid){.data = 1 + below(4), .tensor = 1 + below(4), .stages = 1 + below(2)};
  if (g->data * g->tensor == 1) g->tensor = 2;
  g->schedule = ANY("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min",
                    "seq1f1b");
  g->grain = ANY(NULL, "pass", "layer");
  if (g->data > 1) g->shard = ANY(NULL, "optimizer", "gradients", "parameters");
  m->microbatches = 1 + below(4);
  m->pieces = !strcmp(g->schedule, "seq1f1b") ? 2 : 1 + below(2);
  g->processes = 1 + below(g->data * g->tensor * g->stages);
}

static void prove_one(uint64_t seed) {
  grid_model m = {0};
  grid g;
  words w = {0};
  char name[GRID_TEXT];
  seed_random(seed);
  draw_grid(&g, &m);
  draw_model(&m, &w, m.microbatches * (g.data + below(g.data + 1)));
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  CHECK(!sl_plan_prove(x.plan), "seed %llu: %s: %s", (unsigned long long)seed,
        grid_format(name, &m, &g), sl_detail());
  lowered_model_fini(&x);
  for (int i = 0; i < w.n; i++) free(w.words[i]);
}

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? 1 : DRAWS;
  printf("seeds %llu .. %llu\n", (unsigned long long)first, (unsigned long long)(first + count - 1));
  for (uint64_t seed = first; seed < first + count; seed++) prove_one(seed);
  return 0;
}
