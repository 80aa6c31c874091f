/* SPDX-License-Identifier: Apache-2.0 */
/* Record stored with each checkpoint: describes the run that wrote it, and what must be the same in
 * a run that resumes from it. Fingerprint items are compared by name, data by file contents. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "graph/build/build.h"
#include "graph/state/checkpoint.h"
#include "graph/compile/compile.h"
#include "graph/state/state.h"
#include "io/file.h"

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

cJSON *sli_record_create(int nfingerprint, const sl_fingerprint_item *fingerprint) {
  cJSON *record = cJSON_CreateObject(), *to = cJSON_AddObjectToObject(record, "terms");
  for (int i = 0; i < nfingerprint; i++)
    cJSON_AddStringToObject(to, fingerprint[i].name, fingerprint[i].value);
  return record;
}

/* ---- fingerprint ----------------------------------------------------------------------- */

/* Finds an item in records that predate fingerprints: options under their names, the model and the
 * parameter slots elsewhere. */
static const cJSON *find_elsewhere(const cJSON *record, const char *name) {
  if (!strcmp(name, "the model")) return member(record, "model");
  if (!strcmp(name, "--quota param")) return member(record, "parameter_slots");
  if (strncmp(name, "--", 2)) return NULL;
  const cJSON *of_model = member(member(record, "model_options"), name + 2);
  return of_model ? of_model : member(member(record, "options"), name + 2);
}

/* Returns a value as the user would write it, or "none" if there is none. */
static char *value_text(const cJSON *value) {
  if (!value) return sli_strdup("none");
  if (cJSON_IsString(value)) return sli_strdup(value->valuestring);
  char *text = cJSON_PrintUnformatted(value), *copy = sli_strdup(text ? text : "?");
  cJSON_free(text);
  return copy;
}

/* Compares an item and frees `before`. */
static void compare_with(const sli_checkpoint *from, const sl_fingerprint_item *item, char *before,
                         sli_differences *d) {
  char *name = sli_differ_name(item->name);
  if (strcmp(before, item->value))
    sli_differ(d, name, "%s is %s, but %s was made with %s", item->name, item->value,
               sli_checkpoint_path(from), before);
  free(before);
  free(name);
}

static void compare(const sli_checkpoint *from, const sl_fingerprint_item *item, const char *usual,
                    sli_differences *d) {
  const cJSON *record = sli_checkpoint_about(from), *fingerprint = member(record, "terms");
  const cJSON *was =
      fingerprint ? member(fingerprint, item->name) : find_elsewhere(record, item->name);
  compare_with(from, item, was || !usual ? value_text(was) : sli_strdup(usual), d);
}

static bool is_named(const char *name, int nfingerprint, const sl_fingerprint_item *fingerprint) {
  for (int i = 0; i < nfingerprint; i++)
    if (!strcmp(fingerprint[i].name, name)) return true;
  return false;
}

/* Finds an item of the plan. Items missing from records of older releases are not compared. */
static const cJSON *find_of_plan(const cJSON *record, const char *name) {
  const cJSON *was = member(member(record, "plan_terms"), name);
  if (!was) was = member(member(record, "terms"), name);
  return was ? was : find_elsewhere(record, name);
}

static void note_plan_fingerprint(const sli_record *r, const sl_lowered *lowered,
                                  sli_differences *d) {
  cJSON *to = cJSON_AddObjectToObject(r->about, "plan_terms");
  const sl_fingerprint_item *fingerprint;
  int n = sli_lowered_results(lowered, &fingerprint);
  for (int i = 0; i < n; i++) {
    cJSON_AddStringToObject(to, fingerprint[i].name, fingerprint[i].value);
    const cJSON *was =
        r->from ? find_of_plan(sli_checkpoint_about(r->from), fingerprint[i].name) : NULL;
    if (was) compare_with(r->from, &fingerprint[i], value_text(was), d);
  }
}

/* Compares recorded items that this run does not have. Skips the number of parameter slots, which
 * is now an item of the plan. */
static void compare_forgotten(const sli_checkpoint *from, int nfingerprint,
                              const sl_fingerprint_item *fingerprint, sli_differences *d) {
  const cJSON *was;
  cJSON_ArrayForEach(was, member(sli_checkpoint_about(from),
                                 "terms")) if (!is_named(was->string, nfingerprint, fingerprint) &&
                                               strcmp(was->string, "--quota param"))
      compare(from, &(sl_fingerprint_item){was->string, "none"}, NULL, d);
}

/* Rejects a word of resume_with that matches no setting and would thus have no effect. */
static sl_status check_word(const char *word, const sl_checkpoint_options *o) {
  static const char *const others[] = {"graph", "code", "data", "quota", "paths", "library"};
  const char *bare = word + (strncmp(word, "--", 2) ? 0 : 2);
  bool known = sli_optimizer_has(bare);
  for (size_t i = 0; i < SLI_COUNT(others); i++) known |= !strcmp(bare, others[i]);
  for (int i = 0; i < o->nfingerprint && !known; i++) {
    char *name = sli_differ_name(o->fingerprint[i].name);
    known = !strcmp(bare, name);
    free(name);
  }
  if (known) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--resume-with %s: no such item; it must be an option, graph, code or data", word);
}

sl_status sli_record_check_words(const sl_checkpoint_options *o) {
  char *words = sli_strdup(o->resume_with ? o->resume_with : ""), *rest = words, *word;
  sl_status status = SL_OK;
  while (!status && (word = strsep(&rest, ",")))
    if (*word) status = check_word(word, o);
  free(words);
  return status;
}

sl_status sli_record_compare(const sli_checkpoint *from, const sl_checkpoint_options *o) {
  sli_differences d = {.meant = o->resume_with};
  for (int i = 0; i < o->nfingerprint; i++)
    compare(from, &o->fingerprint[i], o->usual ? o->usual[i] : NULL, &d);
  compare_forgotten(from, o->nfingerprint, o->fingerprint, &d);
  return sli_differ_end(&d);
}

/* ---- files ------------------------------------------------------------------------------- */

static void add_file(cJSON *list, const sl_graph_file *f) {
  char hash[32];
  cJSON *file = cJSON_CreateObject();
  snprintf(hash, sizeof hash, "%016" PRIx64, f->hash);
  cJSON_AddStringToObject(file, "path", f->path);
  cJSON_AddNumberToObject(file, "bytes", (double)f->bytes);
  cJSON_AddStringToObject(file, "fnv1a64", hash);
  cJSON_AddItemToArray(list, file);
}

static void compare_file(const char *path, const char *name, const cJSON *was,
                         const sl_graph_file *is, sli_differences *d) {
  const cJSON *bytes = member(was, "bytes"), *hash = member(was, "fnv1a64");
  char now[32];
  snprintf(now, sizeof now, "%016" PRIx64, is->hash);
  if (!cJSON_IsNumber(bytes) || !cJSON_IsString(hash)) return;
  if (bytes->valuedouble != (double)is->bytes)
    sli_differ(d, name, "%s has %" PRIu64 " bytes, but %s was made when it had %.0f", is->path,
               is->bytes, path, bytes->valuedouble);
  else if (strcmp(hash->valuestring, now))
    sli_differ(d, name, "%s holds different data than when %s was made", is->path, path);
}

/* Compares files. Checkpoints of releases that did not record files have no list. */
static void compare_files(const char *path, const char *name, const cJSON *list,
                          const sl_graph_file *files, int n, sli_differences *d) {
  int before = cJSON_GetArraySize(list);
  if (!before) return;
  if (n != before)
    sli_differ(d, name, "there are %d data files, but %s was made with %d", n, path, before);
  for (int i = 0; i < n && n == before; i++)
    compare_file(path, name, cJSON_GetArrayItem(list, i), &files[i], d);
}

/* Records files as a list in `to`, and compares them with the list in `was`; `name` is used in
 * messages. */
static void note_files(const sli_record *r, cJSON *to, const cJSON *was, const char *name,
                       const sl_graph_file *files, int n, sli_differences *d) {
  cJSON *list = n ? cJSON_AddArrayToObject(to, "files") : NULL;
  for (int i = 0; i < n; i++) add_file(list, &files[i]);
  if (r->from) compare_files(sli_checkpoint_path(r->from), name, member(was, "files"), files, n, d);
}

static const cJSON *before(const sli_record *r, const char *name) {
  return r->from ? member(sli_checkpoint_about(r->from), name) : NULL;
}

static void note_data(const sli_record *r, const sl_graph *g, sli_differences *d) {
  const char *unit = "";
  int64_t items = sl_graph_items(g, &unit);
  int n = sl_graph_files(g, 0, NULL);
  sl_graph_file *files = sli_calloc((size_t)n, sizeof *files);
  sl_graph_files(g, n, files);
  cJSON *data = cJSON_AddObjectToObject(r->about, "data");
  cJSON_AddStringToObject(data, "unit", unit);
  cJSON_AddNumberToObject(data, "per_step", (double)items);
  note_files(r, data, before(r, "data"), "data", files, n, d);
  free(files);
}

/* Records the model's source file, since the graph knows only the names of the model's own ops. */
static sl_status note_code(const sli_record *r, const sl_lowered *lowered, sli_differences *d) {
  if (!r->code || !sli_lowered_own_code(lowered)) return SL_OK;
  sl_graph_file file = {.path = r->code};
  sl_status status = sli_file_fingerprint(r->code, &file.bytes, &file.hash);
  if (status) return status;
  cJSON *code = cJSON_AddObjectToObject(r->about, "code");
  note_files(r, code, before(r, "code"), "code", &file, 1, d);
  return SL_OK;
}

/* Describes a run. The position in the data and the random numbers need no record, since both
 * follow from the step: the position by counting, random numbers as functions of the seed and the
 * place of use. */
sl_status sli_record_describe(const sli_record *r, const sl_graph *g, const sl_lowered *lowered) {
  char hash[32];
  int ranks = sl_lowered_ranks(lowered);
  sli_differences d = {.meant = r->meant};
  snprintf(hash, sizeof hash, "%016" PRIx64, sl_lowered_plan(lowered)->hash);
  cJSON_AddStringToObject(r->about, "plan_hash", hash);
  cJSON_AddNumberToObject(r->about, "stages", sl_lowered_stages(lowered));
  if (ranks > 1) cJSON_AddNumberToObject(r->about, "devices_per_stage", ranks);
  cJSON_AddStringToObject(cJSON_AddObjectToObject(r->about, "random"), "generator",
                          "philox4x32-10");
  note_plan_fingerprint(r, lowered, &d);
  sli_model_note(r, g, lowered, &d);
  note_data(r, g, &d);
  sl_status status = note_code(r, lowered, &d);
  sl_status same = sli_differ_end(&d);
  return status ? status : same;
}
