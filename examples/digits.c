/* SPDX-License-Identifier: Apache-2.0 */
/* Handwritten digits: a convolutional network, or a small transformer, built only from shipped ops,
 * learns to read images of 8 by 8 pixels.
 *
 *     actorrun --steps 400 examples/digits.c
 *     actorrun --steps 400 --stages 2 --schedule zb-h1 --microbatches 4 examples/digits.c
 *     actorrun --steps 400 --lr-schedule cosine:warmup=20,decay-steps=400 \
 *       examples/digits.c --net transformer --width 8 --lr 0.005
 *     actorrun --steps 400 --eval-every 50 --best accuracy --patience 3 examples/digits.c
 *     actorrun --steps 400 --save digits.safetensors examples/digits.c
 *     actorrun --steps 1 --init digits.safetensors examples/digits.c --test --batch 299
 *
 * The transformer reads 293 of the 299 held-out images, 98.0 %, after a minute on one core with
 *
 *     actorrun --microbatches 3 --steps 2000 --eval-every 2000 \
 *       --lr-schedule cosine:warmup=50,decay-steps=2000 \
 *       examples/digits.c --net transformer --batch 69 --width 32 --lr 0.003
 *
 * Every sixth image is held out. --eval-every evaluates loss and accuracy on the held-out images
 * during the run; the last command above gives the loss on all of them. With sl_graph_options.infer
 * each step reads held-out images, and the output "digits" is the network's prediction.
 *
 * make_digits.py makes digits.u8: the test set of "Optical Recognition of Handwritten Digits" (E.
 * Alpaydin and C. Kaynak, 1998), UCI Machine Learning Repository, CC BY 4.0. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_TEXT, "examples/digits.u8", "the `FILE` of images", 0, 0},
    {"batch", SL_OPTION_INT, "64", "images per step", 1, 1 << 20},
    {"net", SL_OPTION_TEXT, "convolutions", "`NAME`: convolutions or transformer", 0, 0},
    {"width", SL_OPTION_INT, "32", "channels of the first convolution; of a head of attention", 1,
     1 << 8},
    {"lr", SL_OPTION_FLOAT, "0.002", "learning rate", 0, 1},
    {"test", SL_OPTION_FLAG, "0", "read the images that were kept back", 0, 0},
    {0}};
/* clang-format on */

/* ---- data ---------------------------------------------------------------------------------- */

enum { SIDE = 8, PIXELS = SIDE * SIDE, RECORD = PIXELS + 1, PATCH = 4, IMAGES = 1797, SHARE = 6 };
enum { TEST = IMAGES / SHARE, TRAIN = IMAGES - TEST, STRIDE = 811 /* coprime to TRAIN */ };

typedef struct digits {
  sl_source source;
  sl_type types[2];
  int64_t rows; /* images of a microbatch */
  int microbatches;
  bool test, patches; /* read only held-out images; cut images into patches */
  unsigned char records[IMAGES][RECORD];
} digits;

/* Returns the record of an image. Every sixth record is held out; training reads the rest in
 * shuffled order. */
static const unsigned char *record_of(const digits *d, int64_t i, bool test) {
  if (test) return d->records[i % TEST * SHARE + SHARE - 1];
  int64_t t = i % TRAIN * STRIDE % TRAIN;
  return d->records[t / (SHARE - 1) * SHARE + t % (SHARE - 1)];
}

/* Returns the index of pixel p when the image is stored as consecutive patches of 2 by 2. */
static int place_of(const digits *d, int p) {
  int row = p / SIDE, column = p % SIDE;
  if (!d->patches) return p;
  return (row / 2 * (SIDE / 2) + column / 2) * PATCH + row % 2 * 2 + column % 2;
}

static void fill_rows(const digits *d, const sl_tick *tick, bool test, void *const *out) {
  float *images = out[0];    /* [rows, 1, SIDE, SIDE], or [rows, patches, PATCH] */
  int32_t *classes = out[1]; /* [rows] */
  int64_t first = (tick->step * d->microbatches + tick->microbatch) * d->rows;
  for (int64_t i = 0; i < d->rows; i++) {
    const unsigned char *record = record_of(d, first + i, test);
    for (int p = 0; p < PIXELS && images; p++)
      images[i * PIXELS + place_of(d, p)] = (float)record[p] / 8 - 1;
    if (classes) classes[i] = record[PIXELS];
  }
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  const digits *d = ctx;
  fill_rows(d, tick, d->test, out);
}

/* Fills held-out data for evaluations, where the step is 0 and microbatches count from 0. */
static void fill_held_out(void *ctx, const sl_tick *tick, void *const *out) {
  fill_rows(ctx, tick, true, out);
}

static void read_file(sl_graph *g, digits *d, const char *path) {
  FILE *file = fopen(path, "rb");
  size_t got = file ? fread(d->records, RECORD, IMAGES, file) : 0;
  if (!file) sl_graph_fail(g, SL_E_INPUT, "digits: no file %s: say --data FILE", path);
  else if (got != IMAGES)
    sl_graph_fail(g, SL_E_INPUT, "digits: %s has %zu images, not %d", path, got, (int)IMAGES);
  if (file) fclose(file);
}

static digits *make_source(sl_graph *g, const sl_args *args, bool patches) {
  digits *d = sl_graph_alloc(g, sizeof *d);
  d->rows = sl_microbatch_rows(g, sl_arg_int(args, "batch"));
  d->microbatches = sl_graph_microbatches(g);
  d->test = sl_graph_infer(g) || sl_arg_flag(args, "test");
  d->patches = patches;
  d->types[0] = patches ? SL_TYPE(SL_F32, d->rows, PIXELS / PATCH, PATCH)
                        : SL_TYPE(SL_F32, d->rows, 1, SIDE, SIDE);
  d->types[1] = SL_TYPE(SL_I32, d->rows);
  d->source = (sl_source){.nout = 2,
                          .types = d->types,
                          .fill = fill,
                          .ctx = d,
                          .fill_held_out = fill_held_out,
                          .held_out = d->rows ? (int)(TEST / d->rows) : 0,
                          .held_out_rest = d->rows ? (int)(TEST % d->rows) : 0};
  read_file(g, d, sl_arg_text(args, "data"));
  return d;
}

/* ---- layers -------------------------------------------------------------------------------- */

/* Adds a convolution with a kernel of `side` x `side`, and relu. */
static sl_tensor *convolution(sl_graph *g, sl_tensor *x, int64_t out, int64_t side, int64_t pad,
                              const char *name) {
  int64_t in = sl_dim(x, 1);
  float bound = in > 0 ? sqrtf(6.0f / (float)(in * side * side)) : 0;
  sl_tensor *w =
      sl_param(g, SL_TYPE(SL_F32, out, in, side, side), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  const sl_window window = {.pad = {pad, pad}};
  return sl_relu(g, sl_conv(g, x, w, b, &window));
}

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float bound = in > 0 ? 1 / sqrtf((float)in) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_UNIFORM(bound), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b); /* [..., out] */
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, const char *name) {
  int64_t width = sl_dim(x, -1);
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(1), "%s.weight", name);
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(0), "%s.bias", name);
  return sl_layernorm(g, x, gain, bias, 1e-5f);
}

/* ---- models -------------------------------------------------------------------------------- */

/* x [rows, 1, 8, 8] -> [rows, 4 width] */
static sl_tensor *convolutions(sl_graph *g, sl_tensor *x, int64_t width) {
  const sl_window halved = {.size = {2, 2}};
  sl_block(g, "conv.0");
  x = convolution(g, x, width, 3, 1, "conv.0"); /* [rows, width, 8, 8] */
  x = sl_max_pool(g, x, &halved);               /* [rows, width, 4, 4] */
  sl_block(g, "conv.1");
  x = convolution(g, x, 2 * width, 3, 1, "conv.1"); /* [rows, 2 width, 4, 4] */
  x = sl_max_pool(g, x, &halved);                   /* [rows, 2 width, 2, 2] */
  sl_block(g, "conv.2");
  x = convolution(g, x, 4 * width, 2, 0, "conv.2"); /* [rows, 4 width, 1, 1] */
  return sl_mean(g, x, 1u << 2 | 1u << 3, false);
}

enum { HEADS = 4, LAYERS = 2 };

/* Adds a transformer layer in which all patches attend to each other. */
static sl_tensor *layer(sl_graph *g, sl_tensor *x, int number) {
  char name[32];
  int64_t width = sl_dim(x, -1);
  snprintf(name, sizeof name, "h.%d.norm.0", number);
  sl_tensor *y = norm(g, x, name);
  snprintf(name, sizeof name, "h.%d.qkv", number);
  y = dense(g, y, 3 * width, name);
  y = sl_attend_packed(g, y, &(sl_attention_attrs){.heads = HEADS, .full = true});
  snprintf(name, sizeof name, "h.%d.out", number);
  x = sl_add(g, x, dense(g, y, width, name));
  snprintf(name, sizeof name, "h.%d.norm.1", number);
  y = norm(g, x, name);
  snprintf(name, sizeof name, "h.%d.up", number);
  y = sl_gelu(g, dense(g, y, 2 * width, name));
  snprintf(name, sizeof name, "h.%d.down", number);
  return sl_add(g, x, dense(g, y, width, name));
}

/* Adds a transformer, x [rows, patches, PATCH] -> [rows, width] (Dosovitskiy et al., arXiv
 * 2010.11929), with the mean over patches instead of a class token. */
static sl_tensor *transformer(sl_graph *g, sl_tensor *x, int64_t width) {
  sl_block(g, "patches");
  x = dense(g, x, width, "patches");
  x = sl_position(g, x,
                  sl_param(g, SL_TYPE(SL_F32, PIXELS / PATCH, width), SL_NORMAL(0.1f), "position"));
  for (int i = 0; i < LAYERS; i++) {
    sl_block(g, "h.%d", i);
    x = layer(g, x, i);
  }
  return sl_mean(g, norm(g, x, "norm"), 1u << 1, false);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  bool patches = !strcmp(sl_arg_text(args, "net"), "transformer");
  int64_t width = sl_arg_int(args, "width");
  if (!patches && strcmp(sl_arg_text(args, "net"), "convolutions"))
    sl_graph_fail(g, SL_E_USAGE, "digits: --net is convolutions or transformer");
  sl_tensor *data[2]; /* images, classes [rows] */
  sl_data(g, &make_source(g, args, patches)->source, data);
  sl_tensor *x = patches ? transformer(g, data[0], HEADS * width) : convolutions(g, data[0], width);
  sl_block(g, "output");
  sl_tensor *logits = dense(g, x, 10, "output"); /* [rows, 10] */
  sl_output(g, "digits", logits);
  sl_metric(g, "accuracy", sl_accuracy(g, logits, data[1]));
  sl_train(g, sl_cross_entropy(g, logits, data[1]),
           &(sl_optimizer){.lr = (float)sl_arg_float(args, "lr"),
                           .beta1 = 0.9f,
                           .beta2 = 0.99f,
                           .eps = 1e-8f,
                           .clip = 1,
                           .weight_decay = 0.5f});
  return sl_graph_status(g);
}

SL_MODEL(digits, "handwritten digits read by convolutions or a small transformer", options, build);
