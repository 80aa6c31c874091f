/* What stands beside each checkpoint: which run it is of, and what must be the same in one that
 * goes on from it. Terms are compared by name, data by what files hold. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/state/checkpoint.h"

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

cJSON *sli_record_create(int nterms, const sl_term *terms) {
  cJSON *record = cJSON_CreateObject(), *to = cJSON_AddObjectToObject(record, "terms");
  for (int i = 0; i < nterms; i++) cJSON_AddStringToObject(to, terms[i].name, terms[i].value);
  return record;
}

/* ---- terms ----------------------------------------------------------------------------- */

/* Where a term stood before there were terms: options by their names, two things elsewhere. */
static const cJSON *find_elsewhere(const cJSON *record, const char *name) {
  if (!strcmp(name, "the model")) return member(record, "model");
  if (!strcmp(name, "--quota param")) return member(record, "parameter_slots");
  if (strncmp(name, "--", 2)) return NULL;
  const cJSON *of_model = member(member(record, "model_options"), name + 2);
  return of_model ? of_model : member(member(record, "options"), name + 2);
}

/* A value as the user would write it; "none" if there is none. */
static char *value_text(const cJSON *value) {
  if (!value) return sli_strdup("none");
  if (cJSON_IsString(value)) return sli_strdup(value->valuestring);
  char *text = cJSON_PrintUnformatted(value), *copy = sli_strdup(text ? text : "?");
  cJSON_free(text);
  return copy;
}

static sl_status compare(const sli_checkpoint *from, const sl_term *term) {
  const cJSON *record = sli_checkpoint_about(from), *terms = member(record, "terms");
  const cJSON *was = terms ? member(terms, term->name) : find_elsewhere(record, term->name);
  char *before = value_text(was);
  sl_status status = SL_OK;
  if (strcmp(before, term->value))
    status = sl_fail(SL_E_USAGE, "cannot resume: %s is %s, but %s was made with %s", term->name,
                     term->value, sli_checkpoint_path(from), before);
  free(before);
  return status;
}

/* A term that nobody names any more. */
static sl_status check_forgotten(const sli_checkpoint *from, int nterms, const sl_term *terms) {
  const cJSON *was;
  cJSON_ArrayForEach(was, member(sli_checkpoint_about(from), "terms")) {
    int i = 0;
    while (i < nterms && strcmp(terms[i].name, was->string)) i++;
    if (i < nterms) continue;
    sl_term none = {was->string, "none"};
    return compare(from, &none);
  }
  return SL_OK;
}

sl_status sli_record_compare(const sli_checkpoint *from, int nterms, const sl_term *terms) {
  sl_status status = SL_OK;
  for (int i = 0; i < nterms && !status; i++) status = compare(from, &terms[i]);
  return status ? status : check_forgotten(from, nterms, terms);
}

/* ---- data -------------------------------------------------------------------------------- */

static void add_files(cJSON *data, const sl_graph_file *files, int n) {
  cJSON *list = n ? cJSON_AddArrayToObject(data, "files") : NULL;
  for (int i = 0; i < n; i++) {
    char hash[32];
    cJSON *file = cJSON_CreateObject();
    snprintf(hash, sizeof hash, "%016" PRIx64, files[i].hash);
    cJSON_AddStringToObject(file, "path", files[i].path);
    cJSON_AddNumberToObject(file, "bytes", (double)files[i].bytes);
    cJSON_AddStringToObject(file, "fnv1a64", hash);
    cJSON_AddItemToArray(list, file);
  }
}

static sl_status compare_file(const char *path, const cJSON *was, const sl_graph_file *is) {
  const cJSON *bytes = member(was, "bytes"), *hash = member(was, "fnv1a64");
  char now[32];
  snprintf(now, sizeof now, "%016" PRIx64, is->hash);
  if (!cJSON_IsNumber(bytes) || !cJSON_IsString(hash)) return SL_OK;
  if (bytes->valuedouble != (double)is->bytes)
    return sl_fail(SL_E_USAGE, "cannot resume: %s has %" PRIu64 " bytes, but %s was made when it had "
                   "%.0f", is->path, is->bytes, path, bytes->valuedouble);
  if (strcmp(hash->valuestring, now))
    return sl_fail(SL_E_USAGE, "cannot resume: %s holds other data than when %s was made", is->path,
                   path);
  return SL_OK;
}

/* One made by a release that did not look at the data says nothing of files. */
static sl_status compare_files(const sli_checkpoint *from, const sl_graph_file *files, int n) {
  const cJSON *list = member(member(sli_checkpoint_about(from), "data"), "files");
  sl_status status = SL_OK;
  for (int i = 0; i < n && i < cJSON_GetArraySize(list) && !status; i++)
    status = compare_file(sli_checkpoint_path(from), cJSON_GetArrayItem(list, i), &files[i]);
  return status;
}

static sl_status describe_data(cJSON *record, const sli_checkpoint *from, const sl_graph *g) {
  const char *unit = "";
  int64_t items = sl_graph_items(g, &unit);
  int n = sl_graph_files(g, 0, NULL);
  sl_graph_file *files = sli_calloc((size_t)n, sizeof *files);
  sl_graph_files(g, n, files);
  cJSON *data = cJSON_AddObjectToObject(record, "data");
  cJSON_AddStringToObject(data, "unit", unit);
  cJSON_AddNumberToObject(data, "per_step", (double)items);
  add_files(data, files, n);
  sl_status status = from ? compare_files(from, files, n) : SL_OK;
  free(files);
  return status;
}

/* Position in the data and random numbers both follow from the step: the one by counting, the
 * others by being functions of the seed and where they are drawn. */
sl_status sli_record_describe(cJSON *record, const sli_checkpoint *from, const sl_graph *g,
                              const sl_lowered *lowered) {
  char hash[32];
  int ranks = sl_lowered_ranks(lowered);
  snprintf(hash, sizeof hash, "%016" PRIx64, sl_lowered_plan(lowered)->hash);
  cJSON_AddStringToObject(record, "plan_hash", hash);
  cJSON_AddNumberToObject(record, "stages", sl_lowered_stages(lowered));
  if (ranks > 1) cJSON_AddNumberToObject(record, "devices_per_stage", ranks);
  cJSON_AddStringToObject(cJSON_AddObjectToObject(record, "random"), "generator",
                          "philox4x32-10");
  return describe_data(record, from, g);
}
