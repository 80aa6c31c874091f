/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/hardware/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/json.h"

static const double most_seconds = 1e6;

typedef struct entry {
  char *name;
  double seconds;
} entry;

struct profile {
  size_t count;
  entry *entries; /* sorted by name */
};

static int by_name(const void *a, const void *b) {
  return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static sl_status read_entry(const sli_json *doc, const cJSON *op, entry *out) {
  const char *name = NULL;
  const sli_json_field fields[] = {
      {"name", SLI_JSON_TEXT, &name, 0, 0, true},
      {"seconds", SLI_JSON_NUMBER, &out->seconds, 0, most_seconds, true}};
  sl_status status = sli_json_pick(doc, op, fields, SLI_COUNT(fields));
  if (!status) out->name = sli_strdup(name);
  return status;
}

static sl_status read_entries(const sli_json *doc, const cJSON *ops, profile *p) {
  sl_status status = SL_OK;
  p->entries = sli_calloc(sli_json_count(ops), sizeof *p->entries);
  for (const cJSON *op = ops->child; op && !status; op = op->next)
    if (!(status = read_entry(doc, op, &p->entries[p->count]))) p->count++;
  qsort(p->entries, p->count, sizeof *p->entries, by_name);
  return status;
}

sl_status profile_make(const sli_json *report, profile **out) {
  const cJSON *ops = NULL;
  sl_status status = sli_json_member(report, report->root, "ops", SLI_JSON_ARRAY, false, &ops);
  if (!status && !sli_json_count(ops))
    status = sl_fail(SL_E_INPUT,
                     "%s: not a report with measured ops (actorrun --report of a run on "
                     "CPUs or GPUs, of two microbatches or more)",
                     report->name);
  if (status) return status;
  profile *p = sli_calloc(1, sizeof *p);
  status = read_entries(report, ops, p);
  if (status) profile_destroy(p);
  else *out = p;
  return status;
}

sl_status profile_read(const char *path, profile **out) {
  sli_json report;
  sl_status status = sli_json_open(path, &report);
  if (status) return status;
  status = profile_make(&report, out);
  sli_json_fini(&report);
  return status;
}

void profile_destroy(profile *p) {
  if (!p) return;
  for (size_t i = 0; i < p->count; i++) free(p->entries[i].name);
  free(p->entries);
  free(p);
}

double profile_seconds(void *ctx, const char *name) {
  const profile *p = ctx;
  const entry *found =
      bsearch(&(entry){(char *)name, 0}, p->entries, p->count, sizeof *p->entries, by_name);
  return found ? found->seconds : -1;
}
