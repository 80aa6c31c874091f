/* SPDX-License-Identifier: Apache-2.0 */
/* Register homes do not change a bit of what is learned, with any schedule, devices and timing, and
 * the bytes moved to and from disk are exactly those documented.
 * labels: numbers random more */
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/nameless.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* tools/test --long multiplies the seeds by ten. */
enum { SEEDS = TEST_SANITIZED ? 2 : 20 };

static char *const small_llama[] = {"--layers", "8",          "--width", "32",        "--heads",
                                    "4",        "--kv-heads", "2",       "--context", "16",
                                    "--batch",  "8",          NULL};
static char *const small_gpt[] = {"--layers",  "8",  "--width", "32", "--heads", "4",
                                  "--context", "16", "--batch", "8",  NULL};

static const sl_home all_on_disk[] = {{"act", NULL, SL_SPACE_DISK, 0}};
static const sl_home some_on_disk[] = {{"act", NULL, SL_SPACE_DISK, 0},
                                       {"act", "h.1", SL_SPACE_DEVICE, 0},
                                       {"act.w", "h.2", SL_SPACE_DEVICE, 0}};
static const sl_home state_on_disk[] = {{"state", NULL, SL_SPACE_DISK, 0}};
static const sl_home both_on_disk[] = {{"state", NULL, SL_SPACE_DISK, 0},
                                       {"act", NULL, SL_SPACE_DISK, 0}};
static const sl_home_options homes[] = {{.count = 1, .homes = all_on_disk, .disk = "."},
                                        {.count = 3, .homes = some_on_disk, .disk = "."},
                                        {.count = 1, .homes = state_on_disk, .disk = "."},
                                        {.count = 2, .homes = both_on_disk, .disk = "."}};

/* ---- bits ------------------------------------------------------------------------------- */

static int blocks_of_a_stage(const grid *g) {
  int chunks = g->schedule ? sl_schedule_chunks(g->schedule) : 1;
  return 8 / (SLI_MAX(g->stages, 1) * chunks);
}

/* Tests all homes, or one of them in turn. */
static void same_bits(const grid_model *m, grid g, size_t turn) {
  g.steps = 3;
  g.grain = "layer";
  grid_losses kept = grid_train(m, &g);
  g.nquotas = 2;
  g.quotas[0] = (sl_quota){"fill", SL_NONE, 1};
  g.quotas[1] = (sl_quota){"param", SL_NONE, 1};
  for (size_t i = 0; i < SLI_COUNT(homes); i++) {
    if ((i + turn) % (size_t)test_many(2, 4, 1)) continue;
    g.homes = homes[i];
    if (homes[i].homes == state_on_disk && blocks_of_a_stage(&g) < 4)
      continue; /* nothing to save */
    grid_losses moved = grid_train(m, &g);
    grid_same_bits(m, &g, &kept, &moved);
  }
}

static void losses_have_the_same_bits(void) {
  static const grid grids[] = {
      {.data = 1, .tensor = 1},
      {.data = 1, .tensor = 1, .recompute = "selective"},
      {.data = 1, .tensor = 1, .stages = 4, .jitter_seed = 1},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "gpipe"},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "zb-h1"},
      {.data = 1, .tensor = 1, .stages = 2, .schedule = "v-half", .workers = 1},
      {.data = 2, .tensor = 1, .stages = 2},
      {.data = 2, .tensor = 1, .shard = "parameters"},
      {.data = 2, .tensor = 1, .shard = "optimizer", .jitter_seed = 3},
      {.data = 1, .tensor = 2, .stages = 2, .processes = 2}};
  const grid_model models[] = {
      {"llama", small_llama, 4, 1}, {"gpt", small_gpt, 4, 1}, {"llama", small_llama, 2, 2}};
  int nmodels = test_many(2, 1, TEST_SANITIZED ? 1 : 3);
  for (int m = 0; m < nmodels; m++)
    for (size_t i = 0; i < SLI_COUNT(grids); i++) same_bits(&models[m], grids[i], i + (size_t)m);
}

/* Freed slots are filled with NaN and firings are delayed at random, so that a read of data that is
 * gone or not ready would show. */
static void no_timing_changes_a_bit(seeds s) {
  const grid_model m = {"llama", small_llama, 2, 1};
  grid g = {.data = 1, .tensor = 1, .stages = 2, .steps = 2, .grain = "layer"};
  grid_losses kept = grid_train(&m, &g);
  g.homes = homes[0];
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    char name[GRID_TEXT];
    g.jitter_seed = seed;
    g.schedule = seed % 2 ? "1f1b" : "zb-h1";
    grid_losses moved = grid_train(&m, &g);
    CHECK(!memcmp(moved.loss, kept.loss, (size_t)kept.count * sizeof *kept.loss), "%s: other bits",
          grid_format(name, &m, &g));
  }
}

/* ---- bytes ------------------------------------------------------------------------------ */

static char *const four_blocks[] = {"--layers", "4",          "--width", "64",        "--heads",
                                    "4",        "--kv-heads", "2",       "--context", "256",
                                    "--batch",  "1",          NULL};

/* Bytes that a block of a LLaMA saves: 4 S B (5 h + 2 d' + 3 F + H + 2) inside and 4 S B h between
 * blocks, for S positions, B rows, width h, key width d', feed-forward width F and H heads. Bytes
 * inside are rounded up to whole pages. */
static void as_much_moves_as_was_said(void) {
  const size_t inside = 4 * 256 * (5 * 64 + 2 * 32 + 3 * 192 + 4 + 2), page = 4096;
  const size_t block = (inside + page - 1) / page * page + 4 * 256 * 64;
  CHECK(inside == 989184 && 4 * block == 4227072, "%zu, %zu", inside, block);
  const grid_model m = {"llama", four_blocks, 1, 1};
  const grid g = {
      .data = 1, .tensor = 1, .homes = homes[0], .nquotas = 1, .quotas = {{"fill", SL_NONE, 1}}};
  grid_losses losses = {.most = 1};
  lowered_model x;
  uint64_t moved[1][SL_TRAFFIC_COUNT];
  grid_lower(&x, &m, &g, &losses);
  sl_plan_moved(x.plan, moved);
  CHECK(moved[0][SL_TRAFFIC_DISK] == 2 * 4 * block, "%llu bytes there and back, not %zu",
        (unsigned long long)moved[0][SL_TRAFFIC_DISK], 2 * 4 * block);
  CHECK(x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes == 4 * block, "%zu bytes on disk",
        x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes);
  lowered_model_fini(&x);
}

/* ---- time ------------------------------------------------------------------------------- */

/* A block takes one second forward and two backward, whatever its ops; everything else takes
 * none. */
static double block_seconds(void *ctx, const char *op) {
  (void)ctx;
  if (strncmp(op, "h.", 2)) return 0;
  const char *name = strchr(op, '/') + 1;
  return !strcmp(name, "rmsnorm.1") ? 1 : !strcmp(name, "rmsnorm.1:rmsnorm_b") ? 2 : 0;
}

/* Returns the time at which the backward pass starts, for `layers` blocks that take `writing`
 * seconds each to write. */
static double seconds_forward(int layers, double writing) {
  char number[16];
  snprintf(number, sizeof number, "%d", layers);
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  char *words[] = {"--data",     data, "--layers",  number, "--width", "64", "--heads", "4",
                   "--kv-heads", "2",  "--context", "256",  "--batch", "1",  NULL};
  const double block = 991232 + 65536;
  const sl_hardware hardware = {.flops_per_second = 1e12,
                                .bytes_per_second = 1e12,
                                .disk_write_bytes_per_second = block / writing};
  const sl_lower_options lower = {.memory.homes = homes[0],
                                  .simulation.hardware = &hardware,
                                  .simulation.op_seconds = block_seconds,
                                  .devices = {.kind = "timed"}};
  lowered_model x;
  CHECK(!lowered_model_init(&x, "llama", words, 1, 1, &lower), "%s", sl_detail());
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(x.plan, &options, &rt) && !sl_runtime_run(rt, 1), "%s", sl_detail());
  sl_trace_record *trace;
  uint64_t dropped, first = UINT64_MAX;
  size_t count = sl_runtime_trace(rt, &trace, &dropped);
  for (size_t i = 0; i < count; i++)
    if (x.plan->actors[trace[i].actor].cls == SL_CLASS_B) first = SLI_MIN(first, trace[i].start_ns);
  free(trace);
  sl_runtime_destroy(rt);
  lowered_model_fini(&x);
  free(data);
  return (double)first * 1e-9;
}

static bool near(double a, double b) { return a > b - 1e-6 && a < b + 1e-6; }

/* Writes overlap computation: a write shorter than its block costs nothing, a longer one sets the
 * pace. */
static void writing_hides_behind_computing(void) {
  double fast = seconds_forward(12, 0.9), slow = seconds_forward(12, 1.5);
  double longer = seconds_forward(24, 1.5) - slow;
  CHECK(near(fast, 12), "12 blocks take %g s forward where writing one takes 0.9", fast);
  CHECK(near(longer, 18), "12 blocks more take %g s forward where writing one takes 1.5", longer);
  CHECK(slow > 1.5 * 12 - 2 && slow < 1.5 * 12 + 2, "12 blocks take %g s", slow);
}

/* ---- errors ------------------------------------------------------------------------------ */

/* A failing disk ends the run; the error says what was lost, when and where. */
static void a_broken_disk_is_named(void) {
  const grid_model m = {"llama", four_blocks, 1, 1};
  const grid g = {
      .data = 1, .tensor = 1, .homes = homes[0], .nquotas = 1, .quotas = {{"fill", SL_NONE, 1}}};
  grid_losses losses = {.most = GRID_STEPS};
  lowered_model x;
  sl_runtime *rt;
  grid_lower(&x, &m, &g, &losses);
  CHECK(!sl_runtime_create(x.plan, &(sl_runtime_options){0}, &rt), "%s", sl_detail());
  sl_lowered_attach(x.lowered, rt);
  CHECK(!sl_params_init(x.lowered, rt, 1) && !sl_runtime_run(rt, 2), "%s", sl_detail());
  nameless_replace("/proc/self/mem");
  CHECK(sl_runtime_run(rt, 2) == SL_E_DEVICE, "it broke unseen");
  static const char *const says[] = {"actor spill:act.b",
                                     " on cpu:0: step 2, microbatch 0: ", "writing act.b",
                                     " of a file in ", ": Input/output error"};
  for (size_t i = 0; i < SLI_COUNT(says); i++)
    CHECK(strstr(sl_detail(), says[i]), "no \"%s\": %s", says[i], sl_detail());
  sl_runtime_destroy(rt);
  lowered_model_fini(&x);
}

int main(int argc, char **argv) {
  RUN(a_broken_disk_is_named);
  RUN(writing_hides_behind_computing);
  RUN(as_much_moves_as_was_said);
  RUN(losses_have_the_same_bits);
  RUN(no_timing_changes_a_bit, seeds_of(argc, argv, 1, SEEDS));
  return 0;
}
