/* SPDX-License-Identifier: Apache-2.0 */
/* A spiking linear layer has the loss and gradients of x + detach(spikes(x) - x), and of the same
 * expression for weights. The gradient of a rounded weight accumulates where it is computed, like
 * that of a plain weight. Weights rounded once per step give the same bits.
 * labels: unthreaded smoke */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "graph/passes/passes.h"
#include "tests/support/graph_interp.h"
#include "tests/support/rng.h"
#include "tests/support/test.h"

enum { ROWS = 3, WIDTH = 150, INNER = 20, MICROBATCHES = 3 };

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  rng d = {.key = 11 + (uint64_t)tick->microbatch};
  float *x = out[0];
  for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)rng_below(&d, 4001) / 1000 - 2;
}
static const sl_type types[] = {{SL_F32, 2, {ROWS, WIDTH}}};
static const sl_source source = {.nout = 1, .types = types, .fill = fill};

/* Rounds with the op, or with the straight-through expression that it must equal. */
static sl_tensor *rounded(sl_graph *g, sl_tensor *x, sl_tensor *y, bool straight) {
  return straight ? y : sl_add(g, x, sl_detach(g, sl_sub(g, y, x)));
}

static sl_tensor *layer(sl_graph *g, sl_tensor *x, int64_t out, bool straight) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, sl_dim(x, -1)), SL_NORMAL(0.2f), "w%d", (int)out);
  sl_tensor *s = rounded(g, x, sl_spikes(g, x, 3, NULL), straight);
  return sl_linear(g, s, rounded(g, w, sl_quantize(g, w), straight), NULL);
}

static sl_graph *model(bool straight) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES});
  sl_tensor *x;
  sl_data(g, &source, &x);
  sl_tensor *y = layer(g, sl_tanh(g, layer(g, x, INNER, straight)), WIDTH, straight);
  sl_train(g, sl_mse(g, y, x), NULL);
  CHECK(!sli_pass_gradients(g), "%s", sl_detail());
  sli_graph_check(g);
  return g;
}

static void gradients_pass_straight(void) {
  sl_graph *g[] = {model(true), model(false)};
  interp in[] = {interp_create(g[0], 3), interp_create(g[1], 3)};
  double loss[2];
  for (int i = 0; i < 2; i++) loss[i] = interp_backward(&in[i], 0);
  CHECK(fabs(loss[0] - loss[1]) < 1e-6 * loss[1], "losses %.9g and %.9g", loss[0], loss[1]);
  for (int p = 0; p < 2; p++) {
    const float *a = interp_data(&in[0], g[0]->params[p]->grads[0]);
    const float *b = interp_data(&in[1], g[1]->params[p]->grads[0]);
    for (int i = 0; i < INNER * WIDTH; i++)
      CHECK(fabsf(a[i] - b[i]) <= 1e-5f * (0.01f + fabsf(b[i])), "gradient of %s: %g, not %g",
            g[0]->params[p]->name, (double)a[i], (double)b[i]);
  }
  for (int i = 0; i < 2; i++) interp_destroy(&in[i]), sl_graph_destroy(g[i]);
}

static void weight_gradients_are_summed_where_they_are_made(void) {
  sl_graph *g = model(true);
  for (int p = 0; p < 2; p++) {
    const sli_node *n = g->params[p]->grads[0]->producer;
    CHECK(g->params[p]->ngrads == 1 && n->op == &sl_op_linear_w && n->cls == SL_CLASS_W &&
              n->accumulate_span == 1,
          "%s gets its gradient from %s, of class %c", g->params[p]->name, n->name,
          sl_class_letter(n->cls));
  }
  sl_graph_destroy(g);
}

static void rounding_once_a_step_changes_no_bits(void) {
  sl_graph *g[] = {model(true), model(true)};
  sli_pass_weights(g[1]);
  sli_graph_check(g[1]);
  int once = 0;
  for (int i = 0; i < g[1]->nnodes; i++) {
    const sli_node *n = g[1]->nodes[i];
    bool weight = n->op == &sl_op_quantize;
    once += weight;
    CHECK(n->cls == SL_CLASS_U || n->per_step == weight, "%s runs once a step", n->name);
    CHECK(!weight || (n->per_step && n->phase == SLI_PHASE_PACK), "%s runs once a tick", n->name);
  }
  CHECK(once == 2, "%d rounded weights", once);
  interp in[] = {interp_create(g[0], 3), interp_create(g[1], 3)};
  double loss[2];
  for (int i = 0; i < 2; i++) loss[i] = interp_backward(&in[i], 0);
  CHECK(!memcmp(&loss[0], &loss[1], sizeof *loss), "losses %a and %a", loss[0], loss[1]);
  for (int p = 0; p < 2; p++)
    CHECK(!memcmp(interp_data(&in[0], g[0]->params[p]->grads[0]),
                  interp_data(&in[1], g[1]->params[p]->grads[0]), INNER * WIDTH * sizeof(float)),
          "the gradient of %s", g[0]->params[p]->name);
  for (int i = 0; i < 2; i++) interp_destroy(&in[i]), sl_graph_destroy(g[i]);
}

int main(void) {
  RUN(gradients_pass_straight);
  RUN(weight_gradients_are_summed_where_they_are_made);
  RUN(rounding_once_a_step_changes_no_bits);
  return 0;
}
