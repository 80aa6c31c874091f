/* SPDX-License-Identifier: Apache-2.0 */
/* The search along the tensor axis finds the cheapest choice, and it finds the known good ones
 * unasked. These are data parallelism for a small net with a wide batch, and Megatron's column and
 * row pairs for transformers of large hidden size.
 * labels: random unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/philox.h"
#include "graph/passes/passes.h"
#include "graph/sharding/ways.h"
#include "tests/support/processor_time.h"
#include "tests/support/seeds.h"
#include "tests/support/shipped.h"
#include "tests/support/test.h"

static const sl_sbp B = {SL_BROADCAST, 0}, P = {SL_PARTIAL, 0}, S0 = {SL_SPLIT, 0},
                    S1 = {SL_SPLIT, 1}, S2 = {SL_SPLIT, 2};

static sli_grid grid_of(int data, int tensor, double seconds, double bytes_per_second) {
  sli_axis_link link = {.seconds = seconds, .bytes_per_second = bytes_per_second};
  return (sli_grid){.size = {data, tensor, 1}, .link = {link, link}};
}

static sli_choice choose(sl_graph *g, sli_grid grid, bool free_sources, int ngiven,
                         const sl_given_sbp *given) {
  sli_dim *dims;
  sli_choice choice;
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  sli_tensor_search search = {g, dims, &grid, free_sources, ngiven, given, NULL};
  CHECK(!sli_choose_tensor(&search, &choice), "%s", sl_detail());
  CHECK(!choice.runner_up, "looked for before anybody asks");
  CHECK(!sli_find_runner_up(&search, &choice), "%s", sl_detail());
  free(dims);
  return choice;
}

static const char *text_of(const sli_node *n, const sl_signature *s) {
  static char text[2 * SLI_SIGNATURE_TEXT + 8];
  char in[SLI_SIGNATURE_TEXT], out[SLI_SIGNATURE_TEXT];
  snprintf(text, sizeof text, "%s -> %s", sli_signature_format(in, n, s, true),
           sli_signature_format(out, n, s, false));
  return text;
}

static void check_node(const sl_graph *g, const sli_choice *c, const char *name,
                       const char *expected) {
  const sli_node *n = shipped_node(g, name);
  const char *found = text_of(n, &c->signatures[n->id]);
  CHECK(!strcmp(found, expected), "%s is shared as %s, expected %s", name, found, expected);
}

static sl_sbp lies(const sl_graph *g, const sli_choice *c, const char *param) {
  for (int p = 0; p < g->nparams; p++)
    if (!strcmp(g->params[p]->name, param)) return c->params[p];
  CHECK(0, "there is no parameter %s", param);
  return B;
}

/* ---- against exhaustive search ---------------------------------------------------- */

static uint32_t rng_below(uint64_t seed, uint32_t *count, uint32_t sides) {
  uint32_t words[4] = {(*count)++};
  sli_philox(words, seed);
  return words[0] % sides;
}

/* Builds a few ops on random earlier tensors; parameters may be read again, and blocks begin
 * anywhere. */
static sl_graph *random_graph(uint64_t seed, uint32_t *count) {
  static sl_type type;
  static const sl_source source = {.nout = 1, .types = &type};
  int64_t width = 4 + 2 * rng_below(seed, count, 3);
  type = SL_TYPE(SL_F32, 4, 2 + rng_below(seed, count, 3), width);
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.microbatches = 1 + (int)rng_below(seed, count, 4)});
  sl_tensor *pool[8], *w[2] = {0}, *gain = NULL;
  sl_data(g, &source, pool);
  int ops = 2 + (int)rng_below(seed, count, 3);
  for (int i = 0; i < 2; i++)
    w[i] = sl_param(g, SL_TYPE(SL_F32, width, width), SL_NORMAL(1), "w%d", i);
  gain = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(1), "gain");
  pool[1] = sl_rmsnorm(g, sl_linear(g, sl_linear(g, pool[0], w[0], NULL), w[1], NULL), gain, 0);
  for (int i = 2; i < ops; i++) {
    sl_tensor *a = pool[1 + rng_below(seed, count, (uint32_t)i - 1)], *b = pool[i - 1];
    if (!rng_below(seed, count, 2)) sl_block(g, "b");
    switch (rng_below(seed, count, 4)) {
    case 0: pool[i] = sl_gelu(g, b); break;
    case 1: pool[i] = sl_add(g, a, b); break;
    case 2: pool[i] = sl_mul(g, b, a); break;
    default: pool[i] = sl_linear(g, b, w[rng_below(seed, count, 2)], NULL);
    }
  }
  sl_train(g, sl_mse(g, pool[ops - 1], pool[0]), NULL);
  CHECK(!sli_pass_gradients(g), "seed %d: %s", (int)seed, sl_detail());
  return g;
}

static double price(const sli_ways *w, const int *way, sli_choice *choice) {
  for (int k = 0; k < w->count; k++)
    choice->signatures[w->nodes[k]->id] = w->of[k][way[k]].signature;
  return sli_costs_sum(&w->costs, NULL, choice, NULL);
}

/* Tries all choices; returns the lowest cost. */
static double brute(const sli_ways *w, sli_choice *choice, long *tried) {
  int way[64] = {0};
  double least = INFINITY;
  for (*tried = 0;; ++*tried) {
    least = fmin(least, price(w, way, choice));
    int k = 0;
    while (k < w->count && ++way[k] == w->nways[k]) way[k++] = 0;
    if (k == w->count) return least;
  }
}

static void the_search_finds_the_cheapest(void) {
  static const double rates[] = {1e8, 1e9, 1e10, 1e12};
  uint64_t done = 0;
  for (uint64_t seed = 1; done < 40 * seeds_times(); seed++) {
    uint32_t count = 0;
    sl_graph *g = random_graph(seed, &count);
    sli_grid grid =
        grid_of(1 + (int)rng_below(seed, &count, 2), 2 + (int)rng_below(seed, &count, 2),
                1e-8 * rng_below(seed, &count, 3), rates[rng_below(seed, &count, 4)]);
    sli_dim *dims;
    sli_ways w;
    CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
    sli_tensor_search search = {g, dims, &grid, rng_below(seed, &count, 2), 0, NULL, NULL};
    CHECK(!sli_ways_init(&w, &search), "%s", sl_detail());
    double combinations = 1;
    for (int k = 0; k < w.count; k++) combinations *= w.nways[k];
    if (combinations < 8000) {
      sli_choice choice = {.signatures = sli_calloc((size_t)g->nnodes, sizeof *choice.signatures),
                           .params = sli_calloc((size_t)g->nparams, sizeof *choice.params)};
      uint32_t all[64];
      int way[64];
      long tried;
      memset(all, 0xff, sizeof all);
      double found = sli_ways_search(&w, all, INFINITY, way), own = price(&w, way, &choice);
      double least = brute(&w, &choice, &tried);
      CHECK(fabs(found - least) <= 1e-9 * least && fabs(own - least) <= 1e-9 * least,
            "seed %d: the search says %.12g, what it found weighs %.12g, the least of %ld is %.12g",
            (int)seed, found, own, tried, least);
      CHECK(sli_ways_search(&w, all, least * (1 - 1e-6), way) == INFINITY,
            "seed %d: there is nothing below the least", (int)seed);
      sli_choice_free(&choice);
      done++;
    }
    sli_ways_fini(&w);
    free(dims);
    sl_graph_destroy(g);
  }
}

/* ---- known good choices ---------------------------------------------------------------- */

/* Three linear maps of width 64 on 8192 rows. */
static sl_graph *wide_batch(void) {
  static const sl_type type = {SL_F32, 2, {8192, 64}};
  static const sl_source source = {.nout = 1, .types = &type};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  sl_tensor *data, *x;
  sl_data(g, &source, &data);
  x = data;
  for (int i = 0; i < 3; i++) {
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 64, 64), SL_NORMAL(1), "w%d", i);
    x = sl_linear(g, x, w, NULL);
    if (i < 2) x = sl_relu(g, x);
  }
  sl_train(g, sl_mse(g, x, data), NULL);
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  return g;
}

static void a_wide_batch_is_shared_by_rows(void) {
  sl_graph *g = wide_batch();
  sli_choice c = choose(g, grid_of(1, 4, 1e-5, 1e10), true, 0, NULL);
  check_node(g, &c, "source.1", " -> S0");
  check_node(g, &c, "main/linear.1", "S0 B -> S0");
  check_node(g, &c, "main/relu.2", "S0 -> S0");
  check_node(g, &c, "main/linear.3", "S0 B -> S0");
  check_node(g, &c, "main/mse.1", "S0 S0 -> P");
  /* Each weight's gradient is all-reduced once per step of two microbatches. */
  double expected = 3 * 2 * 0.75 * 64 * 64 * 4 / 2;
  CHECK(c.boxing_bytes == expected, "%g bytes, expected %g", c.boxing_bytes, expected);
  CHECK(fabs(c.boxing_seconds - (expected / 1e10 + 3 * 2e-5 / 2)) < 1e-12, "%g s",
        c.boxing_seconds);
  CHECK(c.runner_up && strstr(c.runner_up, " of main as ") &&
            strstr(c.runner_up, ", not S0 B -> S0: ") && strstr(c.runner_up, " % more"),
        "%s", c.runner_up);
  sli_choice_free(&c);
  sl_graph_destroy(g);
}

/* Blocks of a large GPT, which Megatron shards. */
static char *gpt[] = {"--layers", "3",       "--width", "2048",    "--heads", "16", "--context",
                      "128",      "--vocab", "50257",   "--batch", "8",       NULL};

static void check_gpt(const sl_graph *g, const sli_choice *c) {
  static const char *const block[][2] = {{"layernorm.1", "S1 B B -> S1 S1 S1"},
                                         {"linear.1", "B S1 S0 -> S2"},
                                         {"attention_packed.1", "S2 -> S2 S1"},
                                         {"linear.2", "S2 S0 P -> P"},
                                         {"add.1", "S1 S1 -> S1"},
                                         {"layernorm.2", "S1 B B -> S1 S1 S1"},
                                         {"linear.3", "B S1 S0 -> S2"},
                                         {"gelu.1", "S2 -> S2"},
                                         {"linear.4", "S2 S0 P -> P"},
                                         {"add.2", "S1 S1 -> S1"}};
  check_node(g, c, "embedding/source.1", " -> B B");
  check_node(g, c, "embedding/embedding.1", "B S0 -> P");
  for (int b = 0; b < 3; b++)
    for (size_t i = 0; i < SLI_COUNT(block); i++) {
      char name[64];
      snprintf(name, sizeof name, "h.%d/%s", b, block[i][0]);
      check_node(g, c, name, block[i][1]);
    }
  check_node(g, c, "head/layernorm.1", "S1 B B -> S1 S1 S1");
  check_node(g, c, "head/linear.1", "B S0 -> S2");
  check_node(g, c, "head/cross_entropy.1", "S2 B -> B B");
  CHECK(
      c->signatures[shipped_node(g, "head/cross_entropy.1")->id].local == &sl_op_cross_entropy_part,
      "the loss is found in two parts");
}

static void a_big_gpt_is_shared_as_megatron_has_it(void) {
  for (int tensor = 2; tensor <= 8; tensor *= 2) {
    sl_graph *g = shipped_graph("gpt", gpt, 4, 1);
    sli_choice c = choose(g, grid_of(1, tensor, 1e-5, 1e10), false, 0, NULL);
    check_gpt(g, &c);
    CHECK(sli_sbp_equal(lies(g, &c, "transformer.wte.weight"), S0) &&
              sli_sbp_equal(lies(g, &c, "transformer.h.1.attn.c_attn.weight"), S1) &&
              sli_sbp_equal(lies(g, &c, "transformer.h.1.attn.c_attn.bias"), S0) &&
              sli_sbp_equal(lies(g, &c, "transformer.h.1.attn.c_proj.weight"), S0) &&
              sli_sbp_equal(lies(g, &c, "transformer.h.1.attn.c_proj.bias"), B) &&
              sli_sbp_equal(lies(g, &c, "transformer.h.1.ln_1.weight"), B),
          "parameters lie as their readers want them");
    sli_choice_free(&c);
    sl_graph_destroy(g);
  }
}

static void a_big_llama_is_shared_as_megatron_has_it(void) {
  static const char *const block[][2] = {
      {"rmsnorm.1", "S1 B -> S1 S1"},       {"linear.1", "B S0 -> S2"}, {"linear.2", "B S0 -> S2"},
      {"linear.3", "B S0 -> S2"},           {"rotary.1", "S2 -> S2"},   {"rotary.2", "S2 -> S2"},
      {"attention.1", "S2 S2 S2 -> S2 S1"}, {"linear.4", "S2 S1 -> P"}, {"add.1", "S1 S1 -> S1"},
      {"rmsnorm.2", "S1 B -> S1 S1"},       {"linear.5", "B S0 -> S2"}, {"linear.6", "B S0 -> S2"},
      {"swiglu.1", "S2 S2 -> S2"},          {"linear.7", "S2 S1 -> P"}, {"add.2", "S1 S1 -> S1"}};
  char *words[] = {"--layers",  "2",   "--width", "2048",  "--heads", "16", "--kv-heads", "8",
                   "--context", "128", "--vocab", "32000", "--batch", "8",  "--tied",     NULL};
  sl_graph *g = shipped_graph("llama", words, 4, 1);
  sli_choice c = choose(g, grid_of(1, 4, 1e-5, 1e10), false, 0, NULL);
  check_node(g, &c, "embedding/embedding.1", "B S0 -> P");
  for (int b = 0; b < 2; b++)
    for (size_t i = 0; i < SLI_COUNT(block); i++) {
      char name[64];
      snprintf(name, sizeof name, "h.%d/%s", b, block[i][0]);
      check_node(g, &c, name, block[i][1]);
    }
  check_node(g, &c, "head/linear.1", "B S0 -> S2");
  check_node(g, &c, "head/cross_entropy.1", "S2 B -> B B");
  sli_choice_free(&c);
  sl_graph_destroy(g);
}

/* With pieces nothing is split along positions; with data parallelism the rows are already
 * split. */
static void it_goes_with_pieces_and_with_data(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 4, 3);
  sli_choice c = choose(g, grid_of(1, 2, 1e-5, 1e10), false, 0, NULL);
  check_node(g, &c, "h.1/linear.1", "B S1 S0 -> S2");
  check_node(g, &c, "h.1/attention_packed.1", "S2 -> S2 S1 S2 S2");
  check_node(g, &c, "h.1/linear.2", "S2 S0 P -> P");
  sli_choice_free(&c);
  sl_graph_destroy(g);
  g = shipped_graph("gpt", gpt, 4, 1); /* two rows each, one in each half */
  c = choose(g, grid_of(2, 2, 1e-5, 1e10), false, 0, NULL);
  check_gpt(g, &c);
  sli_choice_free(&c);
  sl_graph_destroy(g);
}

static void one_device_has_nothing_to_share(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 4, 1);
  const sl_given_sbp given = {"h.0/gelu.1", SLI_AXIS_TENSOR, S0};
  sli_choice c = choose(g, grid_of(4, 1, 1e-5, 1e10), true, 1, &given);
  check_node(g, &c, "h.1/linear.1", "B B B -> B");
  CHECK(!c.boxing_bytes && !c.runner_up && c.seconds == c.compute_seconds, "nothing is boxed");
  sli_choice_free(&c);
  sl_graph_destroy(g);
}

static void many_layers_take_no_time(void) {
  char *words[] = {"--layers", "96",      "--width", "12288",   "--heads", "96", "--context",
                   "2048",     "--vocab", "51200",   "--batch", "8",       NULL};
  sl_graph *g = shipped_graph("gpt", words, 8, 1);
  double begin = thread_seconds();
  sli_choice c = choose(g, grid_of(1, 8, 1e-5, 1e10), false, 0, NULL);
  double seconds = thread_seconds() - begin;
  CHECK(seconds < 5, "96 layers take %.3g s", seconds);
  for (int b = 0; b < 96; b++) {
    char name[64];
    snprintf(name, sizeof name, "h.%d/linear.3", b);
    check_node(g, &c, name, "B S1 S0 -> S2");
  }
  sli_choice_free(&c);
  sl_graph_destroy(g);
}

/* ---- choices of the user ----------------------------------------------------------------- */

static void what_is_given_is_kept(void) {
  sl_graph *g = wide_batch();
  sli_grid grid = grid_of(1, 4, 1e-5, 1e10);
  const sl_given_sbp given[] = {{"w0", SLI_AXIS_TENSOR, S0},
                                {"w1", SLI_AXIS_TENSOR, S1},
                                {"main/linear.2", SLI_AXIS_TENSOR, P},
                                {"w2", SLI_AXIS_DATA, S1}};
  sli_choice free_choice = choose(g, grid, true, 0, NULL), c = choose(g, grid, true, 4, given);
  check_node(g, &c, "main/linear.2", "S1 S1 -> P");
  CHECK(sli_sbp_equal(lies(g, &c, "w0"), S0) && sli_sbp_equal(lies(g, &c, "w1"), S1),
        "parameters lie as given");
  CHECK(sli_sbp_equal(lies(g, &c, "w2"), B), "the other axis's is not for this one");
  CHECK(c.seconds > free_choice.seconds, "the user pays for it");
  sli_choice_free(&c);
  sli_choice_free(&free_choice);
  sl_graph_destroy(g);
}

static void check_error(sl_graph *g, sl_given_sbp given, sl_status status, const char *text) {
  sli_grid grid = grid_of(1, 4, 0, 0);
  sli_dim *dims;
  sli_choice c;
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  sli_tensor_search search = {g, dims, &grid, false, 1, &given, NULL};
  CHECK(sli_choose_tensor(&search, &c) == status && !strcmp(sl_detail(), text),
        "%s=: \"%s\", expected \"%s\"", given.name, sl_detail(), text);
  free(dims);
}

static void what_cannot_be_is_said_with_its_reason(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 4, 1);
  check_error(g, (sl_given_sbp){"h.0/gelo.1", SLI_AXIS_TENSOR, S2}, SL_E_USAGE,
              "no parameter or op is called h.0/gelo.1; the nearest are h.0/gelu.1, h.1/gelu.1, "
              "h.2/gelu.1");
  check_error(g, (sl_given_sbp){"h.0/layernorm.1", SLI_AXIS_TENSOR, S2}, SL_E_USAGE,
              "op layernorm h.0/layernorm.1 f32[2, 128, 2048] cannot lie as S2 on 4 devices: no "
              "rule for this layout is known");
  check_error(g, (sl_given_sbp){"h.0/gelu.1", SLI_AXIS_TENSOR, S0}, SL_E_USAGE,
              "op gelu h.0/gelu.1 f32[2, 128, 8192] cannot lie as S0 on 4 devices: its dim 0 "
              "has 2 units");
  check_error(g, (sl_given_sbp){"transformer.wpe.weight", SLI_AXIS_TENSOR, S2}, SL_E_USAGE,
              "parameter transformer.wpe.weight f32[128, 2048] cannot lie as S2 on 4 devices: it "
              "has no dim 2");
  check_error(g, (sl_given_sbp){"transformer.wpe.weight", SLI_AXIS_TENSOR, P}, SL_E_USAGE,
              "parameter transformer.wpe.weight f32[128, 2048] cannot lie as P on 4 devices: no "
              "rule for this layout is known");
  sl_graph_destroy(g);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void the_table_says_all_of_it_in_100_columns(void) {
  sl_graph *g = shipped_graph("gpt", gpt, 4, 1);
  sli_grid grid = grid_of(2, 4, 1e-5, 1e10);
  sli_dim *dims;
  sli_choice data, tensor = choose(g, grid, false, 0, NULL);
  CHECK(!sli_dims_find(g, &dims), "%s", sl_detail());
  CHECK(!sli_choose_rows(g, dims, &grid, SLI_AXIS_DATA, &data), "%s", sl_detail());
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  sli_choice_print(g, &grid, (sli_choice[SLI_AXES]){data, tensor}, out);
  fclose(out);
  CHECK(strstr(text, "2 devices along the data axis") &&
            strstr(text, "4 devices along the tensor axis"),
        "%s", text);
  CHECK(strstr(text, "h.0 .. h.2 ") && strstr(text, "B S1 S0 -> S2") && !strstr(text, "h.1 "), "%s",
        text);
  CHECK(strstr(text, "the runner-up has linear."), "%s", text);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    CHECK(strlen(line) <= 100 || strstr(line, "the runner-up"), "too wide: %s", line);
  free(text);
  sli_choice_free(&data);
  sli_choice_free(&tensor);
  free(dims);
  sl_graph_destroy(g);
}

int main(void) {
  RUN(the_search_finds_the_cheapest);
  RUN(a_wide_batch_is_shared_by_rows);
  RUN(a_big_gpt_is_shared_as_megatron_has_it);
  RUN(a_big_llama_is_shared_as_megatron_has_it);
  RUN(it_goes_with_pieces_and_with_data);
  RUN(one_device_has_nothing_to_share);
  RUN(many_layers_take_no_time);
  RUN(what_is_given_is_kept);
  RUN(what_cannot_be_is_said_with_its_reason);
  RUN(the_table_says_all_of_it_in_100_columns);
  return 0;
}
