/* LLaMA (Touvron et al., arXiv 2302.13971, and 2307.09288 for grouped queries):
 * rmsnorm before each half of a block, rotary positions, SwiGLU, no biases.
 * Mistral is the same with a window; Qwen2 has biases on q, k and v.
 *
 * Parameters have the names and layouts of Hugging Face's LlamaForCausalLM, so
 * its weight files load here and ours load there; linear weights are [out, in].
 *
 * B rows of a microbatch, T context, C width, H heads, K key/value heads, D numbers a head has,
 * V vocabulary. */
#include <math.h>
#include <string.h>
#include <sluice/sluice.h>

static const sl_option options[] = {
    {"data", SL_OPTION_LIST, "", "`FILE` to learn: text (its bytes are the tokens), .npy, or flat "
     "tokens (.u16, .u32, .bin, FILE:TYPE); or a folder of such; may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "6", "transformer blocks", 1, 1000},
    {"width", SL_OPTION_INT, "384", "numbers per token", 1, 1 << 20},
    {"heads", SL_OPTION_INT, "6", "query heads; must divide the width", 1, 1 << 16},
    {"kv-heads", SL_OPTION_INT, "0", "key and value heads; must divide the heads; 0: as many", 0,
     1 << 16},
    {"head-dim", SL_OPTION_INT, "0", "numbers a head has; 0: width / heads", 0, 256},
    {"ffn", SL_OPTION_INT, "0", "inner width of the feed-forward half; 0: 8/3 of the width, up "
     "to a multiple of 64", 0, 1 << 24},
    {"theta", SL_OPTION_FLOAT, "10000", "base of the rotary angles", 1, 1e30},
    {"rope", SL_OPTION_TEXT, "none", "`HOW` the rotary angles are stretched: none, "
     "linear:factor=F, llama3:factor=F,low_freq_factor=L,high_freq_factor=H,"
     "original_max_position_embeddings=N, or yarn:factor=F,original_max_position_embeddings=N",
     0, 0},
    {"bias", SL_OPTION_TEXT, "none", "`WHERE` attention has biases: none, qkv (Qwen2), or "
     "attention (also on its output)", 0, 0},
    {"window", SL_OPTION_INT, "0", "positions of which a token sees the last, its own among them; 0: "
     "all before it", 0, 1 << 24},
    {"document-end", SL_OPTION_INT, "-1", "`TOKEN` that ends a document: none sees another; -1: a row "
     "is one document", -1, 1 << 24},
    {"eps", SL_OPTION_FLOAT, "1e-5", "added to the mean square in norms", 0, 1},
    {"tied", SL_OPTION_FLAG, "0", "the classifier shares the embedding's weight", 0, 0},
    {"context", SL_OPTION_INT, "256", "tokens a row has", 1, 1 << 20},
    {"positions", SL_OPTION_INT, "0", "longest context the model is for; 0: the context", 0, 1 << 24},
    {"vocab", SL_OPTION_INT, "256", "different tokens", 2, 1 << 24},
    {"batch", SL_OPTION_INT, "8", "rows per step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS,
    {0}};

typedef struct shape {
  int layers, heads, kv_heads;
  int64_t rows, context, width, head_dim, ffn, vocab;
  float theta, eps;
  sl_rope rope;
  bool qkv_bias, o_bias;
  sl_attrs attention;
  sl_tensor *documents; /* [B, T] their ids; NULL: a row is one */
} shape;

/* y = x w^T with a weight [out, in] */
static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t in, int64_t out, float std,
                        int layer, const char *name) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(std),
                          "model.layers.%d.%s.weight", layer, name);
  return sl_linear(g, x, w, NULL); /* [B, T, out] */
}

/* The same, with a bias if the model has one there. */
static sl_tensor *biased(sl_graph *g, bool has, sl_tensor *x, int64_t in, int64_t out, float std,
                         int layer, const char *name) {
  if (!has) return dense(g, x, in, out, std, layer, name);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, out, in), SL_NORMAL(std),
                          "model.layers.%d.%s.weight", layer, name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "model.layers.%d.%s.bias",
                          layer, name);
  return sl_linear(g, x, w, b); /* [B, T, out] */
}

static sl_tensor *norm(sl_graph *g, const shape *s, sl_tensor *x, int layer, const char *name) {
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, s->width), SL_CONSTANT(1),
                             "model.layers.%d.%s.weight", layer, name);
  return sl_rmsnorm(g, x, gain, s->eps); /* [B, T, C] */
}

static sl_tensor *attention(sl_graph *g, const shape *s, sl_tensor *x, float residual, int layer) {
  int64_t C = s->width, Q = s->heads * s->head_dim, KV = s->kv_heads * s->head_dim;
  bool bias = s->qkv_bias;
  sl_tensor *q = biased(g, bias, x, C, Q, 0.02f, layer, "self_attn.q_proj");  /* [B, T, H*D] */
  sl_tensor *k = biased(g, bias, x, C, KV, 0.02f, layer, "self_attn.k_proj"); /* [B, T, K*D] */
  sl_tensor *v = biased(g, bias, x, C, KV, 0.02f, layer, "self_attn.v_proj"); /* [B, T, K*D] */
  q = sl_rotary_stretched(g, q, s->heads, s->theta, &s->rope);
  k = sl_rotary_stretched(g, k, s->kv_heads, s->theta, &s->rope);
  sl_tensor *a = sl_attend_within(g, q, k, v, s->documents, &s->attention); /* [B, T, H*D] */
  return biased(g, s->o_bias, a, Q, C, residual, layer, "self_attn.o_proj"); /* [B, T, C] */
}

static sl_tensor *transformer_block(sl_graph *g, const shape *s, sl_tensor *x, int layer) {
  int64_t C = s->width;
  /* The residual stream adds up 2 * layers outputs; each starts smaller. */
  float residual = 0.02f / sqrtf(2.0f * (float)s->layers);
  sl_block(g, "h.%d", layer);
  sl_tensor *a = norm(g, s, x, layer, "input_layernorm");
  x = sl_add(g, x, attention(g, s, a, residual, layer));
  sl_tensor *m = norm(g, s, x, layer, "post_attention_layernorm");
  sl_tensor *gate = dense(g, m, C, s->ffn, 0.02f, layer, "mlp.gate_proj"); /* [B, T, ffn] */
  sl_tensor *up = dense(g, m, C, s->ffn, 0.02f, layer, "mlp.up_proj");     /* [B, T, ffn] */
  m = dense(g, sl_swiglu(g, gate, up), s->ffn, C, residual, layer, "mlp.down_proj");
  return sl_add(g, x, m); /* [B, T, C] */
}

static void check_shape(sl_graph *g, const sl_args *args, const shape *s) {
  if (!*sl_arg_text(args, "data") && sl_graph_reads_data(g))
    sl_graph_fail(g, SL_E_USAGE, "llama needs something to learn: --data FILE");
  if (!s->head_dim)
    sl_graph_fail(g, SL_E_USAGE, "llama: --width %lld is not a multiple of --heads %d",
                  (long long)s->width, s->heads);
  if (s->heads % s->kv_heads)
    sl_graph_fail(g, SL_E_USAGE, "llama: --heads %d is not a multiple of --kv-heads %d", s->heads,
                  s->kv_heads);
  int64_t positions = sl_arg_int(args, "positions");
  if (positions && positions < s->context)
    sl_graph_fail(g, SL_E_USAGE, "llama: --context %lld is more than --positions %lld",
                  (long long)s->context, (long long)positions);
}

static void read_words(sl_graph *g, const sl_args *args, shape *s) {
  const char *bias = sl_arg_text(args, "bias");
  s->o_bias = !strcmp(bias, "attention");
  s->qkv_bias = s->o_bias || !strcmp(bias, "qkv");
  if (!s->qkv_bias && strcmp(bias, "none"))
    sl_graph_fail(g, SL_E_USAGE, "llama: --bias %s: it is one of none, qkv, attention", bias);
  if (sl_rope_parse(sl_arg_text(args, "rope"), &s->rope))
    sl_graph_fail(g, SL_E_USAGE, "llama: --rope: %s", sl_detail());
}

static shape read_shape(sl_graph *g, const sl_args *args) {
  shape s = {.layers = (int)sl_arg_int(args, "layers"),
             .heads = (int)sl_arg_int(args, "heads"),
             .kv_heads = (int)sl_arg_int(args, "kv-heads"),
             .rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
             .context = sl_arg_int(args, "context"),
             .width = sl_arg_int(args, "width"),
             .head_dim = sl_arg_int(args, "head-dim"),
             .ffn = sl_arg_int(args, "ffn"),
             .vocab = sl_arg_int(args, "vocab"),
             .theta = (float)sl_arg_float(args, "theta"),
             .eps = (float)sl_arg_float(args, "eps")};
  if (!s.kv_heads) s.kv_heads = s.heads;
  if (!s.head_dim && s.width % s.heads == 0) s.head_dim = s.width / s.heads;
  if (!s.ffn) s.ffn = (s.width * 8 / 3 + 63) / 64 * 64;
  int64_t window = sl_arg_int(args, "window");
  s.attention = (sl_attrs){.heads = s.heads, .kv_heads = s.kv_heads,
                           .window = window < s.context ? window : 0};
  read_words(g, args, &s);
  check_shape(g, args, &s);
  return s;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  shape s = read_shape(g, args);
  sl_type table = SL_TYPE(SL_F32, s.vocab, s.width);

  sl_block(g, "embedding");
  sl_tensor *targets; /* [B, T] */
  sl_tensor *tokens = sl_tokens(g, sl_arg_text(args, "data"), s.rows, s.context, s.vocab, &targets);
  sl_tensor *embed = sl_param(g, table, SL_NORMAL(0.02f), "model.embed_tokens.weight");
  sl_tensor *x = sl_embedding(g, tokens, embed); /* [B, T, C] */
  int64_t end = sl_arg_int(args, "document-end");
  if (end >= 0) s.documents = sl_documents(g, tokens, (int32_t)end, NULL);

  for (int layer = 0; layer < s.layers; layer++) x = transformer_block(g, &s, x, layer);

  sl_block(g, "head");
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, s.width), SL_CONSTANT(1), "model.norm.weight");
  x = sl_rmsnorm(g, x, gain, s.eps);
  sl_tensor *head = sl_arg_flag(args, "tied")
                        ? embed
                        : sl_param(g, table, SL_NORMAL(0.02f), "lm_head.weight");
  sl_tensor *logits = sl_linear(g, x, head, NULL); /* [B, T, V] */
  sl_output(g, "logits", logits);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_cross_entropy(g, logits, targets), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(llama, "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped queries", options, build);
