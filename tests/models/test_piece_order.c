/* In which order the pieces of sequences go through the blocks changes no bit of what is learned; all
 * of a microbatch go through a block before the next one, and blocks take turns with their records.
 * labels: numbers random */
#include <string.h>

#include "base/base.h"
#include "tests/support/dice.h"
#include "tests/support/grids.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 4 };
#else
enum { SEEDS = 12 };
#endif

static char *const small_llama[] = {"--layers", "6", "--width", "32", "--heads", "4", "--kv-heads",
                                    "2", "--context", "48", "--batch", "4", NULL};
static char *const small_gpt[] = {"--layers", "6", "--width", "32", "--heads", "4", "--context",
                                  "48", "--batch", "4", NULL};

/* ---- bits ------------------------------------------------------------------------------- */

static void same_bits(const grid_model *m, grid g) {
  char name[GRID_TEXT];
  g.steps = 2;
  g.poison = true;
  g.piece_order = "tokens";
  grid_losses tokens = grid_train(m, &g);
  g.piece_order = "layers";
  grid_losses layers = grid_train(m, &g);
  CHECK(layers.count == tokens.count &&
            !memcmp(layers.loss, tokens.loss, (size_t)tokens.count * sizeof *tokens.loss) &&
            !memcmp(layers.norm, tokens.norm, (size_t)tokens.count * sizeof *tokens.norm),
        "%s: other bits", grid_format(name, m, &g));
}

static const char *const schedules[] = {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "v-half",
                                        "v-min", "seq1f1b"};

static void no_schedule_changes_a_bit(void) {
  const grid_model m = {"llama", small_llama, 4, 3};
  for (size_t i = 0; i < SLI_COUNT(schedules); i++)
    same_bits(&m, (grid){.data = 1, .tensor = 1, .stages = 2, .schedule = schedules[i]});
}

/* Schedules, grids, processes, timing, recomputation, homes. */
static void whatever_else_is_asked_for(seeds s) {
  static const char *const again[] = {NULL, "selective", "full"};
  static const char *const shards[] = {NULL, "optimizer", "gradients", "parameters"};
  static const sl_home act[] = {{"act", NULL, SL_SPACE_DISK}};
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    dice r = {seed, 0};
    int pieces = 2 + (int)roll(&r, 7);
    bool gpt = roll(&r, 2);
    const grid_model m = {gpt ? "gpt" : "llama", gpt ? small_gpt : small_llama, 1 << roll(&r, 2),
                          pieces};
    grid g = {.data = 1 + (int)roll(&r, 2), .tensor = 1 + (int)roll(&r, 2),
              .stages = 1 + (int)roll(&r, 2),
              .schedule = schedules[roll(&r, SLI_COUNT(schedules))],
              .recompute = again[roll(&r, 3)], .jitter_seed = seed};
    g.processes = 1 + (int)roll(&r, 2);
    if (g.processes > g.stages * g.data * g.tensor) g.processes = 1;
    if (g.data > 1) g.shard = shards[roll(&r, g.recompute ? 3 : 4)];
    if (roll(&r, 2) && g.processes <= g.stages) g.homes = (sl_home_options){.count = 1, .of = act, .disk = "."};
    same_bits(&m, g);
  }
}

/* ---- order ------------------------------------------------------------------------------ */

/* On devices that only take time: nothing but data and slots says what goes first. */
static lowered_model lower(const char *order, int microbatches, int pieces) {
  const char *source = getenv("SLUICE_SOURCE");
  char *data = sli_format("%s/tests/reference/text.txt", source ? source : ".");
  char *words[] = {"--data", data, "--layers", "6", "--width", "32", "--heads", "4", "--context",
                   "48", "--batch", "4", NULL};
  const sl_lower_options options = {.piece_order = order, .grain = "layer", .schedule = "gpipe",
                                    .devices = {.kind = "timed"}};
  lowered_model x;
  CHECK(!lowered_model_init(&x, "llama", words, microbatches, pieces, &options), "%s", sl_detail());
  free(data);
  return x;
}

/* Where a firing comes: microbatch, block, piece; of the way back the last come first. Blocks are
 * numbered as their actors are. */
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
  CHECK(!sl_runtime_create(x.plan, &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL, .no_data = true},
                           &rt) &&
            !sl_runtime_run(rt, 1), "%s", sl_detail());
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

/* Slots of a name, over all registers that have their own. */
static int slots(const sl_plan *plan, const char *name) {
  int sum = 0;
  for (int32_t i = 0; i < plan->nregs; i++)
    if (!strcmp(plan->regs[i].quota_name, name) && !plan->regs[i].shares) sum += plan->regs[i].quota;
  return sum;
}

static void blocks_take_turns_with_their_records(void) {
  lowered_model tokens = lower("tokens", 1, 4), layers = lower("layers", 1, 4);
  CHECK(slots(tokens.plan, "dkv") == 6, "%d records of 6 blocks", slots(tokens.plan, "dkv"));
  CHECK(slots(layers.plan, "dkv") == 1, "%d records", slots(layers.plan, "dkv"));
  CHECK(slots(layers.plan, "between") == 5, "%d slots between blocks, on the way back",
        slots(layers.plan, "between"));
  lowered_model_fini(&tokens);
  lowered_model_fini(&layers);
}

int main(int argc, char **argv) {
  blocks_take_turns_with_their_records();
  all_pieces_go_through_a_block_before_the_next();
  no_schedule_changes_a_bit();
  whatever_else_is_asked_for(seeds_of(argc, argv, 1, SEEDS));
  return 0;
}
