/* SPDX-License-Identifier: Apache-2.0 */
/* Which digit? A small vision-text model reads frames, images of handwritten digits, and answers
 * questions about them. It learns from examples first, then from its own answers (GRPO).
 *
 *     python3 examples/make_which_digit.py digits/
 *     actorrun --steps 150 --save digits/first.safetensors \
 *       examples/which_digit.c --data digits/tokens.npy --frames digits/frames.npy
 *     actorrun --steps 100 --init digits/first.safetensors --rl grpo:group=8,kl=0.01 \
 *       --prompts digits/prompts.jsonl --reward exact --stop '\n' --max-tokens 2 \
 *       examples/which_digit.c --frames digits/frames.npy --batch 128
 *
 * A frame has 4 patches of 4 by 4 pixels. An encoder turns each patch into a row: a transformer
 * in which the patches of a frame attend to each other, and a projection to the width of the text
 * model. The rows replace the prompt's tokens 1, which come before "#" and the number of a
 * frame. In training from rollouts the encoder is frozen, and each step encodes the frames of a
 * prompt once for all its answers. */
#include <stdio.h>
#include <sluice/frames.h>
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_TEXT, "", "the `FILE` of tokens to learn", 0, 0},
    {"frames", SL_OPTION_TEXT, "", "the `FILE` of frames", 0, 0},
    {"each", SL_OPTION_INT, "2", "frames of a prompt", 1, 1 << 16},
    {"batch", SL_OPTION_INT, "32", "prompts per step", 1, 1 << 20},
    {"patches", SL_OPTION_INT, "4", "patches of a frame", 1, 1 << 16},
    {"pixels", SL_OPTION_INT, "16", "pixels of a patch", 1, 1 << 16},
    {"merge", SL_OPTION_INT, "1", "neighbouring patches that become one row", 1, 1 << 8},
    {"vision-width", SL_OPTION_INT, "0", "width of the encoder; 0: as the text model", 0, 1 << 16},
    {"vision-layers", SL_OPTION_INT, "1", "layers of the encoder", 1, 1 << 8},
    {"width", SL_OPTION_INT, "64", "width of the text model", 8, 1 << 16},
    {"layers", SL_OPTION_INT, "2", "layers of the text model", 1, 1 << 8},
    {"heads", SL_OPTION_INT, "4", "heads of every layer", 1, 1 << 12},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

enum { VOCABULARY = 128, MARKER = 1 };
enum { REST = 4 }; /* tokens of a prompt and its answer after the rows: "#17\n" */

static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t out, const char *of, const char *part) {
  int64_t in = sl_dim(x, -1);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(0.08f), "%s.%s.weight", of, part);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.%s.bias", of, part);
  return sl_linear(g, x, w, b); /* [..., out] */
}

static sl_tensor *norm(sl_graph *g, sl_tensor *x, const char *of, const char *part) {
  const sl_type type = SL_TYPE(SL_F32, sl_dim(x, -1));
  sl_tensor *gain = sl_param(g, type, SL_CONSTANT(1), "%s.%s.weight", of, part);
  sl_tensor *bias = sl_param(g, type, SL_CONSTANT(0), "%s.%s.bias", of, part);
  return sl_layernorm(g, x, gain, bias, 1e-5f);
}

/* Adds a transformer layer; with `full`, all positions attend to each other. */
static sl_tensor *layer(sl_graph *g, sl_tensor *x, int heads, bool full, const char *of) {
  int64_t width = sl_dim(x, -1);
  sl_tensor *y = dense(g, norm(g, x, of, "norm1"), 3 * width, of, "qkv");
  y = sl_attend_packed(g, y, &(sl_attention_attrs){.heads = heads, .full = full});
  x = sl_add(g, x, dense(g, y, width, of, "out"));
  y = dense(g, norm(g, x, of, "norm2"), 4 * width, of, "up");
  return sl_add(g, x, dense(g, sl_gelu(g, y), width, of, "down"));
}

/* frames [frames, patches, pixels] -> rows [frames, patches / merged, width of the text model] */
static sl_tensor *encoder(sl_graph *g, sl_tensor *frames, const sl_args *args) {
  int64_t text = sl_arg_int(args, "width"), own = sl_arg_int(args, "vision-width");
  int64_t width = own ? own : text;
  char name[32];
  sl_block(g, "vision");
  sl_tensor *x = dense(g, frames, width, "vision", "patches");
  x = sl_position(
      g, x,
      sl_param(g, SL_TYPE(SL_F32, sl_dim(frames, 1), width), SL_NORMAL(0.1f), "vision.position"));
  for (int i = 0; i < (int)sl_arg_int(args, "vision-layers"); i++) {
    snprintf(name, sizeof name, "vision.layer.%d", i);
    x = layer(g, x, (int)sl_arg_int(args, "heads"), true, i ? name : "vision.layer");
  }
  int64_t merged = sl_arg_int(args, "merge"), rows = sl_dim(x, 1) / merged;
  x = sl_reshape(g, norm(g, x, "vision", "norm"), sl_dim(x, 0), rows, merged * width);
  return dense(g, x, text, "vision", "project");
}

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t each = sl_arg_int(args, "each"), width = sl_arg_int(args, "width");
  int64_t patches = sl_arg_int(args, "patches"),
          context = each * (patches / sl_arg_int(args, "merge")) + REST;
  int64_t rows = sl_microbatch_rows(g, sl_arg_int(args, "batch"));
  const sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_tensor *targets;
  sl_tensor *tokens = sl_tokens(g, sl_arg_text(args, "data"), rows, context, VOCABULARY, &targets);
  sl_tensor *frames = sl_frames(g, sl_arg_text(args, "frames"), rows, each,
                                SL_TYPE(SL_F32, patches, sl_arg_int(args, "pixels")));
  sl_tensor *seen = encoder(g, frames, args);
  sl_block(g, "embed");
  sl_tensor *table =
      sl_param(g, SL_TYPE(SL_F32, VOCABULARY, width), SL_NORMAL(0.08f), "embed.weight");
  sl_tensor *x = sl_splice(g, sl_embedding(g, tokens, table), tokens, MARKER, seen);
  x = sl_position(g, x,
                  sl_param(g, SL_TYPE(SL_F32, context, width), SL_NORMAL(0.08f), "embed.position"));
  for (int i = 0; i < (int)sl_arg_int(args, "layers"); i++) {
    char name[16];
    snprintf(name, sizeof name, "h.%d", i);
    sl_block(g, "%s", name);
    x = layer(g, x, (int)sl_arg_int(args, "heads"), false, name);
  }
  sl_block(g, "head");
  sl_tensor *logits = dense(g, norm(g, x, "text", "norm"), VOCABULARY, "text", "head");
  sl_output(g, "logits", logits);
  sl_train(g, sl_cross_entropy(g, logits, targets), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(which_digit, "answers which digit is in a frame", options, build);
