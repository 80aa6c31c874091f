/* Adapters as PEFT keeps them: a folder with adapter_model.safetensors, whose names have a prefix,
 * and adapter_config.json, which says what their ranks and scales are. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "graph/state/adapter.h"
#include "graph/state/parts.h"
#include "graph/state/weights.h"
#include "io/atomic.h"
#include "io/file.h"

static const char prefix[] = "base_model.model.", ending[] = ".lora_A.weight";

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- what a folder holds --------------------------------------------------------------- */

/* What is not done here. */
static const char *strange(const cJSON *config) {
  const cJSON *type = member(config, "peft_type"), *bias = member(config, "bias");
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "LORA")) return "peft_type is not LORA";
  if (cJSON_IsTrue(member(config, "use_dora"))) return "use_dora is set";
  if (cJSON_IsString(bias) && strcmp(bias->valuestring, "none")) return "bias is not none";
  if (cJSON_GetArraySize(member(config, "modules_to_save"))) return "modules_to_save has some";
  return NULL;
}

static sl_status read_config(const char *dir, cJSON **out) {
  char *path = sli_format("%s/adapter_config.json", dir), *text = NULL;
  sl_status status = sli_file_read(path, &text);
  *out = status ? NULL : cJSON_Parse(text);
  const char *wrong = *out ? strange(*out) : "it is no JSON";
  if (!status && wrong) status = sl_fail(SL_E_INPUT, "%s: %s", path, wrong);
  if (status) cJSON_Delete(*out);
  free(text);
  free(path);
  return status;
}

static sl_status open_model(const char *dir, sli_safetensors **out) {
  char *path = sli_format("%s/adapter_model.safetensors", dir);
  sl_status status = sli_safetensors_open(path, out);
  free(path);
  return status;
}

/* Of a module: what a pattern of the config says, a name or the end of one; else what all have. */
static double number_of(const cJSON *config, const char *pattern, const char *all,
                        const char *module) {
  const cJSON *item;
  cJSON_ArrayForEach(item, member(config, pattern)) {
    size_t n = strlen(module), m = strlen(item->string);
    if (n < m || strcmp(module + n - m, item->string) || (n > m && module[n - m - 1] != '.'))
      continue;
    return cJSON_GetNumberValue(item);
  }
  return cJSON_GetNumberValue(member(config, all));
}

/* "base_model.model.h.3.attn.c_attn.lora_A.weight" -> "h.3.attn.c_attn"; NULL: it is no A. */
static char *module_of(const char *name) {
  size_t n = strlen(name), m = strlen(ending), p = strlen(prefix);
  if (n <= m || strcmp(name + n - m, ending)) return NULL;
  const char *from = strncmp(name, prefix, p) ? name : name + p;
  return sli_format("%.*s", (int)(n - m - (size_t)(from - name)), from);
}

/* "h.3.attn.c_attn=8,alpha=16"; with rank-stabilised scaling that is alpha / sqrt(rank). */
static char *text_of(const cJSON *config, const char *module, int64_t rank) {
  double alpha = number_of(config, "alpha_pattern", "lora_alpha", module);
  if (cJSON_IsTrue(member(config, "use_rslora"))) alpha *= sqrt((double)rank);
  return alpha > 0 ? sli_format("%s.weight=%lld,alpha=%.9g", module, (long long)rank, alpha) : NULL;
}

/* Texts one behind the other, with pointers to them in front. */
static char **in_one_block(char **texts, int count) {
  size_t bytes = ((size_t)count + 1) * sizeof *texts;
  for (int i = 0; i < count; i++) bytes += strlen(texts[i]) + 1;
  char **block = sli_calloc(1, bytes), *at = (char *)(block + count + 1);
  for (int i = 0; i < count; i++) {
    block[i] = strcpy(at, texts[i]);
    at += strlen(at) + 1;
  }
  return block;
}

static sl_status list_modules(const char *dir, const cJSON *config, const sli_safetensors *file,
                              int *count, char **texts) {
  for (int i = 0; i < sli_safetensors_count(file); i++) {
    const sli_stored_tensor *t = sli_safetensors_at(file, i);
    char *module = module_of(t->name);
    if (module) texts[*count] = text_of(config, module, t->dim[0]);
    bool good = !module || texts[(*count)++];
    free(module);
    if (!good)
      return sl_fail(SL_E_INPUT, "%s/adapter_config.json: no lora_alpha for %s", dir, t->name);
  }
  if (*count) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s/adapter_model.safetensors has no tensor named as ...%s", dir, ending);
}

sl_status sl_adapter_modules(const char *dir, int *count, char ***lora) {
  cJSON *config = NULL;
  sli_safetensors *file = NULL;
  sl_status status = read_config(dir, &config);
  if (status) return status;
  int n = 0;
  char **texts = NULL;
  status = open_model(dir, &file);
  if (!status) {
    texts = sli_calloc((size_t)sli_safetensors_count(file) + 1, sizeof *texts);
    status = list_modules(dir, config, file, &n, texts);
    sli_safetensors_close(file);
  }
  if (!status) {
    *lora = in_one_block(texts, n);
    *count = n;
  }
  for (int i = 0; i < n; i++) free(texts[i]);
  free(texts);
  cJSON_Delete(config);
  return status;
}

/* ---- values ------------------------------------------------------------------------------- */

static const sli_stored_tensor *find(const sli_safetensors *file, const char *name) {
  char *full = sli_format("%s%s", prefix, name);
  const sli_stored_tensor *t = sli_safetensors_find(file, full);
  free(full);
  return t ? t : sli_safetensors_find(file, name);
}

static sl_status load(const char *dir, const sli_safetensors *file, const sl_lowered *lowered,
                      sl_runtime *rt, int index) {
  const sl_param_info *params;
  sl_lowered_params(lowered, &params);
  const sli_stored_tensor *t = find(file, params[index].name);
  if (!t) return SL_OK; /* new beside those of the folder */
  sl_status status = sli_stored_check(dir, params[index].name, &params[index].type, t);
  if (status || !sl_param_here(lowered, rt, index)) return status;
  float *values = sli_calloc(1, sl_type_bytes(&params[index].type));
  status = sli_safetensors_read(file, t, values);
  if (!status) status = sl_param_set(lowered, rt, index, values);
  free(values);
  return status;
}

sl_status sl_adapter_load(const char *dir, const sl_lowered *lowered, sl_runtime *rt) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  sli_safetensors *file;
  sl_status status = open_model(dir, &file);
  if (status) return status;
  for (int i = 0; i < n && !status; i++)
    if (sli_is_adapter(&params[i])) status = load(dir, file, lowered, rt, i);
  sli_safetensors_close(file);
  return status;
}

/* ---- saving ------------------------------------------------------------------------------- */

/* The first adapter's numbers are those of all; others stand apart. */
static cJSON *make_config(const sl_param_info *params, const sli_saved *list, int n) {
  const sl_adapter *first = params[list[0].param].adapter;
  cJSON *config = cJSON_CreateObject();
  cJSON_AddStringToObject(config, "peft_type", "LORA");
  cJSON_AddStringToObject(config, "task_type", "CAUSAL_LM");
  cJSON_AddNullToObject(config, "base_model_name_or_path");
  cJSON_AddNumberToObject(config, "r", first->rank);
  cJSON_AddNumberToObject(config, "lora_alpha", (double)first->alpha);
  cJSON_AddNumberToObject(config, "lora_dropout", 0);
  cJSON_AddStringToObject(config, "bias", "none");
  cJSON_AddBoolToObject(config, "fan_in_fan_out", first->transposed);
  cJSON_AddBoolToObject(config, "inference_mode", true);
  cJSON *targets = cJSON_AddArrayToObject(config, "target_modules");
  cJSON *ranks = cJSON_AddObjectToObject(config, "rank_pattern");
  cJSON *alphas = cJSON_AddObjectToObject(config, "alpha_pattern");
  for (int i = 0; i < n; i++) {
    const sl_adapter *a = params[list[i].param].adapter;
    if (!strstr(list[i].name, ending)) continue;
    cJSON_AddItemToArray(targets, cJSON_CreateString(a->module));
    if (a->rank != first->rank) cJSON_AddNumberToObject(ranks, a->module, a->rank);
    if (a->alpha != first->alpha) cJSON_AddNumberToObject(alphas, a->module, (double)a->alpha);
  }
  return config;
}

static sl_status write_config(const char *dir, cJSON *config) {
  char *path = sli_format("%s/adapter_config.json", dir), *text = cJSON_Print(config);
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (!status) {
    fprintf(file.stream, "%s\n", text);
    status = sli_atomic_commit(&file);
  }
  cJSON_free(text);
  free(path);
  return status;
}

static sl_status make_folder(const char *dir) {
  if (!mkdir(dir, 0777) || errno == EEXIST) return SL_OK;
  return sl_fail(SL_E_IO, "cannot make %s: %s", dir, strerror(errno));
}

sl_status sl_adapter_save(const char *dir, const sl_lowered *lowered, sl_runtime *rt, sl_job *job) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params), count = 0;
  sli_saved *list = sli_calloc((size_t)n, sizeof *list);
  for (int i = 0; i < n; i++)
    if (sli_is_adapter(&params[i]))
      list[count++] = (sli_saved){sli_format("%s%s", prefix, params[i].name), i, false, 0};
  char *path = sli_format("%s/adapter_model.safetensors", dir);
  sl_status status = count ? make_folder(dir) : sl_fail(SL_E_USAGE, "the model has no adapters");
  if (!status) status = sli_weights_save(path, list, count, lowered, rt, job);
  if (!status && sl_job_process(job) == 0) {
    cJSON *config = make_config(params, list, count);
    status = write_config(dir, config);
    cJSON_Delete(config);
  }
  for (int i = 0; i < count; i++) free((char *)list[i].name);
  free(list);
  free(path);
  return status;
}
