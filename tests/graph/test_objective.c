/* SPDX-License-Identifier: Apache-2.0 */
/* Tests objectives: data and losses that replace the model's own, and a reference model that keeps
 * its initial weights.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "models/models.h"
#include "tests/support/graph_interp.h"

enum { ROWS = 2, CONTEXT = 6, VOCAB = 16 };

static const sl_model *find_model(const char *name) {
  for (int i = 0; sli_models[i]; i++)
    if (!strcmp(sli_models[i]->name, name)) return sli_models[i];
  CHECK(false, "no model %s", name);
  return NULL;
}

/* ---- an objective: (lp - lp of the reference - 1) squared, lp being log-probabilities ---- */

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int o = 0; o < 2; o++)
    for (int i = 0; i < ROWS * CONTEXT && out[o]; i++)
      ((int32_t *)out[o])[i] = (int32_t)((tick->number * 5 + 7 * i + o) % VOCAB);
}

static sl_tensor *make_tokens(void *ctx, sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                              sl_tensor **targets) {
  static const sl_type types[2] = {{SL_I32, 2, {ROWS, CONTEXT}}, {SL_I32, 2, {ROWS, CONTEXT}}};
  static const sl_source source = {.nout = 2, .types = types, .fill = fill};
  sl_tensor *outs[2];
  ++*(int *)ctx;
  CHECK(rows == ROWS && context == CONTEXT && vocab == VOCAB, "the model's own sizes");
  sl_data(g, &source, outs);
  *targets = outs[1];
  return outs[0];
}

static sl_tensor *logprobs(sl_graph *g, sl_tensor *logits, sl_tensor *targets) {
  sl_tensor *index = sl_reshape(g, targets, ROWS, CONTEXT, 1);
  return sl_gather(g, sl_log_softmax(g, logits, -1), -1, index); /* [B, T, 1] */
}

static void make_frozen(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                        sl_tensor **frozen) {
  (void)ctx;
  frozen[0] = logprobs(g, logits, targets);
}

static sl_tensor *make_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                            sl_tensor *const *frozen) {
  (void)ctx;
  sl_tensor *d = sl_add_constant(g, sl_sub(g, logprobs(g, logits, targets), frozen[0]), -1);
  return sl_mean(g, sl_mul(g, d, d), 0, false);
}

static int made; /* calls for data */
static const sl_objective objective = {.name = "distance",
                                       .tokens = make_tokens,
                                       .loss = make_loss,
                                       .frozen = make_frozen,
                                       .ctx = &made};

static sl_graph *graph_of(const sl_model *model, const sl_training *training, int microbatches,
                          const sl_objective *o) {
  static const char *const words[] = {"layers", "2",     "width", "8",     "heads", "2",  "context",
                                      "6",      "vocab", "16",    "batch", "4",     "lr", "0.01"};
  sl_args *args;
  CHECK(!sl_args_create(model->options, &args), "%s", sl_detail());
  for (size_t i = 0; i < SLI_COUNT(words) && model->options; i += 2)
    CHECK(!sl_args_set(args, words[i], words[i + 1]), "%s", sl_detail());
  sl_graph *g = sl_graph_create(
      &(sl_graph_options){.microbatches = microbatches, .training = training, .objective = o});
  sl_model_build(model, g, args);
  sl_args_destroy(args);
  return g;
}

/* ---- the graph -------------------------------------------------------------------------- */

static void start(interp *in) {
  for (int p = 0; p < in->g->nparams; p++) {
    const sl_tensor *t = in->g->params[p];
    sli_init_values(&t->type, t->init, t->frozen ? t->frozen : t->name, 3, interp_data(in, t));
  }
}

static double norm_of(interp *in, const char *prefix) {
  double sum = 0;
  for (int p = 0; p < in->g->nparams; p++) {
    const sl_tensor *t = in->g->params[p];
    const float *x = interp_data(in, t);
    for (int64_t i = 0; i < sl_type_elements(&t->type) && !strncmp(t->name, prefix, strlen(prefix));
         i++)
      sum += (double)x[i] * (double)x[i];
  }
  return sum;
}

static int frozen_params(const sl_graph *g) {
  int n = 0;
  for (int i = 0; i < g->nparams; i++) n += g->params[i]->frozen != NULL;
  return n;
}

/* The first loss compares equal models; then the model changes and the reference does not. */
static void a_reference_stays_as_the_model_began(void) {
  static const char *const models[] = {"gpt", "llama", "mixtral", "hybrid"};
  for (size_t m = 0; m < SLI_COUNT(models); m++) {
    made = 0;
    sl_graph *g = graph_of(find_model(models[m]), NULL, 2, &objective);
    CHECK(!sl_graph_status(g), "%s: %s", models[m], sl_detail());
    CHECK(made == 1, "%s: one source of data for both", models[m]);
    int half = g->nparams / 2;
    CHECK(frozen_params(g) == half && g->params[half]->frozen && !g->params[half - 1]->frozen,
          "%s: as many parameters, behind the model's own", models[m]);
    CHECK(!strcmp(g->blocks[0].name, "embedding"), "%s: blocks are the model's", models[m]);
    CHECK(!sli_pass_gradients(g), "%s", sl_detail());
    sli_graph_check(g);
    interp in = interp_create(g, 3);
    start(&in);
    double before = norm_of(&in, "reference."), own = norm_of(&in, "");
    double first = interp_step(&in, 0), last = 0;
    for (int s = 1; s < 30; s++) last = interp_step(&in, s);
    if (!strcmp(models[m], "gpt"))
      CHECK(first == 1, "the first loss of equal models is 1, not %.17g", first);
    CHECK(last < 0.6 * first, "%s: the loss falls from %g to %g", models[m], first, last);
    CHECK(norm_of(&in, "reference.") == before, "%s: the reference has moved", models[m]);
    CHECK(norm_of(&in, "") != own, "%s: the model has not moved", models[m]);
    interp_destroy(&in);
    sl_graph_destroy(g);
  }
}

/* With adapters, no parameter is duplicated, and the reference runs without the adapters. */
static void adapters_leave_one_copy(void) {
  const char *const lora[] = {"attn=4", "mlp=4,alpha=16"};
  const sl_training training = {.nlora = 2, .lora = lora};
  sl_graph *g = graph_of(find_model("gpt"), &training, 2, &objective);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s", sl_detail());
  sli_graph_check(g);
  CHECK(!frozen_params(g), "%d parameters twice", frozen_params(g));
  interp in = interp_create(g, 3);
  start(&in);
  double first = interp_step(&in, 0), last = 0;
  for (int s = 1; s < 80; s++) last = interp_step(&in, s);
  CHECK(first == 1 && last < 0.9, "the loss falls from %g to %g", first, last);
  interp_destroy(&in);
  sl_graph_destroy(g);
}

/* Frozen parameters are shared with the reference, trained ones are not. */
static void frozen_parameters_are_shared(void) {
  const char *const frozen[] = {"wte", "h.0"};
  const sl_training training = {.nfrozen = 2, .frozen = frozen};
  sl_graph *g = graph_of(find_model("gpt"), &training, 2, &objective);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s", sl_detail());
  sli_graph_check(g);
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *t = g->params[i];
    if (!t->frozen) continue;
    CHECK(!strstr(t->name, "wte") && !strstr(t->name, "h.0."), "%s is there twice", t->name);
  }
  CHECK(frozen_params(g) == 1 + 12 + 2, "%d parameters of the reference", frozen_params(g));
  sl_graph_destroy(g);
}

/* ---- logits of chosen positions ---------------------------------------------------------- */

/* Positions 1 and 2 of the first row count, and 2 and 3 of the second; with `halves`, one position
 * in each half of a row. */
enum { CHOSEN = 2, OUTPUTS = 5 };
static bool halves;
static int32_t position_of(int row, int i) { return halves ? CONTEXT / 2 * i + row : row + 1 + i; }

static void fill_some(void *ctx, const sl_tick *tick, void *const *out) {
  fill(ctx, tick, out);
  int32_t *targets = out[3], *positions = out[4];
  float *weights = out[2];
  for (int i = 0; i < ROWS * CONTEXT && weights; i++) weights[i] = 0;
  for (int i = 0; i < ROWS * CHOSEN; i++) {
    int row = i / CHOSEN, at = row * CONTEXT + position_of(row, i % CHOSEN);
    if (weights) weights[at] = (float)CONTEXT / CHOSEN;
    if (targets) targets[i] = (int32_t)((tick->number * 5 + 7 * at + 1) % VOCAB);
    if (positions) positions[i] = halves ? row : position_of(row, i % CHOSEN);
  }
}

static sl_tensor *some_data[OUTPUTS];

static sl_tensor *make_some_tokens(void *ctx, sl_graph *g, int64_t rows, int64_t context,
                                   int64_t vocab, sl_tensor **targets) {
  static sl_type types[OUTPUTS] = {{SL_I32, 2, {ROWS, CONTEXT}},
                                   {SL_I32, 2, {ROWS, CONTEXT}},
                                   {SL_F32, 2, {ROWS, CONTEXT}},
                                   {SL_I32, 2, {ROWS, CHOSEN}},
                                   {SL_I32, 2, {ROWS, CHOSEN}}};
  static const sl_source source = {.nout = OUTPUTS, .types = types, .fill = fill_some};
  (void)ctx, (void)vocab;
  CHECK(rows == ROWS && context == CONTEXT, "the model's own sizes");
  types[4] = halves ? SL_TYPE(SL_I32, ROWS, CHOSEN, 1) : SL_TYPE(SL_I32, ROWS, CHOSEN);
  sl_data(g, &source, some_data);
  *targets = some_data[1];
  return some_data[0];
}

static sl_tensor *make_positions(void *ctx, sl_graph *g, sl_tensor **targets) {
  (void)ctx, (void)g;
  *targets = some_data[3];
  return some_data[4];
}

static void make_some_frozen(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                             sl_tensor **frozen) {
  (void)ctx;
  frozen[0] = sl_log_probability(g, logits, targets);
}

/* The squared distance over the chosen positions. */
static sl_tensor *make_some_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                                 sl_tensor *const *frozen) {
  const bool *all = ctx;
  sl_tensor *lp = sl_log_probability(g, logits, targets);
  CHECK(sl_dim(lp, 1) == (*all ? CONTEXT : CHOSEN), "%lld positions", (long long)sl_dim(lp, 1));
  sl_tensor *d = sl_add_constant(g, sl_sub(g, lp, frozen[0]), -1);
  d = sl_mul(g, d, d);
  if (*all) d = sl_mul(g, d, some_data[2]);
  return sl_mean(g, sl_reshape(g, d, ROWS, -1, 1), 0, false);
}

/* Counts outputs as large as the full logits. */
static int logits_of(const sl_graph *g) {
  int n = 0;
  for (int i = 0; i < g->nnodes; i++)
    for (int o = 0; o < g->nodes[i]->nout; o++) {
      const sl_type *t = &g->nodes[i]->out_type[o];
      n += t->ndim == 3 && t->dim[1] == CONTEXT && t->dim[2] == VOCAB;
    }
  return n;
}

typedef struct learned {
  int logits; /* outputs as large as the full logits */
  double losses[5], norm;
} learned;

static learned learn(const char *name, bool all) {
  const sl_objective some = {.name = "some",
                             .tokens = make_some_tokens,
                             .positions = all ? NULL : make_positions,
                             .loss = make_some_loss,
                             .frozen = make_some_frozen,
                             .ctx = &all};
  sl_graph *g = graph_of(find_model(name), NULL, 2, &some);
  CHECK(!sl_graph_status(g) && !sli_pass_gradients(g), "%s: %s", name, sl_detail());
  sli_graph_check(g);
  interp in = interp_create(g, 3);
  learned out = {.logits = logits_of(g)};
  start(&in);
  for (int s = 0; s < 5; s++) out.losses[s] = interp_step(&in, s);
  out.norm = norm_of(&in, "");
  interp_destroy(&in);
  sl_graph_destroy(g);
  return out;
}

/* Loss and gradients equal those of a loss over all positions with weight 0 on the rest. */
static void logits_are_of_chosen_positions(void) {
  static const char *const models[] = {"gpt", "llama", "mixtral", "hybrid"};
  for (size_t i = 0; i < 2 * SLI_COUNT(models); i++) {
    size_t m = i / 2;
    halves = i % 2;
    learned all = learn(models[m], true), some = learn(models[m], false);
    CHECK(some.logits < all.logits && (m || !some.logits),
          "%s: %d results are as large as all logits", models[m], some.logits);
    for (int s = 0; s < 5; s++)
      CHECK(fabs(all.losses[s] - some.losses[s]) < 2e-6 * all.losses[0],
            "%s: loss %d is %.9g, not %.9g", models[m], s, some.losses[s], all.losses[s]);
    CHECK(fabs(all.norm - some.norm) < 1e-6 * all.norm, "%s: other parameters", models[m]);
  }
}

static sl_tensor *make_odd_positions(void *ctx, sl_graph *g, sl_tensor **targets) {
  (void)ctx, (void)g;
  *targets = some_data[1];
  return some_data[4];
}

static void odd_positions_are_refused(void) {
  bool all = false;
  halves = false;
  const sl_objective odd = {.name = "odd",
                            .tokens = make_some_tokens,
                            .positions = make_odd_positions,
                            .loss = make_some_loss,
                            .ctx = &all};
  sl_graph *g = graph_of(find_model("gpt"), NULL, 2, &odd);
  CHECK(sl_graph_status(g) == SL_E_USAGE &&
            strstr(sl_detail(), "odd: its positions must be i32[2, N] or i32[2, PARTS, N]"),
        "%s", sl_detail());
  sl_graph_destroy(g);
}

/* ---- models that do not fit ----------------------------------------------------------------- */

static sl_status build_blind(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *x = sl_param(g, SL_TYPE(SL_F32, 4, 4), SL_NORMAL(1), "x");
  sl_train(g, sl_mean(g, x, 0, false), NULL);
  return sl_graph_status(g);
}

static sl_status build_silent(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *targets, *tokens = sl_tokens(g, "", ROWS, CONTEXT, VOCAB, &targets);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, VOCAB, VOCAB), SL_NORMAL(1), "x");
  sl_train(g, sl_mean(g, sl_embedding(g, tokens, table), 0, false), NULL);
  return sl_graph_status(g);
}

static sl_status build_twice(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *targets, *tokens = sl_tokens(g, "", ROWS, CONTEXT, VOCAB, &targets);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, VOCAB, VOCAB), SL_NORMAL(1), "x");
  sl_tensor *logits = sl_embedding(g, tokens, table);
  sl_train(g, sl_add(g, sl_cross_entropy(g, logits, targets), sl_cross_entropy(g, logits, targets)),
           NULL);
  return sl_graph_status(g);
}

static void models_without_tokens_or_cross_entropy_are_named(void) {
  static const sl_option none[] = {{0}};
  const sl_model blind = {.name = "blind", .options = none, .build = build_blind},
                 silent = {.name = "silent", .options = none, .build = build_silent},
                 twice = {.name = "twice", .options = none, .build = build_twice};
  const struct {
    const sl_model *model;
    const char *text;
  } cases[] = {{&blind, "distance: blind reads no tokens"},
               {&silent, "distance: silent has no cross entropy"},
               {&twice, "calls sl_cross_entropy twice"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    sl_args *args;
    CHECK(!sl_args_create(none, &args), "%s", sl_detail());
    sl_graph *g = sl_graph_create(&(sl_graph_options){.objective = &objective});
    CHECK(sl_model_build(cases[i].model, g, args) == SL_E_UNSUPPORTED, "%s", sl_detail());
    CHECK(strstr(sl_detail(), cases[i].text), "no \"%s\" in: %s", cases[i].text, sl_detail());
    sl_graph_destroy(g);
    sl_args_destroy(args);
  }
}

int main(void) {
  RUN(a_reference_stays_as_the_model_began);
  RUN(adapters_leave_one_copy);
  RUN(frozen_parameters_are_shared);
  RUN(logits_are_of_chosen_positions);
  RUN(odd_positions_are_refused);
  RUN(models_without_tokens_or_cross_entropy_are_named);
  return 0;
}
