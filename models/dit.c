/* SPDX-License-Identifier: Apache-2.0 */
/* A diffusion transformer (Peebles and Xie, arXiv 2212.09748) of images or videos of digits,
 * trained by flow matching (Lipman et al., arXiv 2210.02747): x_s = (1 - s) x + s noise, and the
 * network predicts v = noise - x from x_s, s and the digit. Shift, scale and gate of each block
 * come from the noise level and the digit; attention has RMS norms of q and k, and rotary positions
 * along frames, height and width.
 *
 * A frame is `side` by `side` pixels in patches of 2 by 2. With `side` 8 frames are the digits
 * themselves; with more a digit moves and bounces. `--decoder` adds a network that doubles the
 * resolution of frames, as the decoder of an autoencoder does.
 *
 * A clip has `frames` of its own between `context` frames on either side: those of the block
 * before, less noisy or clean, and of the block after, noisier. The loss covers its own.
 *
 * B clips of a microbatch, T tokens, P tokens of a frame, C width, H heads. When frames are
 * generated
 * (<sluice/generation.h>) a tick is one clip, and tensors are [1, T, ways, C]. */
#include "digits.h"

/* clang-format off */
static const sl_option options[] = {
    CLIP_OPTIONS,
    {"layers", SL_OPTION_INT, "4", "transformer blocks", 1, 1000},
    {"width", SL_OPTION_INT, "64", "model width: numbers per token", 1, 1 << 16},
    {"heads", SL_OPTION_INT, "4", "attention heads; must divide the width, with an even number of "
     "numbers each", 1, 1 << 10},
    {"decoder", SL_OPTION_INT, "0", "width of the decoder; 0: none", 0, 1 << 16},
    {"decoder-apart", SL_OPTION_FLAG, "0", "with two stages, clips are decoded on the second, and the "
     "network is on the first", 0, 0},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

enum { PATCH = 2, CHANNELS = PATCH * PATCH };

typedef struct shape {
  clip_shape clip;
  int64_t rows, side, frames, context, width, decoder;
  int64_t patches, tokens; /* P, T */
  int layers, heads;
  bool apart;
  sl_generation *generates; /* NULL: trains */
} shape;

/* ---- layers -------------------------------------------------------------------------------- */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, float std, const char *name) {
  int64_t in = sl_dim(x, -1);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(std), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b); /* [..., out] */
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, const char *name) {
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, sl_dim(x, -1)), SL_CONSTANT(1), "%s.weight", name);
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, sl_dim(x, -1)), SL_CONSTANT(0), "%s.bias", name);
  return sl_layernorm(g, x, gain, bias, 1e-6f);
}

/* "h.3.q" */
static const char *part(char out[48], int layer, const char *name) {
  snprintf(out, 48, "h.%d.%s", layer, name);
  return out;
}

/* Shapes numbers of a clip, [B or ways, C], so that they meet each of its tokens. */
static sl_tensor *beside(sl_graph *g, const shape *s, sl_tensor *x) {
  return s->generates ? sl_reshape(g, x, 1, 1, s->generates->ways, s->width)
                      : sl_reshape(g, x, s->rows, 1, s->width);
}

/* Returns number i of the parts of a modulation [B or ways, parts C], to combine with x. */
static sl_tensor *pick(sl_graph *g, const shape *s, sl_tensor *modulation, int i) {
  return beside(g, s, sl_slice(g, modulation, 1, i * s->width, s->width));
}

/* x (1 + scale) + shift */
static sl_tensor *modulate(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *by, int i) {
  sl_tensor *scale = sl_add_constant(g, pick(g, s, by, i), 1);
  return sl_add(g, sl_mul(g, x, scale), pick(g, s, by, i + 1));
}

/* Norms the heads of x [B, T, C] and rotates them to their positions. */
static sl_tensor *turn(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *gain,
                       sl_tensor *const angles[2]) {
  int64_t dim = s->width / s->heads, half = dim / 2;
  x = sl_rmsnorm(g, sl_reshape(g, x, s->rows, s->tokens, s->heads, dim), gain, 1e-5f);
  sl_tensor *u = sl_slice(g, x, 3, 0, half), *v = sl_slice(g, x, 3, half, half);
  sl_tensor *turned[] = {sl_sub(g, sl_mul(g, u, angles[0]), sl_mul(g, v, angles[1])),
                         sl_add(g, sl_mul(g, v, angles[0]), sl_mul(g, u, angles[1]))};
  return sl_reshape(g, sl_concat(g, 3, 2, turned), s->rows, s->tokens, s->width);
}

static sl_tensor *attend(sl_graph *g, const shape *s, sl_tensor *x, int layer,
                         sl_tensor *const angles[2], const sl_generated *tick) {
  char name[48];
  int64_t C = s->width;
  float std = 1 / sqrtf((float)C);
  sl_tensor *q = dense(g, x, C, std, part(name, layer, "q"));
  sl_tensor *k = dense(g, x, C, std, part(name, layer, "k"));
  sl_tensor *v = dense(g, x, C, std, part(name, layer, "v"));
  const sl_type gain = SL_TYPE(SL_F32, C / s->heads);
  sl_tensor *q_gain = sl_param(g, gain, SL_CONSTANT(1), "h.%d.q_norm.weight", layer);
  sl_tensor *k_gain = sl_param(g, gain, SL_CONSTANT(1), "h.%d.k_norm.weight", layer);
  part(name, layer, "attention");
  if (tick) return sl_generate_attend(g, tick, q, k, v, q_gain, k_gain, s->heads, name);
  q = turn(g, s, q, q_gain, angles);
  k = turn(g, s, k, k_gain, angles);
  return sl_attend(g, q, k, v, &(sl_attention_attrs){.heads = s->heads, .full = true});
}

static sl_tensor *transformer_block(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *condition,
                                    int layer, sl_tensor *const angles[2],
                                    const sl_generated *tick) {
  char name[48];
  int64_t C = s->width;
  float std = 1 / sqrtf((float)C);
  sl_block(g, "h.%d", layer);
  sl_tensor *by = dense(g, condition, 6 * C, 0.02f, part(name, layer, "modulation"));
  sl_tensor *y = modulate(g, s, norm(g, x, part(name, layer, "norm1")), by, 0);
  y = dense(g, attend(g, s, y, layer, angles, tick), C, std, part(name, layer, "out"));
  x = sl_add(g, x, sl_mul(g, y, pick(g, s, by, 2)));
  y = modulate(g, s, norm(g, x, part(name, layer, "norm2")), by, 3);
  y = sl_gelu(g, dense(g, y, 4 * C, std, part(name, layer, "up")));
  y = dense(g, y, C, std / 2, part(name, layer, "down"));
  return sl_add(g, x, sl_mul(g, y, pick(g, s, by, 5)));
}

/* Returns the condition of a clip, [B or ways, C], from its noise level and class. */
static sl_tensor *condition_of(sl_graph *g, const shape *s, sl_tensor *features,
                               sl_tensor *labels) {
  sl_tensor *table =
      sl_param(g, SL_TYPE(SL_F32, CLASSES + 1, s->width), SL_NORMAL(0.5f), "class.weight");
  sl_tensor *t = sl_silu(g, dense(g, features, s->width, 0.2f, "time.0"));
  t = dense(g, t, s->width, 0.2f, "time.1");
  return sl_silu(g, sl_add(g, t, sl_embedding(g, labels, table)));
}

/* Returns v, [B, T, CHANNELS] or [1, T, ways, CHANNELS], of tokens x. */
static sl_tensor *network(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *features,
                          sl_tensor *labels, sl_tensor *const angles[2], const sl_generated *tick) {
  sl_tensor *condition = condition_of(g, s, features, labels);
  sl_tensor *shown =
      sl_param(g, SL_TYPE(SL_F32, CLASSES + 1, s->width), SL_NORMAL(0.02f), "class.token.weight");
  sl_tensor *of_class = beside(g, s, sl_embedding(g, labels, shown));
  x = dense(g, x, s->width, 0.5f, "patches");
  if (tick) x = sl_reshape(g, x, 1, sl_dim(x, 1), 1, s->width);
  x = sl_add(g, x, of_class);
  for (int layer = 0; layer < s->layers; layer++)
    x = transformer_block(g, s, x, condition, layer, angles, tick);
  sl_block(g, "head");
  sl_tensor *by = dense(g, condition, 2 * s->width, 0.02f, "head.modulation");
  return dense(g, modulate(g, s, norm(g, x, "head.norm"), by, 0), CHANNELS, 0.02f, "head.out");
}

/* Returns frames at twice the resolution, [..., frames, 4 side side]. */
static sl_tensor *decode(sl_graph *g, const shape *s, sl_tensor *frames) {
  float std = 1 / sqrtf((float)(s->side * s->side));
  sl_block(g, "decoder");
  if (s->apart && s->generates) sl_block_stage(g, 1);
  sl_tensor *y = sl_gelu(g, dense(g, frames, s->decoder, std, "decoder.0"));
  return dense(g, y, 4 * s->side * s->side, 1 / sqrtf((float)s->decoder), "decoder.1");
}

/* ---- the model ----------------------------------------------------------------------------- */

static void check_shape(sl_graph *g, const shape *s) {
  if (s->apart && s->generates && (!s->decoder || sl_graph_stages(g) != 2))
    sl_graph_fail(g, SL_E_USAGE, "dit: --decoder-apart: needs --decoder and --stages 2");
  if (s->side % PATCH)
    sl_graph_fail(g, SL_E_USAGE, "dit: --side %lld: must be a multiple of %d", (long long)s->side,
                  PATCH);
  if (s->width % (2 * s->heads))
    sl_graph_fail(g, SL_E_USAGE, "dit: --width %lld: must be a multiple of twice --heads %d",
                  (long long)s->width, s->heads);
}

static shape read_shape(sl_graph *g, const sl_args *args) {
  shape s = {.clip = read_clip_shape(g, args, "dit"),
             .width = sl_arg_int(args, "width"),
             .decoder = sl_arg_int(args, "decoder"),
             .layers = (int)sl_arg_int(args, "layers"),
             .heads = (int)sl_arg_int(args, "heads"),
             .apart = sl_arg_flag(args, "decoder-apart"),
             .generates = sl_graph_generation(g)};
  clip_shape *c = &s.clip;
  c->after = c->context;
  c->seen += c->after;
  c->patch = PATCH;
  c->patches = c->side / PATCH * (c->side / PATCH);
  c->sharp = s.decoder;
  s.rows = c->rows, s.side = c->side, s.frames = c->frames, s.context = c->context;
  s.patches = c->patches;
  s.tokens = c->seen * c->patches;
  check_shape(g, &s);
  return s;
}

static void train(sl_graph *g, const sl_args *args, const shape *s) {
  sl_tensor *data[OUTPUTS] = {0}, *angles[2];
  int64_t across = s->side / PATCH, half = s->width / s->heads / 2;
  size_t count = (size_t)(s->tokens * half);
  float *turns[2] = {sl_graph_alloc(g, count * sizeof(float)),
                     sl_graph_alloc(g, count * sizeof(float))};
  sl_generation_angles(s->clip.seen, across, across, 2 * half, turns[0], turns[1]);
  sl_data(g, &make_clips(g, args, &s->clip)->source, data);
  sl_block(g, "latents");
  for (int i = 0; i < 2; i++)
    angles[i] = sl_constant(g, SL_TYPE(SL_F32, s->tokens, 1, half), turns[i], NULL);
  sl_tensor *v = network(g, s, data[NOISED], data[FEATURES], data[LABELS], angles, NULL);
  v = sl_slice(g, v, 1, s->context * s->patches, s->frames * s->patches);
  sl_tensor *loss = sl_mse(g, v, data[VELOCITY]);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  if (s->decoder) loss = sl_add(g, loss, sl_mse(g, decode(g, s, data[CLEAN]), data[SHARP]));
  sl_train(g, loss, &optimizer);
}

static void generate(sl_graph *g, const shape *s) {
  sl_generation *how = s->generates;
  how->frames = s->frames;
  how->context = s->context;
  how->patches = s->patches;
  how->channels = CHANNELS;
  how->grid[0] = how->grid[1] = s->side / PATCH;
  how->height = how->width = s->decoder ? 2 * s->side : s->side;
  how->patch = s->decoder ? 1 : PATCH;
  how->classes = CLASSES;
  sl_block(g, "latents");
  if (s->apart) sl_block_stage(g, 0);
  sl_generated tick = sl_generate_begin(g);
  sl_tensor *y = network(g, s, tick.rows, tick.features, tick.labels, NULL, &tick);
  sl_tensor *frames = sl_generate_end(g, &tick, sl_generate_guide(g, &tick, y));
  if (s->decoder) frames = decode(g, s, frames);
  sl_output(g, "frames", frames);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  shape s = read_shape(g, args);
  if (sl_graph_status(g)) return sl_graph_status(g);
  if (s.generates) generate(g, &s);
  else if (sl_graph_infer(g))
    sl_graph_fail(g, SL_E_UNSUPPORTED, "dit: generates frames (--clips), not tokens");
  else train(g, args, &s);
  return sl_graph_status(g);
}

SL_MODEL(dit, "diffusion transformer: images and videos of digits by flow matching", options,
         build);
