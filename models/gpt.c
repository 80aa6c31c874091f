/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): learned
 * positions, layernorm before each half of a block, gelu, and a classifier that shares its weight
 * with the embedding.
 *
 * Parameters keep the names and layouts of Hugging Face's GPT2LMHeadModel, so weight files load in
 * both directions; linear weights are [in, out].
 *
 * B rows of a microbatch, T context, C width, V vocabulary. */
#include <math.h>
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, "", "`FILE` with training data: text (its bytes are the tokens), "
     "chats (.jsonl), .npy, or flat tokens (.u16, .u32, .bin, FILE:TYPE); or a folder of these; "
     "may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "4", "transformer blocks", 1, 1000},
    {"width", SL_OPTION_INT, "128", "model width: numbers per token", 1, 1 << 20},
    {"heads", SL_OPTION_INT, "4", "attention heads; must divide the width", 1, 1 << 16},
    {"context", SL_OPTION_INT, "128", "tokens per row", 1, 1 << 28},
    {"positions", SL_OPTION_INT, "0", "rows of the position table; 0: same as --context", 0,
     1 << 28},
    {"window", SL_OPTION_INT, "0", "attention window: the last positions a token sees, including "
     "its own; 0: all earlier ones", 0, 1 << 28},
    {"document-end", SL_OPTION_INT, "-1", "`TOKEN` that ends a document; documents do not see "
     "each other; -1: a row is one document", -1, 1 << 24},
    {"loop", SL_OPTION_TEXT, "", "`FIRST-LASTxTIMES`: these blocks are visited several times, one "
     "after another, with the same weights: 1-2x3 gives h.0 h.1 h.2 h.1 h.2 h.1 h.2 h.3", 0, 0},
    {"eps", SL_OPTION_FLOAT, "1e-5", "epsilon of the norms, added to the variance", 0, 1},
    {"vocab", SL_OPTION_INT, "256", "vocabulary size", 2, 1 << 24},
    {"batch", SL_OPTION_INT, "8", "rows per step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

/* Blocks that are visited several times. */
typedef struct loop {
  int first, last, times; /* times 1: none */
} loop;

typedef struct shape {
  int layers, heads;
  loop loop;
  int64_t rows, context, positions, width, vocab;
  float eps;
  sl_attention_attrs attention;
  sl_tensor *documents; /* [B, T] document ids; NULL: a row is one document */
} shape;

/* y = x w + b with a weight [in, out] */
static sl_tensor *dense(sl_graph *g, sl_tensor *x, int64_t in, int64_t out, float std,
                        const char *name) {
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, in, out), SL_NORMAL(std), "%s.weight", name);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%s.bias", name);
  return sl_linear_transposed(g, x, w, b); /* [B, T, out] */
}

static sl_tensor *norm(sl_graph *g, const shape *s, sl_tensor *x, const char *name) {
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, s->width), SL_CONSTANT(1), "%s.weight", name);
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, s->width), SL_CONSTANT(0), "%s.bias", name);
  return sl_layernorm(g, x, gain, bias, s->eps); /* [B, T, C] */
}

/* "transformer.h.3.mlp.c_fc" */
static const char *part(char out[64], int layer, const char *name) {
  snprintf(out, 64, "transformer.h.%d.%s", layer, name);
  return out;
}

static sl_tensor *transformer_block(sl_graph *g, const shape *s, sl_tensor *x, int layer,
                                    bool again) {
  char name[64];
  int64_t C = s->width;
  /* Scales the initial output weights: the residual stream sums 2 * layers outputs. */
  float residual = 0.02f / sqrtf(2.0f * (float)s->layers);
  if (again) sl_block_again(g, "h.%d", layer);
  else sl_block(g, "h.%d", layer);
  sl_tensor *a = norm(g, s, x, part(name, layer, "ln_1"));
  a = dense(g, a, C, 3 * C, 0.02f, part(name, layer, "attn.c_attn")); /* [B, T, 3C] */
  a = sl_attend_packed_within(g, a, s->documents, &s->attention);     /* [B, T, C] */
  a = dense(g, a, C, C, residual, part(name, layer, "attn.c_proj"));
  x = sl_add(g, x, a);
  sl_tensor *m = norm(g, s, x, part(name, layer, "ln_2"));
  m = dense(g, m, C, 4 * C, 0.02f, part(name, layer, "mlp.c_fc")); /* [B, T, 4C] */
  m = dense(g, sl_gelu(g, m), 4 * C, C, residual, part(name, layer, "mlp.c_proj"));
  return sl_add(g, x, m); /* [B, T, C] */
}

static void check_shape(sl_graph *g, const sl_args *args, const shape *s) {
  if (!*sl_arg_text(args, "data") && sl_graph_reads_data(g))
    sl_graph_fail(g, SL_E_USAGE, "gpt: no training data; give --data FILE");
  if (s->width % s->heads)
    sl_graph_fail(g, SL_E_USAGE, "gpt: --width %lld is not a multiple of --heads %d",
                  (long long)s->width, s->heads);
  if (s->positions < s->context)
    sl_graph_fail(g, SL_E_USAGE, "gpt: --positions %lld is less than --context %lld",
                  (long long)s->positions, (long long)s->context);
}

static loop read_loop(sl_graph *g, const sl_args *args, int layers) {
  const char *text = sl_arg_text(args, "loop");
  loop l = {0, 0, 1};
  int end = 0;
  if (!*text) return l;
  bool read = sscanf(text, "%d-%dx%d%n", &l.first, &l.last, &l.times, &end) == 3 && !text[end];
  if (!read || l.first < 0 || l.last < l.first || l.last >= layers || l.times < 1 || l.times > 1000)
    sl_graph_fail(
        g, SL_E_USAGE,
        "gpt: --loop %s: must be FIRST-LASTxTIMES, with blocks from 0 to %d and 1 to 1000 "
        "visits",
        text, layers - 1);
  return l;
}

static shape read_shape(sl_graph *g, const sl_args *args) {
  shape s = {.layers = (int)sl_arg_int(args, "layers"),
             .heads = (int)sl_arg_int(args, "heads"),
             .rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
             .context = sl_arg_int(args, "context"),
             .positions = sl_arg_int(args, "positions"),
             .width = sl_arg_int(args, "width"),
             .vocab = sl_arg_int(args, "vocab"),
             .eps = (float)sl_arg_float(args, "eps")};
  if (!s.positions) s.positions = s.context;
  int64_t window = sl_arg_int(args, "window");
  s.loop = read_loop(g, args, s.layers);
  s.attention = (sl_attention_attrs){
      .heads = s.heads, .kv_heads = s.heads, .window = window < s.context ? window : 0};
  check_shape(g, args, &s);
  return s;
}

/* Adds learned positions, which restart at each document. A document is a chat, or ends at a given
 * token. */
static sl_tensor *add_positions(sl_graph *g, const sl_args *args, shape *s, const sl_texts *texts,
                                sl_tensor *x) {
  sl_tensor *positions = texts->positions,
            *wpe = sl_param(g, SL_TYPE(SL_F32, s->positions, s->width), SL_NORMAL(0.02f),
                            "transformer.wpe.weight");
  int64_t end = sl_arg_int(args, "document-end");
  if (end >= 0 && positions)
    sl_graph_fail(g, SL_E_USAGE,
                  "gpt: --document-end: not with chats, each of which is a document already");
  if (end < 0 && !positions) return sl_position(g, x, wpe);
  s->documents = texts->documents;
  if (end >= 0) s->documents = sl_documents(g, texts->tokens, (int32_t)end, &positions);
  return sl_add(g, x, sl_embedding(g, positions, wpe));
}

static sl_status build(sl_graph *g, const sl_args *args) {
  shape s = read_shape(g, args);

  sl_block(g, "embedding");
  sl_texts texts = sl_texts(g, sl_arg_text(args, "data"), s.rows, s.context, s.vocab, false);
  sl_tensor *wte =
      sl_param(g, SL_TYPE(SL_F32, s.vocab, s.width), SL_NORMAL(0.02f), "transformer.wte.weight");
  sl_tensor *x = sl_embedding(g, texts.tokens, wte); /* [B, T, C] */
  x = add_positions(g, args, &s, &texts, x);         /* [B, T, C] */

  for (int layer = 0, visit = 1; layer < s.layers; layer++) {
    x = transformer_block(g, &s, x, layer, visit > 1 && layer >= s.loop.first);
    if (layer == s.loop.last && visit < s.loop.times) layer = s.loop.first - 1, visit++;
    else if (layer == s.loop.last) visit = 1;
  }

  sl_block(g, "head");
  x = norm(g, &s, x, "transformer.ln_f");
  sl_tensor *logits = sl_linear(g, x, wte, NULL); /* [B, T, V] */
  sl_output(g, "logits", logits);
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_texts_loss(g, logits, &texts), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(gpt, "GPT-2: decoder with learned positions and tied classifier", options, build);
