/* SPDX-License-Identifier: Apache-2.0 */
/* A hybrid: decoder.h with SwiGLU, where most blocks keep a state of fixed size per head (gated
 * linear attention) instead of keys and values of all positions. Every N-th block has softmax
 * attention with rotary positions, and a window if one is given. With --softmax-every 2 and --bias
 * qkv these are the layers of SpikingBrain-7B (arXiv 2509.05276).
 *
 * A linear block has no rotary positions. q and k go through ReLU. The gates of a position's key
 * channels come from a bottleneck of --gate-rank numbers. Each head's output is normalised before
 * the output product. With --spikes the linear layers of all blocks take integers that trains of
 * spikes can carry, and weights of int8. */
#include "decoder.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    {"ffn", SL_OPTION_INT, "0", "inner width of the feed-forward half; 0: 8/3 of the width, up "
     "to a multiple of 64", 0, 1 << 24},
    {"softmax-every", SL_OPTION_INT, "2", "`N`: every N-th block has softmax attention, the others linear "
     "attention; 0: none has", 0, 1000},
    {"spikes", SL_OPTION_FLOAT, "0", "`K`: linear layers of the blocks are spiking: a row becomes multiples of "
     "its mean size / K, and weights int8; 0: they are plain (SpikingBrain: 3)", 0, 1e4},
    {"gate-rank", SL_OPTION_INT, "16", "numbers between the two products that make the gates", 1, 1 << 16},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct hybrid {
  int every;
  int64_t gate_rank;
} hybrid;

/* Logarithms of the gates, at most 0: log(sigmoid(W2 (W1 x) + b)) / 16. [B, T, K*D] */
static sl_tensor *gates_of(sl_graph *g, decoder *d, sl_tensor *x, int64_t width, int layer) {
  const hybrid *h = d->own;
  const float slow = 16; /* near 1 at first: a state forgets over tens of positions */
  x = decoder_linear(g, d, x, d->width, h->gate_rank, 0.02f, layer, "self_attn.gk_proj.0");
  x = decoder_biased(g, d, true, x, h->gate_rank, width, 0.02f, layer, "self_attn.gk_proj.1");
  return sl_scale(g, sl_softplus(g, sl_neg(g, x)), -1 / slow);
}

static sl_tensor *linear_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                   int layer) {
  int64_t C = d->width, Q = d->heads * d->head_dim, KV = d->kv_heads * d->head_dim;
  bool bias = d->qkv_bias;
  sl_tensor *q = decoder_biased(g, d, bias, x, C, Q, 0.02f, layer, "self_attn.q_proj");
  sl_tensor *k = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.k_proj");
  sl_tensor *v = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.v_proj");
  const sl_attrs attrs = {.heads = d->heads, .kv_heads = d->kv_heads};
  sl_tensor *o = sl_linear_attention(g, sl_relu(g, q), sl_relu(g, k), v,
                                     gates_of(g, d, x, KV, layer), &attrs); /* [B, T, H*D] */
  return decoder_biased(g, d, d->o_bias,
                        decoder_head_norm(g, d, o, d->heads, layer, "self_attn.g_norm"), Q, C,
                        residual, layer, "self_attn.o_proj");
}

static sl_tensor *mix(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const hybrid *h = d->own;
  bool softmax = h->every && (layer + 1) % h->every == 0;
  return (softmax ? decoder_attention : linear_attention)(g, d, x, residual, layer);
}

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  return decoder_swiglu(g, d, x, d->ffn, residual, layer, "mlp");
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "hybrid");
  hybrid h = {(int)sl_arg_int(args, "softmax-every"), sl_arg_int(args, "gate-rank")};
  d.ffn = sl_arg_int(args, "ffn");
  if (!d.ffn) d.ffn = (d.width * 8 / 3 + 63) / 64 * 64;
  d.own = &h;
  d.mixer = mix;
  d.spiking.k = (float)sl_arg_float(args, "spikes");
  d.alone |= h.every != 1;
  if (sl_arg_int(args, "document-end") >= 0 && h.every != 1)
    return sl_graph_fail(g, SL_E_USAGE,
                         "hybrid: --document-end: states go on from document to document");
  return decoder_build(g, args, &d, feed_forward);
}

SL_MODEL(hybrid, "hybrid: gated linear attention and softmax attention, SwiGLU", options, build);
