/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder whose every part is an option: per block a mixer and a feed-forward half, and for all
 * blocks the places of norms, functions, factors and names. A row of tools/formats/families.json
 * turns the config.json of a model family into these options; presets.c has models that are this
 * one with other defaults. */
#include "kda.h"
#include "latent.h"
#include "linear.h"
#include "mamba.h"
#include "moe.h"
#include "options.h"

typedef struct general {
  moe moe; /* must be first: moe.h reads decoder.own as a moe */
  int64_t conv;
  bool conv_bias;
} general;

/* ---- gated convolutions ---------------------------------------------------------------------- */

/* y = C * conv(B * x), with B, C and x from one product. */
static sl_tensor *gated_conv(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const general *own = d->own;
  int64_t C = d->width;
  bool has = own->conv_bias;
  sl_tensor *part[3];
  x = decoder_biased(g, d, has, x, C, 3 * C, 0.02f, layer, "conv.in_proj");
  sl_split(g, x, 2, 3, NULL, part);
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, C, 1, own->conv),
                               SL_UNIFORM(1 / sqrtf((float)own->conv)), layer, "conv.conv.weight");
  sl_tensor *bias =
      has ? decoder_param(g, d, SL_TYPE(SL_F32, C), SL_CONSTANT(0), layer, "conv.conv.bias") : NULL;
  x = sl_causal_conv_within(g, sl_mul(g, part[0], part[2]), w, bias, d->positions);
  return decoder_biased(g, d, has, sl_mul(g, part[1], x), C, C, residual, layer, "conv.out_proj");
}

/* ---- lists of blocks ------------------------------------------------------------------------- */

/* Kinds of halves. An option that some of them read is refused where no half of the model does. */
typedef struct half_kind {
  const char *name;
  decoder_half *half;
  bool windowed, state;
  const char *reads;
} half_kind;

#define READS_PLACES "theta rope "
#define READS_SCORES "heads bias attention-factor query-scalar "
#define READS_HEADS                                                                                \
  READS_SCORES                                                                                     \
  "kv-heads head-dim block-kv-heads block-head-dims qk-norm qk-norm-whole value-norm gated-heads " \
  "packed-qkv sinks score-cap attend-blocks rope-pairs " READS_PLACES
#define READS_LATENT \
  READS_SCORES "query-rank latent nope-dim rope-dim latent-value-dim rope-halves " READS_PLACES
#define READS_DELTA "key-heads value-heads key-dim value-dim conv "
#define READS_LINEAR "gates gate-rank "
#define READS_FEED "function ungated "
#define READS_MLP READS_FEED "ffn packed-gates mlp-bias "
#define READS_EXPERTS \
  READS_FEED          \
  "experts top-k expert-ffn norm-topk aux-loss z-loss expert-capacity packed-experts expert-latent "

static const half_kind mixers[] = {
    {.name = "full", .half = decoder_attention, .reads = READS_HEADS},
    {.name = "window",
     .half = decoder_attention,
     .windowed = true,
     .reads = READS_HEADS "window local-theta"},
    {.name = "delta", .half = delta_rule, .state = true, .reads = READS_DELTA "packed-delta"},
    {.name = "kda", .half = kda, .state = true, .reads = READS_DELTA},
    {.name = "latent", .half = latent_attention, .reads = READS_LATENT "window"},
    {.name = "indexed",
     .half = latent_indexed,
     .reads = READS_LATENT "index-heads index-dim index-tokens index-loss index-halves"},
    {.name = "reused", .half = latent_reused, .reads = READS_LATENT},
    {.name = "mamba",
     .half = mamba_mixer,
     .state = true,
     .reads = "state-heads state-head-dim state-groups state conv conv-bias state-bias"},
    {.name = "conv", .half = gated_conv, .reads = "conv state-bias"},
    {.name = "linear", .half = linear_attention, .state = true, .reads = READS_HEADS READS_LINEAR},
    {.name = "beside",
     .half = linear_beside,
     .windowed = true,
     .state = true,
     .reads = READS_HEADS READS_LINEAR "window local-theta"},
    {.name = "none", .reads = ""},
    {0}};
static const half_kind feeds[] = {
    {.name = "mlp", .half = decoder_mlp, .reads = READS_MLP},
    {.name = "experts",
     .half = moe_half,
     .reads = READS_EXPERTS "router shared-ffn paired-experts expert-bias"},
    {.name = "both", .half = moe_beside, .reads = READS_MLP READS_EXPERTS},
    {.name = "none", .reads = ""},
    {0}};

/* Suffixes of the names of kinds, the kinds that each may follow, and options of these kinds that
 * are then not read. */
static const struct suffix {
  const char *name, *kinds;
  size_t flag; /* offset of a bool in decoder_layer */
  const char *lacks;
} suffixes[] = {{"-unplaced", "full window latent", offsetof(decoder_layer, unplaced),
                 READS_PLACES "local-theta rope-pairs rope-halves"},
                {"-keyed", "full window", offsetof(decoder_layer, keyed), ""},
                {"-shared", "full window", offsetof(decoder_layer, shared), ""},
                {"-wide", "mlp both", offsetof(decoder_layer, wide), ""}};

/* Options that are read if another one is set, or has one of some words. */
static const struct {
  const char *option, *words, *reads;
} followers[] = {{"qk-norm", NULL, "qk-norm-late"},
                 {"qk-norm-whole", NULL, "qk-norm-late"},
                 {"block-inputs", NULL, "block-inputs-vocab function"},
                 {"ahead", NULL, "ahead-weight ahead-names ahead-alone"},
                 {"norm", "rms layer layer-gain", "plus-one"},
                 {"function", "clamped", "swiglu-limit"},
                 {"shared-ffn", NULL, "shared-gate packed-gates mlp-bias"},
                 {"expert-latent", NULL, "mlp-bias"},
                 {"router", "sigmoid corrected softmax-corrected",
                  "expert-groups top-groups routed-scale weight-eps"},
                 {"router", "corrected softmax-corrected", "correction-rate"}};

/* Returns the word of a block in a list that is repeated over the blocks, and its length. */
static const char *word_at(const char *list, int layer, size_t *n) {
  int count = 1;
  for (const char *c = list; *c; c++) count += *c == ',';
  for (int i = layer % count; i > 0; i--) list = strchr(list, ',') + 1;
  *n = strcspn(list, ",");
  return list;
}

/* Sets the flag of a suffix at the beginning of a text, and returns the suffix's length, or 0. */
static size_t read_suffix(const char *text, const char *kind, decoder_layer *l) {
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    size_t n = strlen(suffixes[i].name);
    if (strncmp(text, suffixes[i].name, n) || !strstr(suffixes[i].kinds, kind)) continue;
    *(bool *)((char *)l + suffixes[i].flag) = true;
    return n;
  }
  return 0;
}

/* Returns the kind of a block in a list, and sets what follows the kind's name. */
static const half_kind *kind_of(sl_graph *g, const decoder *d, const char *option, const char *list,
                                int layer, const half_kind *kinds, decoder_layer *l) {
  size_t n, more = 1;
  const char *word = word_at(list, layer, &n);
  for (const half_kind *k = kinds; k->name; k++) {
    size_t at = strlen(k->name);
    if (strncmp(k->name, word, at) || (word[at] != '-' && at != n)) continue;
    for (; at < n && more; at += more) more = read_suffix(word + at, k->name, l);
    if (at == n) return k;
  }
  sl_graph_fail(g, SL_E_USAGE, "%s: --%s %.200s: unknown word \"%.*s\"", d->model, option, list,
                (int)n, word);
  return kinds;
}

/* Returns a block's number in a list, or 0. */
static int64_t number_of(sl_graph *g, const sl_args *args, const decoder *d, const char *option,
                         int layer) {
  size_t n;
  char *end;
  const char *list = sl_arg_text(args, option), *word = word_at(list, layer, &n);
  long long value = strtoll(word, &end, 10);
  if (n && end == word + n && value >= 0 && value <= 1 << 16) return value;
  sl_graph_fail(g, SL_E_USAGE, "%s: --%s %.200s: \"%.*s\" is not a number of at most %d", d->model,
                option, list, (int)n, word, 1 << 16);
  return 0;
}

/* ---- options that no block reads ------------------------------------------------------------- */

/* Returns whether a list of words, separated by spaces, has a word. */
static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

/* Returns whether a half of a block reads an option. */
static bool half_reads(const half_kind *kind, const decoder_layer *l, const char *option) {
  if (!has_word(kind->reads, option)) return false;
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
    if (*(const bool *)((const char *)l + suffixes[i].flag) && has_word(suffixes[i].lacks, option))
      return false;
  return true;
}

/* Returns whether an option is set, or has one of the words. */
static bool is_set(const sl_args *args, const char *option, const char *words) {
  if (words) return has_word(words, sl_arg_text(args, option));
  return sl_options_find(sli_decoder_options, option)->kind == SL_OPTION_INT
             ? sl_arg_int(args, option) != 0
             : sl_arg_flag(args, option);
}

/* Returns whether the model reads an option; if not, appends what would to `readers`. */
static bool is_read(const sl_args *args, const decoder *d, const half_kind *const (*each)[2],
                    const char *option, char *readers, size_t size) {
  bool known = false;
  for (int i = 0; i < d->layers; i++)
    if (half_reads(each[i][0], &d->each[i], option) || half_reads(each[i][1], &d->each[i], option))
      return true;
  for (int f = 0; f < 2; f++)
    for (const half_kind *k = f ? feeds : mixers; k->name; k++) {
      if (!has_word(k->reads, option)) continue;
      snprintf(readers + strlen(readers), size - strlen(readers), "%s--%s %s", known ? ", " : "",
               f ? "feeds" : "mixers", k->name);
      known = true;
    }
  for (size_t i = 0; i < sizeof followers / sizeof *followers; i++) {
    const char *words = followers[i].words;
    char none[1] = "";
    if (!has_word(followers[i].reads, option)) continue;
    if (is_set(args, followers[i].option, words) &&
        is_read(args, d, each, followers[i].option, none, 0))
      return true;
    snprintf(readers + strlen(readers), size - strlen(readers), "%s--%s%s%s", known ? ", " : "",
             followers[i].option, words ? " " : "", words ? words : "");
    known = true;
  }
  return !known;
}

/* Returns whether an option's value is the number 0, which turns it off. */
static bool is_off(const sl_args *args, const sl_option *o) {
  char *end;
  return strtod(sl_arg_given(args, o->name, 0), &end) == 0 && !*end;
}

/* Refuses options that the user gave and nothing reads. */
static void check_read(sl_graph *g, const sl_args *args, const decoder *d,
                       const half_kind *const (*each)[2]) {
  for (const sl_option *o = sli_decoder_options; o->name; o++) {
    char readers[400] = "";
    if (sl_arg_chosen(args, o->name) && !is_off(args, o) &&
        !is_read(args, d, each, o->name, readers, sizeof readers))
      sl_graph_fail(g, SL_E_USAGE, "%s: --%s: no block reads it; it goes with %s", d->model,
                    o->name, readers);
  }
}

/* Checks what a block has against the options and the blocks before it. */
static void check_block(sl_graph *g, const sl_args *args, const decoder *d, int i) {
  const decoder_layer *l = &d->each[i], *from = NULL;
  bool experts = l->feed == moe_half || l->feed == moe_beside, special = l->keyed || l->shared;
  for (int k = 0; k < i; k++)
    if (d->each[k].windowed == l->windowed && !d->each[k].shared &&
        d->each[k].mixer == decoder_attention)
      from = &d->each[k];
  if (!l->mixer && !l->feed)
    sl_graph_fail(g, SL_E_USAGE, "%s: block %d has neither a mixer nor a feed-forward half",
                  d->model, i);
  if (l->windowed && l->mixer != linear_beside && sl_arg_int(args, "window") < 1)
    sl_graph_fail(g, SL_E_USAGE, "%s: --mixers window needs --window", d->model);
  if (experts && sl_arg_int(args, "experts") < 1)
    sl_graph_fail(g, SL_E_USAGE, "%s: --feeds experts needs --experts", d->model);
  if (l->feed == moe_beside && (d->norms != DECODER_NORMS_BOTH || d->ungated))
    sl_graph_fail(g, SL_E_USAGE, "%s: --feeds both needs --norms both, and gates", d->model);
  if (d->parallel && (!l->mixer || !l->feed))
    sl_graph_fail(g, SL_E_USAGE, "%s: --norms parallel needs both halves in each block", d->model);
  if ((special || d->value_norm) && l->mixer == decoder_attention &&
      (d->qk_norm_late || d->packed_qkv || decoder_is_dual(d)))
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: --value-norm, -keyed and -shared: not supported with --qk-norm-late, "
                  "--packed-qkv or --rope dual-chunk",
                  d->model);
  if ((special || d->value_norm) && l->mixer == decoder_gated_attention)
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: --value-norm, -keyed and -shared: not supported with --gated-heads",
                  d->model);
  if (l->shared && (!from || from->head_dim != l->head_dim || from->kv_heads != l->kv_heads))
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: block %d shares the keys of a block before, but there is none of its kind "
                  "and widths",
                  d->model, i);
  if (l->kv_heads && d->heads % l->kv_heads)
    sl_graph_fail(g, SL_E_USAGE, "%s: --heads %d is not a multiple of --block-kv-heads %d",
                  d->model, d->heads, l->kv_heads);
  if (l->head_dim > 512)
    sl_graph_fail(g, SL_E_USAGE, "%s: --block-head-dims %lld: at most 512", d->model,
                  (long long)l->head_dim);
}

static void choose_halves(sl_graph *g, const sl_args *args, decoder *d) {
  bool gated = sl_arg_flag(args, "gated-heads");
  const half_kind *kinds[DECODER_MOST_LAYERS][2];
  for (int i = 0; i < d->layers; i++) {
    decoder_layer *l = &d->each[i];
    *l = (decoder_layer){.head_dim = number_of(g, args, d, "block-head-dims", i),
                         .kv_heads = (int)number_of(g, args, d, "block-kv-heads", i)};
    const half_kind *mixer = kind_of(g, d, "mixers", sl_arg_text(args, "mixers"), i, mixers, l);
    const half_kind *feed = kind_of(g, d, "feeds", sl_arg_text(args, "feeds"), i, feeds, l);
    kinds[i][0] = mixer;
    kinds[i][1] = feed;
    l->feed = feed->half;
    bool softmax = mixer->half == decoder_attention;
    l->mixer = softmax && gated ? decoder_gated_attention : mixer->half;
    l->windowed = mixer->windowed;
    d->states |= mixer->state;
    check_block(g, args, d, i);
  }
  check_read(g, args, d, kinds);
  d->headless = true;
  for (int i = 0; i < d->layers; i++)
    d->headless &= !half_reads(kinds[i][0], &d->each[i], "head-dim");
}

/* ---- options --------------------------------------------------------------------------------- */

typedef struct word {
  const char *name;
  int value;
} word;

/* Returns the value of an option's word, from a table that ends with {0}. */
static int word_of(sl_graph *g, const sl_args *args, const decoder *d, const char *option,
                   const word *words) {
  const char *name = sl_arg_text(args, option);
  char list[160] = "";
  for (const word *w = words; w->name; w++) {
    if (!strcmp(w->name, name)) return w->value;
    size_t n = strlen(list);
    snprintf(list + n, sizeof list - n, "%s%s", !n ? "" : w[1].name ? ", " : " or ", w->name);
  }
  sl_graph_fail(g, SL_E_USAGE, "%s: --%s %.40s: must be %s", d->model, decoder_called(d, option),
                name, list);
  return 0;
}

static void choose_norms(sl_graph *g, const sl_args *args, decoder *d) {
  enum { PARALLEL = DECODER_NORMS_BOTH + 1 };
  static const word places[] = {{"before", DECODER_NORMS_BEFORE},
                                {"after", DECODER_NORMS_AFTER},
                                {"both", DECODER_NORMS_BOTH},
                                {"parallel", PARALLEL},
                                {0}},
                    kinds[] = {{"rms", DECODER_NORM_RMS},
                               {"layer", DECODER_NORM_LAYER},
                               {"layer-gain", DECODER_NORM_LAYER_GAIN},
                               {"layer-plain", DECODER_NORM_LAYER_PLAIN},
                               {0}};
  int place = word_of(g, args, d, "norms", places);
  d->parallel = place == PARALLEL;
  d->norms = d->parallel ? DECODER_NORMS_BEFORE : (decoder_norms)place;
  d->norm_kind = (decoder_norm_kind)word_of(g, args, d, "norm", kinds);
  d->qk_norm_late = sl_arg_flag(args, "qk-norm-late");
}

static void choose_attention(sl_graph *g, const sl_args *args, decoder *d) {
  double scalar = sl_arg_float(args, "query-scalar"),
         factor = sl_arg_float(args, "attention-factor");
  if (scalar > 0 && factor > 0)
    sl_graph_fail(g, SL_E_USAGE, "%s: --query-scalar and --attention-factor exclude each other",
                  d->model);
  if (factor > 0) d->attention.scale = (float)factor;
  d->sinks = sl_arg_flag(args, "sinks");
  d->value_norm = sl_arg_flag(args, "value-norm");
  d->score_cap = (float)sl_arg_float(args, "score-cap");
  if (d->score_cap > 0 && d->alone)
    sl_graph_fail(g, SL_E_USAGE, "%s: --score-cap and --attend-blocks exclude each other",
                  d->model);
  d->pairs = sl_arg_flag(args, "rope-pairs");
  d->packed_qkv = sl_arg_flag(args, "packed-qkv");
  if (d->packed_qkv && sl_arg_flag(args, "gated-heads"))
    sl_graph_fail(g, SL_E_USAGE, "%s: --packed-qkv: not supported with --gated-heads", d->model);
}

/* Returns a factor, or 0 for 1. */
static float factor_of(double factor) { return factor == 1 ? 0 : (float)factor; }

static void choose_feeds(sl_graph *g, const sl_args *args, decoder *d) {
  static const word functions[] = {{"silu", DECODER_SILU},         {"gelu", DECODER_GELU},
                                   {"gelu-erf", DECODER_GELU_ERF}, {"relu2", DECODER_RELU2},
                                   {"clamped", DECODER_CLAMPED},   {0}};
  double logits = sl_arg_float(args, "logit-factor") / sl_arg_float(args, "logit-divisor");
  d->function = (decoder_function)word_of(g, args, d, "function", functions);
  d->limit = (float)sl_arg_float(args, "swiglu-limit");
  d->ungated = sl_arg_flag(args, "ungated");
  d->packed_gates = sl_arg_flag(args, "packed-gates");
  d->mlp_bias = sl_arg_flag(args, "mlp-bias");
  d->block_factors = sl_arg_flag(args, "block-factors");
  d->inputs.width = sl_arg_int(args, "block-inputs");
  d->inputs.vocab = sl_arg_int(args, "block-inputs-vocab");
  if (!d->inputs.vocab) d->inputs.vocab = d->vocab;
  if (d->ungated && (d->packed_gates || sl_arg_flag(args, "packed-experts") ||
                     sl_arg_flag(args, "paired-experts")))
    sl_graph_fail(g, SL_E_USAGE, "%s: --ungated: there are no gates to pack", d->model);
  if (d->function == DECODER_CLAMPED && (d->ungated || d->inputs.width))
    sl_graph_fail(g, SL_E_USAGE, "%s: --function clamped: not supported with %s", d->model,
                  d->ungated ? "--ungated" : "--block-inputs");
  d->factors = (decoder_factors){
      .embedding = factor_of(sl_arg_float(args, "embedding-factor") *
                             (d->factors.embedding != 0 ? (double)d->factors.embedding : 1)),
      .residual = factor_of(sl_arg_float(args, "residual-factor")),
      .logits = factor_of(logits)};
}

static moe moe_read(sl_graph *g, const sl_args *args, const decoder *d) {
  enum { SOFTMAX, SIGMOID, CORRECTED, SOFTMAX_CORRECTED };
  static const word routers[] = {{"softmax", SOFTMAX},
                                 {"sigmoid", SIGMOID},
                                 {"corrected", CORRECTED},
                                 {"softmax-corrected", SOFTMAX_CORRECTED},
                                 {0}};
  int router = word_of(g, args, d, "router", routers);
  moe_names names = moe_qwen;
  names.paired = sl_arg_flag(args, "paired-experts");
  if (names.paired) names.both = "mlp.experts.gate_up_proj'", names.down = "mlp.experts.down_proj'";
  else if (sl_arg_flag(args, "packed-experts"))
    names.both = "mlp.experts.gate_up_proj", names.down = "mlp.experts.down_proj";
  names.plain = !sl_arg_flag(args, "shared-gate");
  moe m = moe_of(g, args, d, names);
  m.latent = sl_arg_int(args, "expert-latent");
  m.bias = sl_arg_flag(args, "expert-bias");
  if (m.bias && m.capacity > 0)
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: --expert-capacity: not supported; experts take all tokens routed to them",
                  d->model);
  if (router != SOFTMAX) {
    m.sigmoid = moe_sigmoid_read(args);
    m.sigmoid.uncorrected = router == SIGMOID;
    m.sigmoid.softmax = router == SOFTMAX_CORRECTED;
    m.sigmoid.least = (float)sl_arg_float(args, "weight-eps");
  } else if (sl_arg_int(args, "expert-groups") > 1 || sl_arg_float(args, "routed-scale") != 1)
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: --expert-groups and --routed-scale: only with --router sigmoid, "
                  "corrected or softmax-corrected",
                  d->model);
  moe_check_groups(g, d, &m);
  return m;
}

static mamba mamba_read(sl_graph *g, const sl_args *args, const decoder *d) {
  mamba m = {.heads = (int)sl_arg_int(args, "state-heads"),
             .groups = (int)sl_arg_int(args, "state-groups"),
             .head_dim = sl_arg_int(args, "state-head-dim"),
             .state = sl_arg_int(args, "state"),
             .conv = sl_arg_int(args, "conv"),
             .conv_bias = sl_arg_flag(args, "conv-bias"),
             .bias = sl_arg_flag(args, "state-bias")};
  if (!m.heads && 2 * d->width % m.head_dim)
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: twice --width %lld is not a multiple of --%s %lld, and there is no number of "
        "heads",
        d->model, (long long)d->width, decoder_called(d, "state-head-dim"), (long long)m.head_dim);
  if (!m.heads) m.heads = (int)(2 * d->width / m.head_dim);
  if (m.heads < 1 || m.heads % m.groups)
    sl_graph_fail(g, SL_E_USAGE, "%s: --%s %d does not divide the %d heads", d->model,
                  decoder_called(d, "state-groups"), m.groups, m.heads);
  return m;
}

static linear linear_read(sl_graph *g, const sl_args *args, const decoder *d) {
  static const word gates[] = {{"own", false}, {"keys", true}, {0}};
  return (linear){.by_keys = word_of(g, args, d, "gates", gates),
                  .rank = sl_arg_int(args, "gate-rank")};
}

/* Sets spiking linear layers and sink tokens. */
static void choose_spikes(sl_graph *g, const sl_args *args, decoder *d) {
  d->spiking.k = (float)sl_arg_float(args, "spikes");
  d->sink_tokens = sl_arg_int(args, "sink-tokens");
  if (d->spiking.k > 0 && sl_arg_int(args, "experts"))
    sl_graph_fail(g, SL_E_USAGE, "%s: --spikes: not supported with --experts", d->model);
  if (d->sink_tokens && sl_arg_int(args, "document-end") >= 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: --sink-tokens: not supported with --document-end, since sink tokens stand in "
        "front of a row",
        d->model);
}

static bool has_mixer(const decoder *d, decoder_half *half) {
  for (int i = 0; i < d->layers; i++)
    if (d->each[i].mixer == half) return true;
  return false;
}

/* Returns the last block with softmax attention, else the last one. */
static int last_softmax(const decoder *d) {
  int i = d->layers - 1;
  while (i && d->each[i].mixer != decoder_attention && d->each[i].mixer != decoder_gated_attention)
    i--;
  return i ? i : d->layers - 1;
}

sl_status sli_decoder_build(sl_graph *g, const sl_args *args, const char *model,
                            const char *called) {
  decoder d = decoder_of(g, args, model, called);
  d.names = sl_arg_text(args, "names");
  decoder_family(g, args, &d);
  choose_norms(g, args, &d);
  choose_attention(g, args, &d);
  choose_feeds(g, args, &d);
  choose_spikes(g, args, &d);
  choose_halves(g, args, &d);
  decoder_ahead(g, args, &d, last_softmax(&d));
  general own = {.conv = sl_arg_int(args, "conv"), .conv_bias = sl_arg_flag(args, "state-bias")};
  if (sl_arg_int(args, "experts")) own.moe = moe_read(g, args, &d);
  delta n = {0};
  mamba m = {0};
  latent s = {0};
  linear l = linear_read(g, args, &d);
  if (has_mixer(&d, delta_rule))
    n = delta_read(g, args, &d), n.packed = sl_arg_flag(args, "packed-delta");
  if (has_mixer(&d, kda)) n = kda_read(g, args, &d);
  if (has_mixer(&d, latent_attention)) s = latent_read(g, args, &d);
  if (has_mixer(&d, latent_indexed) || has_mixer(&d, latent_reused)) {
    s = latent_read(g, args, &d);
    latent_index_read(g, args, &d, &s);
    d.alone = true;
  }
  if (has_mixer(&d, mamba_mixer)) m = mamba_read(g, args, &d);
  d.own = &own;
  d.delta = &n;
  d.mamba = &m;
  d.latent = &s;
  d.linear = &l;
  if (sl_graph_status(g)) return sl_graph_status(g);
  return decoder_build(g, args, &d);
}

static sl_status build(sl_graph *g, const sl_args *args) {
  return sli_decoder_build(g, args, "decoder", "");
}

SL_MODEL(decoder, "a decoder whose every part is an option: mixers, experts, norms, factors",
         sli_decoder_options, build);
