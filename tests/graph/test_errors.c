/* SPDX-License-Identifier: Apache-2.0 */
/* A model with a mistake gets one error, which says what is wrong and where.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "graph/passes/passes.h"
#include "tests/support/test.h"

#define EXPECT(g, code, ...) expect(__LINE__, g, code, (const char *[]){__VA_ARGS__, NULL})

/* Checks that the graph failed with this status and that its error text contains all these
 * parts. */
static void expect(int line, sl_graph *g, sl_status status, const char **parts) {
  CHECK(sl_graph_status(g) == status, "line %d: status %d, wanted %d: %s", line, sl_graph_status(g),
        status, sl_detail());
  for (; *parts; parts++)
    CHECK(strstr(sl_detail(), *parts), "line %d: no \"%s\" in: %s", line, *parts, sl_detail());
  sl_graph_destroy(g);
}

static sl_graph *create(int microbatches) {
  return sl_graph_create(&(sl_graph_options){.microbatches = microbatches});
}

static sl_tensor *param(sl_graph *g, const char *name, int64_t rows, int64_t columns) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(1), "%s", name);
}

static void nothing(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick, (void)out;
}
static const sl_type data_types[] = {{SL_F32, 3, {8, 256, 384}}, {SL_F32, 2, {8, 256}}};
static const sl_source data = {.nout = 2, .types = data_types, .fill = nothing};

static sl_tensor *input(sl_graph *g) {
  sl_tensor *outs[2];
  sl_data(g, &data, outs);
  return outs[0];
}

static void a_misfit_names_op_shapes_and_line(void) {
  sl_graph *g = create(1);
  sl_block(g, "h.3");
  sl_tensor *x = sl_gelu(g, input(g)), *good = param(g, "good", 384, 384);
  sl_tensor *y = sl_gelu(g, sl_linear(g, x, good, NULL));
  int line = __LINE__ + 1;
  sl_tensor *z = sl_linear(g, y, param(g, "h.3.weight", 256, 64), NULL);
  CHECK(!z, "a failed op gives NULL");
  char where[64];
  snprintf(where, sizeof where, "test_errors.c:%d: op h.3/linear.2 (linear): ", line);
  EXPECT(g, SL_E_SHAPE, where, "got f32[256, 64]", "inputs h.3/gelu.2 f32[8, 256, 384], ",
         "h.3.weight f32[256, 64]");
}

static void a_dim_that_is_not_there_is_named(void) {
  static const int wrong[] = {3, -4, 1000};
  for (int i = 0; i < 3; i++) {
    char text[64];
    snprintf(text, sizeof text, " f32[8, 256, 384] has no dim %d", wrong[i]);
    sl_graph *g = create(1);
    sl_softmax(g, input(g), wrong[i]);
    EXPECT(g, SL_E_SHAPE, "test_errors.c:", "sl_softmax: ", text);
    g = create(1);
    sl_tensor *x = input(g);
    sl_gather(g, x, wrong[i], sl_arange(g, x, -1));
    EXPECT(g, SL_E_SHAPE, "sl_gather: ", text);
    g = create(1);
    x = input(g);
    sl_concat(g, wrong[i], 2, ((sl_tensor *[]){x, x}));
    EXPECT(g, SL_E_SHAPE, "sl_concat: ", text);
  }
}

static void the_first_error_stays(void) {
  sl_graph *g = create(1);
  sl_tensor *bad = sl_add(g, input(g), param(g, "p", 2, 2));
  CHECK(!sl_gelu(g, bad) && !sl_linear(g, bad, bad, bad), "calls after an error do nothing");
  CHECK(!param(g, "q", 1, 1), "no parameter after an error");
  sl_block(g, "later");
  sl_train(g, sl_mse(g, bad, bad), NULL);
  sl_output(g, "y", bad);
  sl_graph_fail(g, SL_E_USAGE, "too late");
  CHECK(sli_pass_gradients(g) == SL_E_SHAPE, "a pass hands the error on");
  CHECK(!sl_dim(bad, 0) && !*sl_tensor_name(bad), "questions about NULL have answers");
  EXPECT(g, SL_E_SHAPE, "op main/add_broadcast.1 (add_broadcast)", "f32[2, 2]");
}

static void null_without_an_error_is_one(void) {
  sl_graph *g = create(1);
  sl_add(g, input(g), NULL);
  EXPECT(g, SL_E_USAGE, "test_errors.c:", "add", "input 1 is NULL");
  g = create(1);
  sl_train(g, NULL, NULL);
  EXPECT(g, SL_E_USAGE, "loss is NULL");
  g = create(1);
  sl_output(g, "logits", NULL);
  EXPECT(g, SL_E_USAGE, "output logits is NULL");
  g = create(1);
  sl_metric(g, "accuracy", NULL);
  EXPECT(g, SL_E_USAGE, "metric accuracy is NULL");
  g = create(1);
  sl_metric(g, "loss", input(g));
  EXPECT(g, SL_E_USAGE, "metric loss needs a name other than loss");
  g = create(1);
  sl_metric(g, "size", input(g));
  sl_metric(g, "size", input(g));
  EXPECT(g, SL_E_USAGE, "metric size already exists");
  g = create(1);
  sl_metric(g, "best", sl_argmax(g, input(g), -1));
  EXPECT(g, SL_E_USAGE, "metric best must be f32", "got i32[8, 256]");
}

static void arguments_are_counted(void) {
  sl_graph *g = create(1);
  sl_tensor *x = input(g), *out[3];
  sl_apply(g, &sl_op_linear, NULL, 1, &x, 0, out);
  EXPECT(g, SL_E_USAGE, "op main/linear.1 (linear): takes 2 to 4 inputs, got 1");
  g = create(1);
  sl_apply(g, &sl_op_adamw, NULL, 0, NULL, 0, out);
  EXPECT(g, SL_E_USAGE, "adamw", "in place");
  g = create(1);
  x = input(g);
  sl_graph *other = create(1);
  sl_gelu(other, x);
  EXPECT(other, SL_E_USAGE, "tensor of a different graph");
  sl_graph_destroy(g);
}

static void parameters_are_checked(void) {
  sl_graph *g = create(1);
  param(g, "w", 2, 0);
  EXPECT(g, SL_E_SHAPE, "parameter w: f32[2, 0]");
  g = create(1);
  sl_param(g, SL_TYPE(SL_I32, 2), SL_NORMAL(1), "ids");
  EXPECT(g, SL_E_SHAPE, "parameter ids must be f32, got i32[2]");
  g = create(1);
  param(g, "w", 2, 2);
  param(g, "w", 3, 3);
  EXPECT(g, SL_E_USAGE, "parameter w already exists, from ", "test_errors.c:");
}

static void sources_are_checked(void) {
  static const sl_type many[] = {{SL_F32, 9, {0}}}, empty[] = {{SL_F32, 2, {3, 0}}};
  sl_tensor *out;
  sl_graph *g = create(1);
  sl_data(g, (&(sl_source){.nout = 1, .types = many, .fill = nothing}), &out);
  EXPECT(g, SL_E_SHAPE, "op source.1 (source): output 0 would be f32 with 9 dims");
  g = create(1);
  sl_data(g, (&(sl_source){.nout = 1, .types = empty, .fill = nothing}), &out);
  EXPECT(g, SL_E_SHAPE, "output 0 would be f32[3, 0]");
}

static void steps_are_cut_evenly(void) {
  sl_graph *g = create(3);
  CHECK(sl_microbatch_rows(g, 9) == 3, "9 rows in 3 microbatches");
  CHECK(sl_microbatch_rows(g, 8) == 1, "a number to go on with");
  EXPECT(g, SL_E_USAGE, "8 rows", "3 equal microbatches");
  g = create(-1);
  EXPECT(g, SL_E_USAGE, "-1 microbatches");
}

/* ---- requirements of training ------------------------------------------------------ */

static sl_tensor *project(sl_graph *g, sl_tensor *x, const char *name) {
  return sl_linear(g, x, param(g, name, 384, 384), NULL);
}

static void training_needs_a_goal(void) {
  sl_graph *g = create(1);
  project(g, input(g), "w");
  CHECK(sli_pass_gradients(g) == SL_E_USAGE, "no sl_train");
  EXPECT(g, SL_E_USAGE, "never calls sl_train");
  g = create(1);
  sl_tensor *x = input(g);
  sl_train(g, sl_mse(g, x, x), NULL);
  CHECK(sli_pass_gradients(g) == SL_E_USAGE, "nothing depends on a parameter");
  EXPECT(g, SL_E_USAGE, "main/mse.1 does not depend on any parameter");
  g = create(1);
  x = input(g);
  sl_train(g, project(g, x, "w"), NULL);
  EXPECT(g, SL_E_SHAPE, "scalar", "f32[8, 256, 384]");
  g = create(1);
  x = input(g);
  sl_tensor *loss = sl_mse(g, project(g, x, "w"), x);
  sl_train(g, loss, NULL);
  sl_train(g, loss, NULL);
  EXPECT(g, SL_E_USAGE, "twice", "main/mse.1");
  g = create(1);
  x = input(g);
  sl_train(g, sl_mse(g, project(g, x, "w"), x), &(sl_optimizer){.lr = -1});
  EXPECT(g, SL_E_USAGE, "optimizer: lr must be finite and not negative");
}

static void idle_parameters_are_told(void) {
  sl_graph *g = create(1);
  sl_tensor *x = input(g);
  param(g, "spare", 4, 4);
  sl_train(g, sl_mse(g, project(g, x, "w"), x), NULL);
  sli_pass_gradients(g);
  EXPECT(g, SL_E_USAGE, "test_errors.c:", "parameter spare is never used");
  g = create(1);
  x = input(g);
  project(g, x, "aside");
  sl_train(g, sl_mse(g, project(g, x, "w"), x), NULL);
  sli_pass_gradients(g);
  EXPECT(g, SL_E_USAGE, "parameter aside is used, but the loss does not depend on it");
}

/* An op without gradient rules, between a parameter and the loss. */
static sl_status same(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static const sl_op opaque = {.name = "opaque", .min_in = 1, .max_in = 1, .nout = 1, .infer = same};

static void lost_gradients_are_told(void) {
  sl_graph *g = create(1);
  sl_tensor *x = input(g), *y = project(g, x, "w"), *z;
  sl_apply(g, &opaque, NULL, 1, &y, 0, &z);
  sl_train(g, sl_mse(g, z, x), NULL);
  sli_pass_gradients(g);
  EXPECT(g, SL_E_UNSUPPORTED, "op main/opaque.1 (opaque)", "no gradient rule for its output 0");
  g = create(1);
  x = input(g);
  y = project(g, x, "w");
  sl_train(g, sl_mse(g, x, y), NULL);
  sli_pass_gradients(g);
  EXPECT(g, SL_E_UNSUPPORTED, "main/mse.1", "input 1");
  g = create(1);
  x = input(g);
  sl_tensor *norm[2],
      *ins[] = {project(g, x, "w"), sl_param(g, SL_TYPE(SL_F32, 384), SL_CONSTANT(1), "gain")};
  sl_apply(g, &sl_op_rmsnorm, NULL, 2, ins, 0, norm);
  sl_tensor *given[2];
  sl_data(g, &data, given);
  sl_train(g, sl_mse(g, norm[1], given[1]), NULL);
  sli_pass_gradients(g);
  EXPECT(g, SL_E_UNSUPPORTED, "main/rmsnorm.1", "output 1");
}

/* ---- inference ------------------------------------------------------------------------ */

static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)ctx, (void)tick;
  for (int64_t i = 0; i < count; i++) tokens[i] = 0;
}

static void inference_needs_outputs_and_tokens(void) {
  sl_tensor *targets;
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true});
  sl_tokens(g, NULL, 1, 4, 8, &targets);
  EXPECT(g, SL_E_USAGE, "feed_tokens");
  g = sl_graph_create(&(sl_graph_options){.infer = true, .feed_tokens = feed});
  sl_embedding(g, sl_tokens(g, NULL, 1, 4, 8, &targets), param(g, "e", 8, 2));
  CHECK(sli_pass_outputs(g) == SL_E_USAGE, "no output");
  EXPECT(g, SL_E_USAGE, "never calls sl_output");
  g = sl_graph_create(&(sl_graph_options){.infer = true, .feed_tokens = feed});
  sl_output(g, "tokens", sl_tokens(g, NULL, 1, 4, 8, &targets));
  CHECK(sli_pass_outputs(g) == SL_E_USAGE, "an output that is an input");
  EXPECT(g, SL_E_USAGE, "output tokens is source.1 itself");
}

static void inference_keeps_what_outputs_need(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true, .feed_tokens = feed});
  int64_t rows = sl_microbatch_rows(g, 32);
  sl_tensor *targets, *tokens = sl_tokens(g, "not opened", rows, 4, 8, &targets);
  sl_block(g, "embedding");
  sl_tensor *table = param(g, "e", 8, 2), *x = sl_embedding(g, tokens, table);
  sl_block(g, "aside");
  sl_gelu(g, x);
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, table, NULL);
  sl_output(g, "logits", logits);
  sl_train(g, sl_cross_entropy(g, logits, targets), NULL);
  CHECK(!sli_pass_outputs(g), "%s", sl_detail());
  sli_graph_check(g);
  CHECK(g->nnodes == 3, "%d nodes are left of source, embedding, linear", g->nnodes);
  CHECK(g->nblocks == 2 && !strcmp(g->blocks[1].name, "head"), "the empty block is gone");
  CHECK(g->nodes[0]->block == 0 && !g->nodes[0]->out[1], "no targets are made");
  CHECK(sl_dim(tokens, 0) == 1, "a microbatch is one row");
  CHECK(logits->producer->block == 1 && table->home == 0, "blocks are numbered anew");
  sl_graph_destroy(g);
}

/* ---- blocks ---------------------------------------------------------------------------- */

static void stages_do_not_go_back(void) {
  sl_graph *g = create(1);
  sl_block(g, "a");
  sl_block_stage(g, 2);
  sl_block(g, "b");
  sl_block_stage(g, 1);
  EXPECT(g, SL_E_USAGE, "block b: invalid stage 1", "later stage");
}

int main(void) {
  RUN(a_misfit_names_op_shapes_and_line);
  RUN(a_dim_that_is_not_there_is_named);
  RUN(the_first_error_stays);
  RUN(null_without_an_error_is_one);
  RUN(arguments_are_counted);
  RUN(parameters_are_checked);
  RUN(sources_are_checked);
  RUN(steps_are_cut_evenly);
  RUN(training_needs_a_goal);
  RUN(idle_parameters_are_told);
  RUN(lost_gradients_are_told);
  RUN(inference_needs_outputs_and_tokens);
  RUN(inference_keeps_what_outputs_need);
  RUN(stages_do_not_go_back);
  return 0;
}
