/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by the models of the LLaMA family (Touvron et al., arXiv 2302.13971, and 2307.09288
 * for grouped queries): rmsnorm around each half of a block, rotary positions, biases only by
 * option. Each model supplies the second half of a block. Fields of `decoder` select what else
 * differs between model families.
 *
 * Parameters keep the names and layouts of Hugging Face's LlamaForCausalLM; linear weights are
 * [out, in].
 *
 * B rows of a microbatch, T context, C width, H heads, K key/value heads, D head size, V
 * vocabulary. */
#ifndef SLUICE_MODELS_DECODER_H
#define SLUICE_MODELS_DECODER_H

#include <math.h>
#include <string.h>
#include <sluice/sluice.h>

#include "states.h"

/* Options of the model `decoder`; ends with {0}. */
extern const sl_option sli_decoder_options[];
/* Builds a decoder from these options, for a model that calls some otherwise: `called` has words
 * NAME>OPTION. Errors name `model` and what its users call options. */
sl_status sli_decoder_build(sl_graph *g, const sl_args *args, const char *model,
                            const char *called);

enum { DECODER_MOST_LAYERS = 1000, DECODER_MOST_AHEAD = 16 };

typedef struct decoder decoder;

/* Builds half of a block on a normalized x [B, T, C]; `residual` is the initial std of its output
 * weights. */
typedef sl_tensor *decoder_half(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer);

/* Spiking linear layers in the blocks: int8 weights applied to spikes with threshold mean|x| / k.
 * For k = 0 the layers are plain. */
typedef struct decoder_spiking {
  float k;
  sl_tensor *x, *spikes;   /* the last input, and its spikes */
  sl_tensor *counts, *all; /* [B, T, 3] counts of this block, and of all earlier ones */
} decoder_spiking;

/* A block: what mixes positions, what each position then goes through, and the mixer's window and
 * positions. A block may lack either half. */
typedef struct decoder_layer {
  decoder_half *mixer, *feed; /* NULL: none */
  bool windowed, unplaced;    /* the mixer has the window; it has no rotary positions */
  bool keyed, shared;         /* keys are values; both are those of the last block of its kind */
  bool wide;                  /* the feed-forward half is twice as wide */
  int kv_heads;               /* 0: as in the other blocks */
  int64_t head_dim;           /* likewise */
} decoder_layer;

/* Embeddings that enter each block: d numbers per token and block, from a table and from a product
 * of the tokens' embeddings. */
typedef struct decoder_inputs {
  int64_t width, vocab;                 /* width 0: none */
  sl_tensor *each[DECODER_MOST_LAYERS]; /* [B, T, width], by block */
} decoder_inputs;

/* Where the halves of a block are normalized: at their inputs, their outputs, or both. */
typedef enum decoder_norms {
  DECODER_NORMS_BEFORE,
  DECODER_NORMS_AFTER,
  DECODER_NORMS_BOTH
} decoder_norms;

/* Normalization of queries and keys: none, per head, or over all heads together. */
typedef enum decoder_qk_norm {
  DECODER_QK_PLAIN,
  DECODER_QK_HEADS,
  DECODER_QK_WHOLE
} decoder_qk_norm;

/* Kinds of norms: by the root mean square, by mean and variance with a bias, without one. */
typedef enum decoder_norm_kind {
  DECODER_NORM_RMS,
  DECODER_NORM_LAYER,
  DECODER_NORM_LAYER_GAIN,
  DECODER_NORM_LAYER_PLAIN /* without parameters */
} decoder_norm_kind;

/* Functions of a feed-forward half. */
typedef enum decoder_function {
  DECODER_SILU,
  DECODER_GELU, /* in its tanh form */
  DECODER_GELU_ERF,
  DECODER_RELU2,
  DECODER_CLAMPED /* silu at 1.702 times the gate, with limits; what it multiplies is 1 more */
} decoder_function;

/* Factors of the embeddings, the halves of blocks and the logits; 0: none. */
typedef struct decoder_factors {
  float embedding, residual, logits;
} decoder_factors;

struct decoder {
  const char *model;
  const char *called; /* words NAME>OPTION: what users call options, if otherwise */
  const char *names;  /* parts of parameters' names to replace, "OLD=NEW,..."; NULL: none */
  int layers, heads, kv_heads;
  int ahead; /* blocks that predict further ahead, after the layers */
  float ahead_weight;
  bool mtp;         /* their parameters are called mtp.layers.N */
  bool alone_ahead; /* only the first of them, for a server's drafts */
  decoder_layer each[DECODER_MOST_LAYERS + DECODER_MOST_AHEAD];
  decoder_inputs inputs;
  sl_tensor
      *kept[2][2];   /* keys and values of the last block without and with a window that has any */
  sl_tensor *stream; /* what the current half adds to [B, T, C] */
  int64_t rows, context, width, head_dim, ffn, vocab;
  float theta, eps;
  sl_rope rope;
  bool qkv_bias, o_bias, mlp_bias;
  decoder_norms norms;
  decoder_norm_kind norm_kind;
  decoder_qk_norm qk_norm;
  bool qk_norm_late;             /* after rotary positions */
  bool value_norm;               /* values are normalized per head, without a parameter */
  bool block_factors;            /* a fixed number, which files hold, scales each block's output */
  bool plus_one;                 /* norm gains are 1 + the parameter */
  bool parallel;                 /* both halves read the same normalized input */
  bool packed_qkv, packed_gates; /* one product computes q, k and v, another gate and up */
  bool ungated;                  /* feed-forward halves have no gates */
  bool gated_heads; /* outputs of heads are scaled by the sigmoid of gates beside the queries */
  bool pairs;       /* adjacent numbers rotate together, not the halves of a head */
  decoder_function function;
  float limit; /* of clamped functions */
  decoder_factors factors;
  float cap;         /* soft limit of the logits; 0: none */
  bool sinks;        /* each head's softmax sum includes a learned logit */
  float score_cap;   /* soft limit of the attention scores; 0: none */
  float local_theta; /* base of unstretched rotary angles of windowed blocks; 0: as elsewhere */
  sl_attention_attrs attention;
  int64_t sink_tokens; /* learned tokens before each sequence, visible to all positions */
  sl_texts texts;
  bool alone;    /* each chat gets its own row, because attention does not stop at document ends */
  bool states;   /* some blocks keep states */
  bool headless; /* no block has heads of head_dim numbers */
  sl_tensor *documents;        /* [B, T] document ids; NULL: a row is one document */
  sl_tensor *positions;        /* [B, T] positions within documents; NULL likewise */
  sl_tensor *shut;             /* [B, T, 1] from states_shut; NULL likewise */
  const void *own;             /* the model's own struct; of mixtures, a moe */
  const struct delta *delta;   /* sizes of delta rule states; NULL: none */
  const struct mamba *mamba;   /* sizes of Mamba-2 states; NULL: none */
  const struct latent *latent; /* sizes of latent attention; NULL: none */
  const struct linear *linear; /* gates of linear attention; NULL: none */
  bool indexed;                /* a block so far has an indexer */
  sl_tensor *seen;             /* [B, T, K] tokens that the last indexer chose; NULL: all */
  sl_tensor *recall; /* [B, H] recall of block selection, summed over layers; NULL: no selection */
  int chosen;        /* layers summed in recall */
  sl_tensor *losses; /* sum of the losses to add to the cross entropy; NULL: none so far */
  decoder_spiking spiking;
};

/* Rounds x to spikes and counts them, once for all layers that read x. */
static inline sl_tensor *decoder_spikes(sl_graph *g, decoder_spiking *s, sl_tensor *x) {
  if (s->x == x) return s->spikes;
  sl_tensor *counts;
  s->x = x;
  s->spikes = sl_spikes(g, x, s->k, &counts);
  counts = sl_detach(g, counts);
  s->counts = s->counts ? sl_add(g, s->counts, counts) : counts;
  return s->spikes;
}

/* Replaces `old` in a name, where it is a run of whole words between dots. */
static inline void decoder_replace(char *name, size_t size, const char *old, size_t n,
                                   const char *by, size_t length) {
  for (char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
    char rest[160];
    if (strncmp(at, old, n) || (at[n] && at[n] != '.')) continue;
    snprintf(rest, sizeof rest, "%s", at + n);
    snprintf(at, size - (size_t)(at - name), "%.*s%s", (int)length, by, rest);
    return;
  }
}

/* Renames a parameter as d->names says. */
static inline void decoder_rename(const decoder *d, char *name, size_t size) {
  for (const char *pair = d->names; pair && *pair;) {
    size_t n = strcspn(pair, "="), length = strcspn(pair + n, ",");
    if (length) decoder_replace(name, size, pair, n, pair + n + 1, length - 1);
    pair += n + length;
    pair += *pair == ',';
  }
}

/* Makes a parameter of a layer, or of the model if the layer is -1. */
static inline sl_tensor *decoder_param(sl_graph *g, const decoder *d, sl_type type, sl_init init,
                                       int layer, const char *name) {
  char all[224], prefix[32];
  bool mtp = d->mtp && layer >= d->layers;
  snprintf(prefix, sizeof prefix, mtp ? "mtp.layers.%d." : "model.layers.%d.",
           mtp ? layer - d->layers : layer);
  snprintf(all, sizeof all, "%s%s", layer < 0 ? "" : prefix, name);
  decoder_rename(d, all, sizeof all);
  return sl_param(g, type, init, "%s", all);
}

/* Linear layer y = x w^T with a weight [out, in], plus a bias if `has`. */
static inline sl_tensor *decoder_biased(sl_graph *g, decoder *d, bool has, sl_tensor *x, int64_t in,
                                        int64_t out, float std, int layer, const char *name) {
  char all[2][96];
  snprintf(all[0], sizeof all[0], "%s.weight", name);
  snprintf(all[1], sizeof all[1], "%s.bias", name);
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, out, in), SL_NORMAL(std), layer, all[0]);
  sl_tensor *b =
      has ? decoder_param(g, d, SL_TYPE(SL_F32, out), SL_CONSTANT(0), layer, all[1]) : NULL;
  if (d->spiking.k > 0) {
    x = decoder_spikes(g, &d->spiking, x);
    w = sl_quantize(g, w);
  }
  return sl_linear(g, x, w, b); /* [B, T, out] */
}

static inline sl_tensor *decoder_linear(sl_graph *g, decoder *d, sl_tensor *x, int64_t in,
                                        int64_t out, float std, int layer, const char *name) {
  return decoder_biased(g, d, false, x, in, out, std, layer, name);
}

/* Normalizes the last dim, `width` long; without a parameter if the name is NULL. */
static inline sl_tensor *decoder_norm(sl_graph *g, const decoder *d, sl_tensor *x, int64_t width,
                                      int layer, const char *name) {
  char all[2][96];
  sl_type type = SL_TYPE(SL_F32, width);
  if (!name) return sl_rmsnorm(g, x, sl_filled(g, type, 1, NULL), d->eps);
  if (d->norm_kind == DECODER_NORM_LAYER_PLAIN)
    return sl_layernorm(g, x, sl_filled(g, type, 1, NULL), sl_filled(g, type, 0, NULL), d->eps);
  snprintf(all[0], sizeof all[0], "%s.weight", name);
  snprintf(all[1], sizeof all[1], "%s.bias", name);
  sl_tensor *gain = decoder_param(g, d, type, SL_CONSTANT(d->plus_one ? 0 : 1), layer, all[0]);
  if (d->plus_one) gain = sl_add_constant(g, gain, 1);
  if (d->norm_kind == DECODER_NORM_RMS) return sl_rmsnorm(g, x, gain, d->eps);
  sl_tensor *bias = d->norm_kind == DECODER_NORM_LAYER
                        ? decoder_param(g, d, type, SL_CONSTANT(0), layer, all[1])
                        : sl_filled(g, type, 0, NULL);
  return sl_layernorm(g, x, gain, bias, d->eps);
}

/* Applies rmsnorm to each head, with one gain shared by all heads. */
static inline sl_tensor *decoder_head_norm(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                           int layer, const char *name) {
  x = sl_reshape(g, x, d->rows, -1, heads, d->head_dim); /* [B, T, heads, D] */
  x = decoder_norm(g, d, x, d->head_dim, layer, name);
  return sl_reshape(g, x, d->rows, -1, heads * d->head_dim); /* [B, T, heads*D] */
}

/* Normalizes queries or keys x [B, T, heads*D]. */
static inline sl_tensor *decoder_normed(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                        int layer, const char *name) {
  if (d->qk_norm == DECODER_QK_PLAIN) return x;
  if (d->qk_norm == DECODER_QK_HEADS) return decoder_head_norm(g, d, x, heads, layer, name);
  return decoder_norm(g, d, x, heads * d->head_dim, layer, name);
}

static inline bool decoder_is_local(const decoder *d, int layer) { return d->each[layer].windowed; }

static inline bool decoder_is_dual(const decoder *d) { return d->rope.kind == SL_ROPE_DUAL_CHUNK; }

/* Returns how many numbers of a head of `width` rotate. */
static inline int64_t decoder_turning(const decoder *d, int64_t width) {
  return d->rope.part > 0 ? (int64_t)(d->rope.part * (float)width + 0.5f) : width;
}

/* Moves the numbers of adjacent pairs of each head of x [B, T, heads*width] into its halves.
 * Queries and keys are moved alike, which changes no score. */
static inline sl_tensor *decoder_halved(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                        int64_t width) {
  int64_t turning = decoder_turning(d, width), lengths[2] = {turning, width - turning};
  sl_tensor *part[2] = {x};
  if (turning < width)
    sl_split(g, sl_reshape(g, x, d->rows, -1, heads, width), 3, 2, lengths, part);
  part[0] = sl_reshape(g, part[0], d->rows, -1, heads, turning / 2, 2);
  part[0] = sl_permute(g, part[0], 0, 1, 2, 4, 3);
  if (turning == width) return sl_reshape(g, part[0], d->rows, -1, heads * width);
  part[0] = sl_reshape(g, part[0], d->rows, -1, heads, turning);
  return sl_reshape(g, sl_concat(g, 3, 2, part), d->rows, -1, heads * width);
}

/* Applies rotary positions to queries or keys. */
static inline sl_tensor *decoder_rotated(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                         int layer) {
  if (d->each[layer].unplaced) return x;
  if (d->pairs) x = decoder_halved(g, d, x, heads, d->head_dim);
  if (d->local_theta > 0 && decoder_is_local(d, layer))
    return sl_rotary(g, x, heads, d->local_theta);
  if (decoder_is_dual(d))
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "%s: --rope dual-chunk: not supported with this model's attention", d->model);
  return sl_rotary_stretched(g, x, heads, d->theta, &d->rope);
}

/* Attention with sinks. */
static inline sl_tensor *decoder_attend_sinks(sl_graph *g, const decoder *d, sl_tensor *q,
                                              sl_tensor *k, sl_tensor *v, sl_attention_attrs attrs,
                                              int layer) {
  sl_tensor *sinks =
      decoder_param(g, d, SL_TYPE(SL_F32, d->heads), SL_NORMAL(0.02f), layer, "self_attn.sinks");
  return sl_attend_sinks(g, q, k, v, sinks, d->documents, &attrs);
}

/* Attends to all keys that the mask allows, or to selected blocks of them. Returns [B, T, H*D]. */
static inline sl_tensor *decoder_attend(sl_graph *g, decoder *d, sl_tensor *q, sl_tensor *k,
                                        sl_tensor *v, int layer) {
  sl_attention_attrs attrs = d->attention;
  if (!decoder_is_local(d, layer)) attrs.window = 0;
  attrs.shown = attrs.window ? d->sink_tokens : 0;
  bool chosen = attrs.share != 0; /* the share of the blocks */
  if (!chosen) attrs.cap = d->score_cap;
  if (d->sinks) return decoder_attend_sinks(g, d, q, k, v, attrs, layer);
  if (!chosen) return sl_attend_within(g, q, k, v, d->documents, &attrs);
  sl_tensor *recall, *o = sl_attend_blocks(g, q, k, v, &attrs, &recall);
  d->recall = d->recall ? sl_add(g, d->recall, recall) : recall;
  d->chosen++;
  return o;
}

/* Dual-chunk attention. */
static inline sl_tensor *decoder_attend_dual(sl_graph *g, const decoder *d, sl_tensor *q,
                                             sl_tensor *k, sl_tensor *v, int layer) {
  sl_attention_attrs attrs = d->attention;
  if (!decoder_is_local(d, layer)) attrs.window = 0;
  if (d->documents)
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "%s: --rope dual-chunk: not supported with several documents in a row", d->model);
  if (d->sinks || d->score_cap > 0 || attrs.share != 0)
    sl_graph_fail(g, SL_E_UNSUPPORTED, "%s: --rope dual-chunk: supported with plain attention only",
                  d->model);
  return sl_attend_dual(g, q, k, v, d->theta, &d->rope, &attrs);
}

/* Normalizes and rotates queries or keys, in either order. */
static inline sl_tensor *decoder_turned(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                        int layer, const char *name) {
  if (!d->qk_norm_late) x = decoder_normed(g, d, x, heads, layer, name);
  x = decoder_rotated(g, d, x, heads, layer);
  return d->qk_norm_late ? decoder_normed(g, d, x, heads, layer, name) : x;
}

/* Softmax attention with rotary positions on queries and keys; k NULL: to the keys and values of
 * the last block of its kind that has any. Returns [B, T, H*D]. */
static inline sl_tensor *decoder_softmax(sl_graph *g, decoder *d, sl_tensor *q, sl_tensor *k,
                                         sl_tensor *v, int layer) {
  bool own = d->local_theta > 0 && decoder_is_local(d, layer); /* the window's angles */
  if (decoder_is_dual(d) && !own && !d->each[layer].unplaced)
    return decoder_attend_dual(g, d, q, k, v, layer);
  sl_tensor **kept = d->kept[decoder_is_local(d, layer)];
  q = decoder_rotated(g, d, q, d->heads, layer);
  if (k) kept[0] = decoder_rotated(g, d, k, d->kv_heads, layer), kept[1] = v;
  return decoder_attend(g, d, q, kept[0], kept[1], layer);
}

/* q [B, T, H*D], k and v [B, T, K*D]; a block that shares keys has only q */
static inline void decoder_qkv(sl_graph *g, decoder *d, sl_tensor *x, int layer,
                               sl_tensor *out[3]) {
  static const char *const names[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  int64_t C = d->width, Q = d->heads * d->head_dim, KV = d->kv_heads * d->head_dim;
  const int64_t widths[3] = {Q, KV, KV};
  const decoder_layer *l = &d->each[layer];
  int products = l->shared ? 1 : l->keyed ? 2 : 3;
  for (int i = 0; i < 3 && !d->packed_qkv; i++)
    out[i] = i >= products
                 ? l->shared ? NULL : out[1]
                 : decoder_biased(g, d, d->qkv_bias, x, C, widths[i], 0.02f, layer, names[i]);
  if (!d->packed_qkv) return;
  x = decoder_biased(g, d, d->qkv_bias, x, C, Q + 2 * KV, 0.02f, layer, "self_attn.qkv_proj");
  sl_split(g, x, -1, 3, widths, out);
}

/* Splits each of `heads` groups of x [B, T, n] into `count` runs; each becomes [B, T, heads * its
 * length]. */
static inline void decoder_split_heads(sl_graph *g, const decoder *d, sl_tensor *x, int64_t heads,
                                       int count, const int64_t *lengths, sl_tensor **out) {
  sl_split(g, sl_reshape(g, x, d->rows, -1, heads, sl_dim(x, -1) / heads), 3, count, lengths, out);
  for (int i = 0; i < count; i++) out[i] = sl_reshape(g, out[i], d->rows, -1, heads * lengths[i]);
}

/* Softmax attention whose output is scaled by the sigmoid of gates that the queries' product
 * computes. */
static inline sl_tensor *decoder_gated_attention(sl_graph *g, decoder *d, sl_tensor *x,
                                                 float residual, int layer) {
  int64_t C = d->width, Q = d->heads * d->head_dim, KV = d->kv_heads * d->head_dim;
  bool bias = d->qkv_bias;
  sl_tensor *part[2]; /* queries and gates */
  sl_tensor *q = decoder_biased(g, d, bias, x, C, 2 * Q, 0.02f, layer, "self_attn.q_proj");
  sl_tensor *k = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.k_proj");
  sl_tensor *v = decoder_biased(g, d, bias, x, C, KV, 0.02f, layer, "self_attn.v_proj");
  decoder_split_heads(g, d, q, d->heads, 2, (int64_t[]){d->head_dim, d->head_dim}, part);
  k = decoder_turned(g, d, k, d->kv_heads, layer, "self_attn.k_norm");
  q = decoder_turned(g, d, part[0], d->heads, layer, "self_attn.q_norm");
  sl_tensor *a = decoder_attend(g, d, q, k, v, layer);
  a = sl_mul(g, a, sl_sigmoid(g, part[1])); /* [B, T, H*D] */
  return decoder_biased(g, d, d->o_bias, a, Q, C, residual, layer, "self_attn.o_proj");
}

/* Softmax attention whose queries and keys are normalized after their rotary positions. */
static inline sl_tensor *decoder_late(sl_graph *g, decoder *d, sl_tensor *const *qkv,
                                      float residual, int layer) {
  sl_tensor *q = decoder_turned(g, d, qkv[0], d->heads, layer, "self_attn.q_norm");
  sl_tensor *k = decoder_turned(g, d, qkv[1], d->kv_heads, layer, "self_attn.k_norm");
  sl_tensor *a = decoder_attend(g, d, q, k, qkv[2], layer);
  return decoder_biased(g, d, d->o_bias, a, d->heads * d->head_dim, d->width, residual, layer,
                        "self_attn.o_proj");
}

static inline sl_tensor *decoder_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                           int layer) {
  sl_tensor *qkv[3];
  decoder_qkv(g, d, x, layer, qkv);
  if (d->qk_norm_late) return decoder_late(g, d, qkv, residual, layer);
  sl_tensor *q = decoder_normed(g, d, qkv[0], d->heads, layer, "self_attn.q_norm");
  sl_tensor *k = qkv[1], *v = qkv[2];
  if (k) k = decoder_normed(g, d, k, d->kv_heads, layer, "self_attn.k_norm");
  if (v && d->value_norm) v = decoder_head_norm(g, d, v, d->kv_heads, layer, NULL);
  sl_tensor *a = decoder_softmax(g, d, q, k, v, layer); /* [B, T, H*D] */
  return decoder_biased(g, d, d->o_bias, a, d->heads * d->head_dim, d->width, residual, layer,
                        "self_attn.o_proj"); /* [B, T, C] */
}

/* Adds a block's spike counts to the report: zeros, set bits, total. */
static inline void decoder_count(sl_graph *g, decoder_spiking *s, int layer) {
  char name[64];
  snprintf(name, sizeof name, "h.%d.spikes", layer);
  sl_counter(g, name, sl_sum(g, s->counts, SL_DIM(0) | SL_DIM(1), false));
  s->all = s->all ? sl_add(g, s->all, s->counts) : s->counts;
  s->counts = NULL;
}

/* Adds metrics over all spikes: the fraction that is zero, and the mean number of set bits. */
static inline void decoder_sparsity(sl_graph *g, const decoder_spiking *s) {
  sl_tensor *of[3]; /* [B, T, 1] */
  sl_split(g, s->all, -1, 3, NULL, of);
  sl_metric(g, "spikes-zero", sl_div(g, of[0], of[2]));
  sl_metric(g, "spikes-bits", sl_div(g, of[1], of[2]));
}

/* Adds a loss to the cross entropy. */
static inline void decoder_add_loss(sl_graph *g, decoder *d, sl_tensor *loss, float weight) {
  loss = sl_scale(g, loss, weight);
  d->losses = d->losses ? sl_add(g, d->losses, loss) : loss;
}

/* Adds the output of a half of a block. */
static inline sl_tensor *decoder_plus(sl_graph *g, const decoder *d, sl_tensor *x, sl_tensor *y) {
  if (d->factors.residual != 0) y = sl_scale(g, y, d->factors.residual);
  return sl_add(g, x, y);
}

/* Returns the initial std of output weights: the residual stream sums the halves of all blocks. */
static inline float decoder_residual(const decoder *d) {
  int halves = 0;
  for (int i = 0; i < d->layers; i++) halves += !!d->each[i].mixer + !!d->each[i].feed;
  return 0.02f / sqrtf((float)halves);
}

/* Builds a block whose halves read the same normalized x. */
static inline sl_tensor *decoder_parallel(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  float residual = decoder_residual(d);
  sl_tensor *a = decoder_norm(g, d, x, d->width, layer, "input_layernorm");
  sl_tensor *m = d->each[layer].feed(g, d, a, residual, layer);
  a = d->each[layer].mixer(g, d, a, residual, layer);
  return decoder_plus(g, d, decoder_plus(g, d, x, a), m);
}

static inline sl_tensor *decoder_sequential(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  static const char *const names[2][2] = {
      {"post_attention_layernorm", "pre_feedforward_layernorm"},
      {"input_layernorm", "post_attention_layernorm"}}; /* [mixer][after], [before] */
  float residual = decoder_residual(d);
  int64_t C = d->width;
  bool before = d->norms != DECODER_NORMS_AFTER, after = d->norms != DECODER_NORMS_BEFORE;
  decoder_half *mixer = d->each[layer].mixer, *feed = d->each[layer].feed;
  if (mixer) {
    sl_tensor *a = before ? decoder_norm(g, d, x, C, layer, names[1][0]) : x;
    d->stream = x;
    a = mixer(g, d, a, residual, layer);
    if (after) a = decoder_norm(g, d, a, C, layer, names[0][0]);
    x = decoder_plus(g, d, x, a);
  }
  if (feed) {
    sl_tensor *m = before ? decoder_norm(g, d, x, C, layer, names[!after][1]) : x;
    d->stream = x;
    m = feed(g, d, m, residual, layer);
    if (after) m = decoder_norm(g, d, m, C, layer, "post_feedforward_layernorm");
    x = decoder_plus(g, d, x, m); /* [B, T, C] */
  }
  return x;
}

/* Builds both halves of a block with the block's widths. */
static inline sl_tensor *decoder_both(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  const decoder_layer *l = &d->each[layer];
  int kv_heads = d->kv_heads;
  int64_t head_dim = d->head_dim;
  if (l->kv_heads) d->attention.kv_heads = d->kv_heads = l->kv_heads;
  if (l->head_dim) d->head_dim = l->head_dim;
  x = (d->parallel ? decoder_parallel : decoder_sequential)(g, d, x, layer);
  d->attention.kv_heads = d->kv_heads = kv_heads;
  d->head_dim = head_dim;
  return x;
}

static inline sl_tensor *decoder_apply(sl_graph *g, const decoder *d, sl_tensor *x);

/* Adds what a block makes of the embeddings that enter it, gated by x [B, T, C]. */
static inline sl_tensor *decoder_enter(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  int64_t C = d->width, P = d->inputs.width;
  sl_tensor *y = decoder_linear(g, d, x, C, P, 0.02f, layer, "per_layer_input_gate");
  y = sl_mul(g, decoder_apply(g, d, y), d->inputs.each[layer]);
  y = decoder_linear(g, d, y, P, C, decoder_residual(d), layer, "per_layer_projection");
  return decoder_plus(g, d, x, decoder_norm(g, d, y, C, layer, "post_per_layer_input_norm"));
}

static inline sl_tensor *decoder_block(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  sl_block(g, "h.%d", layer);
  x = decoder_both(g, d, x, layer);
  if (d->inputs.width) x = decoder_enter(g, d, x, layer);
  if (d->block_factors) {
    sl_tensor *by = decoder_param(g, d, SL_TYPE(SL_F32, 1), SL_CONSTANT(1), layer, "layer_scalar");
    sl_freeze(g, sl_tensor_name(by));
    x = sl_mul(g, x, by);
  }
  if (d->spiking.counts) decoder_count(g, &d->spiking, layer);
  return x;
}

/* Applies the function of the feed-forward halves to a gate, or to the only product. */
static inline sl_tensor *decoder_apply(sl_graph *g, const decoder *d, sl_tensor *x) {
  switch (d->function) {
  case DECODER_GELU: return sl_gelu(g, x);
  case DECODER_GELU_ERF: return sl_gelu_erf(g, x);
  case DECODER_RELU2: x = sl_relu(g, x); return sl_mul(g, x, x);
  case DECODER_CLAMPED: return sl_mul(g, x, sl_sigmoid(g, sl_scale(g, x, 1.702f)));
  default: return sl_silu(g, x);
  }
}

/* Multiplies up by the function of the gate. */
static inline sl_tensor *decoder_gate(sl_graph *g, const decoder *d, sl_tensor *gate,
                                      sl_tensor *up) {
  if (d->function == DECODER_SILU) return sl_swiglu(g, gate, up);
  if (d->function == DECODER_CLAMPED) {
    gate = sl_clamp(g, gate, -INFINITY, d->limit);
    up = sl_add_constant(g, sl_clamp(g, up, -d->limit, d->limit), 1);
    return sl_mul(g, up, decoder_apply(g, d, gate));
  }
  return sl_mul(g, decoder_apply(g, d, gate), up);
}

/* Feed-forward half called `name`: gate, up and down projections, or only up and down. */
static inline sl_tensor *decoder_swiglu(sl_graph *g, decoder *d, sl_tensor *x, int64_t inner,
                                        float residual, int layer, const char *name) {
  char part[4][64];
  static const char *const parts[4] = {"gate_proj", "up_proj", "down_proj", "gate_up_proj"};
  bool bias = d->mlp_bias;
  for (int i = 0; i < 4; i++) snprintf(part[i], sizeof part[i], "%s.%s", name, parts[i]);
  sl_tensor *y[2]; /* gate and up [B, T, inner] */
  for (int i = d->ungated; i < 2 && !d->packed_gates; i++)
    y[i] = decoder_biased(g, d, bias, x, d->width, inner, 0.02f, layer, part[i]);
  if (d->packed_gates)
    sl_split(g, decoder_biased(g, d, bias, x, d->width, 2 * inner, 0.02f, layer, part[3]), -1, 2,
             NULL, y);
  x = d->ungated ? decoder_apply(g, d, y[1]) : decoder_gate(g, d, y[0], y[1]);
  return decoder_biased(g, d, bias, x, inner, d->width, residual, layer, part[2]);
}

/* Feed-forward half without experts. */
static inline sl_tensor *decoder_mlp(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                     int layer) {
  return decoder_swiglu(g, d, x, d->each[layer].wide ? 2 * d->ffn : d->ffn, residual, layer, "mlp");
}

/* ---- options ------------------------------------------------------------------------------- */

/* Returns what users call an option, in a buffer that the next call overwrites. */
static inline const char *decoder_called(const decoder *d, const char *option) {
  static _Thread_local char name[32];
  char end[40];
  snprintf(end, sizeof end, ">%s", option);
  const char *found = strstr(d->called, end), *begin = found;
  if (!found || !strchr(" =", found[strlen(end)])) return option;
  while (begin > d->called && begin[-1] != ' ') begin--;
  snprintf(name, sizeof name, "%.*s", (int)(found - begin), begin);
  return name;
}

/* Checks the heads of softmax attention. */
static inline void decoder_check_heads(sl_graph *g, const decoder *d) {
  if (!d->head_dim)
    sl_graph_fail(g, SL_E_USAGE, "%s: --width %lld is not a multiple of --heads %d", d->model,
                  (long long)d->width, d->heads);
  if (d->heads % d->kv_heads)
    sl_graph_fail(g, SL_E_USAGE, "%s: --heads %d is not a multiple of --kv-heads %d", d->model,
                  d->heads, d->kv_heads);
}

static inline void decoder_check(sl_graph *g, const sl_args *args, const decoder *d) {
  if (!*sl_arg_text(args, "data") && sl_graph_reads_data(g))
    sl_graph_fail(g, SL_E_USAGE, "%s: no training data; give --data FILE", d->model);
  if (d->attention.share != 0 && (d->attention.window || sl_arg_int(args, "document-end") >= 0))
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: --attend-blocks chooses among all earlier tokens: cannot be combined with %s",
        d->model, d->attention.window ? "--window" : "--document-end");
  int64_t positions = sl_arg_int(args, "positions");
  if (positions && positions < d->context)
    sl_graph_fail(g, SL_E_USAGE, "%s: --context %lld is more than --positions %lld", d->model,
                  (long long)d->context, (long long)positions);
}

static inline void decoder_words(sl_graph *g, const sl_args *args, decoder *d) {
  const char *bias = sl_arg_text(args, "bias");
  d->o_bias = !strcmp(bias, "attention");
  d->qkv_bias = d->o_bias || !strcmp(bias, "qkv");
  if (!d->qkv_bias && strcmp(bias, "none"))
    sl_graph_fail(g, SL_E_USAGE, "%s: --bias %s: must be none, qkv or attention", d->model, bias);
  if (sl_rope_parse(sl_arg_text(args, "rope"), &d->rope))
    sl_graph_fail(g, SL_E_USAGE, "%s: --rope: %s", d->model, sl_detail());
  d->rope.context = (double)d->context;
}

static inline decoder decoder_of(sl_graph *g, const sl_args *args, const char *model,
                                 const char *called) {
  decoder d = {.model = model,
               .called = called,
               .layers = (int)sl_arg_int(args, "layers"),
               .heads = (int)sl_arg_int(args, "heads"),
               .kv_heads = (int)sl_arg_int(args, "kv-heads"),
               .rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
               .context = sl_arg_int(args, "context"),
               .width = sl_arg_int(args, "width"),
               .head_dim = sl_arg_int(args, "head-dim"),
               .vocab = sl_arg_int(args, "vocab"),
               .theta = (float)sl_arg_float(args, "theta"),
               .eps = (float)sl_arg_float(args, "eps")};
  if (!d.kv_heads) d.kv_heads = d.heads;
  if (!d.head_dim && d.width % d.heads == 0) d.head_dim = d.width / d.heads;
  int64_t window = sl_arg_int(args, "window");
  d.attention = (sl_attention_attrs){
      .heads = d.heads, .kv_heads = d.kv_heads, .window = window < d.context ? window : 0};
  d.attention.share = (float)sl_arg_float(args, "attend-blocks");
  d.alone = d.attention.share != 0;
  decoder_words(g, args, &d);
  decoder_check(g, args, &d);
  return d;
}

/* ---- predictions further ahead -----------------------------------------------------------------
 */

/* Normalizes an input of a block that predicts ahead. */
static inline sl_tensor *decoder_ahead_norm(sl_graph *g, const decoder *d, sl_tensor *x, int layer,
                                            const char *name, const char *mtp) {
  return decoder_norm(g, d, x, d->width, d->mtp ? -1 : layer, d->mtp ? mtp : name);
}

/* Leaves out the first or the last position of x [B, T, ...]. */
static inline sl_tensor *decoder_without(sl_graph *g, sl_tensor *x, int64_t left, bool first) {
  return x ? sl_slice(g, x, 1, first, left) : NULL;
}

/* Builds block number `layer`, which joins hidden states, x [B, T, C], with the embeddings of the
 * tokens that follow. Returns what it predicts from [B, T, C]. */
static inline sl_tensor *decoder_ahead_block(sl_graph *g, decoder *d, sl_tensor *x, sl_tensor *next,
                                             int layer) {
  int64_t C = d->width;
  sl_tensor *both[2] = {next, x};
  if (d->factors.embedding != 0) both[0] = sl_scale(g, both[0], d->factors.embedding);
  both[0] = decoder_ahead_norm(g, d, both[0], layer, "enorm", "mtp.pre_fc_norm_embedding");
  both[1] = decoder_ahead_norm(g, d, both[1], layer, "hnorm", "mtp.pre_fc_norm_hidden");
  x = decoder_linear(g, d, sl_concat(g, 2, 2, both), 2 * C, C, 0.02f, d->mtp ? -1 : layer,
                     d->mtp ? "mtp.fc" : "eh_proj");
  x = decoder_both(g, d, x, layer);
  return decoder_ahead_norm(g, d, x, layer, "shared_head.norm", "mtp.norm");
}

static inline sl_tensor *decoder_project(sl_graph *g, const decoder *d, sl_tensor *x,
                                         sl_tensor *head);

/* Adds the losses of the blocks that predict ahead: block k sees the tokens up to k positions after
 * a row's and predicts the one after them, so the last k positions have no prediction. */
static inline void decoder_ahead_losses(sl_graph *g, decoder *d, sl_tensor *x, sl_tensor *embed,
                                        sl_tensor *head) {
  sl_tensor *tokens = d->texts.targets, *labels = tokens, *sum = NULL;
  decoder own = *d;
  if (d->texts.documents)
    sl_graph_fail(g, SL_E_UNSUPPORTED, "%s: --ahead: not supported with chats", d->model);
  for (int k = 0; k < d->ahead; k++) {
    int64_t left = d->context - k - 1;
    tokens = decoder_without(g, labels, left, false);
    labels = decoder_without(g, labels, left, true);
    own.documents = decoder_without(g, own.documents, left, false);
    own.positions = decoder_without(g, own.positions, left, false);
    sl_block(g, "ahead.%d", k);
    x = decoder_without(g, x, left, false);
    x = decoder_ahead_block(g, &own, x, sl_embedding(g, tokens, embed), d->layers + k);
    sl_tensor *loss = sl_cross_entropy(g, decoder_project(g, d, x, head), labels);
    sum = sum ? sl_add(g, sum, loss) : loss;
  }
  d->losses = own.losses;
  sum = sl_scale(g, sum, 1 / (float)d->ahead);
  sl_metric(g, "ahead", sum);
  decoder_add_loss(g, d, sum, d->ahead_weight);
}

/* Reads the options of multi-token prediction (DeepSeek-V3, arXiv 2412.19437). The blocks that
 * predict ahead have the halves of block `like`. */
static inline void decoder_ahead(sl_graph *g, const sl_args *args, decoder *d, int like) {
  const char *names = sl_arg_text(args, "ahead-names");
  d->ahead = (int)sl_arg_int(args, "ahead");
  d->ahead_weight = (float)sl_arg_float(args, "ahead-weight");
  d->mtp = !strcmp(names, "mtp");
  d->alone_ahead = sl_arg_flag(args, "ahead-alone");
  if (d->alone_ahead && (!sl_graph_infer(g) || d->ahead < 1))
    sl_graph_fail(g, SL_E_USAGE, "%s: --ahead-alone: only for drafts of a server, with --ahead 1",
                  d->model);
  if (!d->mtp && strcmp(names, "layers"))
    sl_graph_fail(g, SL_E_USAGE, "%s: --ahead-names %s: must be layers or mtp", d->model, names);
  if (d->mtp && d->ahead > 1)
    sl_graph_fail(g, SL_E_USAGE, "%s: --ahead %d: --ahead-names mtp has names for one", d->model,
                  d->ahead);
  if (d->ahead >= d->context)
    sl_graph_fail(g, SL_E_USAGE, "%s: --ahead %d: the context is only %lld", d->model, d->ahead,
                  (long long)d->context);
  if (d->ahead && (d->inputs.width || d->block_factors || d->each[like].shared))
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "%s: --ahead: not supported with --block-inputs, --block-factors or shared keys",
                  d->model);
  for (int k = 0; k < d->ahead; k++) d->each[d->layers + k] = d->each[like];
}

/* ---- build ----------------------------------------------------------------------------------- */

static inline void decoder_train(sl_graph *g, const sl_args *args, const decoder *d,
                                 sl_tensor *logits) {
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_tensor *loss = sl_texts_loss(g, logits, &d->texts);
  if (d->losses) {
    sl_metric(g, "cross-entropy", loss);
    loss = sl_add(g, loss, d->losses);
  }
  if (d->recall) sl_metric(g, "attention recall", sl_scale(g, d->recall, 1 / (float)d->chosen));
  if (d->spiking.all) decoder_sparsity(g, &d->spiking);
  sl_train(g, loss, &optimizer);
}

/* Embeds tokens and sink tokens; ids of sink tokens follow the vocabulary. Returns [B, T, C]. */
static inline sl_tensor *decoder_embedded(sl_graph *g, const decoder *d, sl_tensor *embed) {
  sl_tensor *of[2], *ids = d->texts.tokens;
  if (!d->sink_tokens) return sl_embedding(g, ids, embed);
  sl_tensor *sinks = decoder_param(g, d, SL_TYPE(SL_F32, d->sink_tokens, d->width),
                                   SL_NORMAL(0.02f), -1, "model.sink_tokens.weight");
  for (int i = 0; i < 2; i++) {
    const sl_attrs attrs = {.place.partial = true, .place.first = i ? d->vocab : 0};
    sl_apply(g, &sl_op_embedding, &attrs, 2, ((sl_tensor *[]){ids, i ? sinks : embed}), 0, &of[i]);
  }
  return sl_add(g, of[0], of[1]);
}

/* Makes what enters the blocks, from the tokens and from their embeddings x [B, T, C]. */
static inline void decoder_make_inputs(sl_graph *g, decoder *d, sl_tensor *x) {
  int64_t P = d->inputs.width, all = P * d->layers;
  sl_tensor *table = decoder_param(g, d, SL_TYPE(SL_F32, d->inputs.vocab, all), SL_NORMAL(0.02f),
                                   -1, "model.embed_tokens_per_layer.weight");
  sl_tensor *y =
      decoder_linear(g, d, x, d->width, all, 0.02f, -1, "model.per_layer_model_projection");
  y = sl_reshape(g, sl_scale(g, y, 1 / sqrtf((float)d->width)), d->rows, -1, d->layers, P);
  y = decoder_norm(g, d, y, P, -1, "model.per_layer_projection_norm");
  x = sl_scale(g, sl_embedding(g, d->texts.tokens, table), sqrtf((float)P));
  y = sl_scale(g, sl_add(g, sl_reshape(g, y, d->rows, -1, all), x), sqrtf(0.5f));
  sl_split(g, y, 2, d->layers, NULL, d->inputs.each);
}

/* Reads the data. A document is a chat, or ends at a given token. */
static inline void decoder_read(sl_graph *g, const sl_args *args, decoder *d) {
  int64_t end = sl_arg_int(args, "document-end");
  sl_sink_tokens(g, d->sink_tokens);
  d->texts = sl_texts(g, sl_arg_text(args, "data"), d->rows, d->context, d->vocab, d->alone);
  d->documents = d->texts.documents;
  d->positions = d->texts.positions;
  if (end >= 0 && d->documents)
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: --document-end: not with chats, each of which is a document already",
                  d->model);
  if (end >= 0) d->documents = sl_documents(g, d->texts.tokens, (int32_t)end, &d->positions);
  if (d->states) d->shut = states_shut(g, d->positions, d->rows);
}

/* Reads options in which dense families differ. */
static inline void decoder_family(sl_graph *g, const sl_args *args, decoder *d) {
  bool heads = sl_arg_flag(args, "qk-norm"), whole = sl_arg_flag(args, "qk-norm-whole");
  if (heads && whole)
    sl_graph_fail(g, SL_E_USAGE, "%s: --qk-norm and --qk-norm-whole exclude each other", d->model);
  d->qk_norm = heads ? DECODER_QK_HEADS : whole ? DECODER_QK_WHOLE : DECODER_QK_PLAIN;
  d->plus_one = sl_arg_flag(args, "plus-one");
  if (sl_arg_flag(args, "scaled-embedding")) d->factors.embedding = sqrtf((float)d->width);
  d->local_theta = (float)sl_arg_float(args, "local-theta");
  d->cap = (float)sl_arg_float(args, "logit-cap");
  d->ffn = sl_arg_int(args, "ffn");
  if (!d->ffn) d->ffn = (d->width * 8 / 3 + 63) / 64 * 64;
  double scalar = sl_arg_float(args, "query-scalar");
  if (scalar > 0) d->attention.scale = (float)(1 / sqrt(scalar));
}

static inline sl_tensor *decoder_project(sl_graph *g, const decoder *d, sl_tensor *x,
                                         sl_tensor *head) {
  sl_tensor *logits = sl_linear(g, x, head, NULL); /* [B, T, V] */
  if (d->factors.logits != 0) logits = sl_scale(g, logits, d->factors.logits);
  return d->cap > 0 ? sl_softcap(g, logits, d->cap) : logits;
}

/* Builds a block that predicts ahead from a server's hidden states, which are spliced. */
static inline sl_tensor *decoder_ahead_served(sl_graph *g, decoder *d, sl_tensor *embed) {
  sl_tensor *next = decoder_embedded(g, d, embed);
  sl_tensor *x = sl_splice(g, next, d->texts.tokens, -1, next);
  return decoder_ahead_block(g, d, x, next, d->layers);
}

static inline sl_status decoder_build(sl_graph *g, const sl_args *args, decoder *d) {
  if (!d->headless) decoder_check_heads(g, d);
  if (sl_graph_status(g)) return sl_graph_status(g);
  sl_block(g, "embedding");
  decoder_read(g, args, d);
  sl_tensor *embed = decoder_param(g, d, SL_TYPE(SL_F32, d->vocab, d->width), SL_NORMAL(0.02f), -1,
                                   "model.embed_tokens.weight");
  sl_tensor *x = d->alone_ahead ? decoder_ahead_served(g, d, embed)
                                : decoder_embedded(g, d, embed); /* [B, T, C] */
  if (d->factors.embedding != 0 && !d->alone_ahead) x = sl_scale(g, x, d->factors.embedding);

  if (d->inputs.width) decoder_make_inputs(g, d, x);
  for (int layer = 0; layer < d->layers && !d->alone_ahead; layer++)
    x = decoder_block(g, d, x, layer);

  sl_block(g, "head");
  if (!d->alone_ahead) x = decoder_norm(g, d, x, d->width, -1, "model.norm");
  sl_type table = SL_TYPE(SL_F32, d->vocab, d->width);
  sl_tensor *head = sl_arg_flag(args, "tied")
                        ? embed
                        : decoder_param(g, d, table, SL_NORMAL(0.02f), -1, "lm_head.weight");
  sl_tensor *logits = decoder_project(g, d, x, head);
  sl_output(g, "logits", logits);
  if (d->ahead && !sl_graph_infer(g)) decoder_ahead_losses(g, d, x, embed, head);
  decoder_train(g, args, d, logits);
  return sl_graph_status(g);
}

#endif
