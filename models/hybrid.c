/* SPDX-License-Identifier: Apache-2.0 */
/* A hybrid: decoder.h with SwiGLU or experts (moe.h), whose blocks have linear attention, softmax
 * attention, or both side by side. Gated linear attention keeps a state of fixed size per head;
 * softmax attention has rotary positions and optionally a window. --softmax-every 2 and --bias qkv
 * give the layers of SpikingBrain-7B; --side-by-side, --gates keys and experts give
 * SpikingBrain-76B (arXiv 2509.05276).
 *
 * Linear attention has no rotary positions. Each head's output is normalized before the output
 * product. Side by side, both kinds share q, k and v; both outputs are normalized, weighted by
 * learned numbers and added. With --gates own, q and k go through ReLU, and a bottleneck of
 * --gate-rank numbers produces one gate per key channel. With --gates keys, q and k go through the
 * sigmoid, and the gates are 1 - k. With --spikes the linear layers of all blocks take integer
 * inputs, which spike trains can carry, and int8 weights. */
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FFN,
    {"softmax-every", SL_OPTION_INT, "2", "`N`: every N-th block has softmax attention and the "
     "rest linear attention; 0: none", 0, 1000},
    {"side-by-side", SL_OPTION_FLAG, "0", "each block has both kinds of attention and adds their "
     "normed outputs with weights (SpikingBrain-76B)", 0, 0},
    {"gates", SL_OPTION_TEXT, "own", "`WHENCE` the gates of linear attention come: own (their "
     "own projection), or keys (1 - k, with q and k through a sigmoid: SpikingBrain-76B)", 0, 0},
    {"spikes", SL_OPTION_FLOAT, "0", "`K`: spiking linear layers in the blocks: a row becomes "
     "multiples of its mean size / K, weights int8; 0: plain linear layers (SpikingBrain: "
     "3)", 0, 1e4},
    {"gate-rank", SL_OPTION_INT, "16", "rank of the projection that makes the gates", 1, 1 << 16},
    {"sink-tokens", SL_OPTION_INT, "0", "`N` learned tokens in front of each sequence, visible "
     "to all positions whatever the window (SpikingBrain-76B: 128)", 0, 1 << 16},
    {"experts", SL_OPTION_INT, "0", "experts per block; 0: none", 0, 1 << 16},
    MOE_ROUTING_OPTIONS("0"),
    MOE_DENSE_OPTIONS,
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct hybrid {
  moe moe; /* must be first: moe.h reads decoder.own as a moe */
  int every;
  bool both, by_keys; /* both kinds of attention in each block; gates are 1 - k */
  int64_t gate_rank;
  const char *dense; /* list of blocks without experts */
} hybrid;

static const moe_names hybrid_names = {.router = "mlp.gate",
                                       .gate = "mlp.experts.*.gate_proj.weight",
                                       .up = "mlp.experts.*.up_proj.weight",
                                       .down = "mlp.experts.*.down_proj.weight",
                                       .shared = "mlp.shared_expert",
                                       .plain = true};

static const hybrid *hybrid_of(const decoder *d) { return d->own; }

/* ---- attention ----------------------------------------------------------------------------- */

/* Computes the logarithms of the gates, at most 0: log(sigmoid(W2 (W1 x) + b)) / 16. [B, T, K*D] */
static sl_tensor *own_gates(sl_graph *g, decoder *d, sl_tensor *x, int64_t width, int layer) {
  const float slow = 16; /* initial gates near 1: a state forgets over tens of positions */
  int64_t rank = hybrid_of(d)->gate_rank;
  x = decoder_linear(g, d, x, d->width, rank, 0.02f, layer, "self_attn.gk_proj.0");
  x = decoder_biased(g, d, true, x, rank, width, 0.02f, layer, "self_attn.gk_proj.1");
  return sl_scale(g, sl_softplus(g, sl_neg(g, x)), -1 / slow);
}

/* Gated linear attention with each head's output normalized. Returns [B, T, H*D]. */
static sl_tensor *follow_states(sl_graph *g, decoder *d, sl_tensor *x, sl_tensor *const *qkv,
                                int layer) {
  const sl_attrs attrs = {.heads = d->heads, .kv_heads = d->kv_heads};
  bool by_keys = hybrid_of(d)->by_keys;
  sl_tensor *q = by_keys ? sl_sigmoid(g, qkv[0]) : sl_relu(g, qkv[0]);
  sl_tensor *k = by_keys ? sl_sigmoid(g, qkv[1]) : sl_relu(g, qkv[1]);
  /* log(1 - sigmoid(x)) */
  sl_tensor *gates = by_keys ? sl_neg(g, sl_softplus(g, qkv[1]))
                             : own_gates(g, d, x, d->kv_heads * d->head_dim, layer);
  sl_tensor *o = sl_linear_attention(g, q, k, qkv[2], states_gates(g, gates, d->shut), &attrs);
  return decoder_head_norm(g, d, o, d->heads, layer, "self_attn.g_norm");
}

static sl_tensor *project(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  return decoder_biased(g, d, d->o_bias, x, d->heads * d->head_dim, d->width, residual, layer,
                        "self_attn.o_proj");
}

static sl_tensor *linear_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                   int layer) {
  sl_tensor *qkv[3];
  decoder_qkv(g, d, x, layer, qkv);
  return project(g, d, follow_states(g, d, x, qkv, layer), residual, layer);
}

/* Multiplies an output x [B, T, H*D] by learned weights [H*D]. */
static sl_tensor *weighted(sl_graph *g, const decoder *d, sl_tensor *x, int layer,
                           const char *name) {
  char all[64];
  snprintf(all, sizeof all, "self_attn.%s.weight", name);
  sl_tensor *by =
      decoder_param(g, d, SL_TYPE(SL_F32, d->heads * d->head_dim), SL_CONSTANT(0.5f), layer, all);
  return sl_mul(g, x, by);
}

static sl_tensor *side_by_side(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  sl_tensor *qkv[3];
  decoder_qkv(g, d, x, layer, qkv);
  sl_tensor *linear = follow_states(g, d, x, qkv, layer);
  sl_tensor *softmax = decoder_softmax(g, d, qkv[0], qkv[1], qkv[2], layer);
  softmax = decoder_head_norm(g, d, softmax, d->heads, layer, "self_attn.s_norm");
  sl_tensor *sum = sl_add(g, weighted(g, d, softmax, layer, "softmax_scale"),
                          weighted(g, d, linear, layer, "linear_scale"));
  return project(g, d, sum, residual, layer);
}

static sl_tensor *mix(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const hybrid *h = hybrid_of(d);
  bool softmax = h->every && (layer + 1) % h->every == 0;
  decoder_half *half = h->both ? side_by_side : softmax ? decoder_attention : linear_attention;
  return half(g, d, x, residual, layer);
}

/* ---- feed-forward halves ------------------------------------------------------------------- */

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const hybrid *h = hybrid_of(d);
  if (h->moe.experts && !moe_is_listed(h->dense, layer)) return moe_half(g, d, x, residual, layer);
  return decoder_mlp(g, d, x, residual, layer);
}

/* ---- build --------------------------------------------------------------------------------- */

static bool are_by_keys(sl_graph *g, const sl_args *args) {
  const char *gates = sl_arg_text(args, "gates");
  bool keys = !strcmp(gates, "keys");
  if (!keys && strcmp(gates, "own"))
    sl_graph_fail(g, SL_E_USAGE, "hybrid: --gates %s: must be own or keys", gates);
  return keys;
}

static hybrid hybrid_read(sl_graph *g, const sl_args *args, const decoder *d) {
  hybrid h = {.moe = moe_of(g, args, d, hybrid_names),
              .every = (int)sl_arg_int(args, "softmax-every"),
              .both = sl_arg_flag(args, "side-by-side"),
              .by_keys = are_by_keys(g, args),
              .gate_rank = sl_arg_int(args, "gate-rank"),
              .dense = moe_dense_of(g, args, d)};
  if (!sl_arg_int(args, "expert-ffn")) h.moe.inner = d->ffn;
  if (h.moe.experts && sl_arg_float(args, "spikes") > 0)
    sl_graph_fail(g, SL_E_USAGE, "hybrid: --spikes: not supported with --experts");
  return h;
}

static int64_t sink_tokens_of(sl_graph *g, const sl_args *args) {
  int64_t n = sl_arg_int(args, "sink-tokens");
  if (n && sl_arg_int(args, "document-end") >= 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "hybrid: --sink-tokens: not supported with --document-end, since sink tokens stand in "
        "front of a row");
  return n;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "hybrid");
  d.sink_tokens = sink_tokens_of(g, args);
  d.ffn = decoder_ffn(args, &d);
  hybrid h = hybrid_read(g, args, &d);
  if (sl_graph_status(g)) return sl_graph_status(g);
  d.own = &h;
  d.spiking.k = (float)sl_arg_float(args, "spikes");
  d.states = h.both || h.every != 1;
  decoder_halves(&d, mix, feed_forward);
  return decoder_build(g, args, &d);
}

SL_MODEL(hybrid, "hybrid: gated linear attention and softmax attention, SwiGLU or experts", options,
         build);
