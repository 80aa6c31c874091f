/* SPDX-License-Identifier: Apache-2.0 */
/* The frontier as a table, as CSV and as JSON. */
#include "tools/actortune/actortune.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/memory.h"
#include "io/atomic.h"
#include "io/json.h"

/* ---- what a point changes ------------------------------------------------------------------ */

char *point_changes(const tuning *t, const point *p) {
  const config *c = &t->configs[p->config];
  char *list = NULL;
  size_t bytes;
  FILE *out = sli_memory_stream(&list, &bytes);
  bool any = c->homes;
  if (any) fputs(c->homes, out);
  for (int i = 0; i < p->nquotas; i++) {
    bool knob = false;
    for (int k = 0; k < c->nknobs && !knob; k++)
      knob = !strcmp(c->knobs[k].name, p->quotas[i].name);
    char *text = knob ? quota_text(p, i) : NULL;
    if (text) fprintf(out, "%s%s", any ? "  " : "", text), any = true;
    free(text);
  }
  if (!any) fputs(p->nquotas ? "the schedule's, buffers tighter" : "as published", out);
  fclose(out);
  return list;
}

/* ---- the table --------------------------------------------------------------------- */

static void print_what(const tuning *t, const frontier *f, FILE *out) {
  char seconds[32];
  fprintf(out, "%zu plans tried in %s%s", t->npoints,
          sli_format_seconds(seconds, t->search_seconds),
          t->interrupted ? ", stopped before the end" : "");
  if (f->found > f->count) fprintf(out, "; %zu of %zu points shown", f->count, f->found);
  fprintf(out, "\n\n");
}

/* Returns items per second, which are comparable even if steps differ. */
static double rate(const tuning *t, const point *p) {
  return (double)t->configs[p->config].items / p->seconds;
}

void table_print(const tuning *t, const frontier *f, FILE *out) {
  bool pieces = false;
  for (size_t i = 0; i < f->count; i++)
    pieces = pieces || t->configs[f->points[i].config].settings.pieces > 1;
  char word[32];
  snprintf(word, sizeof word, "%s/s", t->reference->word ? t->reference->word : "items");
  print_what(t, f, out);
  fprintf(out, "%3s  %10s  %10s  %10s  %6s  %-12s %6s %7s%s  %s\n", "", "memory", "step", word,
          "bubble", "schedule", "chunks", "microb.", pieces ? " pieces" : "", "quotas");
  for (size_t i = 0; i < f->count; i++) {
    const point *p = &f->points[i];
    const settings *s = &t->configs[p->config].settings;
    char bytes[32], seconds[32], *changes = point_changes(t, p);
    fprintf(out, "%3zu  %10s  %10s  %10.5g  %5.1f%%  %-12s %6d %7d", i + 1,
            format_memory(bytes, (double)p->bytes), sli_format_seconds(seconds, p->seconds),
            rate(t, p), 100 * p->bubble, s->lower.schedule.name, s->lower.schedule.chunks,
            s->microbatches);
    if (pieces) fprintf(out, " %6d", s->pieces);
    fprintf(out, "  %s\n", changes);
    free(changes);
  }
  fprintf(out, "\n");
  for (size_t i = 0; i < f->count; i++) {
    char *line = command_line(t, &f->points[i]);
    fprintf(out, "%3zu  %s\n", i + 1, line);
    free(line);
  }
}

/* ---- files ------------------------------------------------------------------------- */

/* Prints a field quoted as RFC 4180 requires. */
static void print_field(const char *text, FILE *out) {
  fputc('"', out);
  for (const char *at = text; *at; at++) {
    if (*at == '"') fputc('"', out);
    fputc(*at, out);
  }
  fputc('"', out);
}

sl_status csv_write(const char *path, const tuning *t, const frontier *f) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  FILE *out = file.stream;
  fprintf(out,
          "point,memory_bytes,step_seconds,items_per_second,bubble_fraction,schedule,chunks,"
          "microbatches,pieces,plan_hash,quotas,command\n");
  for (size_t i = 0; i < f->count; i++) {
    const point *p = &f->points[i];
    const settings *s = &t->configs[p->config].settings;
    char *changes = point_changes(t, p), *line = command_line(t, p);
    fprintf(out, "%zu,%zu,%.9g,%.9g,%.6g,%s,%d,%d,%d,%016llx,", i + 1, p->bytes, p->seconds,
            rate(t, p), p->bubble, s->lower.schedule.name, s->lower.schedule.chunks,
            s->microbatches, s->pieces, (unsigned long long)p->plan_hash);
    print_field(changes, out);
    fputc(',', out);
    print_field(line, out);
    fputc('\n', out);
    free(changes);
    free(line);
  }
  return sli_atomic_commit(&file);
}

static cJSON *quotas_json(const point *p) {
  cJSON *quotas = cJSON_CreateArray();
  for (int i = 0; i < p->nquotas; i++) {
    cJSON *quota = cJSON_CreateObject();
    cJSON_AddStringToObject(quota, "name", p->quotas[i].name);
    if (p->quotas[i].stage != SL_NONE) cJSON_AddNumberToObject(quota, "stage", p->quotas[i].stage);
    cJSON_AddNumberToObject(quota, "slots", p->quotas[i].slots);
    cJSON_AddItemToArray(quotas, quota);
  }
  return quotas;
}

/* Makes a point's JSON. The words of the command are also listed individually, for programs to
 * run. */
static cJSON *point_json(const tuning *t, const point *p) {
  const settings *s = &t->configs[p->config].settings;
  cJSON *o = cJSON_CreateObject();
  cJSON_AddNumberToObject(o, "memory_bytes", (double)p->bytes);
  cJSON_AddNumberToObject(o, "step_seconds", p->seconds);
  cJSON_AddNumberToObject(o, "items_per_second", rate(t, p));
  cJSON_AddNumberToObject(o, "bubble_fraction", p->bubble);
  cJSON_AddStringToObject(o, "schedule", s->lower.schedule.name);
  cJSON_AddNumberToObject(o, "chunks", s->lower.schedule.chunks);
  cJSON_AddNumberToObject(o, "microbatches", s->microbatches);
  cJSON_AddNumberToObject(o, "pieces", s->pieces);
  char hash[32], *changes = point_changes(t, p), *line = command_line(t, p);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)p->plan_hash);
  cJSON_AddStringToObject(o, "plan_hash", hash);
  cJSON_AddStringToObject(o, "changes", changes);
  cJSON_AddItemToObject(o, "quotas", quotas_json(p));
  cJSON_AddStringToObject(o, "command", line);
  words w = {0};
  command_words(t, p, &w);
  cJSON *list = cJSON_AddArrayToObject(o, "words");
  for (size_t i = 0; i < w.count; i++) cJSON_AddItemToArray(list, cJSON_CreateString(w.items[i]));
  words_fini(&w);
  free(changes);
  free(line);
  return o;
}

/* Makes the JSON of the unchanged schedules' results. */
static cJSON *published_json(const tuning *t) {
  cJSON *list = cJSON_CreateArray();
  for (size_t i = 0; i < t->npoints; i++) {
    const point *p = &t->points[i];
    if (!p->published) continue;
    const settings *s = &t->configs[p->config].settings;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "schedule", s->lower.schedule.name);
    cJSON_AddNumberToObject(o, "chunks", s->lower.schedule.chunks);
    cJSON_AddNumberToObject(o, "microbatches", s->microbatches);
    cJSON_AddNumberToObject(o, "pieces", s->pieces);
    if (p->status) {
      cJSON_AddStringToObject(o, "left_out", p->failure);
    } else {
      cJSON_AddNumberToObject(o, "memory_bytes", (double)p->published_bytes);
      cJSON_AddNumberToObject(o, "step_seconds", p->seconds);
      cJSON_AddNumberToObject(o, "bubble_fraction", p->bubble);
    }
    cJSON_AddItemToArray(list, o);
  }
  return list;
}

sl_status json_write(const char *path, const tuning *t, const frontier *f) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "model", t->settings->model->name);
  cJSON_AddNumberToObject(root, "devices", t->settings->lower.parallel.stages);
  cJSON_AddNumberToObject(root, "plans_tried", (double)t->npoints);
  cJSON_AddBoolToObject(root, "interrupted", t->interrupted);
  cJSON *points = cJSON_AddArrayToObject(root, "points");
  for (size_t i = 0; i < f->count; i++) cJSON_AddItemToArray(points, point_json(t, &f->points[i]));
  cJSON_AddItemToObject(root, "published", published_json(t));
  return sli_json_write(path, root);
}
