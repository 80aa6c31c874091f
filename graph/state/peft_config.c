/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/peft_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "io/keys.h"
#include "text/regex.h"

static const cJSON *member(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsNull(item) ? NULL : item;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Keys that affect results. Some initializations change the base weights whenever PEFT loads a
 * folder. */
static const sli_key decisive[] = {
    {"peft_type", {"\"LORA\""}},
    {"bias", {"\"none\""}},
    {"use_dora", {"false"}},
    {"lora_bias", {"false"}},
    {"init_lora_weights", {"true", "false", "\"gaussian\"", "\"eva\"", "\"orthogonal\""}},
    {"use_rslora", {"false", "true"}},
    {"r", {0}},
    {"lora_alpha", {0}},
    {"rank_pattern", {0}},
    {"alpha_pattern", {0}},
    {"target_modules", {0}},
    {"exclude_modules", {0}},
    {"layers_to_transform", {0}},
    {0}};

/* Keys about training, or about the initialization or origin of the matrices. */
static const sli_key harmless[] = {{"task_type", {0}},
                                   {"base_model_name_or_path", {0}},
                                   {"revision", {0}},
                                   {"auto_mapping", {0}},
                                   {"peft_version", {0}},
                                   {"inference_mode", {0}},
                                   {"lora_dropout", {0}},
                                   {"fan_in_fan_out", {0}},
                                   {"merge_weights", {0}},
                                   {"layers_pattern", {0}},
                                   {"megatron_core", {0}},
                                   {"loftq_config", {0}},
                                   {"eva_config", {0}},
                                   {"corda_config", {0}},
                                   {"lora_ga_config", {0}},
                                   {"qalora_group_size", {0}},
                                   {"runtime_config", {0}},
                                   {"ensure_weight_tying", {0}},
                                   {"lora_dtype", {0}},
                                   {"lorap_lr_ratio", {0}},
                                   {"lorap_emb_lr", {0}},
                                   {"unsloth_*", {0}},
                                   {0}};

static sl_status peft_config_check(const sli_peft_config *c) {
  const cJSON *type = member(c->root, "peft_type");
  if (!cJSON_IsString(type)) return sl_fail(SL_E_INPUT, "%s: peft_type must be LORA", c->path);
  return sli_keys_check(c->path, c->root, (const sli_key *const[]){decisive, harmless, NULL});
}

sl_status sli_peft_config_read(const char *dir, sli_peft_config *out) {
  sli_json doc = {0};
  *out = (sli_peft_config){.path = sli_format("%s/adapter_config.json", dir)};
  sl_status status = sli_json_open(out->path, &doc);
  out->root = doc.root;
  free(doc.name);
  if (status) return status;
  return cJSON_IsObject(out->root) ? peft_config_check(out)
                                   : sl_fail(SL_E_INPUT, "%s: not a JSON object", out->path);
}

void sli_peft_config_fini(sli_peft_config *c) {
  cJSON_Delete(c->root);
  free(c->path);
}

/* ---- target modules
 * ------------------------------------------------------------------------------- */

static bool is_end(const char *module, const char *end) {
  size_t n = strlen(module), m = strlen(end);
  return n >= m && !strcmp(module + n - m, end) && (n == m || module[n - m - 1] == '.');
}

/* Sets *out to true if a list contains a suffix of the module's name, or an expression matches the
 * whole name. */
static sl_status names(const sli_peft_config *c, const cJSON *which, const char *module,
                       bool *out) {
  const cJSON *item;
  *out = false;
  if (cJSON_IsString(which)) return sli_regex_is(c->path, which->valuestring, module, out);
  if (!cJSON_IsArray(which))
    return sl_fail(SL_E_INPUT, "%s: %s must be a list of names", c->path, which->string);
  cJSON_ArrayForEach(item, which) *out |= cJSON_IsString(item) && is_end(module, item->valuestring);
  return SL_OK;
}

/* Returns the layer of a module, the first number between dots, or -1 if none. */
static double layer_of(const char *module) {
  for (const char *at = strchr(module, '.'); at; at = strchr(at + 1, '.')) {
    size_t digits = strspn(at + 1, "0123456789");
    if (digits && at[1 + digits] == '.') return strtod(at + 1, NULL);
  }
  return -1;
}

static bool has_layer(const cJSON *layers, double layer) {
  const cJSON *item;
  if (cJSON_IsNumber(layers)) return layers->valuedouble == layer;
  cJSON_ArrayForEach(item,
                     layers) if (cJSON_IsNumber(item) && item->valuedouble == layer) return true;
  return false;
}

/* Rejects modules that the config excludes; PEFT would drop their tensors. */
static sl_status check_target(const sli_peft_config *c, const char *module) {
  const cJSON *targets = member(c->root, "target_modules"),
              *without = member(c->root, "exclude_modules");
  const cJSON *layers = member(c->root, "layers_to_transform");
  bool is = true, is_not = false;
  if (cJSON_IsString(targets) && !strcmp(targets->valuestring, "all-linear")) targets = NULL;
  sl_status status = targets ? names(c, targets, module, &is) : SL_OK;
  if (!status && without) status = names(c, without, module, &is_not);
  if (status) return status;
  if (!is)
    return sl_fail(SL_E_INPUT, "%s: target_modules leaves out %s, which has an adapter", c->path,
                   module);
  if (is_not)
    return sl_fail(SL_E_INPUT, "%s: exclude_modules names %s, which has an adapter", c->path,
                   module);
  if (!layers || sli_key_off(layers) || has_layer(layers, layer_of(module))) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: layers_to_transform leaves out %s, which has an adapter", c->path,
                 module);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Finds the value of the first key that matches a module. Keys are expressions for the whole name,
 * or for its end after a dot. Without a match *out is the default, or NULL if the config has
 * none. */
static sl_status find_number(const sli_peft_config *c, const char *pattern, const char *all,
                             const char *module, const cJSON **out) {
  const cJSON *item, *patterns = member(c->root, pattern);
  if (patterns && !cJSON_IsObject(patterns))
    return sl_fail(SL_E_INPUT, "%s: %s must be a JSON object", c->path, pattern);
  *out = member(c->root, all);
  cJSON_ArrayForEach(item, patterns) {
    bool found = false;
    char *expression = sli_format("(.*\\.)?(%s)", item->string);
    sl_status status = sli_regex_is(c->path, expression, module, &found);
    free(expression);
    if (status) return status;
    if (found) *out = item;
    if (found) break;
  }
  if (!*out || (cJSON_IsNumber(*out) && (*out)->valuedouble > 0)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s of %s must be a positive number", c->path, all, module);
}

sl_status sli_peft_alpha(const sli_peft_config *c, const char *module, int64_t rank, double *out) {
  const cJSON *alpha = NULL, *r = NULL;
  sl_status status = check_target(c, module);
  if (!status) status = find_number(c, "alpha_pattern", "lora_alpha", module, &alpha);
  if (!status) status = find_number(c, "rank_pattern", "r", module, &r);
  if (status) return status;
  if (!alpha) return sl_fail(SL_E_INPUT, "%s: no lora_alpha for %s", c->path, module);
  if (r && r->valuedouble != (double)rank)
    return sl_fail(SL_E_INPUT, "%s: the rank of %s is %g, but its matrices have %lld", c->path,
                   module, r->valuedouble, (long long)rank);
  *out =
      alpha->valuedouble * (cJSON_IsTrue(member(c->root, "use_rslora")) ? sqrt((double)rank) : 1);
  return SL_OK;
}
