/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which pieces of sequences go through the blocks does not change a bit of what is
 * learned. In order "layers" all pieces of a microbatch go through a block before the next block,
 * and blocks take turns with their KV records.
 * labels: numbers random more */
#include <string.h>

#include "base/base.h"
#include "tests/support/rng.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

/* tools/test --long multiplies the seeds by ten. */
enum { SEEDS = TEST_SANITIZED ? 1 : 6 };

static char *const small_llama[] = {"--layers", "6",          "--width", "32",        "--heads",
                                    "4",        "--kv-heads", "2",       "--context", "48",
                                    "--batch",  "4",          NULL};
static char *const small_gpt[] = {"--layers",  "6",  "--width", "32", "--heads", "4",
                                  "--context", "48", "--batch", "4",  NULL};

/* ---- bits ------------------------------------------------------------------------------- */

/* Compares both orders, with keys and values kept on the device, or on disk. */
static void same_bits(const grid_model *m, grid g, bool away) {
  static const sl_home keys[] = {{"kv", NULL, SL_SPACE_DISK, 0}},
                       all[] = {{"act", NULL, SL_SPACE_DISK, 0}, {"kv", NULL, SL_SPACE_DISK, 0}};
  g.steps = 2;
  g.piece_order = "tokens";
  if (g.homes.count && !grid_saves(m, &g)) g.homes = (sl_home_options){0};
  grid_losses tokens = grid_train(m, &g);
  g.piece_order = "layers";
  if (away)
    g.homes = (sl_home_options){
        .count = g.homes.count + 1, .homes = g.homes.count ? all : keys, .disk = "."};
  if (g.homes.count && !grid_saves(m, &g)) g.homes = (sl_home_options){0};
  grid_losses layers = grid_train(m, &g);
  grid_same_bits(m, &g, &tokens, &layers);
}

static const char *const schedules[] = {"1f1b", "gpipe",  "interleaved", "zb-h1",
                                        "zb-v", "v-half", "v-min",       "seq1f1b"};

static void no_schedule_changes_a_bit(void) {
  const grid_model m = {"llama", small_llama, 4, 3};
  for (size_t i = 0; i < SLI_COUNT(schedules); i++)
    same_bits(&m, (grid){.data = 1, .tensor = 1, .stages = 2, .schedule = schedules[i]}, i % 2);
}

/* Tests schedules, grids, processes, timing, recomputation, homes, and a vocabulary on all
 * stages. */
static void whatever_else_is_asked_for(seeds s) {
  static const char *const again[] = {NULL, "selective", "full"};
  static const char *const shards[] = {NULL, "optimizer", "gradients", "parameters"};
  static const sl_home act[] = {{"act", NULL, SL_SPACE_DISK, 0}};
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    rng r = {seed, 0};
    int pieces = 2 + (int)rng_below(&r, 9);
    bool gpt = rng_below(&r, 2);
    const grid_model m = {gpt ? "gpt" : "llama", gpt ? small_gpt : small_llama,
                          1 << rng_below(&r, 2), pieces};
    grid g = {.data = 1 + (int)rng_below(&r, 2),
              .tensor = 1 + (int)rng_below(&r, 2),
              .stages = 1 + (int)rng_below(&r, 2),
              .schedule = schedules[rng_below(&r, SLI_COUNT(schedules))],
              .recompute = again[rng_below(&r, 3)],
              .jitter_seed = seed};
    g.processes = 1 + (int)rng_below(&r, 2);
    if (g.processes > g.stages * g.data * g.tensor) g.processes = 1;
    if (g.data > 1) g.shard = shards[rng_below(&r, 4)];
    if (g.stages > 1) g.barriers = (int)rng_below(&r, 3);
    if (rng_below(&r, 2)) g.homes = (sl_home_options){.count = 1, .homes = act, .disk = "."};
    same_bits(&m, g, pieces > 5 && rng_below(&r, 3));
  }
}

/* ---- order ------------------------------------------------------------------------------ */

/* Lowers for modelled devices, where only data and slots decide the order. */
static lowered_model lower(const char *order, int microbatches, int pieces) {
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  char *words[] = {"--data", data,        "--layers", "6",       "--width", "32", "--heads",
                   "4",      "--context", "48",       "--batch", "4",       NULL};
  const sl_lower_options options = {.schedule.piece_order = order,
                                    .schedule.grain = "layer",
                                    .schedule.name = "gpipe",
                                    .devices = {.kind = "timed"}};
  lowered_model x;
  CHECK(!lowered_model_init(&x, "llama", words, microbatches, pieces, &options), "%s", sl_detail());
  free(data);
  return x;
}

/* Returns the rank of a firing: microbatch, block, piece; the backward pass visits the last pieces
 * first. Blocks are numbered like their actors. */
static int place_of(const sl_plan *plan, const sl_trace_record *t) {
  const sl_actor *a = &plan->actors[t->actor];
  sl_tick tick = sl_plan_tick(plan, t->actor, t->firing);
  const char *dot = strchr(a->name, '.');
  int block = dot ? atoi(dot + 1) : 0;
  int piece = a->cls == SL_CLASS_B ? plan->pieces - 1 - tick.piece : tick.piece;
  return (tick.microbatch * 100 + block) * 100 + piece;
}

static void all_pieces_go_through_a_block_before_the_next(void) {
  lowered_model x = lower("layers", 2, 4);
  sl_runtime *rt;
  CHECK(!sl_runtime_create(
            x.plan, &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL, .no_data = true}, &rt) &&
            !sl_runtime_run(rt, 1),
        "%s", sl_detail());
  sl_trace_record *trace;
  uint64_t dropped;
  size_t count = sl_runtime_trace(rt, &trace, &dropped), seen = 0;
  int last[SL_CLASS_COUNT] = {0};
  for (size_t i = 0; i < count; i++) {
    const sl_actor *a = &x.plan->actors[trace[i].actor];
    if ((a->cls != SL_CLASS_F && a->cls != SL_CLASS_B) || a->name[1] != '0') continue;
    int place = place_of(x.plan, &trace[i]);
    CHECK(place >= last[a->cls], "%s comes late, at %d after %d", a->name, place, last[a->cls]);
    last[a->cls] = place;
    seen++;
  }
  CHECK(seen > 2 * 2 * 4 * 6, "%zu firings of blocks", seen);
  free(trace);
  sl_runtime_destroy(rt);
  lowered_model_fini(&x);
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Returns the slots with a quota name, over all registers that do not share slots. */
static int slots(const sl_plan *plan, const char *name) {
  int sum = 0;
  for (int32_t i = 0; i < plan->nregs; i++)
    if (!strcmp(plan->regs[i].quota_name, name) && !plan->regs[i].shares)
      sum += plan->regs[i].quota;
  return sum;
}

static void blocks_take_turns_with_their_records(void) {
  lowered_model tokens = lower("tokens", 1, 4), layers = lower("layers", 1, 4);
  CHECK(slots(tokens.plan, "kv.grad") == 6, "%d records of 6 blocks",
        slots(tokens.plan, "kv.grad"));
  CHECK(slots(layers.plan, "kv.grad") == 1, "%d records", slots(layers.plan, "kv.grad"));
  CHECK(slots(layers.plan, "between") == 5, "%d slots between blocks, on the way back",
        slots(layers.plan, "between"));
  lowered_model_fini(&tokens);
  lowered_model_fini(&layers);
}

/* Returns the bytes with a quota name on device 0. */
static size_t bytes(const sl_plan *plan, const char *name) {
  size_t sum = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (!r->device && !strcmp(r->quota_name, name) && !r->shares)
      sum += (size_t)r->quota * r->slot_bytes;
  }
  return sum;
}

static size_t bytes_of_blocks(char *layers, grid g, const char *name) {
  char *words[] = {"--layers",  layers, "--width", "64", "--heads", "4",
                   "--context", "512",  "--batch", "4",  NULL};
  const grid_model m = {"llama", words, 2, 4};
  lowered_model x;
  grid_lower(&x, &m, &g, NULL);
  CHECK(!sl_plan_prove(x.plan), "%s layers: %s", layers, sl_detail());
  size_t all = bytes(x.plan, name);
  lowered_model_fini(&x);
  return all;
}

/* With recomputation each device keeps half of a block's input and half of the attention output
 * added to it. Data between exchanges uses the same slots in all blocks. */
static void devices_keep_what_blocks_begin_with(void) {
  const grid tensor = {.data = 1, .tensor = 2, .recompute = "full"};
  const grid both = {.data = 2, .tensor = 2, .shard = "parameters", .recompute = "full"};
  const size_t input = 4 * 512 * 4 * 64 / 2; /* a microbatch of four rows, over two devices */
  size_t more = bytes_of_blocks("6", tensor, "act.b") - bytes_of_blocks("3", tensor, "act.b");
  CHECK(more == 3 * 2 * input / 2, "3 blocks keep %zu bytes, not %zu", more, 3 * input);
  more = bytes_of_blocks("6", both, "act.b") - bytes_of_blocks("3", both, "act.b");
  CHECK(more == 3 * 2 * input / 4, "3 blocks keep %zu bytes on four devices", more);
  more = bytes_of_blocks("6", tensor, "inner") - bytes_of_blocks("3", tensor, "inner");
  CHECK(!more, "3 blocks pass on %zu bytes more", more);
}

/* Returns the slots with a quota name on device 0. */
static int own_slots(const sl_plan *plan, const char *name) {
  int sum = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (!r->device && !strcmp(r->quota_name, name) && !r->shares) sum += r->quota;
  }
  return sum;
}

/* Blocks that come one after another take the same slot for whole parameters, forward and backward,
 * and the same slots for whole gradients, of which the head has two. The numbers learned are those
 * with slots of their own. */
static void one_block_at_a_time_is_whole(void) {
  static const grid cases[] = {
      {.data = 2},
      {.data = 3, .recompute = "full", .processes = 3},
      {.sequence = 2, .recompute = "full", .attention = "heads"},
      {.data = 2, .sequence = 2, .recompute = "selective", .processes = 2},
      {.data = 2, .tensor = 2, .recompute = "full", .processes = 4},
  };
  for (size_t i = 0; i < 2 * SLI_COUNT(cases); i++) {
    const grid_model m = {i % 2 ? "gpt" : "llama", i % 2 ? small_gpt : small_llama, 1,
                          3 + (int)i % 3};
    char name[GRID_TEXT];
    grid g = cases[i / 2];
    g.shard = "parameters";
    g.piece_order = "layers";
    g.steps = 3;
    grid_losses own = grid_train(&m, &g);
    g.nquotas = 2;
    g.quotas[0] = (sl_quota){"gather", SL_NONE, 1};
    g.quotas[1] = (sl_quota){"reduce", SL_NONE, 1};
    g.jitter_seed = i;
    grid_losses shared = grid_train(&m, &g);
    grid_same_bits(&m, &g, &own, &shared);
    if (g.tensor > 1 || g.sequence > 1 || g.processes > 1) continue;
    lowered_model x;
    grid_lower(&x, &m, &g, NULL);
    CHECK(own_slots(x.plan, "gather") == 1 && own_slots(x.plan, "reduce") <= 2,
          "%s: %d slots for whole parameters, %d for whole gradients", grid_format(name, &m, &g),
          own_slots(x.plan, "gather"), own_slots(x.plan, "reduce"));
    lowered_model_fini(&x);
  }
}

/* ---- bytes ------------------------------------------------------------------------------ */

static char *const model_t[] = {"--layers", "2",          "--width", "64",        "--heads",
                                "4",        "--kv-heads", "2",       "--context", "256",
                                "--batch",  "1",          NULL};

static bool has_prefix(const char *name, const char *prefix) {
  return !strncmp(name, prefix, strlen(prefix));
}

/* Returns the firings per step of the copies with a verb, in one direction or both. */
static int firings(const sl_plan *plan, const char *verb, char way) {
  int sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const char *name = plan->actors[i].name, *of = strchr(name, '<');
    if (has_prefix(name, verb) && (!way || (of && of[1] == way)))
      sum += plan->actors[i].firings_per_step;
  }
  return sum;
}

/* K pieces of 4 S 2 d' / K bytes: each is written once, read by all later pieces in the forward
 * pass, and read by these and itself in the backward pass. Each direction holds two of them. */
static void as_much_moves_as_was_said(void) {
  enum { K = 8, LAYERS = 2, PIECE = 4 * 256 / K * 2 * 32 };
  static const sl_home keys[] = {{"kv", NULL, SL_SPACE_DISK, 0}};
  const grid_model m = {"llama", model_t, 1, K};
  const grid g = {.data = 1,
                  .tensor = 1,
                  .piece_order = "layers",
                  .homes = {.count = 1, .homes = keys, .disk = "."}};
  grid_losses losses = {.most = 1};
  lowered_model x;
  uint64_t moved[1][SL_TRAFFIC_COUNT];
  grid_lower(&x, &m, &g, &losses);
  sl_plan_moved(x.plan, moved);
  uint64_t there = K * PIECE, forward = K * (K - 1) / 2 * PIECE, back = K * (K + 1) / 2 * PIECE;
  CHECK(there == 65536 && forward == 229376 && back == 294912, "%llu, %llu, %llu",
        (unsigned long long)there, (unsigned long long)forward, (unsigned long long)back);
  CHECK(moved[0][SL_TRAFFIC_DISK] == LAYERS * (there + forward + back), "%llu bytes",
        (unsigned long long)moved[0][SL_TRAFFIC_DISK]);
  CHECK(firings(x.plan, "spill:", 0) == LAYERS * K, "%d pieces are written",
        firings(x.plan, "spill:", 0));
  CHECK(firings(x.plan, "fill:", 'F') == LAYERS * K * (K + 1) / 2 &&
            firings(x.plan, "fill:", 'B') == LAYERS * K * (K + 1) / 2,
        "%d pieces are brought there, %d back", firings(x.plan, "fill:", 'F'),
        firings(x.plan, "fill:", 'B'));
  CHECK(x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes == LAYERS * there, "%zu bytes on disk",
        x.plan->devices[0].room[SL_SPACE_DISK].arena_bytes);
  CHECK(slots(x.plan, "kv.fill") == 2 * 2 && slots(x.plan, "kv.spill") == 2, "%d and %d slots",
        slots(x.plan, "kv.fill"), slots(x.plan, "kv.spill"));
  lowered_model_fini(&x);
}

static double flops_of(int pieces, sl_home_options homes) {
  const grid_model m = {"llama", model_t, 1, pieces};
  const grid g = {.data = 1, .tensor = 1, .piece_order = "layers", .homes = homes};
  grid_losses losses = {.most = 1};
  lowered_model x;
  grid_lower(&x, &m, &g, &losses);
  double flops = sl_lowered_flops(x.lowered);
  lowered_model_fini(&x);
  return flops;
}

/* The home of the keys does not change the work of a step. */
static void as_much_is_computed(void) {
  static const sl_home keys[] = {{"kv", NULL, SL_SPACE_DISK, 0}};
  static const int cuts[] = {5, 7, 8};
  for (size_t i = 0; i < SLI_COUNT(cuts); i++) {
    double here = flops_of(cuts[i], (sl_home_options){0});
    double away = flops_of(cuts[i], (sl_home_options){.count = 1, .homes = keys, .disk = "."});
    CHECK(away > 0.999 * here && away < 1.001 * here, "%d pieces: %g flop, not %g", cuts[i], away,
          here);
  }
}

/* Freed slots are filled with NaN; firings are delayed at random. */
static void no_timing_changes_a_bit(seeds s) {
  static const sl_home all[] = {{"act", NULL, SL_SPACE_DISK, 0}, {"kv", NULL, SL_SPACE_DISK, 0}};
  const grid_model m = {"llama", small_llama, 2, 5};
  grid g = {.data = 1, .tensor = 1, .stages = 2, .steps = 2, .recompute = "full"};
  grid_losses kept = grid_train(&m, &g);
  g.piece_order = "layers";
  g.homes = (sl_home_options){.count = 2, .homes = all, .disk = "."};
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    char name[GRID_TEXT];
    g.jitter_seed = seed;
    g.processes = 1 + (int)(seed % 2);
    grid_losses moved = grid_train(&m, &g);
    CHECK(!memcmp(moved.loss, kept.loss, (size_t)kept.count * sizeof *kept.loss), "%s: other bits",
          grid_format(name, &m, &g));
  }
}

int main(int argc, char **argv) {
  RUN(as_much_moves_as_was_said);
  RUN(as_much_is_computed);
  RUN(blocks_take_turns_with_their_records);
  RUN(devices_keep_what_blocks_begin_with);
  RUN(one_block_at_a_time_is_whole);
  RUN(all_pieces_go_through_a_block_before_the_next);
  RUN(no_schedule_changes_a_bit);
  RUN(whatever_else_is_asked_for, seeds_of(argc, argv, 1, SEEDS));
  RUN(no_timing_changes_a_bit, seeds_of(argc, argv, 1, SEEDS));
  return 0;
}
