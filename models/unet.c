/* SPDX-License-Identifier: Apache-2.0 */
/* A diffusion network of convolutions (a small U-Net: Ronneberger et al., arXiv 1505.04597) for
 * clips of digits, trained by flow matching as dit is. The frames of a clip are the channels of one
 * image; a context that is absent is 0.
 *
 * B clips of a microbatch, F frames of a clip with its context, S side, C width. When frames are
 * generated (<sluice/generation.h>) a tick is one clip, B its ways, and a row one frame. */
#include "digits.h"

/* clang-format off */
static const sl_option options[] = {
    CLIP_OPTIONS,
    {"width", SL_OPTION_INT, "32", "channels at full resolution; a multiple of 8", 8, 1 << 12},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

enum { GROUPS = 8 };

typedef struct shape {
  clip_shape clip;
  int64_t width, batch; /* batch: B */
  sl_generation *generates;
} shape;

/* ---- frames as channels -------------------------------------------------------------------- */

/* images(rows [1, F, S S], tick), attrs.shape.dims: context, ways, side -> [ways, F, S, S] */
static sl_status images_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  out[0] = SL_TYPE(SL_F32, attrs->shape.dims[1], in[0].dim[1], attrs->shape.dims[2],
                   attrs->shape.dims[2]);
  return SL_OK;
}

static void images_cpu(const sl_call *call) {
  const sl_generation_tick *t = call->in[1];
  int64_t frames = call->in_type[0].dim[1], area = call->in_type[0].dim[2];
  int64_t rows = sl_call_rows(call, 0, frames), first = call->attrs->shape.dims[0] - t->context;
  for (int64_t way = 0; way < call->attrs->shape.dims[1]; way++) {
    float *image = (float *)call->out[0] + way * frames * area;
    memset(image, 0, (size_t)(frames * area) * sizeof *image);
    memcpy(image + first * area, call->in[0], (size_t)(rows * area) * sizeof *image);
  }
}

static const sl_op images_op = {.name = "images",
                                .attrs = {&sl_attrs_shape},
                                .min_in = 2,
                                .max_in = 2,
                                .nout = 1,
                                .traits = SL_OP_DETACHED,
                                .infer = images_infer,
                                .rows = &(const sl_op_rows){.looks = 1},
                                .kernels = SL_CPU_KERNEL(images_cpu)};

/* frames(v [ways, frames, S, S], rows [1, F, S S], tick) -> [1, F, ways, S S]: 0 for the context.
 */
static sl_status frames_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = SL_TYPE(SL_F32, 1, in[1].dim[1], in[0].dim[0], in[1].dim[2]);
  return SL_OK;
}

static void frames_cpu(const sl_call *call) {
  const sl_generation_tick *t = call->in[2];
  int64_t ways = call->in_type[0].dim[0], own = call->in_type[0].dim[1],
          area = call->in_type[1].dim[2], rows = sl_call_rows(call, 1, call->in_type[1].dim[1]);
  for (int64_t row = 0; row < rows; row++)
    for (int64_t way = 0; way < ways; way++) {
      float *to = (float *)call->out[0] + (row * ways + way) * area;
      const float *from = (const float *)call->in[0] + (way * own + row - t->context) * area;
      if (row < t->context) memset(to, 0, (size_t)area * sizeof *to);
      else memcpy(to, from, (size_t)area * sizeof *to);
    }
}

static const sl_op frames_op = {.name = "frames",
                                .min_in = 3,
                                .max_in = 3,
                                .nout = 1,
                                .traits = SL_OP_DETACHED,
                                .infer = frames_infer,
                                .rows = &(const sl_op_rows){.looks = 2, .follows = 1},
                                .kernels = SL_CPU_KERNEL(frames_cpu)};

/* ---- layers -------------------------------------------------------------------------------- */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *name) {
  int64_t in = sl_dim(x, -1);
  float std = in > 0 ? 1 / sqrtf((float)in) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(std), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear(g, x, w, b);
}

static sl_tensor *convolution(sl_graph *g, sl_tensor *x, int64_t out, float scale,
                              const char *name) {
  int64_t in = sl_dim(x, 1);
  float std = in > 0 ? scale / sqrtf((float)(9 * in)) : 0;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in, 3, 3), SL_NORMAL(std), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  const sl_window window = {.pad = {1, 1}};
  return sl_conv(g, x, w, b, &window);
}

static sl_tensor *activate(sl_graph *g, sl_tensor *x, const char *name) {
  sl_type type = SL_TYPE(SL_F32, sl_dim(x, 1));
  sl_tensor *gain = sl_param(g, type, SL_CONSTANT(1), "%s.weight", name);
  sl_tensor *bias = sl_param(g, type, SL_CONSTANT(0), "%s.bias", name);
  return sl_silu(g, sl_group_norm(g, x, GROUPS, gain, bias, 1e-5f));
}

/* Two convolutions and the condition [B, C], added to x. */
static sl_tensor *residual(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *condition,
                           const char *block) {
  char name[48];
  int64_t channels = sl_dim(x, 1);
  sl_block(g, "%s", block);
  snprintf(name, sizeof name, "%s.norm1", block);
  sl_tensor *y = activate(g, x, name);
  snprintf(name, sizeof name, "%s.conv1", block);
  y = convolution(g, y, channels, 1.4f, name);
  snprintf(name, sizeof name, "%s.condition", block);
  y = sl_add(g, y, sl_reshape(g, dense(g, condition, channels, name), s->batch, channels, 1, 1));
  snprintf(name, sizeof name, "%s.norm2", block);
  y = activate(g, y, name);
  snprintf(name, sizeof name, "%s.conv2", block);
  return sl_add(g, x, convolution(g, y, channels, 0.7f, name));
}

/* Doubles the resolution: each pixel four times. */
static sl_tensor *enlarge(sl_graph *g, const shape *s, sl_tensor *x) {
  int64_t channels = sl_dim(x, 1), side = sl_dim(x, 2);
  x = sl_reshape(g, x, s->batch, channels, side, 1, side, 1);
  x = sl_expand(g, x, s->batch, channels, side, 2, side, 2);
  return sl_reshape(g, x, s->batch, channels, 2 * side, 2 * side);
}

/* x [B, F, S, S], features [B or 1, 32], labels [B] -> v [B, frames, S, S] */
static sl_tensor *network(sl_graph *g, const shape *s, sl_tensor *x, sl_tensor *features,
                          sl_tensor *labels) {
  int64_t C = s->width;
  const sl_window halved = {.size = {2, 2}};
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, CLASSES + 1, 2 * C), SL_NORMAL(1), "class.weight");
  sl_tensor *t = dense(g, sl_silu(g, dense(g, features, 2 * C, "time.0")), 2 * C, "time.1");
  sl_tensor *condition = sl_silu(g, sl_add(g, t, sl_embedding(g, labels, table)));
  sl_tensor *fine = residual(g, s, convolution(g, x, C, 1, "first"), condition, "down");
  sl_block(g, "middle");
  x = convolution(g, sl_mean_pool(g, fine, &halved), 2 * C, 1, "narrow");
  x = residual(g, s, x, condition, "middle.0");
  x = residual(g, s, x, condition, "middle.1");
  sl_block(g, "up");
  sl_tensor *both[] = {enlarge(g, s, x), fine};
  x = convolution(g, sl_concat(g, 1, 2, both), C, 1, "wide");
  x = residual(g, s, x, condition, "up.0");
  sl_block(g, "head");
  return convolution(g, activate(g, x, "head.norm"), s->clip.frames, 0.1f, "head");
}

/* ---- the model ----------------------------------------------------------------------------- */

static shape read_shape(sl_graph *g, const sl_args *args) {
  shape s = {.clip = read_clip_shape(g, args, "unet"),
             .width = sl_arg_int(args, "width"),
             .generates = sl_graph_generation(g)};
  s.clip.patch = s.clip.side;
  s.clip.patches = 1;
  s.clip.blank = true;
  s.batch = s.generates ? s.generates->ways : s.clip.rows;
  if (s.clip.side % 2)
    sl_graph_fail(g, SL_E_USAGE, "unet: --side %lld: must be even", (long long)s.clip.side);
  if (s.width % GROUPS)
    sl_graph_fail(g, SL_E_USAGE, "unet: --width %lld: must be a multiple of %d", (long long)s.width,
                  GROUPS);
  return s;
}

static void train(sl_graph *g, const sl_args *args, const shape *s) {
  const clip_shape *c = &s->clip;
  sl_tensor *data[OUTPUTS] = {0};
  sl_data(g, &make_clips(g, args, c)->source, data);
  sl_block(g, "latents");
  sl_tensor *x = sl_reshape(g, data[NOISED], c->rows, c->seen, c->side, c->side);
  sl_tensor *v = network(g, s, x, data[FEATURES], data[LABELS]);
  v = sl_reshape(g, v, c->rows, c->frames, c->side * c->side);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_mse(g, v, data[VELOCITY]), &optimizer);
}

static void generate(sl_graph *g, const shape *s) {
  const clip_shape *c = &s->clip;
  sl_generation *how = s->generates;
  how->frames = c->frames;
  how->context = c->context;
  how->patches = how->grid[0] = how->grid[1] = 1;
  how->channels = c->side * c->side;
  how->height = how->width = c->side;
  how->patch = 1;
  how->classes = CLASSES;
  sl_block(g, "latents");
  sl_generated tick = sl_generate_begin(g);
  sl_tensor *x = NULL, *y = NULL;
  sl_apply(g, &images_op, (&(sl_attrs){.shape = {3, {c->context, how->ways, c->side}}}), 2,
           ((sl_tensor *[]){tick.rows, tick.tick}), 0, &x);
  sl_tensor *v = network(g, s, x, tick.features, tick.labels);
  sl_apply(g, &frames_op, NULL, 3, ((sl_tensor *[]){v, tick.rows, tick.tick}), 0, &y);
  sl_output(g, "frames", sl_generate_end(g, &tick, sl_generate_guide(g, &tick, y)));
}

static sl_status build(sl_graph *g, const sl_args *args) {
  shape s = read_shape(g, args);
  if (sl_graph_status(g)) return sl_graph_status(g);
  if (s.generates) generate(g, &s);
  else if (sl_graph_infer(g))
    sl_graph_fail(g, SL_E_UNSUPPORTED, "unet: generates frames (--clips), not tokens");
  else train(g, args, &s);
  return sl_graph_status(g);
}

SL_MODEL(unet, "diffusion network of convolutions: images and videos of digits by flow matching",
         options, build);
