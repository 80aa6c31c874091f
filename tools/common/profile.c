#include "tools/common/profile.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"

static const double most_seconds = 1e6;

typedef struct entry {
  char *name;
  double seconds;
} entry;

struct profile {
  size_t count;
  entry *entries; /* by name */
};

static int by_name(const void *a, const void *b) {
  return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static sl_status read_entries(const char *path, const cJSON *ops, profile *p) {
  const cJSON *op;
  p->entries = sli_calloc((size_t)cJSON_GetArraySize(ops), sizeof *p->entries);
  cJSON_ArrayForEach(op, ops) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(op, "name");
    const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(op, "seconds");
    if (!cJSON_IsString(name) || !cJSON_IsNumber(seconds))
      return sl_fail(SL_E_INPUT, "%s: op %zu has no name or no seconds", path, p->count);
    if (!(seconds->valuedouble >= 0 && seconds->valuedouble <= most_seconds))
      return sl_fail(SL_E_INPUT, "%s: op %s takes %g seconds: it must be from 0 to %g", path,
                     name->valuestring, seconds->valuedouble, most_seconds);
    p->entries[p->count++] = (entry){sli_strdup(name->valuestring), seconds->valuedouble};
  }
  qsort(p->entries, p->count, sizeof *p->entries, by_name);
  return SL_OK;
}

sl_status profile_make(const cJSON *report, const char *path, profile **out) {
  const cJSON *ops = cJSON_GetObjectItemCaseSensitive(report, "ops");
  if (!cJSON_IsArray(ops) || !cJSON_GetArraySize(ops))
    return sl_fail(SL_E_INPUT, "%s: not a report with measured ops (actorrun --report of a run on "
                   "CPUs or GPUs, of two microbatches or more)", path);
  profile *p = sli_calloc(1, sizeof *p);
  sl_status status = read_entries(path, ops, p);
  if (status) profile_destroy(p);
  else *out = p;
  return status;
}

sl_status profile_read(const char *path, profile **out) {
  char *text = NULL;
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  cJSON *root = cJSON_Parse(text);
  free(text);
  status = profile_make(root, path, out);
  cJSON_Delete(root);
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
  const entry *found = bsearch(&(entry){(char *)name, 0}, p->entries, p->count, sizeof *p->entries,
                               by_name);
  return found ? found->seconds : -1;
}
