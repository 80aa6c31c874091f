/* SPDX-License-Identifier: Apache-2.0 */
/* config.json as model options. A table for each family maps keys to options. */
#include "tools/formats/huggingface.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic.h"
#include "io/file.h"
#include "tools/formats/config.h"
#include "tools/formats/config_keys.h"
#include "tools/formats/deepseek.h"
#include "tools/formats/qwen3_next.h"

bool huggingface_is_folder(const char *path) {
  struct stat info;
  size_t n = strlen(path);
  return (n && path[n - 1] == '/') || (!stat(path, &info) && S_ISDIR(info.st_mode));
}

char *huggingface_file(const char *folder, const char *name) {
  size_t n = strlen(folder);
  while (n > 1 && folder[n - 1] == '/') n--;
  return sli_format("%.*s/%s", (int)n, folder, name);
}

/* ---- families ------------------------------------------------------------------------------ */

/* An option with one value in all models of a family. */
typedef struct fixed_option {
  const char *option, *value;
} fixed_option;

typedef struct family {
  const char *type, *architecture, *model;
  const char *other; /* a model that can start from such weights; NULL if none */
  const config_field *fields;
  /* known keys besides the fields and config_keys_common; NULL if none */
  const sli_key *keys[3];
  /* value of --bias; NULL: attention_bias decides. Qwen2 always has biases. */
  const char *bias;
  const char *theta; /* value if rope_theta is absent */
  /* value if rope_local_base_freq is absent; NULL: all layers have the same attention */
  const char *local_theta;
  const char *part; /* value if partial_rotary_factor is absent; NULL: all of a head is rotated */
  /* sliding_window applies only if use_sliding_window is set */
  bool switched;
  /* value if sliding_window is absent; NULL: the family has no --window */
  const char *window;
  int full_every; /* N if every N-th layer has no window and no key says so; 0: layers are alike */
  const fixed_option *fixed;         /* ends with {0}; NULL: none */
  bool (*fits)(const sl_args *args); /* says whether config.json can express options; NULL: yes */
  /* sets options that no field maps to */
  sl_status (*derive)(const config *c, const struct family *f);
  void (*describe)(cJSON *root, const pretrained *p, const sl_lowered *lowered);
} family;

static sl_status derive_gpt2(const config *c, const family *f);
static sl_status derive_deepseek(const config *c, const family *f);
static sl_status derive_gemma3(const config *c, const family *f);
static sl_status derive_gpt_oss(const config *c, const family *f);
static sl_status derive_llama(const config *c, const family *f);
static sl_status derive_mamba2(const config *c, const family *f);
static sl_status derive_qwen3_next(const config *c, const family *f);
static void describe_gpt2(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_deepseek(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_gemma3(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_gpt_oss(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_llama(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_mamba2(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_mixtral(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_qwen_moe(cJSON *root, const pretrained *p, const sl_lowered *lowered);
static void describe_qwen3_next(cJSON *root, const pretrained *p, const sl_lowered *lowered);

static const config_field gpt2_fields[] = {
    {.key = "n_layer", .option = "layers"},
    {.key = "n_embd", .option = "width"},
    {.key = "n_head", .option = "heads"},
    {.key = "n_positions", .option = "positions", .missing = "1024"},
    {.key = "vocab_size", .option = "vocab"},
    {.key = "layer_norm_epsilon", .option = "eps", .missing = "1e-5"},
    {0}};

/* Fields of a LLaMA-like family. Defaults are those of transformers. */
#define LLAMA_FIELDS(head_dim_, kv_heads, positions_, eps_, tied_)                             \
  {.key = "num_hidden_layers", .option = "layers"}, {.key = "hidden_size", .option = "width"}, \
      {.key = "num_attention_heads", .option = "heads"},                                       \
      {.key = "num_key_value_heads", .option = "kv-heads", .missing = kv_heads, .null = "0"},  \
      {.key = "head_dim", .option = "head-dim", .missing = head_dim_},                         \
      {.key = "max_position_embeddings", .option = "positions", .missing = positions_},        \
      {.key = "vocab_size", .option = "vocab"},                                                \
      {.key = "rms_norm_eps", .option = "eps", .missing = eps_}, {                             \
    .key = "tie_word_embeddings", .option = "tied", .missing = tied_                           \
  }

static const config_field llama_fields[] = {LLAMA_FIELDS("0", "0", "2048", "1e-6", "0"),
                                            {.key = "intermediate_size", .option = "ffn"},
                                            {0}};
static const config_field mistral_fields[] = {LLAMA_FIELDS("0", "8", "131072", "1e-6", "0"),
                                              {.key = "intermediate_size", .option = "ffn"},
                                              {0}};
static const config_field qwen2_fields[] = {LLAMA_FIELDS("0", "32", "32768", "1e-6", "0"),
                                            {.key = "intermediate_size", .option = "ffn"},
                                            {0}};
static const config_field qwen3_fields[] = {LLAMA_FIELDS("128", "32", "32768", "1e-6", "0"),
                                            {.key = "intermediate_size", .option = "ffn"},
                                            {0}};

static const config_field olmo2_fields[] = {LLAMA_FIELDS("0", "0", "2048", "1e-5", "0"),
                                            {.key = "intermediate_size", .option = "ffn"},
                                            {0}};
static const config_field phi3_fields[] = {LLAMA_FIELDS("0", "0", "4096", "1e-5", "0"),
                                           {.key = "intermediate_size", .option = "ffn"},
                                           {0}};
static const config_field gemma3_fields[] = {
    LLAMA_FIELDS("256", "4", "131072", "1e-6", "1"),
    {.key = "intermediate_size", .option = "ffn"},
    {.key = "query_pre_attn_scalar", .option = "query-scalar", .missing = "256"},
    {.key = "final_logit_softcapping", .option = "logit-cap", .missing = "0"},
    {0}};

static const config_field gpt_oss_fields[] = {
    LLAMA_FIELDS("64", "8", "131072", "1e-5", "0"),
    {.key = "intermediate_size", .option = "expert-ffn", .missing = "2880"},
    {.key = "num_local_experts", .option = "experts", .also = "num_experts", .missing = "128"},
    {.key = "num_experts_per_tok", .option = "top-k", .also = "experts_per_token", .missing = "4"},
    {.key = "swiglu_limit", .option = "swiglu-limit", .missing = "7"},
    {0}};

static const config_field deepseek_fields[] = {
    {.key = "num_hidden_layers", .option = "layers", .missing = "61"},
    {.key = "hidden_size", .option = "width", .missing = "7168"},
    {.key = "num_attention_heads", .option = "heads", .missing = "128"},
    {.key = "max_position_embeddings", .option = "positions", .missing = "4096"},
    {.key = "vocab_size", .option = "vocab", .missing = "129280"},
    {.key = "rms_norm_eps", .option = "eps", .missing = "1e-6"},
    {.key = "tie_word_embeddings", .option = "tied", .missing = "0"},
    {.key = "intermediate_size", .option = "ffn", .missing = "18432"},
    {.key = "moe_intermediate_size", .option = "expert-ffn", .missing = "2048"},
    {.key = "n_routed_experts", .option = "experts", .also = "num_local_experts", .missing = "256"},
    {.key = "num_experts_per_tok", .option = "top-k", .missing = "8"},
    {.key = "norm_topk_prob", .option = "norm-topk", .missing = "1"},
    {.key = "q_lora_rank", .option = "query-rank", .missing = "1536", .null = "0"},
    {.key = "kv_lora_rank", .option = "latent", .missing = "512"},
    {.key = "qk_nope_head_dim", .option = "nope-dim", .missing = "128"},
    {.key = "qk_rope_head_dim", .option = "rope-dim", .missing = "64"},
    {.key = "v_head_dim", .option = "value-dim", .missing = "128"},
    {.key = "first_k_dense_replace", .option = "dense-layers", .missing = "3"},
    {.key = "n_group", .option = "expert-groups", .missing = "8", .null = "1"},
    {.key = "topk_group", .option = "top-groups", .missing = "4", .null = "1"},
    {.key = "routed_scaling_factor", .option = "routed-scale", .missing = "2.5"},
    {0}};

static const config_field mamba2_fields[] = {
    {.key = "num_hidden_layers", .option = "layers", .missing = "64"},
    {.key = "hidden_size", .option = "width", .missing = "4096"},
    {.key = "num_heads", .option = "heads", .missing = "128"},
    {.key = "head_dim", .option = "head-dim", .missing = "64"},
    {.key = "n_groups", .option = "groups", .missing = "8"},
    {.key = "state_size", .option = "state", .missing = "128"},
    {.key = "conv_kernel", .option = "conv", .missing = "4"},
    {.key = "vocab_size", .option = "vocab", .missing = "32768"},
    {.key = "layer_norm_epsilon", .option = "eps", .missing = "1e-5"},
    {.key = "tie_word_embeddings", .option = "tied", .missing = "0"},
    {0}};

static const config_field mixtral_fields[] = {
    LLAMA_FIELDS("0", "8", "131072", "1e-5", "0"),
    {.key = "intermediate_size", .option = "expert-ffn"},
    {.key = "num_local_experts", .option = "experts", .also = "num_experts"},
    {.key = "num_experts_per_tok", .option = "top-k", .missing = "2"},
    {0}};

#define QWEN_MOE_FIELDS(kv_heads, top_k)                                        \
  LLAMA_FIELDS("0", kv_heads, "32768", "1e-6", "0"),                            \
      {.key = "moe_intermediate_size", .option = "expert-ffn"},                 \
      {.key = "num_experts", .option = "experts", .also = "num_local_experts"}, \
      {.key = "num_experts_per_tok", .option = "top-k", .missing = top_k}, {    \
    .key = "norm_topk_prob", .option = "norm-topk", .missing = "0"              \
  }

static const config_field qwen2_moe_fields[] = {
    QWEN_MOE_FIELDS("16", "4"),
    {.key = "shared_expert_intermediate_size", .option = "shared-ffn", .missing = "5632"},
    {0}};
static const config_field qwen3_moe_fields[] = {QWEN_MOE_FIELDS("4", "8"), {0}};

static const config_field qwen3_next_fields[] = {
    LLAMA_FIELDS("256", "2", "32768", "1e-6", "0"),
    {.key = "intermediate_size", .option = "ffn", .missing = "5632"},
    {.key = "moe_intermediate_size", .option = "expert-ffn", .missing = "512"},
    {.key = "num_experts", .option = "experts", .also = "num_local_experts", .missing = "512"},
    {.key = "num_experts_per_tok", .option = "top-k", .missing = "10"},
    {.key = "norm_topk_prob", .option = "norm-topk", .missing = "1"},
    {.key = "shared_expert_intermediate_size", .option = "shared-ffn", .missing = "512"},
    {.key = "decoder_sparse_step", .option = "experts-every", .missing = "1"},
    {.key = "linear_num_key_heads", .option = "key-heads", .missing = "16"},
    {.key = "linear_num_value_heads", .option = "value-heads", .missing = "32"},
    {.key = "linear_key_head_dim", .option = "key-dim", .missing = "128"},
    {.key = "linear_value_head_dim", .option = "value-dim", .missing = "128"},
    {.key = "linear_conv_kernel_dim", .option = "conv", .missing = "4"},
    {0}};

/* Options in which the families of one model differ. Each family has the defaults, except for
 * options that it fixes. */
static const char *const choices[] = {
    "qk-norm",          "qk-norm-whole", "norms",      "plus-one",    "packed",   "gate",
    "scaled-embedding", "query-scalar",  "full-every", "local-theta", "logit-cap"};

static const fixed_option mixtral_fixed[] = {{"norm-topk", "1"}, {"shared-ffn", "0"}, {0}};
static const fixed_option gpt_oss_fixed[] = {{"norm-topk", "1"}, {"shared-ffn", "0"}, {0}};
static const fixed_option qwen3_fixed[] = {{"qk-norm", "1"}, {0}};
static const fixed_option olmo2_fixed[] = {{"qk-norm-whole", "1"}, {"norms", "after"}, {0}};
static const fixed_option phi3_fixed[] = {{"packed", "1"}, {0}};
static const fixed_option gemma3_fixed[] = {{"qk-norm", "1"},          {"norms", "both"},
                                            {"plus-one", "1"},         {"gate", "gelu"},
                                            {"scaled-embedding", "1"}, {0}};
static const fixed_option qwen3_moe_fixed[] = {{"qk-norm", "1"}, {"shared-ffn", "0"}, {0}};

static const family families[] = {{.type = "deepseek_v3",
                                   .architecture = "DeepseekV3ForCausalLM",
                                   .model = "deepseek",
                                   .fields = deepseek_fields,
                                   .keys = {config_keys_llama, config_keys_deepseek},
                                   .theta = "10000",
                                   .fits = deepseek_fits,
                                   .derive = derive_deepseek,
                                   .describe = describe_deepseek},
                                  {.type = "kimi_k2",
                                   .architecture = "DeepseekV3ForCausalLM",
                                   .model = "deepseek",
                                   .fields = deepseek_fields,
                                   .keys = {config_keys_llama, config_keys_deepseek},
                                   .theta = "10000",
                                   .fits = deepseek_fits,
                                   .derive = derive_deepseek,
                                   .describe = describe_deepseek},
                                  {.type = "gemma3_text",
                                   .architecture = "Gemma3ForCausalLM",
                                   .model = "llama",
                                   .fields = gemma3_fields,
                                   .keys = {config_keys_gemma3},
                                   .theta = "1000000",
                                   .local_theta = "10000",
                                   .window = "4096",
                                   .full_every = 6,
                                   .fixed = gemma3_fixed,
                                   .derive = derive_gemma3,
                                   .describe = describe_gemma3},
                                  {.type = "olmo2",
                                   .architecture = "Olmo2ForCausalLM",
                                   .model = "llama",
                                   .fields = olmo2_fields,
                                   .keys = {config_keys_llama},
                                   .theta = "10000",
                                   .fixed = olmo2_fixed,
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "phi3",
                                   .architecture = "Phi3ForCausalLM",
                                   .model = "llama",
                                   .fields = phi3_fields,
                                   .keys = {config_keys_llama, config_keys_phi3},
                                   .bias = "none",
                                   .theta = "10000",
                                   .window = "0",
                                   .fixed = phi3_fixed,
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "gpt2",
                                   .architecture = "GPT2LMHeadModel",
                                   .model = "gpt",
                                   .fields = gpt2_fields,
                                   .keys = {config_keys_gpt2},
                                   .derive = derive_gpt2,
                                   .describe = describe_gpt2},
                                  {.type = "gpt_oss",
                                   .architecture = "GptOssForCausalLM",
                                   .model = "gpt-oss",
                                   .fields = gpt_oss_fields,
                                   .keys = {config_keys_llama, config_keys_gpt_oss},
                                   .bias = "attention",
                                   .theta = "150000",
                                   .window = "128",
                                   .full_every = 2,
                                   .fixed = gpt_oss_fixed,
                                   .derive = derive_gpt_oss,
                                   .describe = describe_gpt_oss},
                                  {.type = "llama",
                                   .architecture = "LlamaForCausalLM",
                                   .model = "llama",
                                   .other = "hybrid",
                                   .fields = llama_fields,
                                   .keys = {config_keys_llama},
                                   .theta = "10000",
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "mamba2",
                                   .architecture = "Mamba2ForCausalLM",
                                   .model = "mamba2",
                                   .fields = mamba2_fields,
                                   .keys = {config_keys_mamba2},
                                   .derive = derive_mamba2,
                                   .describe = describe_mamba2},
                                  {.type = "mistral",
                                   .architecture = "MistralForCausalLM",
                                   .model = "llama",
                                   .fields = mistral_fields,
                                   .keys = {config_keys_llama},
                                   .bias = "none",
                                   .theta = "10000",
                                   .window = "4096",
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "qwen2",
                                   .architecture = "Qwen2ForCausalLM",
                                   .model = "llama",
                                   .other = "hybrid",
                                   .fields = qwen2_fields,
                                   .keys = {config_keys_llama, config_keys_chunked},
                                   .bias = "qkv",
                                   .theta = "10000",
                                   .switched = true,
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "mixtral",
                                   .architecture = "MixtralForCausalLM",
                                   .model = "mixtral",
                                   .fields = mixtral_fields,
                                   .keys = {config_keys_llama, config_keys_mixtral},
                                   .bias = "none",
                                   .theta = "1000000",
                                   .fixed = mixtral_fixed,
                                   .derive = derive_llama,
                                   .describe = describe_mixtral},
                                  {.type = "qwen2_moe",
                                   .architecture = "Qwen2MoeForCausalLM",
                                   .model = "qwen-moe",
                                   .fields = qwen2_moe_fields,
                                   .keys = {config_keys_llama, config_keys_qwen2_moe},
                                   .bias = "qkv",
                                   .theta = "10000",
                                   .switched = true,
                                   .derive = derive_llama,
                                   .describe = describe_qwen_moe},
                                  {.type = "qwen3",
                                   .architecture = "Qwen3ForCausalLM",
                                   .model = "llama",
                                   .fields = qwen3_fields,
                                   .keys = {config_keys_llama, config_keys_chunked},
                                   .theta = "10000",
                                   .switched = true,
                                   .fixed = qwen3_fixed,
                                   .derive = derive_llama,
                                   .describe = describe_llama},
                                  {.type = "qwen3_moe",
                                   .architecture = "Qwen3MoeForCausalLM",
                                   .model = "qwen-moe",
                                   .fields = qwen3_moe_fields,
                                   .keys = {config_keys_llama, config_keys_qwen3_moe},
                                   .theta = "10000",
                                   .switched = true,
                                   .fixed = qwen3_moe_fixed,
                                   .derive = derive_llama,
                                   .describe = describe_qwen_moe},
                                  {.type = "qwen3_next",
                                   .architecture = "Qwen3NextForCausalLM",
                                   .model = "qwen3-next",
                                   .fields = qwen3_next_fields,
                                   .keys = {config_keys_qwen3_next},
                                   .theta = "10000",
                                   .part = "0.25",
                                   .derive = derive_qwen3_next,
                                   .describe = describe_qwen3_next}};

/* Returns the value that a family fixes for an option, or NULL if it fixes none. */
static const char *fixed_value(const family *f, const char *option) {
  for (const fixed_option *o = f->fixed; o && o->option; o++)
    if (!strcmp(o->option, option)) return o->value;
  return NULL;
}

/* Returns whether models of one family may differ in an option: it is one of the family's fields,
 * or depends on the layer. */
static bool is_free(const family *f, const char *option) {
  if (f->local_theta && !strcmp(option, "local-theta")) return true;
  if (f->full_every && !strcmp(option, "full-every")) return true;
  if (f->fits && !strcmp(option, "query-scalar")) return true;
  const config_field *x = f->fields;
  while (x->key && strcmp(x->option, option)) x++;
  return x->key;
}

/* Returns the value of choice i in all models of a family. Returns NULL if it may vary, or if the
 * model lacks the option. */
static const char *choice_of(const sl_model *model, const family *f, size_t i) {
  const sl_option *o = sl_options_find(model->options, choices[i]);
  const char *value = fixed_value(f, choices[i]);
  if (is_free(f, choices[i])) return NULL;
  return o && !value ? o->value : value;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Formats a number of rope_parameters for --rope. *out is NULL for keys that --rope does not
 * have. */
static sl_status rope_number(const config *c, const char *kind, const cJSON *item, char **out) {
  static const char *const others[] = {
      "rope_type", "type",      "rope_theta", "partial_rotary_factor",
      "truncate",  "finetuned", "mscale",     "mscale_all_dim"};
  *out = NULL;
  for (size_t i = 0; i < SLI_COUNT(others); i++)
    if (!strcmp(item->string, others[i])) return SL_OK;
  if (!strcmp(kind, "none") || sli_key_off(item)) return SL_OK;
  if (!cJSON_IsNumber(item))
    return sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, item->string);
  char *value = config_option_text(item);
  *out = sli_format("%s=%s", item->string, value);
  free(value);
  return SL_OK;
}

/* Appends "KEY=VALUE". Takes ownership of `more`. */
static void add_to_rope(char **text, char *more) {
  char *longer = sli_format("%s%s%s", *text, strchr(*text, ':') ? "," : ":", more);
  free(*text);
  free(more);
  *text = longer;
}

/* Refuses an unsupported rope type first, before its specific keys are refused. */
static sl_status check_rope_type(const config *c, const char *kind) {
  static const char *const known[] = {"none", "linear", "llama3", "yarn"};
  for (size_t i = 0; i < SLI_COUNT(known); i++)
    if (!strcmp(known[i], kind)) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s: rope_type %.40s is not supported; supported: default, linear, llama3 and yarn", c->path,
      kind);
}

/* Appends partial_rotary_factor: the fraction of a head that is rotated. */
static sl_status add_part(const config *c, const family *f, const cJSON *rope, char **text) {
  static const char key[] = "partial_rotary_factor";
  const cJSON *said = config_at(rope, key) ? config_at(rope, key) : config_at(c->root, key);
  char *value = said ? config_option_text(said) : sli_strdup(f->part);
  if (!value || cJSON_IsBool(said)) {
    free(value);
    return sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, key);
  }
  add_to_rope(text, sli_format("%s=%s", key, value));
  free(value);
  return SL_OK;
}

/* Appends the attention factor, the quotient of DeepSeek's two scales. */
static void add_scale(const family *f, const cJSON *from, char **text) {
  const cJSON *own = config_at(from, "mscale"), *all = config_at(from, "mscale_all_dim"),
              *factor = config_at(from, "factor");
  if (f->fields != deepseek_fields || !cJSON_IsNumber(own) || !cJSON_IsNumber(all) ||
      !cJSON_IsNumber(factor) || config_at(from, "attention_factor") || own->valuedouble == 0 ||
      all->valuedouble == 0)
    return;
  double turn = factor->valuedouble > 1 ? 0.1 * log(factor->valuedouble) : 0;
  add_to_rope(text, sli_format("attention_factor=%.17g",
                               (turn * own->valuedouble + 1) / (turn * all->valuedouble + 1)));
}

/* Formats rope_parameters (formerly rope_scaling) as "yarn:factor=4,...", without keys that
 * repeat other fields of config.json. */
static sl_status rope_text(const config *c, const family *f, const cJSON *from, char **out) {
  const cJSON *type = config_at(from, "rope_type"), *item;
  if (!type) type = config_at(from, "type");
  const char *kind = cJSON_IsString(type) ? type->valuestring : "none";
  if (!strcmp(kind, "default")) kind = "none";
  bool whole = strcmp(kind, "yarn") != 0 || !cJSON_IsFalse(config_at(from, "truncate"));
  *out = sli_strdup(whole ? kind : "yarn-untruncated");
  sl_status status = check_rope_type(c, kind);
  if (!status)
    status = sli_keys_check(
        c->path, from,
        (const sli_key *const[]){
            config_keys_rope, f->part ? config_keys_rope_part : config_keys_rope_whole,
            f->fields == deepseek_fields ? config_keys_rope_mscale : NULL, NULL});
  if (!status && type && !cJSON_IsString(type))
    status = sl_fail(SL_E_INPUT, "%s: %s is not a string", c->path, type->string);
  char *more = NULL;
  cJSON_ArrayForEach(item, from) {
    if (!status) status = rope_number(c, kind, item, &more);
    if (!status && more) add_to_rope(out, more);
  }
  if (!status && !strcmp(kind, "yarn") && !config_at(from, "original_max_position_embeddings"))
    add_to_rope(out, sli_format("original_max_position_embeddings=%lld",
                                (long long)sl_arg_int(c->target->args, "positions")));
  if (!status && !strncmp(kind, "yarn", 4)) add_scale(f, from, out);
  if (!status && f->part) status = add_part(c, f, from, out);
  return status ? status : config_check_rope(c, *out);
}

static const char chunks_key[] = "dual_chunk_attention_config";

/* Finds the rope under its new or old key. If both are present they must agree. */
static sl_status find_rope(const config *c, const cJSON **out) {
  const cJSON *now = config_at(c->root, "rope_parameters"),
              *before = config_at(c->root, "rope_scaling");
  *out = now ? now : before;
  if (*out && !cJSON_IsObject(*out))
    return sl_fail(SL_E_INPUT, "%s: %s is not a JSON object", c->path, (*out)->string);
  if (!now || !before || cJSON_Compare(now, before, true)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: rope_parameters and rope_scaling differ", c->path);
}

/* Sets the base of rotary angles from the rope, or from `key` of the whole file. */
static sl_status set_theta(const config *c, const cJSON *rope, const char *key, const char *option,
                           const char *missing) {
  const cJSON *theta = config_at(rope, "rope_theta");
  if (!theta) theta = config_at(c->root, key);
  char *value = theta ? config_option_text(theta) : sli_strdup(missing);
  sl_status status = value ? config_set(c, key, option, value)
                           : sl_fail(SL_E_INPUT, "%s: %s is not a number", c->path, key);
  free(value);
  return status;
}

/* Sets --theta and --rope from a rope of config.json. */
static sl_status set_rope(const config *c, const family *f, const cJSON *rope) {
  char *text = NULL;
  sl_status status = set_theta(c, rope, "rope_theta", "theta", f->theta);
  if (!status) status = rope_text(c, f, rope, &text);
  if (!status) status = config_set(c, "rope_parameters", "rope", text);
  free(text);
  return status;
}

static sl_status read_rope(const config *c, const family *f) {
  const cJSON *rope = NULL;
  sl_status status = find_rope(c, &rope);
  return status ? status : set_rope(c, f, rope);
}

/* Returns whether any layer has an attention mask other than full causal. */
static bool has_other_layers(const config *c) {
  const cJSON *item, *types = config_at(c->root, "layer_types");
  cJSON_ArrayForEach(item, types) if (!cJSON_IsString(item) ||
                                      strcmp(item->valuestring, "full_attention")) return true;
  return types && !cJSON_IsArray(types);
}

/* Returns the most positions that a windowed layer attends to, or 0 if all. */
static double window_of(const config *c, const family *f) {
  const cJSON *window = cJSON_GetObjectItemCaseSensitive(c->root, "sliding_window");
  const cJSON *used = config_at(c->root, "use_sliding_window");
  if (used ? cJSON_IsFalse(used) : f->switched) return 0;
  if (!window) return f->switched ? 4096 : 0;
  return cJSON_IsNumber(window) ? window->valuedouble : cJSON_IsNull(window) ? 0 : -1;
}

/* Checks that the sliding window, if unsupported, is no shorter than the context. */
static sl_status check_window(const config *c, const family *f) {
  double window = window_of(c, f);
  bool others = has_other_layers(c);
  int64_t context = sl_arg_int(c->target->args, "context");
  if (window >= (double)context || (!window && !others)) return SL_OK;
  if (others)
    return sl_fail(SL_E_INPUT, "%s: layer_types are not all full_attention, which is not supported",
                   c->path);
  return sl_fail(
      SL_E_USAGE,
      "--context %lld: %s has a sliding window of %g, which is not supported for its model_type",
      (long long)context, c->path, window);
}

static sl_status set_window(const config *c, const family *f) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(c->root, "sliding_window");
  bool none = !f->window || cJSON_IsNull(item);
  char *value = none ? sli_strdup("0") : item ? config_option_text(item) : sli_strdup(f->window);
  sl_status status = value ? config_set(c, "sliding_window", "window", value)
                           : sl_fail(SL_E_INPUT, "%s: sliding_window is not a number", c->path);
  free(value);
  return status;
}

static sl_status read_window(const config *c, const family *f) {
  sl_status status = f->window ? SL_OK : check_window(c, f);
  if (status) return status;
  if (f->window && has_other_layers(c))
    return sl_fail(SL_E_INPUT, "%s: layer_types are not all full_attention, which is not supported",
                   c->path);
  return set_window(c, f);
}

/* Returns whether a model only starts from the family's weights and has a different kind of
 * attention. */
static bool is_other(const sl_model *model, const family *f) {
  return f->other && !strcmp(f->other, model->name);
}

/* Sets --bias. */
static sl_status read_bias(const config *c, const family *f) {
  const cJSON *said = config_at(c->root, "attention_bias");
  const char *bias = f->bias ? f->bias : cJSON_IsTrue(said) ? "attention" : "none";
  if (said && !cJSON_IsBool(said))
    return sl_fail(SL_E_INPUT, "%s: attention_bias is neither true nor false", c->path);
  return config_set(c, "attention_bias", "bias", bias);
}

/* Formats dual chunk attention as "dual-chunk:chunk_size=...". */
static sl_status chunks_text(const config *c, const cJSON *chunks, char **out) {
  const cJSON *item;
  *out = sli_strdup("dual-chunk");
  sl_status status =
      sli_keys_check(c->path, chunks, (const sli_key *const[]){config_keys_dual_chunk, NULL});
  cJSON_ArrayForEach(item, chunks) {
    char *more = NULL;
    if (!status && strncmp(item->string, "sparse_", 7)) status = rope_number(c, "", item, &more);
    if (more) add_to_rope(out, more);
  }
  return status ? status : config_check_rope(c, *out);
}

/* Sets dual chunk attention, which excludes any other stretching of angles. */
static sl_status read_chunks(const config *c, const family *f, const cJSON *chunks) {
  const cJSON *rope = NULL;
  char *text = NULL, *other = NULL;
  sl_status status = find_rope(c, &rope);
  if (!status) status = set_theta(c, rope, "rope_theta", "theta", f->theta);
  if (!status) status = rope_text(c, f, rope, &other);
  if (!status && strcmp(other, "none"))
    status =
        sl_fail(SL_E_INPUT, "%s: %s cannot be used with rope_type %s", c->path, chunks_key, other);
  if (!status) status = chunks_text(c, chunks, &text);
  if (!status) status = config_set(c, chunks_key, "rope", text);
  free(text);
  free(other);
  return status;
}

/* Derives options of LLaMA-like families. */
static sl_status derive_llama(const config *c, const family *f) {
  const cJSON *chunks = config_at(c->root, chunks_key);
  sl_status status = read_bias(c, f);
  if (!status) status = chunks ? read_chunks(c, f, chunks) : read_rope(c, f);
  return status || is_other(c->target->model, f) ? status : read_window(c, f);
}

/* Returns N if every N-th layer has full attention and the others have a window. Returns 0 if none
 * has full attention, -1 for any other pattern. */
static int full_every(const cJSON *types) {
  int n = cJSON_GetArraySize(types), every = 0;
  for (int i = 0; i < n; i++) {
    const cJSON *item = cJSON_GetArrayItem(types, i);
    const char *type = cJSON_IsString(item) ? item->valuestring : "";
    bool full = !strcmp(type, "full_attention");
    if (!full && strcmp(type, "sliding_attention")) return -1;
    if (full && !every) every = i + 1;
    if (full != (every && (i + 1) % every == 0)) return -1;
  }
  return every;
}

/* Sets which layers have a window, from layer_types or the older sliding_window_pattern. */
static sl_status read_layers(const config *c, const family *f) {
  const cJSON *types = config_at(c->root, "layer_types"),
              *pattern = config_at(c->root, "sliding_window_pattern");
  int every = types ? full_every(types) : pattern ? pattern->valueint : f->full_every;
  if (types && cJSON_GetArraySize(types) != (int)sl_arg_int(c->target->args, "layers")) every = -1;
  if (every < 0 || (!types && every < 1))
    return sl_fail(SL_E_INPUT,
                   "%s: %s must have full_attention in every N-th layer and windows in all others",
                   c->path, types ? "layer_types" : "sliding_window_pattern");
  char *value = sli_format("%d", every);
  sl_status status =
      config_set(c, types ? "layer_types" : "sliding_window_pattern", "full-every", value);
  free(value);
  if (!status && every != 1 && cJSON_IsNull(cJSON_GetObjectItem(c->root, "sliding_window")))
    return sl_fail(SL_E_INPUT, "%s: sliding_window is null, but some layers have one", c->path);
  return status;
}

/* Sets the angles of windowed layers, which are not stretched. */
static sl_status read_local_rope(const config *c, const family *f, const cJSON *rope) {
  const cJSON *type = config_at(rope, "rope_type");
  if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "default")))
    return sl_fail(SL_E_INPUT, "%s: scaled rotary positions in sliding_attention are not supported",
                   c->path);
  return set_theta(c, rope, "rope_local_base_freq", "local-theta", f->local_theta);
}

/* Sets the angles of both kinds of layers, from rope_parameters by kind or from older keys. */
static sl_status read_ropes(const config *c, const family *f) {
  static const sli_key kinds[] = {{"full_attention", {0}}, {"sliding_attention", {0}}, {0}};
  const cJSON *both = config_at(c->root, "rope_parameters");
  const cJSON *full = both ? config_at(both, "full_attention") : config_at(c->root, "rope_scaling");
  sl_status status = SL_OK;
  if (both) status = sli_keys_check(c->path, both, (const sli_key *const[]){kinds, NULL});
  if (!status) status = set_rope(c, f, full);
  return status ? status : read_local_rope(c, f, config_at(both, "sliding_attention"));
}

static sl_status derive_gemma3(const config *c, const family *f) {
  sl_status status = read_bias(c, f);
  if (!status) status = read_ropes(c, f);
  if (!status) status = read_layers(c, f);
  return status ? status : set_window(c, f);
}

/* Refuses quantized weights of any type but MXFP4. */
static sl_status check_quantized(const config *c) {
  const cJSON *how = config_at(c->root, "quantization_config"),
              *by = config_at(how, "quant_method");
  if (!how || (cJSON_IsString(by) && !strcmp(by->valuestring, "mxfp4"))) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: quantization_config: quant_method is %.40s; only mxfp4 is supported", c->path,
                 cJSON_IsString(by) ? by->valuestring : "absent");
}

static sl_status derive_deepseek(const config *c, const family *f) {
  const cJSON *rope = NULL;
  sl_status status = check_quantized(c);
  if (!status) status = read_bias(c, f);
  if (!status) status = find_rope(c, &rope);
  if (!status) status = set_rope(c, f, rope);
  return status ? status : deepseek_derive(c, rope);
}

/* Derives the options of a family with windows in some layers and the same angles in all. */
static sl_status derive_windows(const config *c, const family *f) {
  sl_status status = read_bias(c, f);
  if (!status) status = read_rope(c, f);
  if (!status) status = read_layers(c, f);
  return status ? status : set_window(c, f);
}

static sl_status derive_gpt_oss(const config *c, const family *f) {
  sl_status status = check_quantized(c);
  if (!status && !config_at(c->root, "rope_parameters") && !config_at(c->root, "rope_scaling"))
    status = sl_fail(SL_E_INPUT, "%s has no rope_scaling", c->path);
  return status ? status : derive_windows(c, f);
}

static sl_status derive_gpt2(const config *c, const family *f) {
  const cJSON *inner = config_at(c->root, "n_inner");
  int64_t width = sl_arg_int(c->target->args, "width");
  if (!inner || inner->valuedouble == (double)(4 * width)) return read_window(c, f);
  char *text = cJSON_PrintUnformatted(inner);
  sl_fail(SL_E_INPUT, "%s: n_inner is %.80s; only 4 n_embd is supported", c->path, text);
  cJSON_free(text);
  return SL_E_INPUT;
}

/* Returns whether a limit is [0, infinity], in any of the forms that JSON can express. */
static bool limits_nothing(const cJSON *limit) {
  const cJSON *low = cJSON_GetArrayItem(limit, 0), *high = cJSON_GetArrayItem(limit, 1);
  const cJSON *text = config_at(high, "__float__");
  if (text) high = text;
  bool most = cJSON_IsString(high) ? !strcmp(high->valuestring, "Infinity")
                                   : cJSON_IsNumber(high) && isinf(high->valuedouble);
  return cJSON_GetArraySize(limit) == 2 && cJSON_IsNumber(low) && low->valuedouble == 0 && most;
}

static sl_status derive_mamba2(const config *c, const family *f) {
  (void)f;
  const sl_args *args = c->target->args;
  int64_t width = sl_arg_int(args, "width");
  int64_t inner = sl_arg_int(args, "heads") * sl_arg_int(args, "head-dim");
  const cJSON *expand = config_at(c->root, "expand"), *bias = config_at(c->root, "use_conv_bias");
  const cJSON *limit = config_at(c->root, "time_step_limit");
  double times = cJSON_IsNumber(expand) ? expand->valuedouble : 2;
  if (times * (double)width != (double)inner)
    return sl_fail(SL_E_INPUT,
                   "%s: expand %g times hidden_size %lld is not num_heads times head_dim, %lld",
                   c->path, times, (long long)width, (long long)inner);
  if (limit && !limits_nothing(limit))
    return sl_fail(SL_E_INPUT, "%s: time_step_limit is not 0 to infinity, which is not supported",
                   c->path);
  return config_set(c, "use_conv_bias", "no-conv-bias", cJSON_IsFalse(bias) ? "1" : "0");
}

/* Sets the options that distinguish the family. */
static sl_status set_choices(const config *c, const family *f, const char *key) {
  sl_status status = SL_OK;
  for (const fixed_option *o = f->fixed; o && o->option && !status; o++)
    status = config_set(c, key, o->option, o->value);
  for (size_t i = 0; i < SLI_COUNT(choices) && !status; i++) {
    const char *value = choice_of(c->target->model, f, i);
    if (value) status = config_set(c, key, choices[i], value);
  }
  return status;
}

static sl_status derive_qwen3_next(const config *c, const family *f) {
  double window = window_of(c, f);
  sl_status status = read_bias(c, f);
  if (!status) status = read_rope(c, f);
  if (!status && window && window < (double)sl_arg_int(c->target->args, "context"))
    status = sl_fail(SL_E_INPUT, "%s: sliding_window is not supported for its model_type", c->path);
  return status ? status : qwen3_next_derive(c);
}

static sl_status huggingface_apply(const config *c, const family *f) {
  sl_status status = config_check_keys(
      c, f->fields, (const sli_key *const[]){config_keys_common, f->keys[0], f->keys[1], NULL});
  if (!status) status = config_apply(c, f->fields);
  if (!status) status = set_choices(c, f, "model_type");
  return status ? status : f->derive(c, f);
}

static const family *family_of_type(const char *type) {
  for (size_t i = 0; i < SLI_COUNT(families); i++)
    if (!strcmp(families[i].type, type)) return &families[i];
  return NULL;
}

sl_status huggingface_choose(const config *c, const char *type, const char *key) {
  const family *f = family_of_type(type);
  SLI_CHECK(f, "no family %s", type);
  return set_choices(c, f, key);
}

static const char *type_of(const cJSON *root) {
  const cJSON *type = config_at(root, "model_type");
  return cJSON_IsString(type) ? type->valuestring : "";
}

static sl_status unknown_type(const char *path, const char *name) {
  if (!strcmp(name, "gemma3"))
    return sl_fail(
        SL_E_INPUT,
        "%s: model_type gemma3 takes images, which is not supported; the text model is gemma3_text",
        path);
  return sl_fail(
      SL_E_INPUT,
      "%s: unknown model_type \"%.40s\"; known: deepseek_v3, gemma3_text, gpt2, gpt_oss, kimi_k2, llama, mamba2, mistral, mixtral, olmo2, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe and qwen3_next",
      path, name);
}

/* Maps the fields. A user's own model may have a config.json that only it understands. */
static sl_status match(const config *c) {
  const char *name = type_of(c->root), *model = c->target->model->name;
  const family *f = family_of_type(name);
  if (f && (!strcmp(f->model, model) || is_other(c->target->model, f)))
    return huggingface_apply(c, f);
  if (!config_is_shipped(c->target->model)) return SL_OK;
  if (f)
    return sl_fail(SL_E_USAGE, "%s is of model_type %s: the model should be %s, not %s", c->path,
                   name, f->model, model);
  return unknown_type(c->path, name);
}

/* Returns the first occurrence of a word outside of strings, or NULL. */
static char *find_word(char *text, const char *word) {
  bool quoted = false;
  for (char *c = text; *c; c++) {
    if (*c == '\\' && quoted && c[1]) c++;
    else if (*c == '"') quoted = !quoted;
    else if (!quoted && !strncmp(c, word, strlen(word))) return c;
  }
  return NULL;
}

/* Replaces Infinity, which Python writes but JSON does not have, with a number that parses as
 * infinity. */
static void name_infinity(char *text) {
  static const char word[] = "Infinity", number[] = "1e999999";
  for (char *c = text; (c = find_word(c, word)); c += strlen(word))
    memcpy(c, number, strlen(number));
}

/* Parses a file. `keep` keeps reals as they are written. */
static sl_status parse(const char *path, bool keep, cJSON **out) {
  char *text;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  name_infinity(text);
  *out = cJSON_Parse(text);
  bool nan = !*out && find_word(text, "NaN"); /* written by Python, too */
  if (cJSON_IsObject(*out) && keep) config_keep_reals(*out, text);
  free(text);
  if (cJSON_IsObject(*out)) return SL_OK;
  cJSON_Delete(*out);
  *out = NULL;
  return nan ? sl_fail(SL_E_INPUT, "%s: a value is NaN, which is no number of a model", path)
             : sl_fail(SL_E_INPUT, "%s is not a JSON object", path);
}

sl_status huggingface_read(const char *folder, const pretrained *p) {
  char *path = huggingface_file(folder, "config.json");
  cJSON *root = NULL;
  sl_status status = SL_OK;
  if (!access(path, F_OK)) {
    status = parse(path, false, &root);
    if (!status) status = match(&(config){path, root, p});
    cJSON_Delete(root);
  }
  free(path);
  return status;
}

sl_status huggingface_model(const char *folder, const char **out) {
  char *path = huggingface_file(folder, "config.json");
  cJSON *root = NULL;
  sl_status status = parse(path, false, &root);
  const family *f = status ? NULL : family_of_type(type_of(root));
  if (!status && !f) status = unknown_type(path, type_of(root));
  if (!status) *out = f->model;
  cJSON_Delete(root);
  free(path);
  return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static double number_of(const pretrained *p, const char *name) {
  const sl_option *o = sl_options_find(p->model->options, name);
  if (o->kind == SL_OPTION_FLAG) return sl_arg_flag(p->args, name);
  return o->kind == SL_OPTION_INT ? (double)sl_arg_int(p->args, name) : sl_arg_float(p->args, name);
}

static bool has_window(const pretrained *p) {
  return sl_options_find(p->model->options, "window") && sl_arg_int(p->args, "window") > 0;
}

static bool has_value(const pretrained *p, const char *name, const char *value) {
  return sl_options_find(p->model->options, name)->kind == SL_OPTION_TEXT
             ? !strcmp(sl_arg_text(p->args, name), value)
             : number_of(p, name) == strtod(value, NULL);
}

static bool is_chunked(const char *rope) { return !strncmp(rope, "dual-chunk", 10); }

/* Returns whether the family's config.json can express the rope. */
static bool has_rope(const pretrained *p, const family *f) {
  return !sl_options_find(p->model->options, "rope") || !is_chunked(sl_arg_text(p->args, "rope")) ||
         f->keys[1] == config_keys_chunked;
}

static bool has_choices(const pretrained *p, const family *f) {
  for (const fixed_option *o = f->fixed; o && o->option; o++)
    if (!has_value(p, o->option, o->value)) return false;
  for (size_t i = 0; i < SLI_COUNT(choices); i++) {
    const char *value = choice_of(p->model, f, i);
    if (value && !has_value(p, choices[i], value)) return false;
  }
  return true;
}

static bool is_family(const family *f, const pretrained *p) {
  const sl_args *args = p->args;
  if (strcmp(f->model, p->model->name) || (has_window(p) && !f->window)) return false;
  if (f->fields == gpt2_fields || f->fields == mamba2_fields) return true;
  if (!has_choices(p, f) || !has_rope(p, f) || (f->fits && !f->fits(args))) return false;
  /* Angles of windowed layers would not be stretched. */
  if (f->local_theta && sl_arg_float(args, "local-theta") == 0 &&
      strncmp(sl_arg_text(args, "rope"), "none", 4) != 0)
    return false;
  const char *bias = sl_arg_text(args, "bias");
  return f->bias ? !strcmp(f->bias, bias) : strcmp(bias, "qkv") != 0;
}

/* Returns the family of a shipped model with these options, or NULL if there is none. */
static const family *family_of_model(const pretrained *p) {
  if (!config_is_shipped(p->model)) return NULL;
  for (size_t i = 0; i < SLI_COUNT(families); i++)
    if (is_family(&families[i], p)) return &families[i];
  return NULL;
}

const char *huggingface_type(const pretrained *p) {
  const family *f = family_of_model(p);
  return f ? f->type : NULL;
}

/* Returns whether the model only starts from weights of the folder's family. */
static bool begins_other(const char *folder, const pretrained *p) {
  const char *model = NULL;
  bool known = config_is_shipped(p->model) && !huggingface_model(folder, &model);
  return known && strcmp(model, p->model->name) != 0;
}

/* Returns whether a config.json can be written, for a family or as a copy of the initial one. */
static bool has_config(const pretrained *p) {
  const char *init = p->init;
  char *path = init && huggingface_is_folder(init) ? huggingface_file(init, "config.json") : NULL;
  bool has = family_of_model(p) || (path && !access(path, F_OK) && !begins_other(init, p));
  free(path);
  return has;
}

sl_status huggingface_check(const char *folder, const pretrained *p) {
  if (config_is_shipped(p->model) && has_window(p) && !family_of_model(p))
    return sl_fail(
        SL_E_USAGE,
        "--save %s: no config.json is possible: with --window only mistral, phi3 and gemma3_text are supported, and none has these options; save the weights alone (--save FILE.safetensors)",
        folder);
  if (!has_config(p))
    return sl_fail(
        SL_E_USAGE,
        "--save %s: no config.json is possible: no Hugging Face model matches %s with these options; save the weights alone (--save FILE.safetensors)",
        folder, p->model->name);
  return SL_OK;
}

/* Returns dim 0 of a parameter. */
static double huggingface_rows_of(const sl_lowered *lowered, const char *name) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int i = 0; i < n; i++)
    if (!strcmp(params[i].name, name)) return (double)params[i].type.dim[0];
  return 0;
}

static void huggingface_put(cJSON *root, const char *key, cJSON *value) {
  if (!cJSON_ReplaceItemInObjectCaseSensitive(root, key, value))
    cJSON_AddItemToObject(root, key, value);
}

static void put_number(cJSON *root, const char *key, double value) {
  huggingface_put(root, key, cJSON_CreateNumber(value));
}

static void put_real(cJSON *root, const char *key, double value) {
  huggingface_put(root, key, config_real(value));
}

static void describe_gpt2(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  (void)p;
  static const char *const no_dropout[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  put_number(root, "n_positions", huggingface_rows_of(lowered, "transformer.wpe.weight"));
  huggingface_put(root, "activation_function", cJSON_CreateString("gelu_new"));
  for (size_t i = 0; i < SLI_COUNT(no_dropout); i++) put_real(root, no_dropout[i], 0);
}

static cJSON *rope_json(const char *text) {
  size_t n = strcspn(text, ":");
  if (!n || !strncmp(text, "none", n)) return cJSON_CreateNull();
  cJSON *out = cJSON_CreateObject();
  char *copy = sli_strdup(text), *rest = copy + n + (text[n] == ':'), *word;
  copy[n] = 0;
  bool whole = strcmp(copy, "yarn-untruncated") != 0;
  cJSON_AddStringToObject(out, "rope_type", whole ? copy : "yarn");
  if (!whole) cJSON_AddFalseToObject(out, "truncate");
  while ((word = strsep(&rest, ",")) && *word) {
    char *equals = strchr(word, '=');
    *equals = 0; /* always found: the text was parsed before */
    double value = strtod(equals + 1, NULL);
    bool count = !strcmp(word, "original_max_position_embeddings") || is_chunked(text);
    cJSON_AddItemToObject(out, word, count ? cJSON_CreateNumber(value) : config_real(value));
  }
  free(copy);
  return out;
}

/* Writes the rope, or dual chunk attention, under its key. */
static void put_rope(cJSON *root, const char *text) {
  cJSON *rope = rope_json(text);
  bool chunks = is_chunked(text);
  if (chunks) cJSON_DeleteItemFromObjectCaseSensitive(rope, "rope_type");
  huggingface_put(root, chunks ? chunks_key : "rope_scaling", rope);
  if (chunks) cJSON_DeleteItemFromObjectCaseSensitive(root, "rope_scaling");
  else cJSON_DeleteItemFromObjectCaseSensitive(root, chunks_key);
}

static double head_dim_of(const sl_args *args) {
  int64_t dim = sl_arg_int(args, "head-dim");
  return (double)(dim ? dim : sl_arg_int(args, "width") / sl_arg_int(args, "heads"));
}

static void describe_llama(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double heads = (double)sl_arg_int(args, "heads"), kv = (double)sl_arg_int(args, "kv-heads"),
         positions = (double)sl_arg_int(args, "positions");
  double gate = huggingface_rows_of(lowered, "model.layers.0.mlp.gate_proj.weight"),
         both = huggingface_rows_of(lowered, "model.layers.0.mlp.gate_up_proj.weight");
  put_number(root, "head_dim", head_dim_of(args));
  put_number(root, "num_key_value_heads", kv > 0 ? kv : heads);
  put_number(root, "intermediate_size", gate > 0 ? gate : both / 2);
  put_number(root, "max_position_embeddings",
             positions > 0 ? positions : (double)sl_arg_int(args, "context"));
  put_real(root, "rope_theta", sl_arg_float(args, "theta"));
  put_rope(root, sl_arg_text(args, "rope"));
  huggingface_put(root, "hidden_act", cJSON_CreateString("silu"));
  if (sl_arg_int(args, "window") > 0)
    put_number(root, "sliding_window", (double)sl_arg_int(args, "window"));
  huggingface_put(root, "attention_bias",
                  cJSON_CreateBool(!strcmp(sl_arg_text(args, "bias"), "attention")));
}

static cJSON *layer_types_json(const sl_args *args) {
  cJSON *out = cJSON_CreateArray();
  int64_t every = sl_arg_int(args, "window") > 0 ? sl_arg_int(args, "full-every") : 1;
  for (int64_t i = 0; i < sl_arg_int(args, "layers"); i++) {
    bool full = every && (i + 1) % every == 0;
    cJSON_AddItemToArray(out, cJSON_CreateString(full ? "full_attention" : "sliding_attention"));
  }
  return out;
}

static void describe_gemma(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double scalar = sl_arg_float(args, "query-scalar");
  describe_llama(root, p, lowered);
  cJSON_DeleteItemFromObjectCaseSensitive(root, "hidden_act");
  huggingface_put(root, "hidden_activation", cJSON_CreateString("gelu_pytorch_tanh"));
  put_number(root, "query_pre_attn_scalar", scalar > 0 ? scalar : head_dim_of(args));
  huggingface_put(root, "layer_types", layer_types_json(args));
  if (sl_arg_float(args, "logit-cap") == 0)
    huggingface_put(root, "final_logit_softcapping", cJSON_CreateNull());
}

static void describe_gemma3(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double local = sl_arg_float(args, "local-theta");
  describe_gemma(root, p, lowered);
  put_real(root, "rope_local_base_freq", local > 0 ? local : sl_arg_float(args, "theta"));
}

/* Writes rope_parameters explicitly, for a family whose default rope is another one. */
static void put_rope_parameters(cJSON *root, const sl_args *args) {
  cJSON *rope = rope_json(sl_arg_text(args, "rope"));
  if (!cJSON_IsObject(rope)) {
    cJSON_Delete(rope);
    rope = cJSON_CreateObject();
    cJSON_AddStringToObject(rope, "rope_type", "default");
  }
  put_real(rope, "rope_theta", sl_arg_float(args, "theta"));
  cJSON_DeleteItemFromObjectCaseSensitive(root, "rope_scaling");
  huggingface_put(root, "rope_parameters", rope);
}

static double width_of(const sl_lowered *lowered, const char *name);

static void describe_deepseek(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double positions = (double)sl_arg_int(args, "positions");
  put_rope_parameters(root, args);
  put_number(root, "max_position_embeddings",
             positions > 0 ? positions : (double)sl_arg_int(args, "context"));
  huggingface_put(root, "hidden_act", cJSON_CreateString("silu"));
  huggingface_put(root, "attention_bias",
                  cJSON_CreateBool(!strcmp(sl_arg_text(args, "bias"), "attention")));
  deepseek_describe(root, p, lowered);
}

static void describe_gpt_oss(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  describe_llama(root, p, lowered);
  put_rope_parameters(root, args);
  put_number(root, "intermediate_size",
             width_of(lowered, "model.layers.0.mlp.experts.gate_up_proj_bias") / 2);
  huggingface_put(root, "layer_types", layer_types_json(args));
}

static void describe_mamba2(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double heads = huggingface_rows_of(lowered, "backbone.layers.0.mixer.D");
  double inner = heads * (double)sl_arg_int(args, "head-dim");
  put_number(root, "num_heads", heads);
  put_number(root, "expand", inner / (double)sl_arg_int(args, "width"));
  huggingface_put(root, "hidden_act", cJSON_CreateString("silu"));
  huggingface_put(root, "use_bias", cJSON_CreateFalse());
  huggingface_put(root, "use_conv_bias", cJSON_CreateBool(!sl_arg_flag(args, "no-conv-bias")));
}

/* Returns an expert's width: dim 1 of a parameter [experts, width, ...]. */
static double width_of(const sl_lowered *lowered, const char *name) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int i = 0; i < n; i++)
    if (!strcmp(params[i].name, name)) return (double)params[i].type.dim[1];
  return 0;
}

static void describe_mixtral(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  describe_llama(root, p, lowered);
  put_number(root, "intermediate_size",
             width_of(lowered, "model.layers.0.block_sparse_moe.experts.*.w1.weight"));
}

static void describe_qwen_moe(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  double width = width_of(lowered, "model.layers.0.mlp.experts.*.gate_proj.weight");
  describe_llama(root, p, lowered);
  put_number(root, "intermediate_size", width);
  put_number(root, "moe_intermediate_size", width);
  put_number(root, "decoder_sparse_step", 1);
  huggingface_put(root, "norm_topk_prob", cJSON_CreateBool(sl_arg_int(p->args, "norm-topk") != 0));
}

static void describe_qwen3_next(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  huggingface_put(root, "rope_scaling", rope_json(sl_arg_text(p->args, "rope")));
  qwen3_next_describe(root, p, lowered);
}

static cJSON *value_json(const pretrained *p, const char *name) {
  const sl_option *o = sl_options_find(p->model->options, name);
  if (o->kind == SL_OPTION_FLAG) return cJSON_CreateBool(sl_arg_flag(p->args, name));
  double value = number_of(p, name);
  return o->kind == SL_OPTION_FLOAT ? config_real(value) : cJSON_CreateNumber(value);
}

static cJSON *make_config(const family *f, const pretrained *p, const sl_lowered *lowered) {
  static const char *const marks[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "architectures"),
                       cJSON_CreateString(f->architecture));
  cJSON_AddStringToObject(root, "model_type", f->type);
  for (const config_field *x = f->fields; x->key; x++)
    cJSON_AddItemToObject(root, x->key, value_json(p, x->option));
  f->describe(root, p, lowered);
  for (size_t i = 0; i < SLI_COUNT(marks); i++) cJSON_AddNullToObject(root, marks[i]);
  cJSON_AddStringToObject(root, "torch_dtype", "float32");
  return root;
}

/* Reads the config.json that the model was loaded with, and sets the type of its weights to
 * fp32. */
static sl_status edit_config(const char *path, cJSON **out) {
  static const char *const keys[] = {"dtype", "torch_dtype"};
  sl_status status = parse(path, true, out);
  for (size_t i = 0; i < SLI_COUNT(keys) && !status; i++)
    if (config_at(*out, keys[i])) huggingface_put(*out, keys[i], cJSON_CreateString("float32"));
  /* weights are saved as plain numbers, not in quantized blocks */
  if (!status) cJSON_DeleteItemFromObjectCaseSensitive(*out, "quantization_config");
  return status;
}

/* Copies a file. Tells a read error from the end of the file. */
static sl_status copy_file(const char *from, const char *to) {
  char *bytes = NULL;
  size_t size = 0;
  sli_atomic_file out = {0};
  sl_status status = sli_file_read_bytes(from, &bytes, &size);
  if (!status) status = sli_atomic_open(to, &out);
  if (!status && !(status = sli_atomic_write(&out, bytes, size))) status = sli_atomic_commit(&out);
  else if (out.stream) sli_atomic_abandon(&out);
  free(bytes);
  return status;
}

/* Copies a file of this name, if it exists, from one folder to another. */
static sl_status copy_named(const char *folder, const char *from, const char *name) {
  char *a = huggingface_file(from, name), *b = huggingface_file(folder, name);
  sl_status status = access(a, F_OK) || !strcmp(a, b) ? SL_OK : copy_file(a, b);
  free(a);
  free(b);
  return status;
}

/* Copies the chat template for tools, if it is a separate file. */
static sl_status copy_tool_template(const char *folder, const char *from) {
  static const char name[] = "additional_chat_templates/tool_use.jinja";
  char *a = huggingface_file(from, name),
       *b = huggingface_file(folder, "additional_chat_templates");
  sl_status status = SL_OK;
  if (!access(a, F_OK) && mkdir(b, 0777) && errno != EEXIST)
    status = sl_fail(SL_E_IO, "cannot create %s: %s", b, strerror(errno));
  if (!status) status = copy_named(folder, from, name);
  free(a);
  free(b);
  return status;
}

static sl_status copy_rest(const char *folder, const char *from) {
  static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json",
                                      "tokenizer.model",     "special_tokens_map.json",
                                      "vocab.json",          "merges.txt",
                                      "chat_template.jinja", "generation_config.json"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(names) && !status; i++)
    status = copy_named(folder, from, names[i]);
  return status ? status : copy_tool_template(folder, from);
}

sl_status huggingface_save(const char *folder, const char *from, const pretrained *p,
                           const sl_lowered *lowered) {
  const family *f = family_of_model(p);
  char *path = huggingface_file(folder, "config.json");
  char *old = from ? huggingface_file(from, "config.json") : NULL;
  cJSON *root = NULL;
  sl_status status = SL_OK;
  if (old && !access(old, F_OK)) status = edit_config(old, &root);
  else if (f) root = make_config(f, p, lowered);
  if (root && !status) status = config_write(path, root);
  cJSON_Delete(root);
  if (!status && from) status = copy_rest(folder, from);
  free(old);
  free(path);
  return status;
}
