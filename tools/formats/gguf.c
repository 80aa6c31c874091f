/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a GGUF file of a LLaMA-like model, as model options. */
#include "tools/formats/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"
#include "ops/layout.h"
#include "tools/formats/config.h"
#include "tools/formats/config_keys.h"
#include "tools/formats/gguf_config.h"
#include "tools/formats/huggingface.h"

/* An architecture, whose name is the prefix of its keys. */
typedef struct architecture {
  const char *name, *type; /* type: the model_type of such models */
  const config_field *more;
} architecture;

/* Keys for layers with and without a sliding window. */
static const config_field gemma3_fields[] = {
    {.key = "attention.sliding_window_pattern", .option = "full-every", .missing = "6"},
    {.key = "rope.freq_base_swa", .option = "local-theta", .missing = "10000"},
    {.key = "final_logit_softcapping", .option = "logit-cap", .missing = "0"},
    {0}};

static const config_field no_fields[] = {{0}};

static const architecture architectures[] = {{"gemma3", "gemma3_text", gemma3_fields},
                                             {"llama", "llama", no_fields},
                                             {"olmo2", "olmo2", no_fields},
                                             {"phi3", "phi3", no_fields},
                                             {"qwen2", "qwen2", no_fields},
                                             {"qwen3", "qwen3", no_fields}};

static const config_field fields[] = {
    {.key = "block_count", .option = "layers"},
    {.key = "embedding_length", .option = "width"},
    {.key = "attention.head_count", .option = "heads"},
    {.key = "attention.head_count_kv", .option = "kv-heads", .missing = "0"},
    {.key = "attention.key_length", .option = "head-dim", .missing = "0"},
    {.key = "feed_forward_length", .option = "ffn"},
    {.key = "context_length", .option = "positions"},
    {.key = "attention.layer_norm_rms_epsilon", .option = "eps"},
    {.key = "attention.sliding_window", .option = "window", .missing = "0"},
    {.key = "rope.freq_base", .option = "theta", .missing = "10000"},
    {0}};

const char *gguf_architecture(const char *model_type, const config_field *tables[2]) {
  const char *type = strcmp(model_type, "mistral") ? model_type : "llama";
  for (size_t i = 0; i < SLI_COUNT(architectures); i++) {
    if (strcmp(architectures[i].type, type)) continue;
    tables[0] = fields;
    tables[1] = architectures[i].more;
    return architectures[i].name;
  }
  return NULL;
}

typedef struct reading {
  config config;
  const sli_gguf *file;
  const architecture *known;
  const char *architecture; /* its name */
  int64_t head_dim;
} reading;

/* Returns a key with the architecture's prefix. */
static const char *key_of(const reading *r, const char *key) {
  return sli_arena_format(r->config.target->arena, "%s.%s", r->architecture, key);
}

static const cJSON *value_of(const reading *r, const char *key) {
  return config_at(r->config.root, key_of(r, key));
}

static bool has(const reading *r, const char *tensor) { return sli_gguf_find(r->file, tensor); }

/* ---- options without a key ----------------------------------------------------------------- */

static sl_status set_vocab(const reading *r) {
  const sli_stored_tensor *table = sli_gguf_find(r->file, "model.embed_tokens.weight");
  if (!table) return sl_fail(SL_E_INPUT, "%s has no tensor token_embd.weight", r->config.path);
  char *rows = sli_format("%lld", (long long)table->dim[0]);
  sl_status status = config_set(&r->config, "token_embd.weight", "vocab", rows);
  free(rows);
  return status;
}

static sl_status set_by_tensors(const reading *r) {
  bool q = has(r, "model.layers.0.self_attn.q_proj.bias"),
       o = has(r, "model.layers.0.self_attn.o_proj.bias");
  const char *tied = has(r, "lm_head.weight") ? "0" : "1";
  sl_status status = set_vocab(r);
  if (!status) status = config_set(&r->config, "output.weight", "tied", tied);
  if (!status)
    status = config_set(&r->config, "blk.0.attn_q.bias", "bias",
                        o   ? "attention"
                        : q ? "qkv"
                            : "none");
  return status;
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* Checks that a key is absent or equals `wanted`. */
static sl_status check_number(const reading *r, const char *key, int64_t wanted, const char *what) {
  const cJSON *item = value_of(r, key);
  if (!item || (cJSON_IsNumber(item) && item->valuedouble == (double)wanted)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s is %g; only the value of %s, %lld, is supported",
                 r->config.path, key_of(r, key), item->valuedouble, what, (long long)wanted);
}

/* Checks that rotary embedding covers whole heads, and that keys and values have the same head
 * size. */
static sl_status check_heads(reading *r) {
  const sl_args *args = r->config.target->args;
  int64_t width = sl_arg_int(args, "width"), heads = sl_arg_int(args, "heads");
  r->head_dim = sl_arg_int(args, "head-dim");
  if (!r->head_dim) r->head_dim = width / heads;
  sl_status status = check_number(r, "rope.dimension_count", r->head_dim, "whole heads");
  return status ? status : check_number(r, "attention.value_length", r->head_dim, "their keys");
}

/* Returns whether a rope setting yields these factors. */
static bool gives(const sl_rope *rope, double theta, const float *factors, int64_t pairs) {
  double *plain = sli_calloc(2 * (size_t)pairs, sizeof *plain), *stretched = plain + pairs;
  bool good = true;
  sli_rope_frequencies(&(sl_attrs){.theta = (float)theta}, pairs, plain);
  sli_rope_frequencies(&(sl_attrs){.theta = (float)theta, .user = rope}, pairs, stretched);
  for (int64_t j = 0; j < pairs; j++)
    good &= fabs(plain[j] / stretched[j] - (double)factors[j]) < 1e-4 * (double)factors[j];
  free(plain);
  return good;
}

/* Finds the llama3 rope from per-pair factors. Converters store only these factors instead of
 * LLaMA 3's four numbers. All such models share three of the numbers, and the last pair's factor
 * is the fourth. */
static sl_status rope_of_factors(const reading *r, char **out) {
  const sli_stored_tensor *t = sli_gguf_find(r->file, "rope_freqs.weight");
  int64_t pairs = r->head_dim / 2;
  if ((int64_t)t->elements != pairs)
    return sl_fail(SL_E_INPUT, "%s: rope_freqs.weight has %zu factors, not %lld", r->config.path,
                   t->elements, (long long)pairs);
  float *factors = sli_calloc(t->elements, sizeof *factors);
  sl_status status = sli_gguf_read(r->file, t, factors);
  char *text = sli_format(
      "llama3:factor=%g,low_freq_factor=1,high_freq_factor=4,"
      "original_max_position_embeddings=8192",
      (double)factors[pairs - 1]);
  sl_rope rope;
  if (!status && (sl_rope_parse(text, &rope) ||
                  !gives(&rope, sl_arg_float(r->config.target->args, "theta"), factors, pairs)))
    status = sl_fail(SL_E_INPUT, "%s: rope_freqs.weight has factors that are not LLaMA 3's",
                     r->config.path);
  free(factors);
  if (status) free(text);
  else *out = text;
  return status;
}

static double number(const reading *r, const char *key, double missing) {
  const cJSON *item = value_of(r, key);
  return cJSON_IsNumber(item) ? item->valuedouble : missing;
}

/* Formats a YaRN rope. The attention factor of llama.cpp multiplies the factor that YaRN derives
 * from the context scaling. */
static char *yarn_of_keys(const reading *r, double factor) {
  double positions = (double)sl_arg_int(r->config.target->args, "positions");
  double own = factor > 1 ? 0.1 * log(factor) + 1 : 1,
         attention = number(r, "rope.scaling.attn_factor", 1);
  return sli_format(
      "yarn:factor=%.9g,original_max_position_embeddings=%.15g,beta_fast=%.9g,beta_slow=%.9g,"
      "attention_factor=%.9g",
      factor, number(r, "rope.scaling.original_context_length", positions),
      number(r, "rope.scaling.yarn_beta_fast", 32), number(r, "rope.scaling.yarn_beta_slow", 1),
      attention * own);
}

/* Returns the rope that the keys describe. The older key of the scaling factor implies linear
 * scaling. */
static char *rope_of_keys(const reading *r) {
  const cJSON *type = value_of(r, "rope.scaling.type");
  double older = number(r, "rope.scale_linear", 1),
         factor = number(r, "rope.scaling.factor", older);
  const char *kind = cJSON_IsString(type) ? type->valuestring : factor != 1 ? "linear" : "none";
  if (!strcmp(kind, "linear")) return sli_format("linear:factor=%.9g", factor);
  return strcmp(kind, "yarn") ? sli_strdup("none") : yarn_of_keys(r, factor);
}

static sl_status set_rope(reading *r) {
  char *text = NULL;
  sl_status status = check_heads(r);
  bool factors = has(r, "rope_freqs.weight");
  if (!status && factors) status = rope_of_factors(r, &text);
  else if (!status) text = rope_of_keys(r);
  if (!status) status = config_check_rope(&r->config, text);
  if (!status) status = config_set(&r->config, key_of(r, "rope.scaling"), "rope", text);
  free(text);
  return status;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool is_own(const reading *r, const char *key) {
  size_t n = strlen(r->architecture);
  return !strncmp(key, r->architecture, n) && key[n] == '.';
}

/* Returns the table of known keys, with the prefix. */
static const sli_key *named_keys(const reading *r) {
  size_t n = 0;
  while (gguf_keys_llama[n].name) n++;
  sli_key *out = sli_arena_alloc(r->config.target->arena, (n + 1) * sizeof *out);
  for (size_t i = 0; i < n; i++) out[i] = gguf_keys_llama[i], out[i].name = key_of(r, out[i].name);
  out[n] = (sli_key){0};
  return out;
}

/* Checks keys. Keys of other producers, such as a quantizer's notes, are ignored. */
static sl_status check_keys(const reading *r, const config_field *named) {
  cJSON *own = cJSON_CreateObject();
  const cJSON *item;
  cJSON_ArrayForEach(
      item, r->config.root) if (is_own(r, item->string) || !strncmp(item->string, "general.", 8))
      cJSON_AddItemToObject(own, item->string, cJSON_Duplicate(item, false));
  const config c = {r->config.path, own, r->config.target, NULL};
  sl_status status =
      config_check_keys(&c, named, (const sli_key *const[]){gguf_keys_common, named_keys(r), NULL});
  cJSON_Delete(own);
  return status;
}

/* Refuses per-layer arrays where one number must hold for all layers. */
static sl_status check_arrays(const reading *r) {
  const char *key;
  for (size_t i = 0; (key = sli_gguf_array_key(r->file, i)); i++)
    if (is_own(r, key))
      return sl_fail(SL_E_INPUT, "%s: %s is an array, which is not supported", r->config.path, key);
  return SL_OK;
}

/* Refuses a scaling factor for a rope type that has none, and contradictory factors. */
static sl_status check_angles(const reading *r) {
  const cJSON *type = value_of(r, "rope.scaling.type"),
              *factor = value_of(r, "rope.scaling.factor");
  bool none = cJSON_IsString(type) && !strcmp(type->valuestring, "none"),
       factors = has(r, "rope_freqs.weight");
  if (factors && strcmp(r->architecture, "llama"))
    return sl_fail(SL_E_INPUT, "%s: tensor rope_freqs.weight is not supported for %s",
                   r->config.path, r->architecture);
  if (factors && ((type && !none) || number(r, "rope.scaling.factor", 1) != 1))
    return sl_fail(SL_E_INPUT, "%s: rope_freqs.weight and %s both scale the rotary positions",
                   r->config.path, key_of(r, type ? "rope.scaling.type" : "rope.scaling.factor"));
  bool yarn = cJSON_IsString(type) && !strcmp(type->valuestring, "yarn");
  if (!yarn && number(r, "rope.scaling.attn_factor", 1) != 1)
    return sl_fail(SL_E_INPUT, "%s: %s is %g, which is supported only for yarn", r->config.path,
                   key_of(r, "rope.scaling.attn_factor"), number(r, "rope.scaling.attn_factor", 1));
  if (none && factor && factor->valuedouble != 1)
    return sl_fail(SL_E_INPUT, "%s: %s is %g, but %s is none", r->config.path,
                   key_of(r, "rope.scaling.factor"), factor->valuedouble,
                   key_of(r, "rope.scaling.type"));
  return SL_OK;
}

/* ---- the whole file -------------------------------------------------------------------------- */

static sl_status apply_keys(const reading *r) {
  config_field named[SLI_COUNT(fields) + SLI_COUNT(gemma3_fields)] = {{0}}, *out = named;
  const config_field *const tables[] = {fields, r->known->more};
  for (size_t t = 0; t < SLI_COUNT(tables); t++)
    for (const config_field *f = tables[t]; f->key; f++)
      *out = *f, (out++)->key = key_of(r, f->key);
  sl_status status = check_keys(r, named);
  if (!status) status = check_arrays(r);
  if (!status) status = check_angles(r);
  return status ? status : config_apply(&r->config, named);
}

/* Only the largest Gemma 3, recognized by its 62 blocks, has a scalar other than the head size, by
 * llama.cpp's rule. */
int64_t gguf_query_scalar(const pretrained *p) {
  enum { LARGEST = 62 };
  const sl_args *args = p->args;
  int64_t head_dim = sl_arg_int(args, "head-dim"),
          each = sl_arg_int(args, "width") / sl_arg_int(args, "heads");
  bool largest = sl_arg_int(args, "layers") == LARGEST && sl_arg_int(args, "full-every");
  return largest || !head_dim ? each : head_dim;
}

/* Sets Gemma 3's query scalar, for which there is no key. */
static sl_status set_scalar(const reading *r) {
  if (strcmp(r->architecture, "gemma3")) return SL_OK;
  char *value = sli_format("%lld", (long long)gguf_query_scalar(r->config.target));
  sl_status status = config_set(&r->config, "attention.key_length", "query-scalar", value);
  free(value);
  return status;
}

static sl_status gguf_apply(reading *r) {
  sl_status status = apply_keys(r);
  if (!status) status = huggingface_choose(&r->config, r->known->type, "general.architecture");
  if (!status) status = set_by_tensors(r);
  if (!status) status = set_rope(r);
  return status ? status : set_scalar(r);
}

/* Refuses one part of a split model, which is incomplete without the other files. */
static sl_status check_whole(const reading *r) {
  const cJSON *files = config_at(r->config.root, "split.count");
  if (!cJSON_IsNumber(files) || files->valuedouble <= 1) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s is one of %d split files of a model, and only a single file can be read (llama-gguf-split --merge makes one)",
      r->config.path, files->valueint);
}

static sl_status unknown_architecture(const reading *r, const char *name) {
  char *known = sli_strdup("");
  const cJSON *row;
  cJSON_ArrayForEach(row, sli_gguf_architectures()) {
    char *more =
        sli_format("%s%s%s", known, *known ? ", " : "", config_at(row, "name")->valuestring);
    free(known);
    known = more;
  }
  sl_fail(SL_E_INPUT, "%s: unknown architecture \"%.40s\"; known: %s", r->config.path, name, known);
  free(known);
  return SL_E_INPUT;
}

/* Maps keys to options. A user's own model is not checked, because it reads tensors by name. */
static sl_status match(reading *r) {
  const cJSON *type = config_at(r->config.root, "general.architecture");
  const char *name = cJSON_IsString(type) ? type->valuestring : "",
             *model = r->config.target->model->name;
  if (!config_is_shipped(r->config.target->model)) return SL_OK;
  for (size_t i = 0; i < SLI_COUNT(architectures); i++)
    if (!strcmp(architectures[i].name, name)) r->known = &architectures[i];
  if (!r->known) return unknown_architecture(r, name);
  r->architecture = r->known->name;
  if (strcmp(model, "llama"))
    return sl_fail(SL_E_USAGE, "%s is of architecture %s: the model should be llama, not %s",
                   r->config.path, name, model);
  return gguf_apply(r);
}

/* Reads the file as its family, if its architecture has a row that names one. */
static sl_status match_family(const reading *r, bool *done) {
  cJSON *root = NULL, *names = NULL;
  const pretrained *p = r->config.target;
  *done = false;
  if (!config_is_shipped(p->model)) return SL_OK;
  SLI_TRY(gguf_config(r->config.path, r->file, &root, &names));
  *done = root;
  sl_status status = root ? huggingface_read_config(r->config.path, root, names, p) : SL_OK;
  cJSON_Delete(names);
  cJSON_Delete(root);
  return status;
}

sl_status gguf_read(const char *path, pretrained *p) {
  sli_gguf *file;
  sl_status status = sli_gguf_open(path, &file);
  if (status) return status;
  const cJSON *keys = sli_gguf_metadata(file);
  reading r = {.config = {path, keys, p, NULL}, .file = file};
  bool done = false;
  status = check_whole(&r);
  if (!status) status = match_family(&r, &done);
  if (!status && !done) status = match(&r);
  if (!p->tokenizer && config_at(keys, "tokenizer.ggml.model"))
    p->tokenizer = sli_arena_strdup(p->arena, path);
  sli_gguf_close(file);
  return status;
}

sl_status gguf_model(const char *path, const char **out) {
  cJSON *root;
  SLI_TRY(gguf_config_of(path, &root));
  *out = "llama"; /* the model of the architectures in the tables above */
  sl_status status = root ? huggingface_model_of(path, root, out) : SL_OK;
  cJSON_Delete(root);
  return status;
}

/* ---- saving the tokenizer -------------------------------------------------------------------- */

typedef struct saving {
  const cJSON *keys;
  const cJSON *tokens;
  const char *folder;
} saving;

/* Writes JSON beside the weights. Takes ownership of `root`. */
static sl_status write_beside(const saving *s, const char *name, cJSON *root) {
  char *path = huggingface_file(s->folder, name);
  sl_status status = config_write(path, root);
  free(path);
  cJSON_Delete(root);
  return status;
}

/* Adds a special token's number and text. */
static void add_mark(const saving *s, const char *which, cJSON *numbers, cJSON *texts) {
  char *key = sli_format("tokenizer.ggml.%s_token_id", which);
  char *number = sli_format("%s_token_id", which), *text = sli_format("%s_token", which);
  const cJSON *found = config_at(s->keys, key);
  const cJSON *token =
      cJSON_IsNumber(found) ? cJSON_GetArrayItem(s->tokens, found->valueint) : NULL;
  if (cJSON_IsString(token)) cJSON_AddNumberToObject(numbers, number, found->valueint);
  if (cJSON_IsString(token)) cJSON_AddStringToObject(texts, text, token->valuestring);
  free(key);
  free(number);
  free(text);
}

static void add_named_template(cJSON *all, const char *name, const cJSON *template) {
  cJSON *one = cJSON_CreateObject();
  cJSON_AddStringToObject(one, "name", name);
  cJSON_AddStringToObject(one, "template", template->valuestring);
  cJSON_AddItemToArray(all, one);
}

/* Adds the chat template. If the file also has a template for tools, adds both as a list with
 * names. */
static void add_templates(cJSON *texts, const cJSON *chat, const cJSON *for_tools) {
  if (!cJSON_IsString(chat)) return;
  if (!cJSON_IsString(for_tools)) {
    cJSON_AddStringToObject(texts, "chat_template", chat->valuestring);
    return;
  }
  cJSON *all = cJSON_AddArrayToObject(texts, "chat_template");
  add_named_template(all, "default", chat);
  add_named_template(all, "tool_use", for_tools);
}

static sl_status write_configs(const saving *s) {
  const cJSON *chat = config_at(s->keys, "tokenizer.chat_template");
  cJSON *numbers = cJSON_CreateObject(), *texts = cJSON_CreateObject();
  cJSON_AddStringToObject(texts, "tokenizer_class", "PreTrainedTokenizerFast");
  add_mark(s, "bos", numbers, texts);
  add_mark(s, "eos", numbers, texts);
  add_templates(texts, chat, config_at(s->keys, "tokenizer.chat_template.tool_use"));
  sl_status status = write_beside(s, "tokenizer_config.json", texts);
  sl_status other = write_beside(s, "generation_config.json", numbers);
  return status ? status : other;
}

sl_status gguf_save_tokenizer(const char *path, const char *folder) {
  sli_gguf *file;
  cJSON *root = NULL;
  if (sli_tokenizer_of_gguf(path, &root)) return SL_OK; /* an unknown tokenizer is not exported */
  saving s = {.folder = folder};
  sl_status status = write_beside(&s, "tokenizer.json", root);
  if (!status) status = sli_gguf_open(path, &file);
  if (status) return status;
  cJSON *tokens = sli_gguf_array(file, "tokenizer.ggml.tokens");
  s.keys = sli_gguf_metadata(file);
  s.tokens = tokens;
  status = write_configs(&s);
  cJSON_Delete(tokens);
  sli_gguf_close(file);
  return status;
}
