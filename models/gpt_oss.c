/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss (OpenAI, arXiv 2508.10925): moe.h with attention sinks, sliding windows in all blocks but
 * every N-th, and biases everywhere. One product computes an expert's gate and up, interleaved;
 * both are clamped, and y = (up + 1) gate sigmoid(1.702 gate). Weight files of Hugging Face's
 * GptOssForCausalLM load in both directions; files in MXFP4 can only be read. */
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FULL_EVERY("2"),
    {"experts", SL_OPTION_INT, "8", "experts per block", 1, 1 << 16},
    MOE_ROUTING_OPTIONS("1"),
    {"swiglu-limit", SL_OPTION_FLOAT, "7", "limit on the gate, and on the magnitude of what it "
     "multiplies", 0, 1e30},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct oss {
  moe moe;
  float limit;
} oss;

/* Adds to each token the biases of its experts, from [E, out]. */
static sl_tensor *add_bias(sl_graph *g, const moe *m, sl_tensor *y, sl_tensor *ids, int64_t out,
                           int layer, const char *name) {
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, m->experts, out), SL_CONSTANT(0),
                             "model.layers.%d.mlp.experts.%s_bias", layer, name);
  return sl_add(g, y, sl_embedding(g, ids, bias));
}

/* Linear layer of the experts, with biases. Files store its weight transposed. */
static sl_tensor *expert_map(sl_graph *g, const moe *m, sl_tensor *x, sl_tensor *ids, int64_t in,
                             int64_t out, float std, int layer, const char *name) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, m->experts, out, in), SL_NORMAL(std),
                          "model.layers.%d.mlp.experts.%s'", layer, name);
  return add_bias(g, m, sl_grouped_linear(g, x, ids, w), ids, out, layer, name);
}

/* Splits y [B, T, k, 2F] into its interleaved gate and up, and gates it. Returns [B, T, k, F]. */
static sl_tensor *gated(sl_graph *g, const decoder *d, sl_tensor *y, int64_t inner, float limit) {
  const moe *m = d->own;
  sl_tensor *half[2];
  sl_split(g, sl_reshape(g, y, d->rows, -1, m->k, inner, 2), 4, 2, NULL, half);
  for (int i = 0; i < 2; i++) half[i] = sl_reshape(g, half[i], d->rows, -1, m->k, inner);
  sl_tensor *gate = sl_clamp(g, half[0], -INFINITY, limit);
  sl_tensor *up = sl_add_constant(g, sl_clamp(g, half[1], -limit, limit), 1);
  return sl_mul(g, up, sl_mul(g, gate, sl_sigmoid(g, sl_scale(g, gate, 1.702f))));
}

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const oss *o = d->own;
  const moe *m = &o->moe;
  int64_t C = d->width, F = m->inner;
  sl_tensor *logits = decoder_biased(g, d, true, x, C, m->experts, 0.02f, layer, m->names.router);
  sl_routing r = sl_route(g, logits, m->k, m->normed); /* [B, T, k] */
  moe_losses(g, d, m, logits, &r);
  moe_count(g, m, r.ids, layer);
  sl_tensor *y = expert_map(g, m, x, r.ids, C, 2 * F, 0.02f, layer, m->names.up);
  y = expert_map(g, m, gated(g, d, y, F, o->limit), r.ids, F, C, residual, layer, m->names.down);
  return sl_combine(g, y, r.weights); /* [B, T, C] */
}

static sl_status build(sl_graph *g, const sl_args *args) {
  static const moe_names names = {
      .router = "mlp.router", .up = "gate_up_proj", .down = "down_proj"};
  decoder d = decoder_of(g, args, "gpt-oss");
  oss o = {.moe = moe_of(g, args, &d, names), .limit = (float)sl_arg_float(args, "swiglu-limit")};
  if (o.moe.capacity > 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "gpt-oss: --expert-capacity: not supported; experts take all tokens routed to them");
  d.own = &o;
  d.sinks = true;
  decoder_windows(&d, sl_arg_int(args, "window") > 0, (int)sl_arg_int(args, "full-every"));
  decoder_halves(&d, decoder_attention, feed_forward);
  return decoder_build(g, args, &d);
}

SL_MODEL_NAMED(gpt_oss, "gpt-oss", "gpt-oss: experts, attention sinks, windows", options, build);
