/* SPDX-License-Identifier: Apache-2.0 */
/* config.json as options: a row's fields, and functions for keys that map to no single option. */
#include "tools/formats/reading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/formats/layers.h"
#include "tools/formats/rope.h"

bool family_starts(const family *f, const sl_model *model) {
  return f->other && !strcmp(f->other, model->name);
}

/* Returns whether models of one family may differ in an option: it is one of the family's fields,
 * or depends on the layer. */
static bool is_free(const family *f, const char *option) {
  if (f->local_theta && !strcmp(option, "local-theta")) return true;
  if (f->full_every && !strcmp(option, "full-every")) return true;
  if (family_says(f, "free", option) || layers_set(f, option)) return true;
  const config_field *x = f->fields;
  while (x->key && strcmp(x->option, option) && !(x->second && !strcmp(x->second, option))) x++;
  return x->key;
}

/* Returns the value of an option in all models of a family. Returns NULL if it may vary, or if the
 * model lacks the option. */
static const char *choice_of(const sl_model *model, const family *f, const char *option) {
  const sl_option *o = sl_options_find(model->options, option);
  const char *value = family_fixes(f, option);
  if (is_free(f, option)) return NULL;
  return o && !value ? o->value : value;
}

/* Sets the options that distinguish the family from others of its model. `key` is the key that
 * names the family in the file. */
static sl_status family_choose(const config *c, const family *f, const char *key) {
  const cJSON *item;
  sl_status status = SL_OK;
  for (const fixed_option *o = f->fixed; o->option && !status; o++)
    status = config_set(c, key, o->option, o->value);
  cJSON_ArrayForEach(item, family_common("choices")) {
    const char *value = choice_of(c->target->model, f, item->valuestring);
    if (value && !status) status = config_set(c, key, item->valuestring, value);
  }
  return status;
}

/* ---- windows and biases -----------------------------------------------------------------------
 */

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

/* Refuses a window if the row reads none. Lists of layers are the row's own business. */
static sl_status check_no_window(const config *c, const family *f) {
  static const char *const reading[] = {"window", "windows", "gpt2"};
  for (size_t i = 0; i < SLI_COUNT(reading); i++)
    if (family_says(f, "read", reading[i])) return SL_OK;
  if (!layers_set(f, "mixers")) return check_window(c, f);
  double window = window_of(c, f);
  if (!window || window >= (double)sl_arg_int(c->target->args, "context")) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: sliding_window is not supported for its model_type", c->path);
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
  if (family_starts(f, c->target->model)) return SL_OK;
  sl_status status = f->window ? SL_OK : check_window(c, f);
  if (status) return status;
  if (f->window && has_other_layers(c))
    return sl_fail(SL_E_INPUT, "%s: layer_types are not all full_attention, which is not supported",
                   c->path);
  return set_window(c, f);
}

/* Sets --bias. */
static sl_status read_bias(const config *c, const family *f) {
  const cJSON *said = config_at(c->root, "attention_bias");
  const char *bias = f->bias ? f->bias : cJSON_IsTrue(said) ? "attention" : "none";
  if (said && !cJSON_IsBool(said))
    return sl_fail(SL_E_INPUT, "%s: attention_bias is neither true nor false", c->path);
  return config_set(c, "attention_bias", "bias", bias);
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

/* ---- families with keys of their own -----------------------------------------------------------
 */

static sl_status read_chunks(const config *c, const family *f) {
  const cJSON *chunks = config_at(c->root, rope_chunks_key);
  return chunks ? rope_read_chunks(c, f, chunks) : rope_read(c, f);
}

static sl_status read_stretched(const config *c, const family *f) {
  if (!config_at(c->root, "rope_parameters") && !config_at(c->root, "rope_scaling"))
    return sl_fail(SL_E_INPUT, "%s has no rope_scaling", c->path);
  return rope_read(c, f);
}

static sl_status read_gpt2(const config *c, const family *f) {
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

static sl_status read_time_limit(const config *c, const family *f) {
  (void)f;
  const cJSON *limit = config_at(c->root, "time_step_limit");
  return !limit || limits_nothing(limit)
             ? SL_OK
             : sl_fail(SL_E_INPUT,
                       "%s: time_step_limit is not 0 to infinity, which is not supported", c->path);
}

/* Queries after the original context would be scaled. */
static sl_status read_scaled_queries(const config *c, const family *f) {
  (void)f;
  const cJSON *rope = NULL;
  SLI_TRY(rope_find(c, &rope));
  const cJSON *original = config_at(rope, "original_max_position_embeddings");
  int64_t context = sl_arg_int(c->target->args, "context");
  bool scaled = config_at(rope, "llama_4_scaling_beta") && original;
  if (!scaled || original->valuedouble >= (double)context) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--context %lld: %s scales queries from position %g on (llama_4_scaling_beta), "
                 "which is not supported",
                 (long long)context, c->path, original->valuedouble);
}

/* Sets the inner width of LFM2's feed-forward halves: two thirds of the one given, rounded up. */
static sl_status read_lfm2(const config *c, const family *f) {
  (void)f;
  const cJSON *given = config_at(c->root, "block_ff_dim"),
              *by = config_at(c->root, "block_multiple_of"),
              *times = config_at(c->root, "block_ffn_dim_multiplier");
  if (!given) given = config_at(c->root, "intermediate_size");
  int64_t inner = given ? (int64_t)given->valuedouble : 12288, unit = by ? by->valueint : 256;
  if (!cJSON_IsFalse(config_at(c->root, "block_auto_adjust_ff_dim")) && unit > 0) {
    inner = (int64_t)((double)(2 * inner) / 3);
    if (times) inner = (int64_t)(times->valuedouble * (double)inner);
    inner = (inner + unit - 1) / unit * unit;
  }
  char *text = sli_format("%lld", (long long)inner);
  sl_status status = config_set(c, "intermediate_size", "ffn", text);
  free(text);
  return status;
}

/* ---- quantized weights ------------------------------------------------------------------------
 */

/* Returns the values that a list accepts, joined. The caller frees it. */
static char *accepted_text(const cJSON *accepted) {
  const cJSON *value;
  char *out = sli_strdup(accepted->child ? "" : "none");
  cJSON_ArrayForEach(value, accepted) {
    char *one =
             cJSON_IsString(value) ? sli_strdup(value->valuestring) : cJSON_PrintUnformatted(value),
         *more = sli_format("%s%s%s", out, *out ? ", " : "", one);
    free(one);
    free(out);
    out = more;
  }
  return out;
}

static sl_status refuse_quantized(const config *c, const char *key, const cJSON *value,
                                  const cJSON *accepted) {
  char *text = value ? cJSON_PrintUnformatted(value) : sli_strdup("absent"),
       *known = accepted_text(accepted);
  sl_fail(SL_E_INPUT, "%s: quantization_config: %s is %.80s; supported: %s", c->path, key, text,
          known);
  free(text);
  free(known);
  return SL_E_INPUT;
}

/* Checks the members that a specification names: KEY has a list of accepted values or a
 * specification of its own, KEY! must be there, * stands for any key. Keys of messages begin with
 * `outer`. */
static sl_status check_part(const config *c, const char *outer, const cJSON *part,
                            const cJSON *specification) {
  const cJSON *entry, *item;
  sl_status status = SL_OK;
  cJSON_ArrayForEach(entry, specification) {
    bool needed = strchr(entry->string, '!'), good = false;
    char *name = sli_format("%.*s", (int)strcspn(entry->string, "!"), entry->string),
         *key = sli_format("%s%s", outer, name), *inner = sli_format("%s.", key);
    const cJSON *value = config_at(part, name);
    if (!strcmp(name, "*"))
      cJSON_ArrayForEach(item, part) status = status ? status : check_part(c, outer, item, entry);
    else if (cJSON_IsObject(entry))
      status = status || !value ? status : check_part(c, inner, value, entry);
    else if (!status && (needed || (value && !sli_key_off(value)) || cJSON_IsFalse(value))) {
      cJSON_ArrayForEach(item, entry) good |= cJSON_Compare(item, value, true);
      if (!good) status = refuse_quantized(c, key, value, entry);
    }
    free(inner);
    free(key);
    free(name);
  }
  return status;
}

/* Refuses quantized weights in layouts that are not known. The tensors themselves are checked when
 * they are read. */
static sl_status check_quantized(const config *c, const family *f) {
  const cJSON *how = config_at(c->root, "quantization_config"),
              *by = config_at(how, "quant_method"), *known = family_common("quantized");
  const cJSON *method = cJSON_IsString(by) ? config_at(known, by->valuestring) : NULL;
  if (!how) return SL_OK;
  if (method && (!config_at(method, "only") || family_says(f, "read", "quantized")))
    return check_part(c, "", how, config_at(method, "keys"));
  cJSON *names = cJSON_CreateArray();
  cJSON_ArrayForEach(method, known) cJSON_AddItemToArray(names, cJSON_CreateString(method->string));
  sl_status status = refuse_quantized(c, "quant_method", by, names);
  cJSON_Delete(names);
  return status;
}

/* Refuses layers without experts behind those with them. */
static sl_status read_ernie(const config *c, const family *f) {
  (void)f;
  const cJSON *end = config_at(c->root, "moe_layer_end_index");
  double last = (double)sl_arg_int(c->target->args, "layers") - 1;
  if (!end || end->valuedouble == -1 || end->valuedouble == last) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: moe_layer_end_index is %g; only -1 and the last layer, %g, are supported",
                 c->path, end->valuedouble, last);
}

static sl_status read_nothing(const config *c, const family *f) {
  (void)c, (void)f;
  return SL_OK;
}

/* ---- rows --------------------------------------------------------------------------------------
 */

/* Functions that read what no field maps to an option, by their names in rows. */
static const struct reader {
  const char *name;
  sl_status (*read)(const config *c, const family *f);
} readers[] = {{"bias", read_bias},
               {"chunks", read_chunks},
               {"rope", rope_read},
               {"ropes", rope_read_kinds},
               {"stretched", read_stretched},
               {"window", read_window},
               {"windows", set_window},
               {"every", read_layers},
               {"layers", layers_read},
               {"quantized", read_nothing},
               {"mscale", rope_read_mscale},
               {"gpt2", read_gpt2},
               {"time-limit", read_time_limit},
               {"scaled-queries", read_scaled_queries},
               {"lfm2", read_lfm2},
               {"ernie", read_ernie}};

static const struct reader *reader_named(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(readers); i++)
    if (!strcmp(readers[i].name, name)) return &readers[i];
  SLI_CHECK(0, "families.json: no reader %s", name);
  return NULL;
}

/* Adds the members of objects that the row lifts to the file's keys, as OBJECT.MEMBER. */
static void lift_members(const family *f, const config *c) {
  const cJSON *name, *member;
  cJSON_ArrayForEach(name, config_at(f->row, "lift"))
      cJSON_ArrayForEach(member, config_at(c->root, name->valuestring)) {
    char *key = sli_format("%s.%s", name->valuestring, member->string);
    cJSON_AddItemToObject((cJSON *)c->root, key, cJSON_Duplicate(member, true));
    free(key);
  }
}

sl_status family_read(const family *f, const config *c) {
  const cJSON *item;
  const sli_key *const keys[] = {f->keys, family_keys("common"), NULL};
  lift_members(f, c);
  sl_status status = check_quantized(c, f);
  if (!status) status = config_check_keys(c, f->fields, keys);
  if (!status) status = config_apply(c, f->fields);
  if (!status) status = family_choose(c, f, "model_type");
  cJSON_ArrayForEach(item, config_at(f->row, "read")) if (!status) status =
      reader_named(item->valuestring)->read(c, f);
  return status ? status : check_no_window(c, f);
}
