/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts of a small model, rewarded by a function of this test. Advantages follow their formula,
 * and dropped answers have none. Prompts come in the order of their permutation, also in a run that
 * starts at a later step. Invalid options are refused with an error that names them. With
 * numbers.exact, answers, losses and ratios do not depend on the number of answering devices,
 * replicated or sharded. Rollouts that serve several updates, or run ahead of training, answer with
 * the right parameters. */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "models/models.h"
#include "tests/support/test.h"

enum { BATCH = 10, GROUP = 5, PROMPTS = 6, STEPS = 4 };

static char *const words[] = {"--layers",  "1",  "--width", "16", "--heads", "2",   "--vocab", "16",
                              "--context", "10", "--batch", "10", "--lr",    "1e-3"};
static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};

typedef struct run {
  sl_rollouts *rollouts;
  bool drops; /* the third answer of each group */
  int64_t first;
  int steps, answers;
  sl_parallel_options parallel;
  const char *shard;
  int updates, ahead;
  bool all_positions;
  int64_t prompts[STEPS][BATCH];
  uint64_t hash[STEPS];             /* over the tokens and log-probabilities of each step */
  double losses[STEPS], off[STEPS]; /* off: the largest |ratio - 1| */
  double rewards[BATCH], advantages[BATCH];
  sl_rollouts_report report;
} run;

/* The rewards (1, 0, 0, 1, .1) of each group. */
static void answered(void *ctx, const sl_answer *a) {
  static const double rewards[GROUP] = {1, 0, 0, 1, .1};
  run *x = ctx;
  x->answers++;
  CHECK(a->row % GROUP == a->member && a->count >= 1 && a->count <= 4, "an answer of row %d",
        a->row);
  for (int64_t t = 0; t < a->count; t++)
    CHECK(a->logprobs[t] <= 0 && a->tokens[t] >= 0 && a->tokens[t] < 16, "token %d", a->tokens[t]);
  sl_rollouts_reward(x->rollouts, a->id, x->drops && a->member == 2 ? NAN : rewards[a->member]);
}

static void rewarded(void *ctx, const sl_rollouts_report *report, int n, const sl_answer *answers,
                     const double *rewards, const double *advantages) {
  run *x = ctx;
  CHECK(n == BATCH && report->step == x->first + x->steps, "step %lld", (long long)report->step);
  uint64_t hash = SLI_HASH_SEED;
  for (int i = 0; i < n; i++) {
    x->prompts[report->step][i] = answers[i].prompt;
    hash = sli_hash(hash, answers[i].tokens, (size_t)answers[i].count * sizeof(int32_t));
    hash = sli_hash(hash, answers[i].logprobs, (size_t)answers[i].count * sizeof(float));
  }
  x->hash[report->step] = hash;
  memcpy(x->rewards, rewards, sizeof x->rewards);
  memcpy(x->advantages, advantages, sizeof x->advantages);
  x->report = *report;
  x->steps++;
}

static void stepped(void *ctx, const sl_step_report *report) {
  run *x = ctx;
  x->losses[report->step] = report->loss;
  for (int v = 0; v < report->nvalues; v++)
    if (!strcmp(report->values[v].name, "ratio_off"))
      x->off[report->step] = report->values[v].value;
}

static const sl_model *gpt(void) {
  const sl_model *const *m = sli_models;
  while (strcmp((*m)->name, "gpt")) m++;
  return *m;
}

static sl_args *read_words(void) {
  sl_args *args;
  int used;
  CHECK(!sl_args_create(gpt()->options, &args), "%s", sl_detail());
  for (size_t i = 0; i < SLI_COUNT(words); i += 2)
    CHECK(!sl_args_take(args, 2, &words[i], &used), "%s", sl_detail());
  return args;
}

static sl_rollouts_options options_of(run *x, const sl_args *args, const sl_prompt *prompts) {
  return (sl_rollouts_options){
      .model = gpt(),
      .args = args,
      .batch = BATCH,
      .stages = SLI_MAX(x->parallel.stages, 1),
      .devices = SLI_MAX(x->parallel.data, 1) * SLI_MAX(x->parallel.tensor, 1),
      .updates = x->updates,
      .all_positions = x->all_positions,
      .ahead = x->ahead,
      .group = GROUP,
      .prompts = prompts,
      .nprompts = PROMPTS,
      .shuffle = 5,
      .max_tokens = 4,
      .temperature = 1,
      .seed = 3,
      .answered = answered,
      .rewarded = rewarded,
      .ctx = x};
}

static void list_prompts(sl_prompt *prompts) {
  for (int i = 0; i < PROMPTS; i++) prompts[i] = (sl_prompt){tokens + i / 2, 1 + i % 3};
}

static void train(run *x, int64_t first, int steps) {
  sl_prompt prompts[PROMPTS];
  list_prompts(prompts);
  sl_args *args = read_words();
  const sl_rollouts_options o = options_of(x, args, prompts);
  x->first = first;
  x->steps = x->answers = 0;
  CHECK(!sl_rollouts_create(&o, &x->rollouts), "%s", sl_detail());
  sl_graph *g = sl_graph_create(&(sl_graph_options){
      .microbatches = 1, .pieces = 1, .objective = sl_rollouts_objective(x->rollouts)});
  CHECK(!sl_model_build(gpt(), g, args), "%s", sl_detail());
  sl_lower_options lower = {.parallel = x->parallel,
                            .memory.shard = x->shard,
                            .numbers.exact = true,
                            .devices.kind = "cpu",
                            .report = {.on_step = stepped, .ctx = x},
                            .rollouts = *sl_rollouts_lower(x->rollouts)};
  lower.parallel.stages = SLI_MAX(x->parallel.stages, 1);
  sl_lowered *lowered;
  sl_runtime *rt;
  CHECK(!sl_lower(g, &lower, &lowered), "%s", sl_detail());
  CHECK(!sl_plan_prove(sl_lowered_plan(lowered)), "%s", sl_detail());
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered),
                           &(sl_runtime_options){.watchdog_seconds = 60, .first_step = first}, &rt),
        "%s", sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_rollouts_attach(x->rollouts, rt);
  CHECK(!sl_params_init(lowered, rt, 7) && !sl_params_copy_versions(lowered, rt), "%s",
        sl_detail());
  CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
  int updates = SLI_MAX(x->updates, 1), answered = (steps + updates - 1) / updates * updates;
  CHECK(x->steps == steps && x->answers == answered * BATCH, "%d steps, %d answers", x->steps,
        x->answers);
  sl_rollouts_report report;
  CHECK(sl_rollouts_about(x->rollouts, first + steps - 1, &report) && report.answers == BATCH,
        "the last step is known");
  CHECK(!sl_rollouts_about(x->rollouts, first + steps, &report), "the next one is not");
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  sl_rollouts_destroy(x->rollouts);
  sl_args_destroy(args);
}

/* Mean .42, deviation .531037. */
static void advantages_follow_from_rewards(void) {
  static const double wanted[GROUP] = {1.09220, -.79090, -.79090, 1.09220, -.60259};
  run x = {0};
  train(&x, 0, STEPS);
  for (int i = 0; i < BATCH; i++)
    CHECK(fabs(x.advantages[i] - wanted[i % GROUP]) < 1e-5, "advantage %d", i);
  CHECK(fabs(x.report.reward - .42) < 1e-12, "the mean of rewards");
  CHECK(!x.report.dropped && x.report.flat == 0, "nothing is dropped, and no group is flat");
  CHECK(x.report.rows >= BATCH && x.report.entropy > 0, "rows have been computed");
}

/* Prompts depend only on the step, also in a run that starts at a later step. */
static void prompts_follow_from_steps(void) {
  run x = {0}, y = {0};
  int seen[PROMPTS] = {0};
  train(&x, 0, STEPS);
  train(&y, 2, STEPS - 2);
  CHECK(!memcmp(x.prompts[2], y.prompts[2], sizeof x.prompts[2]), "step 2 has the same prompts");
  for (int s = 0; s < PROMPTS * GROUP / BATCH; s++)
    for (int i = 0; i < BATCH; i++) seen[x.prompts[s][i]]++;
  for (int i = 0; i < PROMPTS; i++) CHECK(seen[i] == GROUP, "prompt %d has come once", i);
}

/* Mean .525 of the four, deviation sqrt((2 .475^2 + .525^2 + .425^2) / 3). */
static void dropped_answers_have_no_part(void) {
  run x = {.drops = true};
  train(&x, 0, 1);
  double deviation = sqrt((2 * .475 * .475 + .525 * .525 + .425 * .425) / 3);
  CHECK(x.report.dropped == 2 && isnan(x.advantages[2]), "two are dropped");
  CHECK(fabs(x.advantages[0] - .475 / deviation) < 1e-5, "the first");
  CHECK(fabs(x.advantages[1] - -.525 / deviation) < 1e-5, "the second");
  CHECK(fabs(x.report.reward - .525) < 1e-12, "the mean of the others");
}

static void same_numbers(const run *x, const run *y, const char *what) {
  for (int s = 0; s < STEPS; s++)
    CHECK(x->hash[s] == y->hash[s] && x->losses[s] == y->losses[s] && x->off[s] == y->off[s],
          "%s, step %d: loss %.17g and %.17g, ratios off by %g and %g", what, s, x->losses[s],
          y->losses[s], x->off[s], y->off[s]);
}

static const struct grid {
  const char *name, *shard;
  sl_parallel_options parallel;
} grids[] = {{"data 2", NULL, {.data = 2}},
             {"data 2, stages 2", NULL, {.data = 2, .stages = 2}},
             {"shard optimizer", "optimizer", {.data = 2}},
             {"shard gradients", "gradients", {.data = 2}},
             {"shard parameters", "parameters", {.data = 2}},
             {"tensor 2", NULL, {.tensor = 2}},
             {"data 2, tensor 2, shard parameters", "parameters", {.data = 2, .tensor = 2}}};

/* Numbers do not depend on how many devices answer; ratios differ from 1 exactly where the rollouts
 * are old. */
static void grids_answer_alike(int updates, int ahead) {
  run one = {.updates = updates, .ahead = ahead};
  train(&one, 0, STEPS);
  for (int s = 0; s < STEPS; s++) {
    int age = updates > 1 ? s % updates : SLI_MIN(s, ahead);
    CHECK(age ? one.off[s] > 0 : one.off[s] == 0, "step %d: ratios are off by %g", s, one.off[s]);
  }
  for (size_t i = 0; i < SLI_COUNT(grids); i++) {
    run x = {
        .updates = updates, .ahead = ahead, .parallel = grids[i].parallel, .shard = grids[i].shard};
    train(&x, 0, STEPS);
    same_numbers(&one, &x, grids[i].name);
  }
}

static void all_devices_answer(void) { grids_answer_alike(1, 0); }
static void updates_share_a_rollout(void) { grids_answer_alike(2, 0); }
static void rollouts_run_ahead(void) { grids_answer_alike(1, 1); }

/* Steps answered by the initial parameters have the same answers, whichever option causes that. */
static void old_parameters_answer(void) {
  run by_updates = {.updates = 3}, by_ahead = {.ahead = 2}, newest = {0};
  train(&by_updates, 0, STEPS);
  train(&by_ahead, 0, STEPS);
  train(&newest, 0, STEPS);
  for (int s = 0; s < 3; s++) CHECK(by_updates.hash[s] == by_ahead.hash[s], "step %d", s);
  CHECK(by_updates.hash[3] != by_ahead.hash[3], "the fourth step is of other parameters");
  CHECK(newest.hash[0] == by_ahead.hash[0] && newest.hash[1] != by_ahead.hash[1],
        "without, the second step is");
}

/* Logits at possible answer positions give the same losses as logits at all positions. */
static void logits_of_answers_are_enough(void) {
  run answers = {0}, all = {.all_positions = true};
  train(&answers, 0, STEPS);
  train(&all, 0, STEPS);
  for (int s = 0; s < STEPS; s++) {
    CHECK(answers.hash[s] == all.hash[s], "step %d: other answers", s);
    CHECK(fabs(answers.losses[s] - all.losses[s]) < 1e-6, "step %d: loss %.9g, not %.9g", s,
          answers.losses[s], all.losses[s]);
    CHECK(answers.off[s] == 0 && all.off[s] == 0, "step %d: a ratio is not 1", s);
  }
}

static void refused(const sl_rollouts_options *o, const char *why) {
  sl_rollouts *r = NULL;
  CHECK(sl_rollouts_create(o, &r) == SL_E_USAGE && strstr(sl_detail(), why), "%s: %s", why,
        sl_detail());
}

static void wrong_options_are_named(void) {
  sl_prompt prompts[PROMPTS];
  run x = {0};
  list_prompts(prompts);
  sl_args *args = read_words();
  const sl_rollouts_options good = options_of(&x, args, prompts);
  sl_rollouts_options o = good;
  o.group = 4, refused(&o, "batch is 10 rows, must be a multiple of group, 4"), o = good;
  o.group = 1, refused(&o, "group is 1, must be at least 2"), o = good;
  o.nprompts = 0, refused(&o, "no prompts are given"), o = good;
  o.clip_low = 2, refused(&o, "clip range -1"), o = good;
  o.ahead = 9, refused(&o, "ahead is 9"), o = good;
  o.devices = 11, refused(&o, "devices is 11, must be 1 to the 10 prompts"), o = good;
  o.kl = -1, refused(&o, "kl is -1"), o = good;
  prompts[3].count = 10,
  refused(&o, "prompt 4 has 10 tokens: must have at least 1, and fewer than the context of 10");
  prompts[3].count = 0, refused(&o, "prompt 4 has 0 tokens");
  sl_args_destroy(args);
}

int main(void) {
  RUN(advantages_follow_from_rewards);
  RUN(prompts_follow_from_steps);
  RUN(dropped_answers_have_no_part);
  RUN(all_devices_answer);
  RUN(updates_share_a_rollout);
  RUN(rollouts_run_ahead);
  RUN(old_parameters_answer);
  RUN(logits_of_answers_are_enough);
  RUN(wrong_options_are_named);
  return 0;
}
