/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are the model `decoder` with other defaults. A row says which options a model has,
 * and what the rest of decoder's options are. Weight files of the Hugging Face models of these
 * names load in both directions. */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

enum { MOST_OPTIONS = 128, MOST_SETTINGS = 8 };

typedef struct preset preset;

/* Users' options of a model that is built. */
typedef struct reading {
  sl_graph *g;
  const preset *preset;
  const sl_args *args;
} reading;

/* Returns whether a block is one of those that an option speaks of. */
typedef bool is_block(const reading *r, const char *option, int block);

/* A value of an option of decoder; the last of a row that applies counts. */
typedef struct setting {
  const char *option, *value; /* "=NAME": the value of an option of the row */
  const char *given;          /* applies if this option of the row is set; "!NAME": is not set */
  /* a list by blocks: `value` where `is` says yes to `by`, else `rest` */
  is_block *is;
  const char *by, *rest;
} setting;

struct preset {
  const char *name;
  /* options, separated by spaces: NAME, or NAME>OPTION for decoder's option under another name,
   * followed by =DEFAULT if that is not decoder's; "*": all of decoder's options */
  const char *shown;
  setting settings[MOST_SETTINGS];
  sl_option table[MOST_OPTIONS]; /* what is shown; ends with {0} */
  const char *of[MOST_OPTIONS];  /* decoder's names of these; NULL: only settings read the option */
};

/* Options that settings read. */
static const sl_option own[] = {
    {"packed", SL_OPTION_FLAG, "0", "one product computes q, k and v, another gate and up (Phi 3)",
     0, 0},
    {"full-every", SL_OPTION_INT, "0",
     "`N`: every N-th block attends to all earlier tokens, the rest within the window; 0: all use "
     "the window",
     0, 1000},
    {"dense-layers", SL_OPTION_INT, "1", "number of leading blocks without experts", 0, 1000},
    {"no-conv-bias", SL_OPTION_FLAG, "0", "the convolution has no bias", 0, 0},
    {"softmax-every", SL_OPTION_INT, "2",
     "`N`: every N-th block has softmax attention and the rest linear attention; 0: none", 0, 1000},
    {"side-by-side", SL_OPTION_FLAG, "0",
     "each block has both kinds of attention and adds their normed outputs with weights "
     "(SpikingBrain-76B)",
     0, 0},
    {"dense-blocks", SL_OPTION_TEXT, "none",
     "`LIST` of blocks with SwiGLU instead of experts: numbers from 0, separated by commas", 0, 0},
    {0}};

/* ---- tables of options ----------------------------------------------------------------------- */

/* Adds an option, unless it is there. Returns its index. */
static int add_option(preset *p, const char *name, const sl_option *o, const char *of) {
  int i = 0;
  while (p->table[i].name && strcmp(p->table[i].name, name)) i++;
  if (p->table[i].name) return i;
  if (!o || i == MOST_OPTIONS - 1) abort(); /* a mistake of the row */
  p->table[i] = *o;
  p->table[i].name = name;
  p->of[i] = of;
  return i;
}

static void add_word(preset *p, char *word) {
  char *value = strchr(word, '='), *of = strchr(word, '>');
  if (value) *value++ = 0;
  if (of) *of++ = 0;
  const char *name = of ? of : word;
  const sl_option *o = sl_options_find(sli_decoder_options, name);
  int i = add_option(p, word, o ? o : sl_options_find(own, word), o ? name : NULL);
  if (value) p->table[i].value = value;
}

static void make_table(preset *p) {
  char *rest = strdup(p->shown), *word; /* the table keeps the texts */
  while ((word = strsep(&rest, " "))) {
    if (*word && *word != '*') add_word(p, word);
    for (const sl_option *o = sli_decoder_options; o->name && *word == '*'; o++)
      add_option(p, o->name, o, o->name);
  }
}

/* ---- lists by blocks ------------------------------------------------------------------------- */

static bool is_nth(const reading *r, const char *option, int block) {
  int64_t n = sl_arg_int(r->args, option);
  return n && (block + 1) % n == 0;
}

static bool is_leading(const reading *r, const char *option, int block) {
  return block < sl_arg_int(r->args, option);
}

static bool is_listed(const reading *r, const char *option, int block) {
  const char *list = sl_arg_text(r->args, option), *at = strcmp(list, "none") ? list : "";
  long layers = (long)sl_arg_int(r->args, "layers");
  bool found = false, good = true;
  for (char *end; *at && good; at = end + (*end == ',')) {
    long number = strtol(at, &end, 10);
    good = end > at && (!*end || (*end == ',' && end[1])) && number >= 0 && number < layers;
    found |= number == block;
  }
  if (!good)
    sl_graph_fail(r->g, SL_E_USAGE,
                  "%s: --%s %s: must be none, or block numbers from 0 to %ld separated by commas",
                  r->preset->name, option, list, layers - 1);
  return found;
}

/* Returns a word of --mixers: without a window, blocks attend to all tokens. */
static const char *mixer_of(const reading *r, const char *word) {
  bool window = !strcmp(word, "window") && sl_arg_int(r->args, "window") > 0;
  return strcmp(word, "window") || window ? word : "full";
}

static char *list_of(const reading *r, const setting *s) {
  char *out = NULL;
  size_t bytes;
  FILE *text = open_memstream(&out, &bytes);
  if (!text) abort(); /* no memory */
  for (int i = 0; i < sl_arg_int(r->args, "layers"); i++)
    fprintf(text, "%s%s", i ? "," : "",
            mixer_of(r, !s->is || s->is(r, s->by, i) ? s->value : s->rest));
  fclose(text);
  return out;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Returns the last value of an option of the row. */
static const char *value_of(const reading *r, const char *name) {
  const char *value = sl_options_find(r->preset->table, name)->value, *more;
  for (int i = 0; (more = sl_arg_given(r->args, name, i)); i++) value = more;
  return value;
}

static sl_status apply(const reading *r, const setting *s, sl_args *out) {
  bool not = s->given && *s->given == '!';
  if (s->given && not != (strtod(value_of(r, s->given + not ), NULL) == 0)) return SL_OK;
  if (*s->value == '=') return sl_args_describe(out, s->option, value_of(r, s->value + 1));
  if (strcmp(s->option, "mixers") && !s->is) return sl_args_describe(out, s->option, s->value);
  char *list = list_of(r, s);
  sl_status status = sl_args_describe(out, s->option, list);
  free(list);
  return status;
}

/* Gives decoder the values of an option of the row. */
static sl_status pass_on(const reading *r, int index, sl_args *out) {
  const sl_option *o = &r->preset->table[index];
  const char *value, *of = r->preset->of[index];
  int i = 0;
  sl_status status = SL_OK;
  for (; of && !status && (value = sl_arg_given(r->args, o->name, i)); i++)
    status = sl_args_describe(out, of, value);
  bool other = of && strcmp(o->value, sl_options_find(sli_decoder_options, of)->value);
  return !i && other ? sl_args_describe(out, of, o->value) : status;
}

static sl_status build(const preset *p, sl_graph *g, const sl_args *args) {
  const reading r = {g, p, args};
  sl_args *out;
  sl_status status = sl_args_create(sli_decoder_options, &out);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  for (int i = 0; p->table[i].name && !status; i++) status = pass_on(&r, i, out);
  for (const setting *s = p->settings; s->option && !status; s++) status = apply(&r, s, out);
  if (status) sl_graph_fail(g, status, "%s: %s", p->name, sl_detail());
  if (!status) status = sl_graph_status(g);
  if (!status) status = sli_decoder_build(g, out, p->name, p->shown);
  if (!status && sl_args_status(out)) status = sl_graph_fail(g, SL_E_USAGE, "%s", sl_detail());
  sl_args_destroy(out);
  return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define PRESET(ident, name_, summary, shown_, ...)                                    \
  static preset ident = {.name = name_, .shown = shown_, .settings = {__VA_ARGS__}};  \
  static sl_status ident##_build(sl_graph *g, const sl_args *args) {                  \
    return build(&ident, g, args);                                                    \
  }                                                                                   \
  __attribute__((constructor)) static void ident##_make(void) { make_table(&ident); } \
  SL_MODEL_NAMED(ident, name_, summary, ident.table, ident##_build)

#define BASE                                                                        \
  "data layers width heads kv-heads head-dim theta rope bias window attend-blocks " \
  "document-end eps tied context positions vocab batch "
#define TRAINING " lr min-lr warmup decay-steps weight-decay clip beta1 beta2"
#define ROUTING(normed) \
  "top-k expert-ffn shared-ffn norm-topk=" normed " aux-loss z-loss expert-capacity "
/* Windows in all blocks but every N-th. */
#define WINDOWS \
  { "mixers", "full", NULL, is_nth, "full-every", "window" }

PRESET(llama, "llama", "LLaMA: rmsnorm, rotary positions, SwiGLU, grouped-query attention",
       BASE
       "ffn qk-norm query-scalar qk-norm-whole plus-one scaled-embedding local-theta "
       "logit-cap norms packed gate>function full-every" TRAINING,
       {"packed-qkv", "=packed"}, {"packed-gates", "=packed"}, WINDOWS);

PRESET(mixtral, "mixtral", "Mixtral: LLaMA with a mixture of experts",
       BASE "experts=8 qk-norm " ROUTING("1") TRAINING, {"mixers", "window"}, {"feeds", "experts"},
       {"names",
        "mlp.gate=block_sparse_moe.gate,"
        "mlp.experts.*.gate_proj=block_sparse_moe.experts.*.w1,"
        "mlp.experts.*.down_proj=block_sparse_moe.experts.*.w2,"
        "mlp.experts.*.up_proj=block_sparse_moe.experts.*.w3"});

PRESET(qwen_moe, "qwen-moe", "Qwen's mixture-of-experts models",
       BASE "experts=8 qk-norm " ROUTING("0") TRAINING, {"mixers", "window"}, {"feeds", "experts"},
       {"shared-gate", "1"});

PRESET(gpt_oss, "gpt-oss", "gpt-oss: experts, attention sinks, windows",
       BASE "full-every=2 experts=8 " ROUTING("1") "swiglu-limit" TRAINING, WINDOWS,
       {"feeds", "experts"}, {"sinks", "1"}, {"function", "clamped"}, {"paired-experts", "1"},
       {"expert-bias", "1"}, {"names", "mlp.gate=mlp.router"});

PRESET(deepseek, "deepseek", "DeepSeek-V3: latent attention, experts chosen by sigmoid gates",
       BASE "ffn query-rank latent nope-dim rope-dim value-dim>latent-value-dim rope-halves "
            "query-scalar experts=8 " ROUTING("1") "dense-layers expert-groups top-groups "
            "routed-scale correction-rate ahead ahead-weight ahead-alone ahead-names" TRAINING,
       {"mixers", "latent"}, {"feeds", "mlp", NULL, is_leading, "dense-layers", "experts"},
       {"router", "corrected"}, {"names", "mlp.shared_expert=mlp.shared_experts"});

PRESET(hybrid, "hybrid", "hybrid: gated linear attention and softmax attention, SwiGLU or experts",
       BASE "ffn softmax-every side-by-side gates spikes gate-rank sink-tokens experts " ROUTING(
           "0") "dense-blocks" TRAINING,
       {"mixers", "window", NULL, is_nth, "softmax-every", "linear"},
       {"mixers", "beside", "side-by-side"},
       {"feeds", "mlp", "experts", is_listed, "dense-blocks", "experts"},
       {"expert-ffn", "=ffn", "!expert-ffn"});

PRESET(mamba2, "mamba2", "Mamba-2: state-space layers with short convolutions",
       "data document-end layers width head-dim>state-head-dim heads>state-heads "
       "groups>state-groups state conv no-conv-bias eps tied context vocab batch" TRAINING,
       {"heads", "1"}, {"mixers", "mamba"}, {"feeds", "none"}, {"conv-bias", "1"},
       {"conv-bias", "0", "no-conv-bias"},
       {"names",
        "model.layers=backbone.layers,model.embed_tokens=backbone.embeddings,"
        "model.norm=backbone.norm_f,input_layernorm=norm,mamba=mixer"});

PRESET(qwen3_next, "qwen3-next", "Qwen3-Next: gated delta rule, softmax attention, experts",
       "* qk-norm=1 plus-one=1 gated-heads=1 shared-gate=1 packed-delta=1 experts=8 "
       "mixers=delta,delta,delta,full feeds=experts");
