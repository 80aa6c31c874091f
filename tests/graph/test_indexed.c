/* SPDX-License-Identifier: Apache-2.0 */
/* Bad data for indexing ops is reported with op, element and value on any device that runs the op.
 * Constants belong to the graph, and each device and piece gets its part of them.
 * labels: unthreaded */
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { ROWS = 4, LENGTH = 6, WIDTH = 3, STEPS = 3 };

/* ---- a model ---------------------------------------------------------------------------- */

/* The data of a step: numbers that start at 0, and ids, one of which is out of range in the second
 * step. */
typedef struct feed {
  int below, wrong, at; /* at: the position of the bad id; below 0 if all are valid */
} feed;

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const feed *f = ctx;
  int64_t count = tick->rows ? tick->rows : LENGTH;
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t t = 0; t < count; t++) {
      int64_t i = r * LENGTH + tick->row + t, at = r * count + t;
      if (out[1]) ((int32_t *)out[1])[at] = (int32_t)(i % f->below);
      if (out[1] && tick->step == 1 && i == f->at) ((int32_t *)out[1])[at] = f->wrong;
      for (int64_t c = 0; out[0] && c < WIDTH; c++)
        ((float *)out[0])[at * WIDTH + c] = (float)(i * WIDTH + c) / 50;
    }
}

static const sl_type types[] = {{SL_F32, 3, {ROWS, LENGTH, WIDTH}}, {SL_I32, 2, {ROWS, LENGTH}}};

typedef sl_tensor *body(sl_graph *g, sl_tensor *x, sl_tensor *ids);

typedef struct how {
  int pieces, data, tensor;
} how;

static void take_step(void *ctx, const sl_step_report *report) {
  if (report->step == 0) *(double *)ctx = report->loss;
}

static sl_graph *build(body *of, feed *f, const how *h) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.pieces = h->pieces});
  sl_source *source = sl_graph_alloc(g, sizeof *source);
  *source = (sl_source){.nout = 2, .types = types, .fill = fill, .ctx = f, .cut = 2};
  sl_tensor *data[2];
  sl_data(g, source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, WIDTH, WIDTH), SL_NORMAL(1), "w");
  sl_tensor *y = of(g, sl_linear(g, data[0], w, NULL), data[1]);
  sl_train(g, sl_mean(g, sl_mul(g, y, y), 0, false), NULL);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  return g;
}

/* Trains; *loss becomes the loss of the first step. */
static sl_status train(body *of, feed *f, const how *h, double *loss) {
  sl_graph *g = build(of, f, h);
  sl_lower_options options = {.devices = {.kind = "cpu", .threads = 1},
                              .parallel.data = h->data,
                              .parallel.tensor = h->tensor,
                              .report.on_step = take_step,
                              .report.ctx = loss};
  sl_lowered *lowered;
  CHECK(!sl_lower(g, &options, &lowered), "%d pieces on %d x %d: %s", h->pieces, h->data, h->tensor,
        sl_detail());
  sl_runtime *rt;
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &(sl_runtime_options){0}, &rt), "%s",
        sl_detail());
  sl_lowered_attach(lowered, rt);
  sl_params_init(lowered, rt, 7);
  sl_status status = sl_runtime_run(rt, STEPS);
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  return status;
}

static const how ways[] = {{1, 1, 1}, {2, 1, 1}, {6, 1, 1}, {1, 2, 1},
                           {1, 1, 2}, {2, 2, 1}, {3, 1, 2}, {1, 2, 2}};

/* ---- ids out of range ------------------------------------------------------------------- */

static sl_tensor *ids3(sl_graph *g, sl_tensor *ids) { return sl_reshape(g, ids, ROWS, LENGTH, 1); }

static sl_tensor *gathered(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  return sl_gather(g, x, -1, ids3(g, ids));
}

static sl_tensor *scattered(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  return sl_scatter_sum(g, x, -1, sl_expand_like(g, ids3(g, ids), x), 3);
}

static sl_tensor *hot(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  return sl_mul(g, x, sl_one_hot(g, ids, WIDTH));
}

static sl_tensor *bagged(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 3, WIDTH), SL_NORMAL(1), "table");
  return sl_add(g, x, sl_embedding_bag(g, ids3(g, ids), table, NULL, NULL));
}

static void wrong_ids_are_told(body *of, const char *op) {
  for (size_t i = 0; i < SLI_COUNT(ways); i++)
    for (int at = 0; at < ROWS * LENGTH; at += ROWS * LENGTH - 1) {
      feed f = {.below = 3, .wrong = at ? -1 : 77, .at = at};
      char name[64];
      double loss;
      snprintf(name, sizeof name, "op main/%s.1", op); /* "#1" on the second device */
      sl_status status = train(of, &f, &ways[i], &loss);
      CHECK(status == SL_E_INPUT && strstr(sl_detail(), name) == sl_detail() &&
                strstr(sl_detail(), "in step 2") && strstr(sl_detail(), at ? " is -1" : " is 77"),
            "%s, way %zu: status %d: %s", op, i, status, sl_detail());
      f.at = -1;
      CHECK(at || !train(of, &f, &ways[i], &loss), "%s, way %zu: %s", op, i, sl_detail());
    }
}

/* ---- constants -------------------------------------------------------------------------- */

static const float by_column[WIDTH] = {1, -2, 0.5f};

/* Constants per column, per position of every row (which pieces and devices split), per position,
 * and a mask of positions. */
static sl_tensor *with_constants(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  float all[ROWS * LENGTH * WIDTH];
  (void)ids;
  for (int i = 0; i < ROWS * LENGTH * WIDTH; i++) all[i] = (float)(i * i % 31) / 7;
  const sl_type type = SL_TYPE(SL_F32, ROWS, LENGTH, WIDTH);
  x = sl_mul(g, x, sl_constant(g, SL_TYPE(SL_F32, WIDTH), by_column, NULL));
  x = sl_add(g, x, sl_constant(g, type, all, x));
  x = sl_mul(g, x, sl_filled(g, type, 1.5f, x));
  sl_tensor *at = sl_arange(g, x, 1), *row = sl_arange(g, x, 0);
  x = sl_where(g, sl_gt(g, at, row), x, sl_scale(g, x, -1));
  return sl_add(g, x, sl_sub(g, sl_cast(g, at, SL_F32), sl_filled(g, type, 2.5f, x)));
}

/* A constant shaped like a microbatch whose rows are not declared as split: each device has all of
 * it and reads its own rows. */
static sl_tensor *with_rows(sl_graph *g, sl_tensor *x, sl_tensor *ids) {
  float all[ROWS * WIDTH];
  (void)ids;
  for (int i = 0; i < ROWS * WIDTH; i++) all[i] = (float)(i * i % 31) / 7;
  return sl_mul(g, x, sl_constant(g, SL_TYPE(SL_F32, ROWS, 1, WIDTH), all, NULL));
}

static void parts_are_those_of_the_whole(body *of) {
  double want = 0, got;
  for (size_t i = 0; i < SLI_COUNT(ways); i++) {
    feed f = {.below = 3, .at = -1};
    CHECK(!train(of, &f, &ways[i], &got), "way %zu: %s", i, sl_detail());
    if (!i) want = got;
    CHECK(got > want * (1 - 1e-6) && got < want * (1 + 1e-6), "way %zu: loss %.9g, not %.9g", i,
          got, want);
  }
}

static void the_graph_keeps_the_values(void) {
  sl_graph *g = sl_graph_create(NULL);
  float values[] = {1, 2, 3};
  sl_tensor *t = sl_constant(g, SL_TYPE(SL_F32, 3), values, NULL);
  values[1] = 7;
  CHECK(sl_dim(t, 0) == 3 && !sl_graph_status(g), "%s", sl_detail());
  CHECK(!sl_constant(g, SL_TYPE(SL_F32, 4), (float[4]){0}, t), "of another shape than `like`");
  CHECK(sl_graph_status(g) == SL_E_SHAPE && strstr(sl_detail(), "test_indexed.c:") &&
            strstr(sl_detail(),
                   "constant of type f32[4] cannot be sharded like main/constant.1 f32[3]"),
        "%s", sl_detail());
  sl_graph_destroy(g);
}

int main(void) {
  RUN(wrong_ids_are_told, gathered, "gather");
  RUN(wrong_ids_are_told, scattered, "scatter_add");
  RUN(wrong_ids_are_told, hot, "one_hot");
  RUN(wrong_ids_are_told, bagged, "embedding_bag");
  RUN(parts_are_those_of_the_whole, with_constants);
  RUN(parts_are_those_of_the_whole, with_rows);
  RUN(the_graph_keeps_the_values);
  return 0;
}
