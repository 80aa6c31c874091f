/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters on disk: keeping only a few blocks of them on the device does not change a bit of what
 * is learned. The window takes the documented memory for any number of blocks, and no time if a
 * block is read while another computes.
 * labels: numbers random more */
#include <string.h>

#include "base/base.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* tools/test --long multiplies the seeds by ten. */
enum { SEEDS = TEST_SANITIZED ? 1 : 8 };

static char *const small_gpt[] = {"--layers",  "10", "--width", "32", "--heads", "4",
                                  "--context", "16", "--batch", "8",  NULL};
static const sl_home weights_on_disk[] = {{"weights", NULL, SL_SPACE_DISK, 0}};
static const sl_home all_on_disk[] = {{"weights", NULL, SL_SPACE_DISK, 0},
                                      {"state", NULL, SL_SPACE_DISK, 0},
                                      {"act", NULL, SL_SPACE_DISK, 0}};
static const sl_home layers_on_disk[] = {{"weights", "h.*", SL_SPACE_DISK, 0}};
static const sl_home_options weights = {.count = 1, .homes = weights_on_disk, .disk = "."};
static const sl_home_options all = {.count = 3, .homes = all_on_disk, .disk = "."};
static const sl_home_options layers = {.count = 1, .homes = layers_on_disk, .disk = "."};

/* ---- bits ------------------------------------------------------------------------------- */

/* Tests weights only and all state on disk, or one of these in turn. */
static void same_bits(const grid_model *m, grid g, int turn) {
  g.steps = 3;
  g.grain = "layer";
  grid_losses kept = grid_train(m, &g);
  g.nquotas = 2;
  g.quotas[0] = (sl_quota){"weights", SL_NONE, 1};
  for (int i = 0; i < 2; i++) {
    if ((i + turn) % test_many(1, 2, 1)) continue;
    g.quotas[1] = (sl_quota){i ? "fill" : "spill", SL_NONE, 1};
    g.homes = i ? all : weights;
    grid_losses moved = grid_train(m, &g);
    grid_same_bits(m, &g, &kept, &moved);
  }
}

static void losses_have_the_same_bits(void) {
  static const grid grids[] = {{.data = 1, .tensor = 1, .recompute = "full"},
                               {.data = 1, .tensor = 1, .stages = 2, .jitter_seed = 1},
                               {.data = 1, .tensor = 1, .stages = 2, .schedule = "gpipe"},
                               {.data = 1, .tensor = 1, .stages = 2, .schedule = "zb-h1"},
                               {.data = 1, .tensor = 1, .schedule = "interleaved", .workers = 1},
                               {.data = 2, .tensor = 1, .shard = "optimizer", .jitter_seed = 3},
                               {.data = 1, .tensor = 2, .stages = 2, .processes = 2}};
  const grid_model models[] = {{"gpt", small_gpt, 4, 1}, {"gpt", small_gpt, 2, 2}};
  int nmodels = test_many(2, 1, TEST_SANITIZED ? 1 : 2);
  for (int m = 0; m < nmodels; m++)
    for (int i = 0; i < (int)SLI_COUNT(grids) - 4 * m; i++) same_bits(&models[m], grids[i], i);
}

/* Freed slots are filled with NaN; firings are delayed at random. */
static void no_timing_changes_a_bit(seeds s) {
  const grid_model m = {"gpt", small_gpt, 2, 1};
  grid g = {.data = 1, .tensor = 1, .stages = 2, .steps = 2, .grain = "layer"};
  grid_losses kept = grid_train(&m, &g);
  g.homes = all;
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

/* A block of a LLaMA has 2 h h + 2 h d' + 3 h F + 2 h parameters. A table precedes the first block;
 * a table of the same size and a norm follow the last. */
enum {
  WIDTH = 64,
  TABLE = 4 * 256 * WIDTH,
  HEAD = TABLE + 4 * WIDTH,
  BLOCK = 4 * (2 * WIDTH * WIDTH + 2 * WIDTH * 32 + 3 * WIDTH * 192 + 2 * WIDTH),
  PAGE = 4096
};

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void lower(lowered_model *x, int nlayers, int stages, int window) {
  char number[16];
  snprintf(number, sizeof number, "%d", nlayers);
  char *const words[] = {"--layers",  number, "--width", "64", "--heads", "4", "--kv-heads", "2",
                         "--context", "16",   "--batch", "4",  NULL};
  const grid_model m = {"llama", words, 2, 1};
  const grid g = {.data = 1,
                  .tensor = 1,
                  .stages = stages,
                  .homes = weights,
                  .nquotas = 1,
                  .quotas = {{"weights", SL_NONE, window}}};
  grid_losses losses = {.most = 1};
  grid_lower(x, &m, &g, &losses);
}

/* Each microbatch reads each block forward and backward, but the table only forward. The update
 * reads everything once more and writes it. */
static void as_much_moves_as_was_said(void) {
  enum { LAYERS = 8, MICROBATCHES = 2 };
  const size_t once = LAYERS * pages(BLOCK) + pages(TABLE) + pages(HEAD);
  const size_t moved = MICROBATCHES * (2 * once - pages(TABLE)) + 2 * once;
  lowered_model x;
  uint64_t planned[1][SL_TRAFFIC_COUNT];
  lower(&x, LAYERS, 1, 2);
  sl_plan_moved(x.plan, planned);
  CHECK(planned[0][SL_TRAFFIC_DISK] == moved, "%llu bytes there and back, not %zu",
        (unsigned long long)planned[0][SL_TRAFFIC_DISK], moved);
  CHECK(x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes == once, "%zu bytes on disk",
        x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes);
  lowered_model_fini(&x);
}

/* Returns the largest slot of the registers that share the leader's slots. */
static size_t slot_bytes(const sl_plan *plan, int32_t leader) {
  size_t most = plan->regs[leader].slot_bytes;
  for (int32_t i = leader + 1; i < plan->nregs; i++)
    if (plan->regs[i].shares == leader + 1) most = SLI_MAX(most, plan->regs[i].slot_bytes);
  return most;
}

/* Returns the parameter bytes in slots with the quota `name` on the first device. */
static size_t bytes_of(const sl_plan *plan, const char *name) {
  size_t bytes = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (!r->device && !r->shares && r->space == SL_SPACE_DEVICE &&
        r->memory == SL_MEMORY_PARAMETERS && !strcmp(r->quota_name, name))
      bytes += (size_t)r->quota * slot_bytes(plan, i);
  }
  return bytes;
}

/* One window for the passes and one for the updates; a stage with several microbatches in flight
 * has one per direction. The device holds no other parameters except those being written to
 * disk. */
static void the_device_has_a_window_of_blocks(void) {
  for (int stages = 1; stages <= 2; stages++)
    for (int nlayers = 24; nlayers <= 48; nlayers *= 2)
      for (int window = 1; window <= 3; window++) {
        lowered_model x;
        lower(&x, nlayers, stages, window);
        size_t bytes = bytes_of(x.plan, "weights"), windows = 1 + (size_t)stages;
        CHECK(bytes == windows * (size_t)window * pages(BLOCK),
              "%d layers, %d stages, %d blocks: %zu bytes", nlayers, stages, window, bytes);
        CHECK(bytes_of(x.plan, "spill") == 2 * pages(BLOCK) && !bytes_of(x.plan, "param"),
              "%zu and %zu bytes more", bytes_of(x.plan, "spill"), bytes_of(x.plan, "param"));
        lowered_model_fini(&x);
      }
}

/* ---- time ------------------------------------------------------------------------------- */

/* A block takes one second forward and two backward, whatever its ops; everything else takes
 * none. */
static double block_seconds(void *ctx, const char *op) {
  (void)ctx;
  if (strncmp(op, "h.", 2) || !strchr(op, '/')) return 0;
  const char *name = strchr(op, '/') + 1;
  return !strcmp(name, "rmsnorm.1") ? 1 : !strcmp(name, "rmsnorm.1:rmsnorm_b") ? 2 : 0;
}

/* Time of the second of two steps, and the part that its passes take. */
typedef struct seconds {
  double step, passes;
} seconds;

static seconds measure_steps(const sl_plan *plan) {
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(plan, &options, &rt) && !sl_runtime_run(rt, 2), "%s", sl_detail());
  sl_trace_record *trace;
  uint64_t dropped, first[2] = {UINT64_MAX, UINT64_MAX}, last = 0;
  size_t count = sl_runtime_trace(rt, &trace, &dropped);
  for (size_t i = 0; i < count; i++) {
    const sl_actor *a = &plan->actors[trace[i].actor];
    if (a->cls != SL_CLASS_F && a->cls != SL_CLASS_B) continue;
    if (trace[i].end_ns == trace[i].start_ns) continue; /* not a block */
    int64_t step = trace[i].firing / a->firings_per_step;
    first[step] = SLI_MIN(first[step], trace[i].start_ns);
    if (step) last = SLI_MAX(last, trace[i].end_ns);
  }
  free(trace);
  sl_runtime_destroy(rt);
  return (seconds){(double)(first[1] - first[0]) * 1e-9, (double)(last - first[1]) * 1e-9};
}

/* Returns the time for `microbatches` microbatches through 12 blocks that take `reading` seconds
 * each to read. */
static seconds seconds_of(int microbatches, double reading) {
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  char *words[] = {"--data",     data, "--layers",  "12", "--width", "64", "--heads", "4",
                   "--kv-heads", "2",  "--context", "16", "--batch", "12", NULL};
  const sl_hardware hardware = {.flops_per_second = 1e12,
                                .bytes_per_second = 1e12,
                                .disk_read_bytes_per_second = (double)pages(BLOCK) / reading};
  const sl_lower_options lower = {.memory.homes = layers,
                                  .simulation.hardware = &hardware,
                                  .simulation.op_seconds = block_seconds,
                                  .devices = {.kind = "timed"}};
  lowered_model x;
  CHECK(!lowered_model_init(&x, "llama", words, microbatches, 1, &lower), "%s", sl_detail());
  seconds s = measure_steps(x.plan);
  lowered_model_fini(&x);
  free(data);
  return s;
}

static bool near(double a, double b) { return a > b - 1e-6 && a < b + 1e-6; }

/* A block is read while the previous one computes. Between steps, all blocks are read for their
 * update once the norm is known, then the first one for the next step. */
static void reading_hides_behind_computing(void) {
  for (int m = 1; m <= 4; m *= 2) {
    seconds s = seconds_of(m, 1), slow = seconds_of(m, 1.5);
    CHECK(near(s.passes, 36 * m), "%d microbatches: passes take %g s", m, s.passes);
    CHECK(s.step < 36 * m + 12 + 4, "%d microbatches: a step takes %g s", m, s.step);
    CHECK(slow.passes > 36 * m + 5 * m, "%d microbatches, slower: %g s", m, slow.passes);
  }
}

int main(int argc, char **argv) {
  RUN(reading_hides_behind_computing);
  RUN(as_much_moves_as_was_said);
  RUN(the_device_has_a_window_of_blocks);
  RUN(losses_have_the_same_bits);
  RUN(no_timing_changes_a_bit, seeds_of(argc, argv, 1, SEEDS));
  return 0;
}
