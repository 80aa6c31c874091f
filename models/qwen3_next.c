/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next: blocks with gated delta rule states (Yang et al., arXiv 2412.06464), and softmax
 * attention in every N-th block, followed by mixtures of experts (moe.h) or SwiGLU. Weight files of
 * Hugging Face's Qwen3NextForCausalLM load in both directions.
 *
 * A product, a short convolution and SiLU produce a state's queries, keys and values; queries and
 * keys have length 1. A second product produces the gates and the betas, the fractions by which
 * values are corrected. Outputs are normalized and scaled by the SiLU of a gate. Softmax attention
 * normalizes each head's queries and keys, has rotary positions in part of a head, and scales its
 * output by the sigmoid of a gate. Norm gains are 1 plus their parameter, except in states.
 *
 * B, T, C, H, D as in decoder.h; K key heads and V value heads of the states. */
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    {"ffn", SL_OPTION_INT, "0", "inner width of blocks without experts; 0: 8/3 of the width, "
     "rounded up to a multiple of 64", 0, 1 << 24},
    {"softmax-every", SL_OPTION_INT, "4", "`N`: every N-th block has softmax attention and the "
     "rest linear attention; 0: none", 0, 1000},
    {"key-heads", SL_OPTION_INT, "0", "key heads of linear attention; 0: half of "
     "--value-heads", 0, 1 << 16},
    {"value-heads", SL_OPTION_INT, "0", "value heads of linear attention; 0: as many as make "
     "twice the width", 0, 1 << 16},
    {"key-dim", SL_OPTION_INT, "64", "numbers per key of linear attention", 1, 256},
    {"value-dim", SL_OPTION_INT, "64", "numbers per value of linear attention", 1, 256},
    {"conv", SL_OPTION_INT, "4", "width of the convolutions in positions", 1, 16},
    {"experts", SL_OPTION_INT, "8", "experts per block; 0: none", 0, 1 << 16},
    MOE_ROUTING_OPTIONS("1"),
    {"experts-every", SL_OPTION_INT, "1", "`N`: every N-th block has experts and the rest "
     "SwiGLU", 1, 1 << 16},
    MOE_DENSE_OPTIONS,
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct next {
  moe moe; /* must be first: moe.h reads decoder.own as a moe */
  int softmax_every, experts_every, key_heads, value_heads;
  int64_t key_dim, value_dim, conv;
  const char *dense; /* list of blocks without experts */
} next;

static const next *next_of(const decoder *d) { return d->own; }

/* ---- initial values -------------------------------------------------------------------------- */

/* Returns the logarithms of decays A between 0.01 and 16, spread evenly for any number of heads. */
static void read_decays(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) {
    const double golden = 0.6180339887498949, most = 16, least = 0.01;
    out[i] = (float)log(least + (most - least) * fmod((double)(first + i + 1) * golden, 1));
  }
}

static const sl_given decays = {.read = read_decays, .hash = 3};

/* ---- parts ----------------------------------------------------------------------------------- */

static sl_tensor *param(sl_graph *g, sl_type type, sl_init init, int layer, const char *name) {
  return sl_param(g, type, init, "model.layers.%d.%s", layer, name);
}

/* Splits each of `heads` groups of x [B, T, n] into `count` runs; each becomes [B, T, heads * its
 * length]. */
static void split_heads(sl_graph *g, const decoder *d, sl_tensor *x, int64_t heads, int count,
                        const int64_t *lengths, sl_tensor **out) {
  sl_split(g, sl_reshape(g, x, d->rows, -1, heads, sl_dim(x, -1) / heads), 3, count, lengths, out);
  for (int i = 0; i < count; i++) out[i] = sl_reshape(g, out[i], d->rows, -1, heads * lengths[i]);
}

/* ---- softmax attention ----------------------------------------------------------------------- */

static sl_tensor *turned(sl_graph *g, decoder *d, sl_tensor *x, int heads, int layer,
                         const char *name) {
  x = decoder_head_norm(g, d, x, heads, layer, name);
  return decoder_rotated(g, d, x, heads, layer); /* [B, T, heads*D] */
}

static sl_tensor *softmax_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                    int layer) {
  int64_t C = d->width, Q = d->heads * d->head_dim, KV = d->kv_heads * d->head_dim;
  bool bias = d->qkv_bias;
  sl_tensor *part[2]; /* queries and gates */
  sl_tensor *q = decoder_biased(g, d, bias, x, C, 2 * Q, 0.02f, layer, "self_attn.q_proj");
  sl_tensor *k = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.k_proj");
  sl_tensor *v = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.v_proj");
  split_heads(g, d, q, d->heads, 2, (int64_t[]){d->head_dim, d->head_dim}, part);
  sl_tensor *a = decoder_attend(g, d, turned(g, d, part[0], d->heads, layer, "self_attn.q_norm"),
                                turned(g, d, k, d->kv_heads, layer, "self_attn.k_norm"), v, layer);
  a = sl_mul(g, a, sl_sigmoid(g, part[1])); /* [B, T, H*D] */
  return decoder_biased(g, d, d->o_bias, a, Q, C, residual, layer, "self_attn.o_proj");
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Applies the convolution and SiLU to queries, keys and values together. */
static void convolve(sl_graph *g, const decoder *d, const int64_t *lengths, sl_tensor **qkv,
                     int layer) {
  int64_t conv = next_of(d)->conv, channels = lengths[0] + lengths[1] + lengths[2];
  sl_tensor *w = param(g, SL_TYPE(SL_F32, channels, 1, conv), SL_UNIFORM(1 / sqrtf((float)conv)),
                       layer, "linear_attn.conv1d.weight");
  sl_tensor *x = sl_concat(g, 2, 3, qkv);
  x = sl_silu(g, sl_causal_conv_within(g, x, w, NULL, d->positions));
  sl_split(g, x, 2, 3, lengths, qkv);
}

/* Normalizes each head of x [B, T, K*dk] to length 1. */
static sl_tensor *unit(sl_graph *g, const decoder *d, sl_tensor *x) {
  const next *n = next_of(d);
  int64_t dk = n->key_dim;
  sl_tensor *gain = sl_filled(g, SL_TYPE(SL_F32, dk), 1 / sqrtf((float)dk), NULL);
  x = sl_reshape(g, x, d->rows, -1, n->key_heads, dk);
  return sl_reshape(g, sl_rmsnorm(g, x, gain, 1e-6f / (float)dk), d->rows, -1, n->key_heads * dk);
}

/* Computes the logarithms of the gates from a [B, T, V]. */
static sl_tensor *gates_of(sl_graph *g, sl_tensor *a, int64_t heads, int layer) {
  sl_type type = SL_TYPE(SL_F32, heads);
  sl_tensor *bias = param(g, type, SL_CONSTANT(1), layer, "linear_attn.dt_bias");
  sl_tensor *log_a = param(g, type, SL_GIVEN(&decays), layer, "linear_attn.A_log");
  a = sl_softplus(g, sl_add(g, a, bias));
  return sl_mul(g, a, sl_neg(g, sl_exp(g, sl_expand_like(g, log_a, a))));
}

/* Applies rmsnorm to each head's output o and multiplies by the SiLU of the gate z. o and z [B, T,
 * V*dv] */
static sl_tensor *gated_norm(sl_graph *g, const decoder *d, sl_tensor *o, sl_tensor *z, int layer) {
  int64_t dv = next_of(d)->value_dim, heads = next_of(d)->value_heads;
  sl_tensor *gain = param(g, SL_TYPE(SL_F32, dv), SL_CONSTANT(1), layer, "linear_attn.norm.weight");
  o = sl_rmsnorm(g, sl_reshape(g, o, d->rows, -1, heads, dv), gain, d->eps);
  return sl_swiglu(g, z, sl_reshape(g, o, d->rows, -1, heads * dv));
}

/* Per key head, a row of the first product holds the query, the key, and the values and gates of
 * its value heads. A row of the second product holds the betas and decays of those heads. */
static sl_tensor *delta_rule(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const next *n = next_of(d);
  int64_t C = d->width, each = n->value_heads / n->key_heads, values = each * n->value_dim;
  int64_t keys = n->key_heads * n->key_dim, all = n->value_heads * n->value_dim;
  sl_tensor *of[4], *ba[2]; /* q, k, v, gates; betas, decays */
  sl_tensor *qkvz =
      decoder_linear(g, d, x, C, 2 * (keys + all), 0.02f, layer, "linear_attn.in_proj_qkvz");
  split_heads(g, d, qkvz, n->key_heads, 4, (int64_t[]){n->key_dim, n->key_dim, values, values}, of);
  x = decoder_linear(g, d, x, C, 2 * n->value_heads, 0.02f, layer, "linear_attn.in_proj_ba");
  split_heads(g, d, x, n->key_heads, 2, (int64_t[]){each, each}, ba);
  convolve(g, d, (int64_t[]){keys, keys, all}, of, layer);
  const sl_attrs attrs = {.heads = n->value_heads, .kv_heads = n->key_heads};
  sl_tensor *o = sl_delta_rule(g, unit(g, d, of[0]), unit(g, d, of[1]), of[2],
                               states_gates(g, gates_of(g, ba[1], n->value_heads, layer), d->shut),
                               sl_sigmoid(g, ba[0]), &attrs); /* [B, T, V*dv] */
  return decoder_linear(g, d, gated_norm(g, d, o, of[3], layer), all, C, residual, layer,
                        "linear_attn.out_proj");
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool has_experts(const next *n, int layer) {
  return n->moe.experts && (layer + 1) % n->experts_every == 0 && !moe_is_listed(n->dense, layer);
}

static sl_tensor *mix(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const next *n = next_of(d);
  bool softmax = n->softmax_every && (layer + 1) % n->softmax_every == 0;
  return (softmax ? softmax_attention : delta_rule)(g, d, x, residual, layer);
}

static sl_tensor *feed_forward(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  if (has_experts(next_of(d), layer)) return moe_half(g, d, x, residual, layer);
  return decoder_swiglu(g, d, x, d->ffn, residual, layer, "mlp");
}

/* ---- options --------------------------------------------------------------------------------- */

static void check(sl_graph *g, const next *n) {
  if (n->value_heads < 1 || n->key_heads < 1 || n->value_heads % n->key_heads)
    sl_graph_fail(g, SL_E_USAGE, "qwen3-next: --value-heads %d is not a multiple of --key-heads %d",
                  n->value_heads, n->key_heads);
}

static next next_read(sl_graph *g, const sl_args *args, const decoder *d) {
  next n = {.softmax_every = (int)sl_arg_int(args, "softmax-every"),
            .experts_every = (int)sl_arg_int(args, "experts-every"),
            .key_heads = (int)sl_arg_int(args, "key-heads"),
            .value_heads = (int)sl_arg_int(args, "value-heads"),
            .key_dim = sl_arg_int(args, "key-dim"),
            .value_dim = sl_arg_int(args, "value-dim"),
            .conv = sl_arg_int(args, "conv"),
            .dense = moe_dense_of(g, args, d)};
  if (!n.value_heads) n.value_heads = (int)(2 * d->width / n.value_dim);
  if (!n.key_heads) n.key_heads = n.value_heads % 2 ? n.value_heads : n.value_heads / 2;
  return n;
}

/* ---- build ----------------------------------------------------------------------------------- */

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "qwen3-next");
  next n = next_read(g, args, &d);
  d.ffn = sl_arg_int(args, "ffn");
  if (!d.ffn) d.ffn = (d.width * 8 / 3 + 63) / 64 * 64;
  n.moe = moe_of(g, args, &d, moe_qwen);
  d.own = &n;
  d.mixer = mix;
  d.plus_one = true;
  d.states = n.softmax_every != 1;
  check(g, &n);
  if (sl_graph_status(g)) return sl_graph_status(g);
  return decoder_build(g, args, &d, feed_forward);
}

SL_MODEL_NAMED(qwen3_next, "qwen3-next", "Qwen3-Next: gated delta rule, softmax attention, experts",
               options, build);
