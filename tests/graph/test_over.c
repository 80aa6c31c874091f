/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs alias inputs, gradients alias activations when a step is one tick, and the forward pass
 * computes a loss's gradient. Each happens exactly where no reader remains, and nowhere else.
 * Actors compute the same bits as the plainest execution, which gives every tensor its own memory.
 * Models are random ones whose ops may all run in place, and ones in which they must not.
 * labels: random unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/rng.h"
#include "tests/support/graph_interp.h"
#include "tests/support/seeds.h"

enum { MICROBATCHES = 2, STEPS = 3, ROWS = 2, POSITIONS = 6, WIDTH = 8, VOCAB = 11, DRAWS = 60 };

/* ---- data ------------------------------------------------------------------------ */

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  int64_t rows = tick->rows ? tick->rows : POSITIONS;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; out[o] && i < ROWS * rows * (o ? 1 : WIDTH); i++) {
      uint32_t words[4] = {(uint32_t)i, (uint32_t)tick->number, (uint32_t)o};
      sli_philox(words, 7);
      if (o) ((int32_t *)out[o])[i] = (int32_t)(words[0] % VOCAB);
      else ((float *)out[o])[i] = (float)(int32_t)words[0] * 0x1p-31f;
    }
}

static const sl_type types[] = {{SL_F32, 3, {ROWS, POSITIONS, WIDTH}},
                                {SL_I32, 2, {ROWS, POSITIONS}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill, .cut = 2};

static sl_tensor *weight(sl_graph *g, int64_t rows, int64_t columns) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(0.4f), "w%d", g->nparams);
}

static sl_tensor *vector(sl_graph *g, float mean) {
  return sl_param(g, SL_TYPE(SL_F32, WIDTH), SL_CONSTANT(mean), "v%d", g->nparams);
}

/* ---- models ------------------------------------------------------------------------ */

typedef void making(sl_graph *g, rng *d, sl_tensor *const *data);

/* A sum whose gradient goes first to an op that could write over it, then to a second reader. */
static sl_tensor *forked(sl_graph *g, sl_tensor *x) {
  sl_tensor *a = sl_linear(g, x, weight(g, WIDTH, WIDTH), NULL), *b = sl_gelu(g, x);
  return sl_add(g, b, a);
}

/* Applies one random op to x, or to x and an older tensor. */
static sl_tensor *random_op(sl_graph *g, rng *d, sl_tensor *x, sl_tensor *y) {
  switch (rng_below(d, 13)) {
  case 0: return sl_linear(g, x, weight(g, WIDTH, WIDTH), NULL);
  case 1: return sl_gelu(g, x);
  case 2: return sl_tanh(g, x);
  case 3: return sl_relu(g, sl_linear(g, x, weight(g, WIDTH, WIDTH), vector(g, 0.1f)));
  case 4: return sl_add(g, x, y);
  case 5: return sl_mul(g, x, y);
  case 6: return sl_swiglu(g, x, y);
  case 7: return sl_layernorm(g, x, vector(g, 1), vector(g, 0), 1e-1f);
  case 8: return sl_rmsnorm(g, x, vector(g, 1), 1e-1f);
  case 9: return sl_position(g, x, weight(g, POSITIONS, WIDTH));
  case 10: return sl_rotary(g, x, 2, 100);
  case 11: return forked(g, x);
  default: return sl_add(g, x, x);
  }
}

static void random_model(sl_graph *g, rng *d, sl_tensor *const *data) {
  sl_tensor *kept[20];
  int n = 0;
  kept[n++] = sl_linear(g, data[0], weight(g, WIDTH, WIDTH), NULL);
  for (int i = 3 + (int)rng_below(d, 12); i > 0; i--) {
    if (!rng_below(d, 3)) sl_block(g, "b%d", i);
    sl_tensor *x = random_op(g, d, kept[n - 1], kept[rng_below(d, (uint32_t)n)]);
    kept[n++] = x;
  }
  sl_block(g, "head");
  sl_tensor *last = sl_tanh(g, kept[n - 1]);
  if (rng_below(d, 2))
    sl_train(g, sl_mse(g, rng_below(d, 2) ? last : sl_gelu(g, last), data[0]), NULL);
  else
    sl_train(g, sl_cross_entropy(g, sl_linear(g, last, weight(g, VOCAB, WIDTH), NULL), data[1]),
             NULL);
}

static void logits_for_the_loss_alone(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  sl_tensor *x = sl_gelu(g, sl_linear(g, data[0], weight(g, WIDTH, WIDTH), NULL));
  sl_block(g, "head");
  sl_tensor *y = sl_linear(g, x, weight(g, VOCAB, WIDTH), NULL);
  sl_train(g, sl_cross_entropy(g, y, data[1]), NULL);
}

/* The gradient of tanh reads its output. */
static void logits_for_the_way_back(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  sl_tensor *x = sl_linear(g, data[0], weight(g, WIDTH, WIDTH), NULL);
  sl_block(g, "head");
  sl_tensor *y = sl_tanh(g, sl_linear(g, x, weight(g, VOCAB, WIDTH), NULL));
  sl_train(g, sl_cross_entropy(g, y, data[1]), NULL);
}

/* Parameters live longer than any activation. */
static void logits_that_are_a_parameter(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  sl_tensor *y = sl_param(g, SL_TYPE(SL_F32, ROWS, POSITIONS, VOCAB), SL_NORMAL(1), "logits");
  sl_train(g, sl_cross_entropy(g, y, data[1]), NULL);
}

/* a + 2 b of two losses; their gradients are 1 and 2 times the incoming gradient. */
static sl_status weigh_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}
static void weigh_cpu(const sl_call *call) {
  const double *a = call->in[0], *b = call->in[1];
  *(double *)call->out[0] = *a + 2 * *b;
}
static sl_status weigh_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = out[1] = in[0];
  return SL_OK;
}
static void weigh_b_cpu(const sl_call *call) {
  const float *d = call->in[0];
  for (int o = 0; o < 2; o++)
    if (call->out[o]) *(float *)call->out[o] = *d * (float)(1 + o);
}
static const sl_op weigh_b = {.name = "weigh_b",
                              .min_in = 1,
                              .max_in = 1,
                              .nout = 2,
                              .infer = weigh_b_infer,
                              .kernels = SL_CPU_KERNEL(weigh_b_cpu)};
static const sl_op weigh = {
    .name = "weigh",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = weigh_infer,
    .kernels = SL_CPU_KERNEL(weigh_cpu),
    .grad = {{.op = &weigh_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 2, .wrt = {0, 1}}}};
/* a + b, whose rule passes the gradient through unchanged. */
static const sl_op both = {
    .name = "both",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = weigh_infer,
    .kernels = SL_CPU_KERNEL(weigh_cpu),
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}},
             {.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {1}}}};

static void two_losses(sl_graph *g, sl_tensor *const *data, const sl_op *op, bool apart) {
  sl_tensor *x = sl_linear(g, data[0], weight(g, WIDTH, WIDTH), NULL);
  sl_tensor *losses[] = {sl_mse(g, sl_linear(g, x, weight(g, WIDTH, WIDTH), NULL), data[0]), NULL};
  if (apart) sl_block(g, "head");
  sl_tensor *y = sl_linear(g, sl_gelu(g, x), weight(g, VOCAB, WIDTH), NULL);
  losses[1] = sl_cross_entropy(g, y, data[1]);
  sl_tensor *loss;
  sl_apply(g, op, NULL, 2, losses, 0, &loss);
  sl_train(g, loss, NULL);
}

static void losses_weighed(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  two_losses(g, data, &weigh, false);
}
static void losses_together(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  two_losses(g, data, &both, false);
}
static void losses_apart(sl_graph *g, rng *d, sl_tensor *const *data) {
  (void)d;
  two_losses(g, data, &both, true);
}

typedef struct how {
  int stages, pieces;
  const char *schedule, *grain;
  int microbatches; /* 0: MICROBATCHES */
  bool unclipped;   /* no update waits for the norm */
  sl_quota quota;   /* with a name */
} how;

static sl_graph *build(making *make, uint64_t seed, const how *h) {
  rng d = {.key = seed};
  int microbatches = h->microbatches ? h->microbatches : MICROBATCHES;
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.microbatches = microbatches, .pieces = h->pieces});
  sl_tensor *data[2];
  sl_data(g, &source, data);
  make(g, &d, data);
  if (h->unclipped) g->training.optimizer.clip = 0;
  CHECK(!sl_graph_status(g), "seed %llu: %s", (unsigned long long)seed, sl_detail());
  return g;
}

/* ---- actors against the plainest execution ----------------------------------------- */

typedef struct losses {
  double loss[STEPS], norm[STEPS];
} losses;

static void take_step(void *ctx, const sl_step_report *report) {
  losses *l = ctx;
  l->loss[report->step] = report->loss;
  l->norm[report->step] = report->grad_norm;
}

static sl_lowered *lower(sl_graph *g, const how *h, losses *l) {
  sl_lowered *lowered;
  sl_lower_options options = {.parallel.stages = h->stages,
                              .schedule.name = h->schedule,
                              .schedule.grain = h->grain,
                              .memory.quotas = &h->quota,
                              .memory.nquotas = h->quota.name != NULL,
                              .devices = {.kind = "cpu"},
                              .report.on_step = take_step,
                              .report.ctx = l};
  CHECK(!sl_lower(g, &options, &lowered), "%s on %d: %s", h->schedule, h->stages, sl_detail());
  return lowered;
}

static losses train(making *make, uint64_t seed, const how *h) {
  losses l = {0};
  sl_graph *g = build(make, seed, h);
  sl_lowered *lowered = lower(g, h, &l);
  sl_runtime *rt;
  CHECK(!sl_plan_prove(sl_lowered_plan(lowered)), "%s", sl_detail());
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &(sl_runtime_options){0}, &rt), "%s",
        sl_detail());
  sl_lowered_attach(lowered, rt);
  CHECK(!sl_params_init(lowered, rt, 3), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return l;
}

static void actors_add_nothing(making *make, uint64_t seed, const how *h) {
  losses l = train(make, seed, h);
  sl_graph *g = build(make, seed, h);
  CHECK(!sli_pass_cut(g, NULL) && !sli_pass_gradients(g) && !sli_pass_pieces(g), "%s", sl_detail());
  sli_graph_check(g);
  interp in = interp_create(g, 3);
  for (int s = 0; s < STEPS; s++) {
    double loss = interp_step(&in, s), norm = *(double *)interp_data(&in, g->grad_norm);
    CHECK(
        loss == l.loss[s] && norm == l.norm[s],
        "seed %llu, %s on %d in %d pieces, %d microbatches, step %d: loss %a and norm %a, plainly %a and %a",
        (unsigned long long)seed, h->schedule, h->stages, h->pieces, h->microbatches, s, l.loss[s],
        l.norm[s], loss, norm);
  }
  interp_destroy(&in);
  sl_graph_destroy(g);
}

static int block_count(making *make, uint64_t seed) {
  sl_graph *g = build(make, seed, &(how){.pieces = 1});
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  int n = g->nblocks;
  sl_graph_destroy(g);
  return n;
}

static void by_chance(uint64_t seed) {
  const how ways[] = {{1, 1, "1f1b", .grain = "pass"},
                      {2, 1, "zb-h1", .grain = "pass"},
                      {2, 1, "1f1b", .grain = "layer"},
                      {1, 3, "seq1f1b", .grain = "pass"},
                      {2, 2, "seq1f1b", .grain = "layer"},
                      {1, 1, "1f1b", "pass", .microbatches = 1},
                      {2, 1, "zb-h1", "pass", .microbatches = 1},
                      {2, 1, "1f1b", "layer", .microbatches = 1, .unclipped = true}};
  how h = ways[seed % SLI_COUNT(ways)];
  h.stages = SLI_MIN(h.stages, block_count(random_model, seed));
  actors_add_nothing(random_model, seed, &h);
}

/* ---- where tensors are stored -------------------------------------------------------- */

/* Returns the only call of an op, and the actor that makes it. */
static const sl_program_call *find_call(const sl_plan *plan, const sl_op *op, const sl_actor **by) {
  const sl_program_call *found = NULL;
  for (int32_t a = 0; a < plan->nactors; a++)
    for (int c = 0; c < plan->actors[a].program->ncalls; c++) {
      const sl_program_call *call = &plan->actors[a].program->calls[c];
      if (call->op != op) continue;
      CHECK(!found, "%s is called once", op->name);
      found = call;
      *by = &plan->actors[a];
    }
  CHECK(found, "%s is called", op->name);
  return found;
}

/* Where the logits' gradient is stored: over the logits in a slot that its actor hands on, over the
 * logits in that actor's workspace, or elsewhere. */
typedef enum place { ELSEWHERE, OVER_IN_SLOT, OVER_IN_WORKSPACE } place;

static void check_gradient(making *make, const how *h, const sl_op *op, sl_class cls, place want) {
  losses l = {0};
  sl_graph *g = build(make, 1, h);
  sl_lowered *lowered = lower(g, h, &l);
  const sl_actor *by = NULL;
  const sl_program_call *call = find_call(sl_lowered_plan(lowered), op, &by);
  bool over = call->in[0].base == call->out[0].base && call->in[0].offset == call->out[0].offset;
  place got = !over                                   ? ELSEWHERE
              : call->in[0].base < by->nin + by->nout ? OVER_IN_SLOT
                                                      : OVER_IN_WORKSPACE;
  CHECK(by->cls == cls, "%s, %s on %d: %s is of class %c", op->name, h->schedule, h->stages,
        by->name, sl_class_letter(by->cls));
  CHECK(got == want, "%s, %s on %d: place %d, not %d", op->name, h->schedule, h->stages, got, want);
  CHECK(want == ELSEWHERE || call->in[0].base >= by->nin, "%s writes what it has not made",
        by->name);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

static void gradients_lie_where_they_may(void) {
  const sl_op *entropy = &sl_op_cross_entropy_b, *squares = &sl_op_mse_b;
  const how ways[] = {{1, 1, "1f1b", .grain = "pass"},
                      {2, 1, "1f1b", .grain = "layer"},
                      {2, 1, "zb-h1", .grain = "pass"},
                      {2, 3, "seq1f1b", .grain = "pass"},
                      {1, 1, "gpipe", .grain = "layer"}};
  for (size_t w = 0; w < SLI_COUNT(ways); w++) {
    const how *h = &ways[w];
    check_gradient(logits_for_the_loss_alone, h, entropy, SL_CLASS_F, OVER_IN_SLOT);
    check_gradient(logits_for_the_way_back, h, entropy, SL_CLASS_F, ELSEWHERE);
  }
  const how one = {1, 1, "1f1b", .grain = "pass"}, two = {2, 1, "1f1b", .grain = "pass"};
  check_gradient(logits_that_are_a_parameter, &one, entropy, SL_CLASS_B, ELSEWHERE);
  check_gradient(losses_weighed, &one, entropy, SL_CLASS_B, ELSEWHERE);
  check_gradient(losses_weighed, &one, squares, SL_CLASS_B, ELSEWHERE);
  check_gradient(losses_together, &one, entropy, SL_CLASS_F, OVER_IN_SLOT);
  check_gradient(losses_together, &one, squares, SL_CLASS_F, OVER_IN_SLOT);
  check_gradient(losses_apart, &two, entropy, SL_CLASS_F, OVER_IN_SLOT);
  check_gradient(losses_apart, &two, squares, SL_CLASS_B, ELSEWHERE);
}

/* Returns the first gradient register that aliases activations, or NULL. *turn tells whether the
 * producer of the activations waits for a turn. */
static const sl_register *find_cover(const sl_plan *plan, bool *turn) {
  const sl_register *found = NULL;
  *turn = false;
  for (int32_t r = 0; r < plan->nregs; r++) {
    *turn |= !strcmp(plan->regs[r].name, "turn:F0");
    if (!found && plan->regs[r].aliases) found = &plan->regs[r];
  }
  return found;
}

static void check_cover(const how *h, bool want) {
  losses l = {0};
  sl_graph *g = build(logits_for_the_loss_alone, 1, h);
  sl_lowered *lowered = lower(g, h, &l);
  const sl_plan *plan = sl_lowered_plan(lowered);
  bool turn;
  const sl_register *over = find_cover(plan, &turn);
  CHECK(!over == !want && turn == (want && h->unclipped),
        "%s, %d microbatches, %d pieces: %s, turn %d", h->schedule, h->microbatches, h->pieces,
        over ? over->name : "nothing lies over anything", turn);
  if (want) {
    const sl_register *under = &plan->regs[over->aliases - 1];
    CHECK(over->memory == SL_MEMORY_GRADIENTS && under->memory == SL_MEMORY_ACTIVATIONS,
          "%s over %s", over->name, under->name);
    CHECK(under->slot_stride < sl_slot_payload(over) + sl_slot_payload(under),
          "%zu bytes are less than both", under->slot_stride);
    CHECK(under->quota_most <= 1, "%s keeps its slot", under->name);
    CHECK(sl_plan_memory(plan, 0, SL_MEMORY_GRADIENTS) >= sl_slot_payload(over),
          "gradients are counted as such");
  }
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

static void gradients_lie_over_activations(void) {
  const how yes[] = {{1, 1, "1f1b", "pass", .microbatches = 1},
                     {1, 1, "1f1b", "pass", .microbatches = 1, .unclipped = true},
                     {2, 1, "1f1b", "pass", .microbatches = 1},
                     {1, 1, "gpipe", "layer", .microbatches = 1},
                     {1, 1, "1f1b", "pass", .microbatches = 1, .quota = {"act.b", SL_NONE, 1}}};
  const how no[] = {{1, 1, "1f1b", "pass", .microbatches = 2},
                    {1, 3, "seq1f1b", "pass", .microbatches = 1},
                    {1, 1, "1f1b", "pass", .microbatches = 1, .quota = {"act.b", SL_NONE, 2}},
                    {1, 1, "1f1b", "pass", .microbatches = 1, .quota = {"grad", SL_NONE, 2}},
                    {1, 1, "1f1b", "pass", .microbatches = 1, .quota = {"param", SL_NONE, 2}}};
  for (size_t i = 0; i < SLI_COUNT(yes); i++) check_cover(&yes[i], true);
  for (size_t i = 0; i < SLI_COUNT(no); i++) check_cover(&no[i], false);
}

static void results_are_the_same(void) {
  static making *const models[] = {logits_for_the_loss_alone,
                                   logits_for_the_way_back,
                                   logits_that_are_a_parameter,
                                   losses_weighed,
                                   losses_together,
                                   losses_apart};
  for (size_t m = 0; m < SLI_COUNT(models); m++)
    for (int stages = 1; stages <= block_count(models[m], 1); stages++)
      for (int split = 0; split < 4; split++)
        actors_add_nothing(
            models[m], 1,
            &(how){stages, 1, split & 1 ? "zb-h1" : "1f1b", "pass", .microbatches = split > 1});
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, DRAWS);
  RUN(gradients_lie_where_they_may);
  RUN(gradients_lie_over_activations);
  RUN(results_are_the_same);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(by_chance, seed);
  return 0;
}
