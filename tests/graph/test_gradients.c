/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the gradients of whole graphs with finite differences, node by node with the CPU
 * kernels: random small models, and every trainable op.
 * labels: random unthreaded smoke */
#include <math.h>
#include <string.h>

#include <sluice/sluice.h>

#include "tests/support/rng.h"
#include "tests/support/graph_interp.h"
#include "tests/support/seeds.h"

/* ---- data ------------------------------------------------------------------------ */

/* Data that depends only on the tick: floats around 0, integers less than `below`. */
typedef struct data {
  sl_source source;
  sl_type types[2]; /* f32, i32 */
  int below;
} data;

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const data *d = ctx;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; out[o] && i < sl_type_elements(&d->types[o]); i++) {
      uint32_t words[4] = {(uint32_t)i, (uint32_t)tick->number, (uint32_t)o};
      sli_philox(words, 7);
      if (o) ((int32_t *)out[o])[i] = (int32_t)(words[0] % (uint32_t)d->below);
      else ((float *)out[o])[i] = (float)(int32_t)words[0] * 0x1p-30f;
    }
}

static void make_data(data *d, int64_t rows, int64_t length, int64_t width, int below) {
  *d = (data){.types = {SL_TYPE(SL_F32, rows, length, width), SL_TYPE(SL_I32, rows, length)},
              .below = below};
  d->source = (sl_source){.nout = 2, .types = d->types, .fill = fill, .ctx = d};
}

/* ---- the comparison ---------------------------------------------------------------- */

/* Returns the gradient that the backward nodes computed, summed over all uses of the parameter. */
static double found_gradient(const interp *in, const sl_tensor *param, int64_t i) {
  double sum = 0;
  for (int u = 0; u < param->ngrads; u++) sum += ((float *)interp_data(in, param->grads[u]))[i];
  return sum;
}

static double difference(interp *in, const sl_tensor *param, int64_t i, float h) {
  float *values = interp_data(in, param), old = values[i];
  values[i] = old + h;
  double up = interp_forward(in, 0), high = values[i];
  values[i] = old - h;
  double down = interp_forward(in, 0), low = values[i];
  values[i] = old;
  return (up - down) / (high - low);
}

/* Richardson extrapolation: the remaining error is of order h^4. */
static double slope(interp *in, const sl_tensor *param, int64_t i, float h) {
  return (4 * difference(in, param, i, h) - difference(in, param, i, 2 * h)) / 3;
}

/* f32 rounding leaves an error of about 1e-6 in a loss of up to 10 (more in a larger one), so 1e-4
 * in a difference over 2 h. Where the loss curves too much for that h, a smaller h is tried. */
static bool is_slope(interp *in, const sl_tensor *param, int64_t i, double found, double loss,
                     double *wanted) {
  double rounding = fmax(1, loss / 10);
  for (float h = 1e-2f; h > 1e-3f; h /= 2) {
    *wanted = slope(in, param, i, h);
    if (fabs(found - *wanted) <= rounding * (3e-4 + 3e-3 * fabs(*wanted))) return true;
  }
  return false;
}

/* Checks a few elements of each parameter's gradient. */
static void check_gradients(sl_graph *g, const char *what) {
  sl_status status = sli_pass_gradients(g);
  CHECK(!status, "%s: %s", what, sl_detail());
  sli_graph_check(g);
  interp in = interp_create(g, 3);
  interp_backward(&in, 0);
  double loss = interp_forward(&in, 0);
  rng d = {.key = 5};
  for (int p = 0; p < g->nparams; p++) {
    const sl_tensor *param = g->params[p];
    for (int k = 0; k < 3; k++) {
      int64_t i = rng_below(&d, (uint32_t)sl_type_elements(&param->type));
      double found = found_gradient(&in, param, i);
      double wanted;
      CHECK(is_slope(&in, param, i, found, loss, &wanted),
            "%s: gradient of %s[%lld] is %g, finite differences say %g", what, param->name,
            (long long)i, found, wanted);
    }
  }
  interp_destroy(&in);
}

/* ---- models ------------------------------------------------------------------------ */

static sl_tensor *weight(sl_graph *g, int64_t rows, int64_t columns) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(0.4f), "w%d", g->nparams);
}

static sl_tensor *vector(sl_graph *g, int64_t n, float mean) {
  sl_init init = mean != 0 ? SL_CONSTANT(mean) : SL_NORMAL(0.3f);
  return sl_param(g, SL_TYPE(SL_F32, n), init, "v%d", g->nparams);
}

enum { WIDTH = 8, HEADS = 2, VOCAB = 11 };

static sl_tensor *attend(sl_graph *g, sl_tensor *x) {
  sl_tensor *q = sl_rotary(g, sl_linear(g, x, weight(g, WIDTH, WIDTH), NULL), HEADS, 100);
  const sl_rope rope = {.kind = SL_ROPE_YARN, .factor = 2, .original = 8, .low = 1, .high = 2};
  sl_tensor *k = sl_linear(g, x, weight(g, WIDTH / 2, WIDTH), NULL);
  k = sl_rotary_stretched(g, k, 1, 100, &rope);
  sl_tensor *v = sl_linear(g, x, weight(g, WIDTH / 2, WIDTH), vector(g, WIDTH / 2, 0));
  return sl_attention(g, q, k, v, HEADS, 1);
}

/* Applies one random op to x, or to x and an older tensor y; all are [B, T, WIDTH]. */
static sl_tensor *random_op(sl_graph *g, rng *d, sl_tensor *x, sl_tensor *y) {
  switch (rng_below(d, 18)) {
  case 0: return sl_linear(g, x, weight(g, WIDTH, WIDTH), vector(g, WIDTH, 0));
  case 1: return sl_linear_transposed(g, x, weight(g, WIDTH, WIDTH), NULL);
  case 2: return sl_gelu(g, x);
  case 3: return sl_tanh(g, x);
  case 4: return sl_add(g, x, y);
  case 5: return sl_mul(g, x, sl_tanh(g, y));
  case 6: return sl_swiglu(g, x, sl_tanh(g, y)); /* tanh keeps the values small, as above */
  case 7: return sl_layernorm(g, x, vector(g, WIDTH, 1), vector(g, WIDTH, 0), 1e-1f);
  case 8: return sl_rmsnorm(g, x, vector(g, WIDTH, 1), 1e-1f);
  case 9: return sl_position(g, x, weight(g, 9, WIDTH));
  case 10: return sl_add(g, x, attend(g, x));
  case 11:
    return sl_attention_packed(g, sl_linear(g, x, weight(g, 3 * WIDTH, WIDTH), NULL), HEADS, 0);
  case 13: { /* split and join heads */
    int64_t B = sl_dim(x, 0), T = sl_dim(x, 1);
    sl_tensor *apart = sl_permute(g, sl_reshape(g, x, B, T, HEADS, -1), 0, 2, 1, 3);
    return sl_reshape(g, sl_transpose(g, sl_tanh(g, apart), 1, -2), B, T, WIDTH);
  }
  case 14: { /* swap the halves */
    sl_tensor *halves[2];
    sl_split(g, x, -1, 2, NULL, halves);
    return sl_concat(g, -1, 2,
                     ((sl_tensor *[]){halves[1], rng_below(d, 2) ? halves[0] : halves[1]}));
  }
  case 15: {
    sl_tensor *all[] = {
        x, sl_slice(g, sl_concat(g, 1, 2, ((sl_tensor *[]){y, x})), 1, 1, sl_dim(x, 1)), x};
    return sl_tanh(g, sl_add_all(g, 3, all));
  }
  case 16: return sl_dropout(g, x, 0.3f);
  case 12: { /* concatenate columns */
    sl_tensor *both[] = {x, y, x};
    return sl_linear(g, sl_concat(g, 2, 3, both), weight(g, WIDTH, 3 * WIDTH), NULL);
  }
  default: return sl_add(g, x, x);
  }
}

static void random_model(uint64_t seed) {
  rng d = {.key = seed};
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 1 + (int)rng_below(&d, 3)});
  data source;
  int64_t rows = 1 + rng_below(&d, 2), length = 2 + rng_below(&d, 5);
  make_data(&source, rows, length, WIDTH, VOCAB);
  sl_tensor *given[2], *kept[16];
  sl_data(g, &source.source, given);
  int n = 0, depth = 2 + (int)rng_below(&d, 8);
  sl_tensor *table = weight(g, VOCAB, WIDTH);
  kept[n++] = rng_below(&d, 2)
                  ? sl_linear(g, given[0], weight(g, WIDTH, WIDTH), vector(g, WIDTH, 0))
                  : sl_embedding(g, given[1], table);
  for (int i = 0; i < depth; i++) {
    if (!rng_below(&d, 3)) sl_block(g, "b");
    sl_tensor *x = random_op(g, &d, kept[n - 1], kept[rng_below(&d, (uint32_t)n)]);
    kept[n++] = x;
  }
  sl_tensor *last = kept[n - 1]; /* [B, T, WIDTH] */
  sl_tensor *loss = sl_cross_entropy(g, sl_linear(g, last, table, NULL), given[1]);
  sl_train(g, loss, NULL);
  char what[64];
  snprintf(what, sizeof what, "random model %d", (int)seed);
  check_gradients(g, what);
  sl_graph_destroy(g);
}

static void products_of_parameters_are_trained(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  data source;
  make_data(&source, 2, 3, WIDTH, VOCAB);
  sl_tensor *given[2];
  sl_data(g, &source.source, given);
  /* w is computed, a and b meet in ops that cannot accumulate in place, and one of these ops uses a
   * twice. */
  sl_tensor *a = weight(g, WIDTH, WIDTH), *b = weight(g, WIDTH, WIDTH);
  sl_tensor *w = sl_add(g, sl_mul(g, a, a), sl_mul(g, a, sl_relu(g, b)));
  sl_tensor *y = sl_linear(g, given[0], w, NULL);
  sl_train(g, sl_mse(g, sl_linear(g, sl_tanh(g, y), b, NULL), given[0]), NULL);
  check_gradients(g, "products of parameters");
  CHECK(a->ngrads == 3 && b->ngrads == 2, "a has %d uses, b %d", a->ngrads, b->ngrads);
  CHECK(!strcmp(a->grads[0]->producer->op->name, "copy"), "mul cannot sum in place");
  CHECK(!strcmp(b->grads[1]->producer->op->name, "linear_w"), "linear can");
  sl_graph_destroy(g);
}

/* A user-defined op with two outputs and one gradient rule that takes both gradients. */
static sl_status both_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = out[1] = in[0];
  return SL_OK;
}
static sl_status one_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void sincos_cpu(const sl_call *call) {
  const float *x = call->in[0];
  float *s = call->out[0], *c = call->out[1];
  for (int64_t i = 0; i < sl_type_elements(call->in_type); i++) {
    if (s) s[i] = sinf(x[i]);
    if (c) c[i] = cosf(x[i]);
  }
}
static void sincos_b_cpu(const sl_call *call) {
  const float *x = call->in[0], *ds = call->in[1], *dc = call->in[2];
  float *dx = call->out[0];
  for (int64_t i = 0; i < sl_type_elements(call->in_type); i++)
    dx[i] = ds[i] * cosf(x[i]) - dc[i] * sinf(x[i]);
}
static const sl_op sincos_b = {.name = "sincos_b",
                               .min_in = 3,
                               .max_in = 3,
                               .nout = 1,
                               .infer = one_infer,
                               .kernels = SL_CPU_KERNEL(sincos_b_cpu)};
static const sl_op sincos_op = {.name = "sincos",
                                .min_in = 1,
                                .max_in = 1,
                                .nout = 2,
                                .infer = both_infer,
                                .kernels = SL_CPU_KERNEL(sincos_cpu),
                                .grad = {{.op = &sincos_b,
                                          .cls = SL_CLASS_B,
                                          .in = {SL_IN(0), SL_DOUT(0), SL_DOUT(1)},
                                          .nwrt = 1,
                                          .wrt = {0}}}};

static void a_gradient_that_does_not_come_is_zero(void) {
  for (int used = 1; used < 4; used++) {
    sl_graph *g = sl_graph_create(NULL);
    data source;
    make_data(&source, 2, 3, WIDTH, VOCAB);
    sl_tensor *given[2], *out[2];
    sl_data(g, &source.source, given);
    sl_tensor *x = sl_linear(g, given[0], weight(g, WIDTH, WIDTH), NULL);
    sl_apply(g, &sincos_op, NULL, 1, &x, 0, out);
    sl_tensor *y = used == 3 ? sl_mul(g, out[0], out[1]) : out[used - 1];
    sl_train(g, sl_mse(g, y, given[0]), NULL);
    check_gradients(g, "sincos");
    sl_graph_destroy(g);
  }
}

/* Concat with more inputs than a mask has bits: some without gradient, some parameters, one
 * repeated. */
static void concat_gives_each_input_its_gradient(bool keep_unread) {
  enum { COUNT = 40 };
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  data source;
  make_data(&source, 2, 3, WIDTH, VOCAB);
  sl_tensor *given[2], *all[COUNT];
  sl_data(g, &source.source, given);
  for (int i = 0; i < COUNT; i++)
    all[i] = i % 3 == 0   ? sl_linear(g, given[0], weight(g, 1 + i % 4, WIDTH), NULL)
             : i % 3 == 1 ? sl_tanh(g, all[i - 1])
             : i % 6 == 2 ? given[0]
                          : sl_param(g, SL_TYPE(SL_F32, 2, 3, 2), SL_NORMAL(1), "p%d", i);
  all[COUNT - 2] = all[0]; /* repeated; replaces data */
  sl_tensor *x = sl_concat(g, -1, COUNT, all);
  sl_tensor *y = sl_linear(g, x, weight(g, WIDTH, sl_dim(x, -1)), NULL);
  sl_train(g, sl_mse(g, y, given[0]), NULL);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  check_gradients(g, "concat");
  if (!keep_unread) sli_graph_drop_unread(g, false);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (strcmp(n->op->name, "concat_b")) continue;
    CHECK(n->nin == COUNT + 1 && n->nout == COUNT && n->in[0], "concat_b has %d outputs", n->nout);
    CHECK(keep_unread || !n->in[1], "concat_b reads what it takes the type of");
  }
  sl_graph_destroy(g);
}

/* Broadcasting, reductions, masks and a loss that is a sum of losses. */
static void arithmetic_is_trained(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = 2});
  data source;
  make_data(&source, 2, 3, WIDTH, VOCAB);
  sl_tensor *given[2];
  sl_data(g, &source.source, given);
  sl_tensor *x = sl_linear(g, given[0], weight(g, WIDTH, WIDTH), NULL), *v = vector(g, WIDTH, 0);
  sl_tensor *y = sl_mul(g, sl_add(g, x, v), vector(g, 1, 0.5f));
  sl_tensor *size = sl_sqrt(g, sl_add_constant(g, sl_mean(g, sl_mul(g, y, y), SL_DIM(2), true), 1));
  y = sl_div(g, sl_sub(g, y, sl_max(g, y, SL_DIM(1), true)), size);
  y = sl_where(g, sl_lt(g, given[0], sl_scale(g, given[0], -0.5f)), sl_silu(g, y),
               sl_softmax(g, y, 1));
  sl_tensor *scores = sl_matmul(g, y, x, false, true); /* [2, 3, 3] */
  y = sl_add(g, y, sl_matmul(g, sl_log_softmax(g, scores, -1), y, true, false));
  sl_tensor *rest = sl_scale(g, sl_mse(g, y, given[0]), 0.25f);
  sl_train(g, sl_add(g, rest, sl_mean(g, sl_exp(g, y), 0, false)), NULL);
  check_gradients(g, "arithmetic");
  sl_graph_destroy(g);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 0, 60);
  RUN(a_gradient_that_does_not_come_is_zero);
  RUN(products_of_parameters_are_trained);
  RUN(arithmetic_is_trained);
  RUN(concat_gives_each_input_its_gradient, true);
  RUN(concat_gives_each_input_its_gradient, false);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(random_model, seed);
  return 0;
}
