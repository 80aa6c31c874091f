/* SPDX-License-Identifier: Apache-2.0 */
/* Two spirals: a small network of three layers learns which of two intertwined spirals a point of
 * the plane belongs to.
 *
 *     actorrun examples/spiral.c --steps 300
 *     actorrun --stages 3 --microbatches 4 examples/spiral.c --activation relu
 *
 * The file shows all parts of a model that is not a transformer: options, a custom data source,
 * parameters, blocks, a loss. */
#include <math.h>
#include <string.h>
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"points", SL_OPTION_INT, "256", "points per step", 2, 1 << 20},
    {"width", SL_OPTION_INT, "64", "units of the hidden layers", 1, 1 << 16},
    {"layers", SL_OPTION_INT, "3", "hidden layers", 1, 100},
    {"turns", SL_OPTION_FLOAT, "1.5", "turns of a spiral", 0.1, 10},
    {"activation", SL_OPTION_TEXT, "tanh", "`NAME`: tanh or relu", 0, 0},
    {"lr", SL_OPTION_FLOAT, "0.01", "learning rate", 0, 1},
    {0}};
/* clang-format on */

/* ---- data ----------------------------------------------------------------------
 *
 * A source fills one microbatch at a time. The same tick must give the same points, so they come
 * from a hash of the point's number, not from a stateful generator. */

typedef struct spirals {
  sl_source source;
  sl_type types[2];
  int64_t rows; /* points of a microbatch */
  int microbatches;
  double turns;
} spirals;

/* Hashes a number to a value in [0, 1). */
static double noise(uint64_t number) {
  number = (number ^ number >> 31) * 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 29) * 0xbf58476d1ce4e5b9u;
  return (double)((number ^ number >> 32) >> 11) * 0x1p-53;
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const spirals *s = ctx;
  float *points = out[0];    /* [rows, 2] */
  int32_t *classes = out[1]; /* [rows] */
  int64_t first = (tick->step * s->microbatches + tick->microbatch) * s->rows;
  for (int64_t i = 0; i < s->rows; i++) {
    int which = (int)((first + i) & 1);
    double along = noise((uint64_t)(first + i)); /* from the centre outwards */
    double angle = 2 * M_PI * (along * s->turns + 0.5 * which);
    if (points) points[2 * i] = (float)(along * cos(angle));
    if (points) points[2 * i + 1] = (float)(along * sin(angle));
    if (classes) classes[i] = which;
  }
}

static spirals *make_source(sl_graph *g, const sl_args *args) {
  spirals *s = sl_graph_alloc(g, sizeof *s);
  *s = (spirals){.rows = sl_microbatch_rows(g, sl_arg_int(args, "points")),
                 .microbatches = sl_graph_microbatches(g),
                 .turns = sl_arg_float(args, "turns")};
  s->types[0] = SL_TYPE(SL_F32, s->rows, 2);
  s->types[1] = SL_TYPE(SL_I32, s->rows);
  s->source = (sl_source){.nout = 2, .types = s->types, .fill = fill, .ctx = s};
  return s;
}

/* ---- model --------------------------------------------------------------------- */

static sl_tensor *layer(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float bound = in > 0 ? 1.0f / sqrtf((float)in) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_UNIFORM(bound), "%s.bias", name);
  return sl_linear(g, x, w, b); /* [rows, out] */
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t width = sl_arg_int(args, "width"), layers = sl_arg_int(args, "layers");
  bool relu = !strcmp(sl_arg_text(args, "activation"), "relu");
  if (!relu && strcmp(sl_arg_text(args, "activation"), "tanh"))
    sl_graph_fail(g, SL_E_USAGE, "spiral: --activation is tanh or relu");

  sl_tensor *data[2]; /* points [rows, 2], classes [rows] */
  sl_data(g, &make_source(g, args)->source, data);
  sl_tensor *x = data[0];
  for (int64_t i = 0; i < layers; i++) {
    char name[32];
    snprintf(name, sizeof name, "hidden.%d", (int)i);
    sl_block(g, "%s", name);
    x = layer(g, x, width, name);
    x = relu ? sl_relu(g, x) : sl_tanh(g, x); /* [rows, width] */
  }
  sl_block(g, "output");
  sl_tensor *logits = layer(g, x, 2, "output"); /* [rows, 2] */
  sl_output(g, "classes", logits);
  sl_train(g, sl_cross_entropy(g, logits, data[1]),
           &(sl_optimizer){.lr = (float)sl_arg_float(args, "lr"),
                           .beta1 = 0.9f,
                           .beta2 = 0.99f,
                           .weight_decay = SL_OFF});
  return sl_graph_status(g);
}

SL_MODEL(spiral, "two spirals told apart by a few dense layers", options, build);
