/* SPDX-License-Identifier: Apache-2.0 */
/* Tests frozen parameters, groups and optimizers in the graph. A frozen parameter has no gradient,
 * norm or state, and backward nodes that only it needs are removed. Groups have separate settings,
 * a user-defined optimizer row declares its state, and mistakes are named.
 * labels: unthreaded smoke */
#include <string.h>

#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "tests/support/test.h"

enum { WIDTH = 8, LAYERS = 3 };

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick, (void)out;
}
static const sl_type data_type = {SL_F32, 2, {4, WIDTH}};
static const sl_source source = {.nout = 1, .types = &data_type, .fill = fill};

/* x -> net.0 -> net.1 -> net.2, each with weight, bias and gain. */
static sl_graph *make(const sl_training *training, const sl_optimizer *optimizer) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.training = training});
  sl_tensor *x, *first;
  sl_data(g, &source, &x);
  first = x;
  for (int i = 0; i < LAYERS; i++) {
    sl_block(g, "net.%d", i);
    sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(1), "net.%d.fc.weight", i);
    sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, WIDTH), SL_CONSTANT(0), "net.%d.fc.bias", i);
    sl_tensor *n = sl_param(g, SL_TYPE(SL_F32, WIDTH), SL_CONSTANT(1), "net.%d.ln_1.weight", i);
    x = sl_tanh(g, sl_linear(g, sl_rmsnorm(g, x, n, 0), w, b));
  }
  sl_train(g, sl_mse(g, x, first), optimizer);
  return g;
}

static const sli_node *find(const sl_graph *g, const char *name) {
  for (int i = 0; i < g->nnodes; i++)
    if (!strcmp(g->nodes[i]->name, name)) return g->nodes[i];
  return NULL;
}

static int count(const sl_graph *g, const char *part) {
  int n = 0;
  for (int i = 0; i < g->nnodes; i++) n += strstr(g->nodes[i]->name, part) != NULL;
  return n;
}

static sl_graph *derive(sl_graph *g) {
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  return g;
}

static void refuse(sl_graph *g, const char *text) {
  sl_status status = sli_pass_gradients(g);
  CHECK(status == SL_E_USAGE && strstr(sl_detail(), text), "\"%s\" has no \"%s\"", sl_detail(),
        text);
  sl_graph_destroy(g);
}

/* ---- frozen ---------------------------------------------------------------------------- */

static void what_is_frozen_has_no_way_back(void) {
  static const char *const frozen[] = {"net.0", "net.1.fc.weight"};
  sl_graph *g = derive(make(&(sl_training){.nfrozen = 2, .frozen = frozen}, NULL));
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *p = g->params[i];
    bool is = strstr(p->name, "net.0.") || !strcmp(p->name, "net.1.fc.weight");
    CHECK(is == !p->update && is == !p->ngrads && is == !p->needs_grad, "%s", p->name);
    char name[64];
    snprintf(name, sizeof name, "%s:adamw", p->name);
    CHECK(!find(g, name) == is, "%s", name);
  }
  CHECK(count(g, ":norm") == 5 && count(g, ":keep") == 4, "five are trained, four are kept");
  for (int i = 0; i < g->nnodes; i++)
    CHECK(g->nodes[i]->block || g->nodes[i]->cls == SL_CLASS_F || g->nodes[i]->cls == SL_CLASS_L ||
              g->nodes[i]->op == &sl_op_keep,
          "%s is left of the first block", g->nodes[i]->name);
  CHECK(!find(g, "net.1/linear.1:linear_w") && find(g, "net.1/linear.1:linear_b"),
        "the way back goes through it");
  CHECK(!find(g, "net.1/rmsnorm.1:rmsnorm_b"), "and ends where the last trained one is");
  sl_graph_destroy(g);
}

static void the_model_may_freeze_itself(void) {
  sl_graph *g = make(NULL, NULL);
  sl_freeze(g, "net.[01]");
  derive(g);
  CHECK(count(g, ":adamw") == 3 && count(g, ":keep") == 6, "one of three layers");
  sl_graph_destroy(g);
}

/* ---- groups ------------------------------------------------------------------------------ */

static const sl_optimizer *settings_of(const sl_graph *g, const char *name) {
  return find(g, name)->attrs.user;
}

static void groups_have_their_own_settings(void) {
  static const char *const groups[] = {"net.*.ln*:lr=0.5,decay=0.25", "net.2:lr-scale=0.1"};
  sl_graph *g = make(&(sl_training){.ngroups = 2, .groups = groups}, &(sl_optimizer){.lr = 0.25f});
  sl_group(g, "bias", &(sl_group_settings){.lr = SL_OFF});
  derive(g);
  const sl_optimizer *o = settings_of(g, "net.0.fc.weight:adamw");
  CHECK(o == &g->training.optimizer, "the graph's, where nobody says anything");
  o = settings_of(g, "net.1.ln_1.weight:adamw");
  CHECK(o->lr_scale == 2 && sl_optimizer_decay(o, 1) == 0.25f, "a group");
  o = settings_of(g, "net.2.ln_1.weight:adamw");
  CHECK(o->lr_scale == 0.1f && sl_optimizer_decay(o, 1) == 0.25f, "the last to say something");
  CHECK(sl_optimizer_lr(o, 0) == 0.25f * 0.1f, "its rate");
  o = settings_of(g, "net.1.fc.bias:adamw");
  CHECK(sl_optimizer_lr(o, 0) == 0, "SL_OFF");
  sl_graph_destroy(g);
}

/* ---- optimizer rows ------------------------------------------------------------------------ */

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = out[1] = in[1];
  return SL_OK;
}
static void nothing(const sl_call *call) { (void)call; }
static const sl_update own_update = {.states = {{"average", 2}}, .nstates = 1};
static const sl_op own = {.name = "own",
                          .min_in = 2,
                          .max_in = -1,
                          .nout = 2,
                          .infer = infer,
                          .kernels = SL_CPU_KERNEL(nothing),
                          .memory = &(const sl_op_memory){.updates = 3},
                          .update = &own_update};
static const sl_op no_states = {.name = "none",
                                .min_in = 2,
                                .max_in = -1,
                                .nout = 2,
                                .infer = infer,
                                .kernels = SL_CPU_KERNEL(nothing),
                                .memory = &(const sl_op_memory){.updates = 1},
                                .update = &own_update};

static void the_row_says_what_is_kept(void) {
  sl_graph *g = derive(make(NULL, &(sl_optimizer){.rule = &own}));
  const sli_node *n = find(g, "net.0.fc.bias:own");
  CHECK(n && n->op == &own && !strcmp(n->out[1]->name, "net.0.fc.bias:average") &&
            n->out[1]->init.scale == 2,
        "a row of the user's");
  sl_graph_destroy(g);
  g = derive(make(NULL, &(sl_optimizer){.rule = &sl_op_sgd}));
  CHECK(!find(g, "net.0.fc.bias:sgd")->out[1], "nothing is kept without momentum");
  sl_graph_destroy(g);
  g = derive(make(&(sl_training){.optimizer = "sgd:momentum=0.5,nesterov"}, NULL));
  CHECK(find(g, "net.0.fc.bias:sgd")->out[1], "but with it");
  CHECK(g->training.optimizer.momentum == 0.5f && g->training.optimizer.nesterov, "as said");
  sl_graph_destroy(g);
  g = derive(make(&(sl_training){.optimizer = "own:lr=0"}, &(sl_optimizer){.rule = &own}));
  CHECK(g->training.optimizer.rule == &own && !g->training.optimizer.lr, "by the model's name");
  sl_graph_destroy(g);
}

static void schedules_are_said_by_name(void) {
  sl_graph *g = derive(make(&(sl_training){.schedule = "linear", .steps = 70}, NULL));
  CHECK(g->training.optimizer.decay_steps == 70,
        "a rate decays by the run's steps if nothing else is said");
  sl_graph_destroy(g);
  g = derive(make(&(sl_training){.schedule = "wsd:warmup=3,decay-steps=50", .steps = 70}, NULL));
  const sl_optimizer *o = &g->training.optimizer;
  CHECK(o->schedule == SL_RATE_WSD && o->warmup == 3 && o->decay_begin == 45, "wsd");
  sl_graph_destroy(g);
}

/* ---- adapters ------------------------------------------------------------------------------ */

static void adapters_stand_beside_frozen_maps(void) {
  sl_graph *g = derive(
      make(&(sl_training){.nlora = 1, .lora = (const char *[]){"net.[12].fc=2,alpha=3"}}, NULL));
  CHECK(g->nparams == 3 * LAYERS + 4 && count(g, ":adamw") == 4, "two adapters are trained");
  const sl_tensor *a = NULL, *b = NULL;
  for (int i = 0; i < g->nparams; i++) {
    if (!strcmp(g->params[i]->name, "net.2.fc.lora_A.weight")) a = g->params[i];
    if (!strcmp(g->params[i]->name, "net.2.fc.lora_B.weight")) b = g->params[i];
  }
  CHECK(a && b && a->type.dim[0] == 2 && b->type.dim[1] == 2 && b->init.scale == 0, "A and B");
  CHECK(a->adapter->alpha == 3 && !a->adapter->transposed && b->adapter->rank == 2,
        "their numbers");
  CHECK(find(g, "net.2/scale.1")->attrs.function.c == 1.5f, "alpha / rank");
  CHECK(!find(g, "net.0/linear.1:linear_b"), "nothing is trained before the first adapter");
  sl_graph_destroy(g);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void mistakes_are_named(void) {
  const struct {
    sl_training training;
    const char *text;
  } cases[] = {
      {{.optimizer = "lamb"},
       "unknown optimizer lamb: must be one of adamw, adam, sgd, lion, muon"},
      {{.optimizer = "linear"}, "optimizer linear: must be one of adamw"},
      {{.optimizer = "sgd:momentun=1"}, "'momentun=1' must be NAME=NUMBER with one of lr"},
      {{.optimizer = "sgd:momentum"}, "'momentum' must be NAME=NUMBER"},
      {{.optimizer = "sgd:momentum=1"}, "momentum must be in [0, 1)"},
      {{.optimizer = "sgd:nesterov"}, "nesterov needs momentum"},
      {{.optimizer = "sgd:nesterov=2"}, "'nesterov=2'"},
      {{.schedule = "step"}, "schedule step: must be constant, linear, cosine or wsd"},
      {{.schedule = "linear"}, "needs decay_steps"},
      {{.schedule = "wsd:decay-steps=5,decay-begin=7"}, "decay_begin must be from 0 to"},
      {{.schedule = "cosine:decay-steps=1.5"}, "'decay-steps=1.5'"},
      {{.nfrozen = 1, .frozen = (const char *[]){"net.9"}}, "freeze net.9: matches no parameter"},
      {{.nfrozen = 1, .frozen = (const char *[]){"net"}}, "every parameter is frozen"},
      {{.nlora = 1, .lora = (const char *[]){"net.7=2"}}, "lora net.7: matches no weight"},
      {{.nlora = 1, .lora = (const char *[]){"net=0"}}, "lora net=0: must be PATTERN=RANK"},
      {{.ngroups = 1, .groups = (const char *[]){"ln_2:lr=1"}}, "group ln_2: matches no parameter"},
      {{.ngroups = 1, .groups = (const char *[]){"ln_1"}}, "group ln_1: must be PATTERN:"},
      {{.ngroups = 1, .groups = (const char *[]){"ln_1:rate=2"}}, "'rate=2' must be NAME=NUMBER"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    refuse(make(&cases[i].training, NULL), cases[i].text);
  refuse(make(NULL, &(sl_optimizer){.rule = &sl_op_gelu}), "op gelu is not an optimizer");
  refuse(make(NULL, &(sl_optimizer){.rule = &no_states}), "op none must update all of its outputs");
  sl_graph *g = make(NULL, &(sl_optimizer){.lr = SL_OFF});
  sl_group(g, "ln_1", &(sl_group_settings){.lr = 1});
  refuse(g, "the schedule scales the optimizer's own, which is 0");
}

static void patterns_are_runs_of_components(void) {
  static const struct {
    const char *pattern, *name;
    bool found;
  } cases[] = {{"h.*.attn", "transformer.h.3.attn.c_attn.weight", true},
               {"h.1", "transformer.h.10.ln_1.bias", false},
               {"h.1*", "transformer.h.10.ln_1.bias", true},
               {"bias", "h.0.bias", true},
               {"bia", "h.0.bias", false},
               {"h.*.weight", "h.0.attn.weight", false},
               {"wte.weight", "wte.weight", true},
               {"wte.weight.x", "wte.weight", false},
               {"ln_[12]", "h.0.ln_2.weight", true}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    CHECK(sli_pattern_finds(cases[i].pattern, cases[i].name) == cases[i].found, "%s in %s",
          cases[i].pattern, cases[i].name);
}

int main(void) {
  RUN(what_is_frozen_has_no_way_back);
  RUN(the_model_may_freeze_itself);
  RUN(groups_have_their_own_settings);
  RUN(the_row_says_what_is_kept);
  RUN(schedules_are_said_by_name);
  RUN(adapters_stand_beside_frozen_maps);
  RUN(mistakes_are_named);
  RUN(patterns_are_runs_of_components);
  return 0;
}
