/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba-2 (Dao and Gu, arXiv 2405.21060): identical blocks, each with a short convolution followed
 * by a state of fixed size per head; no attention, positions or feed-forward half.
 *
 * Parameters keep the names and layouts of Hugging Face's Mamba2ForCausalLM.
 *
 * B rows of a microbatch, T context, C width, H heads, P head size, G groups, N state size. */
#include <math.h>
#include <sluice/sluice.h>

#include "states.h"

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, "", "`FILE` with training data: text (its bytes are the tokens), "
     "chats (.jsonl), .npy, or flat tokens (.u16, .u32, .bin, FILE:TYPE); or a folder of these; "
     "may be repeated", 0, 0},
    {"document-end", SL_OPTION_INT, "-1", "`TOKEN` that ends a document; documents do not see "
     "each other; -1: a row is one document", -1, 1 << 24},
    {"layers", SL_OPTION_INT, "6", "blocks", 1, 1000},
    {"width", SL_OPTION_INT, "384", "model width: numbers per token", 1, 1 << 20},
    {"head-dim", SL_OPTION_INT, "64", "numbers per head", 1, 256},
    {"heads", SL_OPTION_INT, "0", "heads; 0: 2 x width / --head-dim", 0, 1 << 16},
    {"groups", SL_OPTION_INT, "1", "groups of heads with the same B and C; must divide the heads", 1, 1 << 16},
    {"state", SL_OPTION_INT, "64", "numbers of B and of C: rows of a head's state", 1, 256},
    {"conv", SL_OPTION_INT, "4", "width of the convolution in positions", 1, 16},
    {"no-conv-bias", SL_OPTION_FLAG, "0", "the convolution has no bias", 0, 0},
    {"eps", SL_OPTION_FLOAT, "1e-5", "epsilon of the norms, added to the mean square", 0, 1},
    {"tied", SL_OPTION_FLAG, "0", "the classifier shares the embedding's weight", 0, 0},
    {"context", SL_OPTION_INT, "256", "tokens per row", 1, 1 << 28},
    {"vocab", SL_OPTION_INT, "256", "vocabulary size", 2, 1 << 24},
    {"batch", SL_OPTION_INT, "8", "rows per step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct mamba {
  int layers, heads, groups;
  int64_t rows, context, width, head_dim, state, conv, vocab;
  float eps;
  bool conv_bias;
  sl_tensor *positions; /* [B, T] positions within documents; NULL: a row is one document */
  sl_tensor *shut;      /* [B, T, 1] from states_shut; NULL likewise */
} mamba;

/* ---- initial values -------------------------------------------------------------------------- */

/* Returns the logarithms of the decays A = 1, 2, 3, ... */
static void read_decays(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) out[i] = logf((float)(first + i + 1));
}

/* Returns biases for steps between 0.001 and 0.1, spread evenly in log space for any number of
 * heads. */
static void read_steps(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) {
    const double golden = 0.6180339887498949, most = 0.1, least = 0.001;
    double at = fmod((double)(first + i + 1) * golden, 1);
    double step = exp(log(least) + at * log(most / least));
    out[i] = (float)(step + log(-expm1(-step))); /* the inverse of softplus */
  }
}

static const sl_given decays = {.read = read_decays, .hash = 1},
                      steps = {.read = read_steps, .hash = 2};

/* ---- blocks ---------------------------------------------------------------------------------- */

static sl_tensor *param(sl_graph *g, sl_type type, sl_init init, int layer, const char *name) {
  return sl_param(g, type, init, "backbone.layers.%d.%s", layer, name);
}

static sl_tensor *norm(sl_graph *g, const mamba *m, sl_tensor *x, int64_t width, int layer,
                       const char *name) {
  sl_tensor *gain = param(g, SL_TYPE(SL_F32, width), SL_CONSTANT(1), layer, name);
  return sl_rmsnorm(g, x, gain, m->eps);
}

/* Applies rmsnorm to each group. Returns [B, T, H*P]. */
static sl_tensor *group_norm(sl_graph *g, const mamba *m, sl_tensor *x, int64_t inner, int layer) {
  if (m->groups == 1) return norm(g, m, x, inner, layer, "mixer.norm.weight");
  int64_t n = inner / m->groups;
  sl_tensor *one = sl_filled(g, SL_TYPE(SL_F32, n), 1, NULL);
  sl_tensor *gain = param(g, SL_TYPE(SL_F32, inner), SL_CONSTANT(1), layer, "mixer.norm.weight");
  x = sl_rmsnorm(g, sl_reshape(g, x, m->rows, -1, m->groups, n), one, m->eps);
  return sl_mul(g, sl_reshape(g, x, m->rows, -1, inner), gain);
}

static sl_tensor *linear(sl_graph *g, sl_tensor *x, int64_t in, int64_t out, float std, int layer,
                         const char *name) {
  return sl_linear(g, x, param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(std), layer, name), NULL);
}

/* Applies the convolution and silu to x, B and C together. Returns [B, T, channels]. */
static sl_tensor *convolve(sl_graph *g, const mamba *m, sl_tensor *x, int64_t channels, int layer) {
  sl_tensor *w = param(g, SL_TYPE(SL_F32, channels, 1, m->conv), SL_UNIFORM(0.5f), layer,
                       "mixer.conv1d.weight");
  sl_tensor *bias = !m->conv_bias ? NULL
                                  : param(g, SL_TYPE(SL_F32, channels), SL_CONSTANT(0), layer,
                                          "mixer.conv1d.bias");
  return sl_silu(g, sl_causal_conv_within(g, x, w, bias, m->positions));
}

/* Multiplies each head of x [B, T, H*P] by its number in `by` [B, T, H]. */
static sl_tensor *by_head(sl_graph *g, const mamba *m, sl_tensor *x, sl_tensor *by) {
  x = sl_mul(g, sl_reshape(g, x, m->rows, -1, m->heads, m->head_dim),
             sl_reshape(g, by, m->rows, -1, m->heads, 1));
  return sl_reshape(g, x, m->rows, -1, m->heads * m->head_dim);
}

/* State update: the step size dt sets both how much of x a state takes in and how fast it decays.
 * Returns [B, T, H*P]. */
static sl_tensor *states(sl_graph *g, const mamba *m, sl_tensor *x, sl_tensor *b, sl_tensor *c,
                         sl_tensor *dt, int layer) {
  sl_type per_head = SL_TYPE(SL_F32, m->heads);
  sl_tensor *bias = param(g, per_head, SL_GIVEN(&steps), layer, "mixer.dt_bias");
  sl_tensor *log_a = param(g, per_head, SL_GIVEN(&decays), layer, "mixer.A_log");
  sl_tensor *skip = param(g, per_head, SL_CONSTANT(1), layer, "mixer.D");
  dt = sl_softplus(g, sl_add(g, dt, bias)); /* [B, T, H] */
  sl_tensor *gates = sl_mul(g, dt, sl_neg(g, sl_exp(g, sl_expand_like(g, log_a, dt))));
  sl_tensor *v = by_head(g, m, x, dt);
  const sl_attrs attrs = {.heads = m->heads, .kv_heads = m->groups, .scale = 1};
  gates = states_gates(g, gates, m->shut);
  sl_tensor *y = sl_linear_attention(g, c, b, v, gates, &attrs);
  return sl_add(g, y, by_head(g, m, x, sl_expand_like(g, skip, dt)));
}

static sl_tensor *mixer(sl_graph *g, const mamba *m, sl_tensor *x, int layer) {
  int64_t inner = m->heads * m->head_dim, shared = m->groups * m->state;
  int64_t channels = inner + 2 * shared;
  sl_tensor *part[3], *of[3]; /* z, the channels, dt; x, B, C */
  x = linear(g, x, m->width, inner + channels + m->heads, 0.02f, layer, "mixer.in_proj.weight");
  sl_split(g, x, 2, 3, ((int64_t[]){inner, channels, m->heads}), part);
  sl_tensor *conv = convolve(g, m, part[1], channels, layer);
  sl_split(g, conv, 2, 3, ((int64_t[]){inner, shared, shared}), of);
  sl_tensor *y = states(g, m, of[0], of[1], of[2], part[2], layer);
  y = group_norm(g, m, sl_swiglu(g, part[0], y), inner, layer);
  return linear(g, y, inner, m->width, 0.02f / sqrtf((float)m->layers), layer,
                "mixer.out_proj.weight");
}

/* ---- build ----------------------------------------------------------------------------------- */

/* Reads the data. A document is a chat, or ends at a given token. */
static sl_texts read_data(sl_graph *g, const sl_args *args, mamba *m) {
  int64_t end = sl_arg_int(args, "document-end");
  sl_texts texts = sl_texts(g, sl_arg_text(args, "data"), m->rows, m->context, m->vocab, false);
  m->positions = texts.positions;
  if (end >= 0 && m->positions)
    sl_graph_fail(g, SL_E_USAGE,
                  "mamba2: --document-end: not with chats, each of which is a document already");
  if (end >= 0) sl_documents(g, texts.tokens, (int32_t)end, &m->positions);
  m->shut = states_shut(g, m->positions, m->rows);
  return texts;
}

static mamba read_shape(sl_graph *g, const sl_args *args) {
  mamba m = {.layers = (int)sl_arg_int(args, "layers"),
             .heads = (int)sl_arg_int(args, "heads"),
             .groups = (int)sl_arg_int(args, "groups"),
             .rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
             .context = sl_arg_int(args, "context"),
             .width = sl_arg_int(args, "width"),
             .head_dim = sl_arg_int(args, "head-dim"),
             .state = sl_arg_int(args, "state"),
             .conv = sl_arg_int(args, "conv"),
             .vocab = sl_arg_int(args, "vocab"),
             .eps = (float)sl_arg_float(args, "eps"),
             .conv_bias = !sl_arg_flag(args, "no-conv-bias")};
  if (!*sl_arg_text(args, "data") && sl_graph_reads_data(g))
    sl_graph_fail(g, SL_E_USAGE, "mamba2: no training data; give --data FILE");
  if (!m.heads && 2 * m.width % m.head_dim)
    sl_graph_fail(
        g, SL_E_USAGE,
        "mamba2: twice --width %lld is not a multiple of --head-dim %lld (or give --heads)",
        (long long)m.width, (long long)m.head_dim);
  if (!m.heads) m.heads = (int)(2 * m.width / m.head_dim);
  if (m.heads % m.groups)
    sl_graph_fail(g, SL_E_USAGE, "mamba2: --groups %d does not divide the %d heads", m.groups,
                  m.heads);
  return m;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  mamba m = read_shape(g, args);
  sl_type table = SL_TYPE(SL_F32, m.vocab, m.width);
  if (sl_graph_status(g)) return sl_graph_status(g);

  sl_block(g, "embedding");
  sl_texts texts = read_data(g, args, &m);
  sl_tensor *embed = sl_param(g, table, SL_NORMAL(0.02f), "backbone.embeddings.weight");
  sl_tensor *x = sl_embedding(g, texts.tokens, embed); /* [B, T, C] */

  for (int layer = 0; layer < m.layers; layer++) {
    sl_block(g, "h.%d", layer);
    x = sl_add(g, x, mixer(g, &m, norm(g, &m, x, m.width, layer, "norm.weight"), layer));
  }

  sl_block(g, "head");
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, m.width), SL_CONSTANT(1), "backbone.norm_f.weight");
  sl_tensor *head =
      sl_arg_flag(args, "tied") ? embed : sl_param(g, table, SL_NORMAL(0.02f), "lm_head.weight");
  sl_tensor *logits = sl_linear(g, sl_rmsnorm(g, x, gain, m.eps), head, NULL); /* [B, T, V] */
  sl_output(g, "logits", logits);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_texts_loss(g, logits, &texts), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(mamba2, "Mamba-2: state-space layers with short convolutions", options, build);
