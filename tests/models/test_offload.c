/* SPDX-License-Identifier: Apache-2.0 */
/* The activations of some pieces are offloaded and the rest recomputed. Any fraction learns the
 * same bits and offloads exactly the documented bytes. Beyond a number of tokens given by MEMO
 * (Zhao et al., arXiv 2407.12117), offloading everything overlaps computation completely.
 * labels: numbers random more */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/rng.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* tools/test --long multiplies the seeds by ten. */
enum { SEEDS = TEST_SANITIZED ? 1 : 8 };

static char *const small_llama[] = {"--layers", "6",          "--width", "32",        "--heads",
                                    "4",        "--kv-heads", "2",       "--context", "16",
                                    "--batch",  "8",          NULL};
static const sl_home act_on_disk[] = {{"act", NULL, SL_SPACE_DISK, 0}};
static const sl_home layers_on_disk[] = {{"act", "h.*", SL_SPACE_DISK, 0}};

static sl_home_options homes_of(const sl_home *of, const char *offload) {
  return (sl_home_options){.count = 1, .homes = of, .disk = ".", .offload = offload};
}

/* ---- bits ------------------------------------------------------------------------------- */

static void same_bits(const grid_model *m, const grid *g, const grid_losses *kept) {
  grid_losses moved = grid_train(m, g);
  grid_same_bits(m, g, kept, &moved);
}

static void no_share_changes_a_bit(void) {
  static const char *const shares[] = {"activations=0", "activations=0.25", "activations=0.6",
                                       "activations=1"};
  static const grid grids[] = {
      {.data = 1, .tensor = 1},
      {.data = 1, .tensor = 1, .stages = 2, .jitter_seed = 1},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "seq1f1b", .processes = 2},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "zb-h1", .jitter_seed = 2},
      {.data = 2, .tensor = 1, .shard = "parameters"},
      {.data = 1, .tensor = 2, .workers = 1}};
  const grid_model m = {"llama", small_llama, 2, 4};
  for (size_t i = 0; i < SLI_COUNT(grids); i++) {
    grid g = grids[i];
    g.steps = 3;
    g.grain = "layer";
    const grid_losses kept = grid_train(&m, &g);
    for (size_t s = i % 2; s < SLI_COUNT(shares); s += (size_t)test_many(1, 3, 1) * (1 + (i > 0))) {
      g.homes = homes_of(act_on_disk, shares[s]);
      same_bits(&m, &g, &kept);
    }
  }
}

/* Freed slots are filled with NaN; firings are delayed at random. */
static void no_timing_changes_a_bit(seeds s) {
  const grid_model m = {"llama", small_llama, 2, 4};
  grid g = {.data = 1, .tensor = 1, .stages = 2, .steps = 2, .grain = "layer"};
  const grid_losses kept = grid_train(&m, &g);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    g.homes = homes_of(act_on_disk, seed % 3 ? "activations=0.5" : "activations=0.75");
    g.jitter_seed = seed;
    g.schedule = seed % 2 ? "1f1b" : "zb-h1";
    same_bits(&m, &g, &kept);
  }
}

/* ---- experts ----------------------------------------------------------------------------- */

enum { EXPERT_STEPS = 3 };

static char *const small_mixtral[] = {"--layers",   "3", "--width",   "16", "--heads",      "4",
                                      "--kv-heads", "2", "--context", "23", "--batch",      "16",
                                      "--experts",  "4", "--top-k",   "2",  "--expert-ffn", "8",
                                      "--aux-loss", "0", NULL};

static grid any_expert_grid(rng *r, int pieces) {
  static const grid grids[] = {{.data = 2, .experts = 2},
                               {.data = 4, .experts = 2},
                               {.data = 4, .experts = 4, .shard = "parameters"},
                               {.data = 2, .tensor = 2, .experts = 4},
                               {.data = 1, .tensor = 2, .experts = 2},
                               {.data = 2, .tensor = 2, .experts = 2, .shard = "gradients"},
                               {.data = 1, .sequence = 2, .tensor = 2, .experts = 2}};
  grid g = grids[rng_below(r, SLI_COUNT(grids))];
  if (pieces > 3) g.sequence = 1;
  g.steps = EXPERT_STEPS;
  g.grain = "layer";
  g.piece_order = rng_below(r, 3) ? "layers" : "tokens";
  g.stages = 1 + (int)rng_below(r, 2);
  g.schedule = rng_below(r, 2) ? "1f1b" : "zb-h1";
  return g;
}

static const sl_home *any_homes(rng *r, const grid *g, int *count) {
  static const sl_home all[] = {{"act", NULL, SL_SPACE_DISK, 0},
                                {"weights", NULL, SL_SPACE_DISK, 0},
                                {"kv", NULL, SL_SPACE_DISK, 0}};
  *count = 1 + (int)rng_below(r, 3);
  if (*count == 3 && (strcmp(g->piece_order, "layers") || g->sequence > 1)) *count = 2;
  return all;
}

static void check_near(const grid_model *m, const grid *g, const grid_losses *one,
                       const grid_losses *got) {
  char name[GRID_TEXT];
  for (int i = 0; i < got->count; i++)
    CHECK(fabs(got->loss[i] / one->loss[i] - 1) < 1e-6 &&
              fabs(got->norm[i] / one->norm[i] - 1) < 1e-4,
          "%s: step %d: norm %.7g, not %.7g", grid_format(name, m, g), i, got->norm[i],
          one->norm[i]);
}

/* The memory behind the rows of an offloaded piece holds another piece's rows, whose ids also name
 * an expert. Each piece must read only its own rows. */
static void a_piece_has_its_own_rows(void) {
  static char *const words[] = {"--layers",   "3", "--width",   "60", "--heads",      "6",
                                "--kv-heads", "3", "--context", "31", "--batch",      "8",
                                "--experts",  "2", "--top-k",   "1",  "--expert-ffn", "8",
                                "--aux-loss", "0", NULL};
  static const char *const shares[] = {"activations=0", "activations=0.3", "activations=0.6",
                                       "activations=1"};
  const grid_model m = {"mixtral", words, 4, 3};
  grid one = {.data = 1, .tensor = 1, .steps = EXPERT_STEPS};
  grid g = {
      .data = 2, .experts = 2, .steps = EXPERT_STEPS, .grain = "layer", .piece_order = "layers"};
  const grid_losses alone = grid_train(&m, &one);
  for (int i = 0; i < (int)SLI_COUNT(shares); i += test_many(1, 2, 1)) {
    g.homes = homes_of(act_on_disk, shares[i]);
    const grid_losses got = grid_train(&m, &g);
    check_near(&m, &g, &alone, &got);
  }
}

/* Rows go to experts on other devices while some pieces are offloaded and others recomputed. The
 * run learns what one device learns, with the bits of a grid that offloads nothing. */
static void experts_rows_leave_as_well(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    char share[32];
    rng r = {seed, 7};
    int pieces = 2 + (int)rng_below(&r, 4);
    const grid_model m = {"mixtral", small_mixtral, 1 << rng_below(&r, 3), pieces};
    grid g = any_expert_grid(&r, pieces), one = {.data = 1, .tensor = 1, .steps = EXPERT_STEPS};
    const grid_losses alone = grid_train(&m, &one), kept = grid_train(&m, &g);
    check_near(&m, &g, &alone, &kept);
    snprintf(share, sizeof share, "activations=%.3f",
             (double)rng_below(&r, (uint32_t)pieces + 1) / pieces);
    g.homes = (sl_home_options){.disk = ".", .offload = share};
    g.homes.homes = any_homes(&r, &g, &g.homes.count);
    g.jitter_seed = seed;
    if (!grid_saves(&m, &g)) continue;
    same_bits(&m, &g, &kept);
  }
}

/* ---- bytes ------------------------------------------------------------------------------ */

enum {
  BLOCKS = 4,
  PIECES = 8,
  TOKENS = 256 / PIECES,
  WIDTH = 64,
  FEED = 192,
  HEADS = 4,
  PAGE = 4096
};

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* Returns the bytes of a step with one microbatch, both ways. */
static size_t moved_bytes(const char *share) {
  static char *const words[] = {"--layers", "4",          "--width", "64",        "--heads",
                                "4",        "--kv-heads", "2",       "--context", "256",
                                "--batch",  "1",          NULL};
  const grid_model m = {"llama", words, 1, PIECES};
  const grid g = {.data = 1, .tensor = 1, .homes = homes_of(layers_on_disk, share)};
  grid_losses losses = {.most = 1};
  lowered_model x;
  uint64_t moved[1][SL_TRAFFIC_COUNT];
  grid_lower(&x, &m, &g, &losses);
  sl_plan_moved(x.plan, moved);
  lowered_model_fini(&x);
  return moved[0][SL_TRAFFIC_DISK];
}

/* A block hands h values per token to the next block; attention produces h and H values. Recomputed
 * unless offloaded: two norms and their divisors, the queries, the sum, and three feed-forward
 * arrays of width F. */
static void as_much_leaves_as_was_said(void) {
  const size_t part = pages(4 * TOKENS * (4 * WIDTH + 2 + 3 * FEED));
  const size_t always = pages(4 * TOKENS * (WIDTH + HEADS));
  const size_t between = pages(4 * TOKENS * WIDTH);
  const size_t handed = 2 * BLOCKS * PIECES * between;
  static const struct {
    const char *share;
    size_t pieces;
  } cases[] = {{"activations=0", 0}, {"activations=0.25", 2}, {"activations=0.6", 5}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    size_t bytes = moved_bytes(cases[i].share);
    size_t expected = handed + 2 * BLOCKS * (PIECES * always + cases[i].pieces * part);
    CHECK(bytes == expected, "%s: %zu bytes there and back, not %zu", cases[i].share, bytes,
          expected);
  }
}

/* ---- time ------------------------------------------------------------------------------- */

/* Some blocks of a LLaMA with 8 billion parameters: products at 500 Tflop/s, causal attention. A
 * link of 50 GB/s carries 131,072 bytes per token and block in the paper; Sluice carries more, and
 * the rate is scaled to match. */
enum { LAYERS = 4, WIDE = 4096, CUT = 16 };
static const double flops = 500e12, rate = 50e9, of_a_token = 131072;
static const double weights = 218103808; /* of a block: 2 h h + 2 h d' + 3 h F */

/* Returns the number of tokens above which offloading everything is hidden. With fewer tokens only
 * a fraction can be hidden. */
static double least_tokens(void) {
  return (flops * of_a_token / rate - 2 * weights) / (2.0 * WIDE);
}

/* A file as long as such a sequence, which is never read: only its name is used, and the file is
 * removed afterwards. */
static char text[] = "/tmp/offload.XXXXXX", typed[] = "/tmp/offload.XXXXXX:u8";

static void write_text(void) {
  enum { MOST = 1 << 18 };
  int file = mkstemp(text);
  memcpy(typed, text, strlen(text));
  CHECK(file >= 0 && !ftruncate(file, MOST) && !close(file), "no text");
}

static void lower(lowered_model *x, int tokens, const char *share, const sl_hardware *hardware) {
  char context[16];
  snprintf(context, sizeof context, "%d", tokens);
  char *const words[] = {"--data",    typed,   "--layers",   "4", "--width", "4096",
                         "--heads",   "32",    "--kv-heads", "8", "--ffn",   "14336",
                         "--context", context, "--batch",    "1", NULL};
  const sl_lower_options options = {.memory.homes = homes_of(layers_on_disk, share),
                                    .simulation.hardware = hardware,
                                    .devices = {.kind = "timed"}};
  CHECK(!lowered_model_init(x, "llama", words, 1, CUT, &options), "%s", sl_detail());
}

static sl_hardware hardware_of(double disk) {
  return (sl_hardware){.flops_per_second = flops,
                       .bytes_per_second = 1e18,
                       .disk_write_bytes_per_second = disk,
                       .disk_read_bytes_per_second = 1e18};
}

/* Returns the bytes per token that a block offloads with this fraction. */
static double leaving_bytes(int tokens, const char *share) {
  const sl_hardware hardware = hardware_of(1e18);
  lowered_model x;
  uint64_t moved[1][SL_TRAFFIC_COUNT];
  lower(&x, tokens, share, &hardware);
  sl_plan_moved(x.plan, moved);
  lowered_model_fini(&x);
  return (double)moved[0][SL_TRAFFIC_DISK] / 2 / tokens / LAYERS;
}

/* Returns the time of the forward pass relative to its computation. */
static double slowdown(int tokens, const char *share, double disk) {
  const sl_hardware hardware = hardware_of(disk);
  lowered_model x;
  lower(&x, tokens, share, &hardware);
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(x.plan, &options, &rt) && !sl_runtime_run(rt, 1), "%s", sl_detail());
  sl_trace_record *trace;
  uint64_t dropped, computing = 0, first = UINT64_MAX, last = 0;
  size_t count = sl_runtime_trace(rt, &trace, &dropped);
  for (size_t i = 0; i < count; i++) {
    if (x.plan->actors[trace[i].actor].cls != SL_CLASS_F) continue;
    computing += trace[i].end_ns - trace[i].start_ns;
    first = SLI_MIN(first, trace[i].start_ns);
    last = SLI_MAX(last, trace[i].end_ns);
  }
  free(trace);
  sl_runtime_destroy(rt);
  lowered_model_fini(&x);
  return (double)(last - first) / (double)computing;
}

static double slowdown_of(int tokens, int pieces, double disk) {
  char share[32];
  snprintf(share, sizeof share, "activations=%g", (double)pieces / CUT);
  return slowdown(tokens, share, disk);
}

/* Offloading everything is hidden by computation from S* tokens on, and not before. With half as
 * many tokens, as many pieces are offloaded as the link carries during the computation. */
static void what_leaves_hides_behind_computing(void) {
  write_text();
  const double least = least_tokens();
  CHECK(least > 106751 && least < 106753, "%g tokens", least);
  const double disk = leaving_bytes(65536, "activations=1") * rate / of_a_token;
  double more = slowdown_of((int)(1.05 * least), CUT, disk);
  double fewer = slowdown_of((int)(0.95 * least), CUT, disk);
  CHECK(more < 1.001, "with 1.05 S* tokens all that leaves takes %g times the computing", more);
  CHECK(fewer > 1.01, "with 0.95 S* tokens all that leaves takes %g times the computing", fewer);
  const int half = (int)(least / 2);
  const double always = leaving_bytes(half, "activations=0");
  const double part = 2 * (leaving_bytes(half, "activations=0.5") - always);
  const double carried = disk * (2 * weights + 2.0 * WIDE * half) / flops;
  const int pieces = (int)(CUT * (carried - always) / part);
  CHECK(pieces > 0 && pieces < CUT - 2, "%d pieces", pieces);
  more = slowdown_of(half, pieces, disk);
  fewer = slowdown_of(half, pieces + 2, disk);
  CHECK(more < 1.001, "%d pieces that leave take %g times the computing", pieces, more);
  CHECK(fewer > 1.01, "%d pieces that leave take %g times the computing", pieces + 2, fewer);
  unlink(text);
}

int main(int argc, char **argv) {
  RUN(experts_rows_leave_as_well, seeds_of(argc, argv, 1, (SEEDS + 1) / 2));
  RUN(a_piece_has_its_own_rows);
  RUN(what_leaves_hides_behind_computing);
  RUN(as_much_leaves_as_was_said);
  RUN(no_share_changes_a_bit);
  RUN(no_timing_changes_a_bit, seeds_of(argc, argv, 1, SEEDS));
  return 0;
}
