/* SPDX-License-Identifier: Apache-2.0 */
/* Options as config.json of the family that has them. */
#include "tools/formats/writing.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "tools/formats/deepseek.h"
#include "tools/formats/reading.h"
#include "tools/formats/rope.h"

/* ---- the family --------------------------------------------------------------------------------
 */

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

/* Returns whether the family's config.json can express the rope. */
static bool has_rope(const pretrained *p, const family *f) {
  sl_rope rope;
  if (!sl_options_find(p->model->options, "rope")) return true;
  const char *text = sl_arg_text(p->args, "rope");
  return (!rope_is_chunked(text) || family_says(f, "read", "chunks")) &&
         (f->part || sl_rope_parse(text, &rope) || rope.part == 1);
}

static bool is_family(const family *f, const pretrained *p) {
  const sl_args *args = p->args;
  if (strcmp(f->model, p->model->name) || (has_window(p) && !f->window)) return false;
  if (!f->theta) return true; /* gpt2 and mamba2: every option is a field */
  if (!family_has_choices(f, p->model, has_value, p) || !has_rope(p, f)) return false;
  if (family_says(f, "read", "deepseek") && !deepseek_fits(args)) return false;
  /* Angles of windowed layers would not be stretched. */
  if (f->local_theta && sl_arg_float(args, "local-theta") == 0 &&
      strncmp(sl_arg_text(args, "rope"), "none", 4) != 0)
    return false;
  const char *bias = sl_arg_text(args, "bias");
  return f->bias ? !strcmp(f->bias, bias) : strcmp(bias, "qkv") != 0;
}

/* ---- config.json --------------------------------------------------------------------------------
 */

/* Returns dim 0 of a parameter. */
static double rows_of(const sl_lowered *lowered, const char *name) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  for (int i = 0; i < n; i++)
    if (!strcmp(params[i].name, name)) return (double)params[i].type.dim[0];
  return 0;
}

static void put_number(cJSON *root, const char *key, double value) {
  config_put(root, key, cJSON_CreateNumber(value));
}

static void put_real(cJSON *root, const char *key, double value) {
  config_put(root, key, config_real(value));
}

static void describe_gpt2(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  (void)p;
  static const char *const no_dropout[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  put_number(root, "n_positions", rows_of(lowered, "transformer.wpe.weight"));
  config_put(root, "activation_function", cJSON_CreateString("gelu_new"));
  for (size_t i = 0; i < SLI_COUNT(no_dropout); i++) put_real(root, no_dropout[i], 0);
}

static double head_dim_of(const sl_args *args) {
  int64_t dim = sl_arg_int(args, "head-dim");
  return (double)(dim ? dim : sl_arg_int(args, "width") / sl_arg_int(args, "heads"));
}

static void describe_llama(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double heads = (double)sl_arg_int(args, "heads"), kv = (double)sl_arg_int(args, "kv-heads"),
         positions = (double)sl_arg_int(args, "positions");
  double gate = rows_of(lowered, "model.layers.0.mlp.gate_proj.weight"),
         both = rows_of(lowered, "model.layers.0.mlp.gate_up_proj.weight");
  put_number(root, "head_dim", head_dim_of(args));
  put_number(root, "num_key_value_heads", kv > 0 ? kv : heads);
  put_number(root, "intermediate_size", gate > 0 ? gate : both / 2);
  put_number(root, "max_position_embeddings",
             positions > 0 ? positions : (double)sl_arg_int(args, "context"));
  put_real(root, "rope_theta", sl_arg_float(args, "theta"));
  rope_put(root, sl_arg_text(args, "rope"));
  config_put(root, "hidden_act", cJSON_CreateString("silu"));
  if (sl_arg_int(args, "window") > 0)
    put_number(root, "sliding_window", (double)sl_arg_int(args, "window"));
  config_put(root, "attention_bias",
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
  config_put(root, "hidden_activation", cJSON_CreateString("gelu_pytorch_tanh"));
  put_number(root, "query_pre_attn_scalar", scalar > 0 ? scalar : head_dim_of(args));
  config_put(root, "layer_types", layer_types_json(args));
  put_number(root, "sliding_window_pattern",
             sl_arg_int(args, "window") > 0 ? (double)sl_arg_int(args, "full-every") : 1);
  if (sl_arg_float(args, "logit-cap") == 0)
    config_put(root, "final_logit_softcapping", cJSON_CreateNull());
}

static void describe_gemma3(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double local = sl_arg_float(args, "local-theta");
  describe_gemma(root, p, lowered);
  put_real(root, "rope_local_base_freq", local > 0 ? local : sl_arg_float(args, "theta"));
}

static double width_of(const sl_lowered *lowered, const char *name);

static void describe_deepseek(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double positions = (double)sl_arg_int(args, "positions");
  rope_put_parameters(root, args);
  put_number(root, "max_position_embeddings",
             positions > 0 ? positions : (double)sl_arg_int(args, "context"));
  config_put(root, "hidden_act", cJSON_CreateString("silu"));
  config_put(root, "attention_bias",
             cJSON_CreateBool(!strcmp(sl_arg_text(args, "bias"), "attention")));
  deepseek_describe(root, p, lowered);
}

static void describe_gpt_oss(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  describe_llama(root, p, lowered);
  rope_put_parameters(root, args);
  put_number(root, "intermediate_size",
             width_of(lowered, "model.layers.0.mlp.experts.gate_up_proj_bias") / 2);
  config_put(root, "layer_types", layer_types_json(args));
}

static void describe_mamba2(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double heads = rows_of(lowered, "backbone.layers.0.mixer.D");
  double inner = heads * (double)sl_arg_int(args, "head-dim");
  put_number(root, "num_heads", heads);
  put_number(root, "expand", inner / (double)sl_arg_int(args, "width"));
  config_put(root, "hidden_act", cJSON_CreateString("silu"));
  config_put(root, "use_bias", cJSON_CreateFalse());
  config_put(root, "use_conv_bias", cJSON_CreateBool(!sl_arg_flag(args, "no-conv-bias")));
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
  config_put(root, "norm_topk_prob", cJSON_CreateBool(sl_arg_int(p->args, "norm-topk") != 0));
}

/* Returns a length of the first parameter whose name has a pattern, or 0. */
static double length_of(const sl_lowered *lowered, const char *name, int dim) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params), i = 0;
  while (i < n && fnmatch(name, params[i].name, 0)) i++;
  return i < n ? (double)params[i].type.dim[dim] : 0;
}

/* Returns whether a block has a word of a list that is repeated over the blocks. */
static bool has_word(const char *list, int64_t block, const char *word) {
  int64_t count = 1;
  for (const char *c = list; *c; c++) count += *c == ',';
  for (block %= count; block; block--) list = strchr(list, ',') + 1;
  return strcspn(list, ",") == strlen(word) && !strncmp(list, word, strlen(word));
}

static void describe_qwen3_next(cJSON *root, const pretrained *p, const sl_lowered *lowered) {
  const sl_args *args = p->args;
  double key_dim = (double)sl_arg_int(args, "key-dim"),
         value_dim = (double)sl_arg_int(args, "value-dim");
  cJSON *types = cJSON_CreateArray(), *dense = cJSON_CreateArray();
  sl_rope rope = {0};
  sl_rope_parse(sl_arg_text(args, "rope"), &rope);
  describe_llama(root, p, lowered);
  for (int64_t i = 0; i < sl_arg_int(args, "layers"); i++) {
    bool delta = has_word(sl_arg_text(args, "mixers"), i, "delta");
    cJSON_AddItemToArray(types, cJSON_CreateString(delta ? "linear_attention" : "full_attention"));
    if (has_word(sl_arg_text(args, "feeds"), i, "mlp"))
      cJSON_AddItemToArray(dense, cJSON_CreateNumber((double)i));
  }
  config_put(root, "layer_types", types);
  config_put(root, "mlp_only_layers", dense);
  put_real(root, "partial_rotary_factor", (double)(rope.part > 0 ? rope.part : 1));
  config_put(root, "norm_topk_prob", cJSON_CreateBool(sl_arg_int(args, "norm-topk") != 0));
  double inner = length_of(lowered, "*.mlp.gate_proj.weight", 0),
         each = length_of(lowered, "*.mlp.experts.*.gate_proj.weight", 1),
         values = length_of(lowered, "*.linear_attn.A_log", 0),
         channels = length_of(lowered, "*.linear_attn.conv1d.weight", 0);
  put_number(root, "intermediate_size", inner > 0 ? inner : (double)sl_arg_int(args, "ffn"));
  if (each > 0) put_number(root, "moe_intermediate_size", each);
  if (values > 0) {
    put_number(root, "linear_num_value_heads", values);
    put_number(root, "linear_num_key_heads", (channels - values * value_dim) / (2 * key_dim));
  }
}

/* Functions that write what no field expresses, by their names in rows. */
static const struct writer {
  const char *name;
  void (*write)(cJSON *root, const pretrained *p, const sl_lowered *lowered);
} writers[] = {{"llama", describe_llama},          {"gpt2", describe_gpt2},
               {"gemma3", describe_gemma3},        {"deepseek", describe_deepseek},
               {"gpt-oss", describe_gpt_oss},      {"mamba2", describe_mamba2},
               {"mixtral", describe_mixtral},      {"qwen-moe", describe_qwen_moe},
               {"qwen3-next", describe_qwen3_next}};

/* Returns a family's writer, or NULL if folders of it are only read. */
static const struct writer *writer_of(const family *f) {
  const cJSON *name = config_at(f->row, "write");
  for (size_t i = 0; i < SLI_COUNT(writers) && name; i++)
    if (!strcmp(writers[i].name, name->valuestring)) return &writers[i];
  SLI_CHECK(!name, "families.json: no writer %s", name->valuestring);
  return NULL;
}

static cJSON *value_json(const pretrained *p, const char *name) {
  const sl_option *o = sl_options_find(p->model->options, name);
  if (o->kind == SL_OPTION_FLAG) return cJSON_CreateBool(sl_arg_flag(p->args, name));
  double value = number_of(p, name);
  return o->kind == SL_OPTION_FLOAT ? config_real(value) : cJSON_CreateNumber(value);
}

cJSON *family_write(const family *f, const pretrained *p, const sl_lowered *lowered) {
  static const char *const marks[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  cJSON *root = cJSON_CreateObject();
  cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "architectures"),
                       cJSON_CreateString(f->architecture));
  cJSON_AddStringToObject(root, "model_type", f->type);
  for (const config_field *x = f->fields; x->key; x++)
    cJSON_AddItemToObject(root, x->key, value_json(p, x->option));
  if (lowered) writer_of(f)->write(root, p, lowered);
  if (lowered && f->original) rope_put_above(root, sl_arg_text(p->args, "rope"));
  for (size_t i = 0; i < SLI_COUNT(marks); i++) cJSON_AddNullToObject(root, marks[i]);
  cJSON_AddStringToObject(root, "torch_dtype", "float32");
  return root;
}

/* ---- questions
 * ----------------------------------------------------------------------------------- */

const family *family_written(const pretrained *p) {
  const family *f;
  if (!config_is_shipped(p->model)) return NULL;
  for (int i = 0; (f = family_at(i)) && !(writer_of(f) && is_family(f, p)); i++) continue;
  return f;
}
