/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of rollouts with frames, on the virtual clock: a step takes the time of MR-SP (LongVILA-R1,
 * arXiv 2507.07966). With e the time per frame, p per prefill and g per answer, for G answers and F
 * frames on Q devices, that is e F / Q + p + 3 G p / Q + G g. Separate encoders encode the frames
 * again for each answer, for the reference and for the update: 3 G F frames. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sluice/frames.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "tests/support/test.h"

enum {
  GROUP = 8,
  WIDTH = 16,
  HEADS = 8,
  VOCABULARY = 16,
  REST = 4,
  MOST_FRAMES = 1024,
  MARKER = 1
};

static const double e = 0.02, p = 1.5, g_seconds = 4;

/* ---- the model ------------------------------------------------------------------------------ */

static const sl_option options[] = {{"each", SL_OPTION_INT, "64", "frames of a prompt", 1, 1 << 20},
                                    {"file", SL_OPTION_TEXT, "", "`FILE` of frames", 0, 0},
                                    {0}};

static sl_tensor *matrix(sl_graph *g, int64_t out, int64_t in, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(0.1f), "%s", name);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t each = sl_arg_int(args, "each"), rows = sl_microbatch_rows(g, GROUP);
  sl_tensor *targets, *tokens = sl_tokens(g, "", rows, each + REST, VOCABULARY, &targets);
  sl_tensor *frames = sl_frames(g, sl_arg_text(args, "file"), rows, each, SL_TYPE(SL_F32, 2));
  sl_block(g, "vision");
  sl_tensor *seen = sl_gelu(g, sl_linear(g, frames, matrix(g, WIDTH, 2, "vision"), NULL));
  sl_block(g, "embed");
  sl_tensor *x = sl_embedding(g, tokens, matrix(g, VOCABULARY, WIDTH, "table"));
  x = sl_splice(g, x, tokens, MARKER, seen);
  sl_block(g, "layer");
  sl_tensor *y = sl_linear(g, x, matrix(g, 3 * WIDTH, WIDTH, "qkv"), NULL);
  x = sl_add(g, x, sl_attend_packed(g, y, &(sl_attrs){.heads = HEADS}));
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, matrix(g, VOCABULARY, WIDTH, "head"), NULL);
  sl_output(g, "logits", logits);
  sl_train(g, sl_cross_entropy(g, logits, targets), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}

static const sl_model model = {SL_MODEL_ABI, "video", "", options, build, NULL, NULL};

static void write_frames(const char *path) {
  static float values[MOST_FRAMES][2];
  FILE *file = fopen(path, "wb");
  CHECK(file, "%s", path);
  char header[118];
  int n = snprintf(header, sizeof header,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }", MOST_FRAMES);
  memset(header + n, ' ', sizeof header - (size_t)n);
  header[sizeof header - 1] = '\n';
  fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
  fwrite(header, 1, sizeof header, file);
  fwrite(values, sizeof values, 1, file);
  fclose(file);
}

/* ---- plans ---------------------------------------------------------------------------------- */

typedef struct setting {
  int frames, devices;
  bool apart;
} setting;

static void answered(void *ctx, const sl_answer *a) { (void)ctx, (void)a; }

/* Returns whether the actor has that name, or is the first of several with it. */
static bool is_first(const sl_actor *a, const char *name) {
  size_t n = strlen(name);
  return !strncmp(a->name, name, n) && (a->name[n] != '.' || a->name[n + 1] == '0');
}

/* Returns the seconds of an actor's firing; a pass costs time only in its first actor. */
static double seconds_of(const setting *x, const sl_actor *a, int ticks) {
  const char *rank = strchr(a->name, '#');
  int r = rank ? atoi(rank + 1) : 0;
  int own = x->frames / x->devices + (r < x->frames % x->devices);
  if (is_first(a, "span0")) return e * own * (x->apart ? 3 : 1);
  if (is_first(a, "rollout0")) return (p + GROUP * g_seconds) / ticks;
  return is_first(a, "F0") ? 3 * GROUP * p / x->devices : 0;
}

static double predict(const sl_plan *plan, const setting *x, int ticks) {
  double *seconds = sli_calloc((size_t)plan->nactors, sizeof *seconds);
  sl_statistics s;
  for (int a = 0; a < plan->nactors; a++) seconds[a] = seconds_of(x, &plan->actors[a], ticks);
  CHECK(!sl_plan_predict(plan, seconds, &s), "%s", sl_detail());
  free(s.devices);
  free(seconds);
  return s.step_seconds;
}

static double step_seconds(const setting *x) {
  static int32_t tokens[MOST_FRAMES + 2];
  static int64_t of[MOST_FRAMES];
  char each[32];
  sl_args *args;
  for (int i = 0; i < x->frames; i++) tokens[i] = MARKER, of[i] = i;
  tokens[x->frames] = 2, tokens[x->frames + 1] = 3;
  const sl_prompt prompt = {tokens, x->frames + 2};
  const sl_framed framed = {of, x->frames};
  snprintf(each, sizeof each, "%d", x->frames);
  CHECK(!sl_args_create(options, &args), "%s", sl_detail());
  CHECK(!sl_args_set(args, "each", each) && !sl_args_set(args, "file", "video.npy"), "%s",
        sl_detail());
  sl_rollouts *r;
  const sl_rollouts_options o = {.model = &model,
                                 .args = args,
                                 .batch = GROUP,
                                 .group = GROUP,
                                 .prompts = &prompt,
                                 .nprompts = 1,
                                 .max_tokens = 2,
                                 .temperature = 1,
                                 .kl = 0.1,
                                 .answered = answered};
  CHECK(!sl_rollouts_create(&o, &r), "%s", sl_detail());
  sl_rollouts_set_frames(r, &framed, x->apart);
  sl_graph *g = sl_graph_create(
      &(sl_graph_options){.microbatches = 1, .pieces = 1, .objective = sl_rollouts_objective(r)});
  CHECK(!sl_model_build(&model, g, args), "%s", sl_detail());
  const sl_lower_options lower = {.parallel = {.stages = 1, .data = x->devices},
                                  .devices.kind = "cpu",
                                  .rollouts = *sl_rollouts_lower(r)};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &lower, &lowered), "%s", sl_detail());
  double seconds = predict(sl_lowered_plan(lowered), x, lower.rollouts.ticks);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  sl_rollouts_destroy(r);
  sl_args_destroy(args);
  return seconds;
}

/* ---- claims --------------------------------------------------------------------------------- */

static void check(const setting *x, double wanted) {
  double got = step_seconds(x);
  CHECK(fabs(got / wanted - 1) < 0.01, "%d frames on %d devices%s: %g s, should be %g", x->frames,
        x->devices, x->apart ? ", apart" : "", got, wanted);
}

static double frames_of(int frames, int devices) { return ceil((double)frames / devices); }

static void frames_are_encoded_once(void) {
  for (int frames = 64; frames <= MOST_FRAMES; frames *= 4)
    for (int devices = 1; devices <= 8; devices *= 2)
      check(&(setting){frames, devices, false},
            e * frames_of(frames, devices) + p + 3 * GROUP * p / devices + GROUP * g_seconds);
  check(&(setting){100, 8, false}, e * 13 + p + 3 * GROUP * p / 8 + GROUP * g_seconds);
}

/* Devices without a frame wait for those of the others. */
static void fewer_frames_than_devices_are_shared_out(void) {
  for (int frames = 1; frames < 8; frames++)
    check(&(setting){frames, 8, false}, e + p + 3 * GROUP * p / 8 + GROUP * g_seconds);
}

static void or_for_each_that_reads_them(void) {
  for (int frames = 64; frames <= MOST_FRAMES; frames *= 4)
    check(&(setting){frames, 1, true},
          e * frames * 3 * GROUP + p + 3 * GROUP * p + GROUP * g_seconds);
}

int main(void) {
  write_frames("video.npy");
  RUN(frames_are_encoded_once);
  RUN(fewer_frames_than_devices_are_shared_out);
  RUN(or_for_each_that_reads_them);
  return 0;
}
