/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the op of the graph network example. Whole or in pieces, it sums the values of the
 * neighbours like a plain sum over all pairs of vertices, and its gradient is right.
 * labels: unthreaded */
#include "examples/gcn.c"

#include <string.h>

#include "ops/facets.h"
#include "tests/support/test.h"

enum { N = 150, H = 3, PIECES = 4 };

static const int64_t begins[PIECES + 1] = {0, 1, 64, 130, N};
static float dense_weights[N][N];

static void fill_dense(const vertices *v) {
  for (int64_t i = 0; i < N; i++)
    for (int64_t e = v->first[i]; e < v->first[i + 1]; e++)
      dense_weights[i][v->to[e]] += v->weight[e];
}

/* Checks row i of the sum over all vertices. */
static void check_row(const float *y, int64_t i, const float *x) {
  for (int c = 0; c < H; c++) {
    double sum = 0;
    for (int64_t j = 0; j < N; j++) sum += dense_weights[i][j] * x[j * H + c];
    CHECK(fabs(sum - y[c]) < 1e-5, "vertex %lld: %g, not %g", (long long)i, y[c], sum);
  }
}

static void run(const sl_op *op, const vertices *v, int piece, const float *x, float *y,
                float *record) {
  int64_t begin = piece < 0 ? 0 : begins[piece], end = piece < 0 ? N : begins[piece + 1];
  sl_type in = SL_TYPE(SL_F32, 1, end - begin, H), out[2] = {in, SL_TYPE(SL_F32, 1, N, H)};
  sl_attrs attrs = {.user = v, .place.length = piece < 0 ? 0 : N};
  op->kernels[0].run(
      &(sl_call){.op = op,
                 .attrs = &attrs,
                 .nin = 1,
                 .nout = op->nout,
                 .in_type = &in,
                 .out_type = out,
                 .in = (const void *[]){x + begin * H},
                 .out = (void *[]){y + begin * H, record},
                 .tick = {.row = piece < 0 ? 0 : begin, .rows = piece < 0 ? 0 : end - begin}});
}

static void draw(float *x, uint64_t seed) {
  for (uint64_t i = 0; i < N * H; i++) x[i] = (float)(2 * chance(seed * N * H + i) - 1);
}

/* The forward pass and the gradient are the same sum, because the weights are symmetric. */
static void whole_and_back(const vertices *v) {
  float x[N * H], y[N * H];
  draw(x, 1);
  for (int i = 0; i < N; i++)
    for (int j = 0; j < i; j++) CHECK(dense_weights[i][j] == dense_weights[j][i], "symmetric");
  const sl_op *both[] = {&row, row.grad[0].op};
  for (int o = 0; o < 2; o++) {
    run(both[o], v, -1, x, y, NULL);
    for (int i = 0; i < N; i++) check_row(y + i * H, i, x);
  }
}

/* A piece reads this step's vertices of the pieces so far and the previous step's of the others;
 * zeros at first. Gradients run from the last piece to the first. */
static void pieces_see_the_step_before(const vertices *v, bool back) {
  const sl_op *pieced = sli_op_cut(&row)->pieced;
  float record[N * H] = {0}, seen[N * H] = {0}, x[N * H], y[N * H];
  for (uint64_t step = 0; step < 3; step++) {
    draw(x, 2 + step);
    for (int n = 0; n < PIECES; n++) {
      int p = back ? PIECES - 1 - n : n;
      memcpy(seen + begins[p] * H, x + begins[p] * H,
             (size_t)(begins[p + 1] - begins[p]) * H * sizeof *x);
      run(back ? pieced->grad[0].op : pieced, v, p, x, y, record);
      for (int64_t i = begins[p]; i < begins[p + 1]; i++) check_row(y + i * H, i, seen);
    }
  }
}

int main(void) {
  sl_graph *g = sl_graph_create(NULL);
  vertices v = {.classes = 5};
  edges drawn = {0};
  draw_graph(g, &v, &drawn, N, 4);
  connect(g, &v, &drawn);
  free(drawn.ends);
  fill_dense(&v);
  RUN(whole_and_back, &v);
  RUN(pieces_see_the_step_before, &v, false);
  RUN(pieces_see_the_step_before, &v, true);
  sl_graph_destroy(g);
  return 0;
}
