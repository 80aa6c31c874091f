/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in PEFT's format: a folder with adapter_model.safetensors, whose names have a prefix,
 * and adapter_config.json with ranks and scales. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "graph/state/adapter.h"
#include "graph/state/parts.h"
#include "graph/state/peft_config.h"
#include "graph/state/weights.h"
#include "io/atomic.h"
#include "io/safetensors.h"

static const char prefix[] = "base_model.model.", ending[] = ".lora_A.weight",
                  other_ending[] = ".lora_B.weight";

/* ---- contents of a folder ---------------------------------------------------------------- */

static sl_status open_model(const char *dir, sli_safetensors **out) {
  char *path = sli_format("%s/adapter_model.safetensors", dir);
  sl_status status = sli_safetensors_open(path, out);
  free(path);
  return status;
}

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && !strcmp(name + n - m, end);
}

/* Returns the module: "base_model.model.h.3.attn.c_attn.lora_A.weight" -> "h.3.attn.c_attn". */
static char *module_of(const char *name) {
  size_t p = strlen(prefix), m = strlen(ending);
  const char *from = strncmp(name, prefix, p) ? name : name + p;
  return sli_format("%.*s", (int)(strlen(from) - m), from);
}

static const sli_stored_tensor *find_other(const sli_safetensors *file,
                                           const sli_stored_tensor *t) {
  char *name = sli_strdup(t->name), *letter = strrchr(name, '.') - 1;
  *letter = *letter == 'A' ? 'B' : 'A';
  const sli_stored_tensor *other = sli_safetensors_find(file, name);
  free(name);
  return other;
}

/* Checks a matrix of a linear layer, [rank, in] or [out, rank], and that the other matrix has the
 * same rank. */
static sl_status check_tensor(const char *dir, const sli_safetensors *file,
                              const sli_stored_tensor *t) {
  bool is_a = ends_with(t->name, ending), is_b = ends_with(t->name, other_ending);
  const sli_stored_tensor *other = is_a || is_b ? find_other(file, t) : NULL;
  if ((!is_a && !is_b) || strpbrk(t->name, "*?[]\\=,"))
    return sl_fail(
        SL_E_INPUT,
        "%s: tensor %.200s is not supported: only MODULE%s and MODULE%s of linear maps are", dir,
        t->name, ending, other_ending);
  if (!other)
    return sl_fail(SL_E_INPUT, "%s: tensor %s has no matching lora_%c", dir, t->name,
                   is_a ? 'B' : 'A');
  int64_t rank = t->dim[is_a ? 0 : 1], rank_other = other->dim[is_a ? 1 : 0];
  if (t->ndim == 2 && other->ndim == 2 && rank > 0 && rank == rank_other) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: tensor %s and its lora_%c must be matrices of equal rank", dir,
                 t->name, is_a ? 'B' : 'A');
}

/* Formats a module: "h.3.attn.c_attn.weight=8,alpha=16". */
static sl_status text_of(const sli_peft_config *config, const sli_stored_tensor *t, char **out) {
  char *module = module_of(t->name);
  double alpha = 0;
  sl_status status = sli_peft_alpha(config, module, t->dim[0], &alpha);
  if (!status) *out = sli_format("%s.weight=%lld,alpha=%.9g", module, (long long)t->dim[0], alpha);
  free(module);
  return status;
}

/* Copies texts into one memory block that starts with pointers to them. */
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

static sl_status list_modules(const char *dir, const sli_peft_config *config,
                              const sli_safetensors *file, int *count, char **texts) {
  sl_status status = SL_OK;
  for (int i = 0; i < sli_safetensors_count(file) && !status; i++) {
    const sli_stored_tensor *t = sli_safetensors_at(file, i);
    status = check_tensor(dir, file, t);
    if (!status && ends_with(t->name, ending)) status = text_of(config, t, &texts[*count]);
    *count += !status && texts[*count];
  }
  if (status || *count) return status;
  return sl_fail(SL_E_INPUT, "%s/adapter_model.safetensors has no tensor named ...%s", dir, ending);
}

static sl_status read_modules(const char *dir, const sli_peft_config *config, int *count,
                              char ***lora) {
  sli_safetensors *file = NULL;
  sl_status status = open_model(dir, &file);
  if (status) return status;
  int n = 0;
  char **texts = sli_calloc((size_t)sli_safetensors_count(file) + 1, sizeof *texts);
  status = list_modules(dir, config, file, &n, texts);
  sli_safetensors_close(file);
  if (!status) {
    *lora = in_one_block(texts, n);
    *count = n;
  }
  for (int i = 0; i < n; i++) free(texts[i]);
  free(texts);
  return status;
}

sl_status sl_adapter_modules(const char *dir, int *count, char ***lora) {
  sli_peft_config config;
  sl_status status = sli_peft_config_read(dir, &config);
  if (!status) status = read_modules(dir, &config, count, lora);
  sli_peft_config_fini(&config);
  return status;
}

/* ---- values ------------------------------------------------------------------------------- */

static const sli_stored_tensor *find_as(const sli_safetensors *file, const char *name) {
  char *full = sli_format("%s%s", prefix, name);
  const sli_stored_tensor *t = sli_safetensors_find(file, full);
  free(full);
  return t ? t : sli_safetensors_find(file, name);
}

/* Finds a tensor. Adapters saved from the model without its head omit the first part of the
 * names. */
static const sli_stored_tensor *peft_find(const sli_safetensors *file, const char *name) {
  const sli_stored_tensor *t = find_as(file, name);
  const char *dot = strchr(name, '.');
  return t || !dot ? t : find_as(file, dot + 1);
}

/* State of loading an adapter folder. `place` is the place to fill in a graph with several adapter
 * places, or -1. */
typedef struct loading {
  const char *dir;
  const sli_safetensors *file;
  const sl_lowered *lowered;
  sl_runtime *rt;
  bool *used; /* [tensors of the file] */
  int place;
  const sli_peft_config *config;
} loading;

/* ---- places --------------------------------------------------------------------------------- */

static bool is_second(const char *name) { return ends_with(name, other_ending); }

static sl_status check_place(const loading *l, const sl_param_info *p, const sli_stored_tensor *t) {
  bool b = is_second(p->name);
  int64_t rank = t->dim[b ? 1 : 0], width = t->dim[b ? 0 : 1], has = p->type.dim[b ? 1 : 2];
  if (t->ndim != 2 || width != has)
    return sl_fail(SL_E_INPUT,
                   "%s: tensor %s does not fit the model: it has %lld numbers, not %lld", l->dir,
                   t->name, (long long)width, (long long)has);
  if (rank <= p->adapter->rank) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: tensor %s has rank %lld, but there is room for %d only", l->dir,
                 t->name, (long long)rank, p->adapter->rank);
}

/* Copies a matrix into its place, whose rank may be larger, and multiplies it by `scale`. */
static void copy_place(const sl_param_info *p, const sli_stored_tensor *t, double scale,
                       const float *from, float *to) {
  int64_t columns = p->type.dim[2];
  for (int64_t i = 0; i < t->dim[0]; i++)
    for (int64_t k = 0; k < t->dim[1]; k++)
      to[i * columns + k] = (float)(scale * (double)from[i * t->dim[1] + k]);
}

static sl_status scale_of(const loading *l, const sl_param_info *p, const sli_stored_tensor *t,
                          double *out) {
  *out = 1;
  if (!is_second(p->name)) return SL_OK;
  char *module = module_of(t->name);
  sl_status status = sli_peft_alpha(l->config, module, t->dim[1], out);
  *out /= (double)t->dim[1];
  free(module);
  return status;
}

static sl_status read_place(const loading *l, const sl_param_info *p, const sli_stored_tensor *t,
                            float *to) {
  double scale;
  sl_status status = check_place(l, p, t);
  if (!status) status = scale_of(l, p, t, &scale);
  if (status) return status;
  float *values;
  SLI_TRY(SLI_ALLOCATE(values, (size_t)(t->dim[0] * t->dim[1]), t->name));
  status = sli_safetensors_read(l->file, t, values);
  if (!status) copy_place(p, t, scale, values, to);
  free(values);
  return status;
}

/* Sets a place of a parameter, to 0 if the folder lacks the module. */
static sl_status set_place(const loading *l, int index, const sl_param_info *p,
                           const sli_stored_tensor *t) {
  bool all;
  size_t numbers = (size_t)(p->type.dim[1] * p->type.dim[2]);
  float *whole;
  SLI_TRY(SLI_ALLOCATE(whole, (size_t)sl_type_elements(&p->type), p->name));
  float *to = whole + numbers * (size_t)l->place;
  sl_status status = sl_param_get(l->lowered, l->rt, index, whole, &all);
  memset(to, 0, numbers * sizeof *to);
  if (!status && t) status = read_place(l, p, t, to);
  if (!status) status = sl_param_set(l->lowered, l->rt, index, whole);
  free(whole);
  return status;
}

static sl_status peft_load(const loading *l, int index) {
  const sl_param_info *params;
  sl_lowered_params(l->lowered, &params);
  const sli_stored_tensor *t = peft_find(l->file, params[index].name);
  if (t) l->used[t - sli_safetensors_at(l->file, 0)] = true;
  if (l->place >= 0) return set_place(l, index, &params[index], t);
  if (!t) return SL_OK; /* the folder lacks this adapter: it keeps its initial values */
  sl_status status = sli_stored_check(l->dir, params[index].name, &params[index].type, t);
  if (status || !sl_param_here(l->lowered, l->rt, index)) return status;
  float *values;
  SLI_TRY(SLI_ALLOCATE(values, t->elements, t->name));
  status = sli_safetensors_read(l->file, t, values);
  if (!status) status = sl_param_set(l->lowered, l->rt, index, values);
  free(values);
  return status;
}

static sl_status check_used(const loading *l) {
  for (int i = 0; i < sli_safetensors_count(l->file); i++)
    if (!l->used[i])
      return sl_fail(SL_E_INPUT, "%s: the model has no adapter for tensor %s", l->dir,
                     sli_safetensors_at(l->file, i)->name);
  return SL_OK;
}

static sl_status load_all(const char *dir, const sl_lowered *lowered, sl_runtime *rt, int place,
                          const sli_peft_config *config) {
  const sl_param_info *params;
  int n = sl_lowered_params(lowered, &params);
  sli_safetensors *file;
  sl_status status = open_model(dir, &file);
  if (status) return status;
  bool *used = sli_calloc((size_t)sli_safetensors_count(file) + 1, sizeof *used);
  const loading l = {dir, file, lowered, rt, used, place, config};
  for (int i = 0; i < n && !status; i++)
    if (sli_is_adapter(&params[i])) status = peft_load(&l, i);
  if (!status) status = check_used(&l);
  free(used);
  sli_safetensors_close(file);
  return status;
}

sl_status sl_adapter_load(const char *dir, const sl_lowered *lowered, sl_runtime *rt) {
  return load_all(dir, lowered, rt, -1, NULL);
}

sl_status sl_adapter_place(const char *dir, const sl_lowered *lowered, sl_runtime *rt, int place) {
  sli_peft_config config;
  sl_status status = sli_peft_config_read(dir, &config);
  if (!status) status = load_all(dir, lowered, rt, place, &config);
  sli_peft_config_fini(&config);
  return status;
}

/* ---- saving ------------------------------------------------------------------------------- */

/* Returns a key that matches only this module. Keys also match names that end with them, so the key
 * is anchored at the beginning if another module's name ends with it. */
static char *key_of(const sl_param_info *params, const sli_saved *list, int n, const char *module) {
  char *end = sli_format(".%s", module);
  bool anchored = false;
  for (int i = 0; i < n; i++) anchored |= ends_with(params[list[i].param].adapter->module, end);
  free(end);
  return sli_format("%s%s", anchored ? "^" : "", module);
}

/* Creates the config. The first adapter's rank and alpha are the defaults; differing values are
 * listed per module. */
static cJSON *make_config(const char *base, const sl_param_info *params, const sli_saved *list,
                          int n) {
  const sl_adapter *first = params[list[0].param].adapter;
  cJSON *config = cJSON_CreateObject();
  cJSON_AddStringToObject(config, "peft_type", "LORA");
  cJSON_AddStringToObject(config, "task_type", "CAUSAL_LM");
  cJSON_AddItemToObject(config, "base_model_name_or_path",
                        base ? cJSON_CreateString(base) : cJSON_CreateNull());
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
    char *key = key_of(params, list, n, a->module);
    if (a->rank != first->rank) cJSON_AddNumberToObject(ranks, key, a->rank);
    if (a->alpha != first->alpha) cJSON_AddNumberToObject(alphas, key, (double)a->alpha);
    free(key);
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

sl_status sl_adapter_save(const char *dir, const char *base, const sl_lowered *lowered,
                          sl_runtime *rt, sl_job *job) {
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
    cJSON *config = make_config(base, params, list, count);
    status = write_config(dir, config);
    cJSON_Delete(config);
  }
  for (int i = 0; i < count; i++) free((char *)list[i].name);
  free(list);
  free(path);
  return status;
}
