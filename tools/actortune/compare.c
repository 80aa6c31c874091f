/* actortune compare: of a run with --machine and --report, what its calls took beside what the machine file says
 * of them, row by row, and what is left of a step outside of calls. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "tools/actortune/actortune.h"

/* Of a step, on all devices together. */
typedef struct line {
  const char *name;
  double calls, predicted, measured;
} line;

typedef struct table {
  size_t count, capacity;
  line *of;
  line all; /* calls */
} table;

static double number_of(const cJSON *from, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);
  return cJSON_IsNumber(item) && item->valuedouble >= 0 ? item->valuedouble : -1;
}

static line *line_of(table *t, const char *name) {
  for (size_t i = 0; i < t->count; i++)
    if (!strcmp(t->of[i].name, name)) return &t->of[i];
  SLI_GROW(t->of, t->count, t->capacity);
  t->of[t->count] = (line){.name = name};
  return &t->of[t->count++];
}

static void add_calls(line *to, double calls, double predicted, double measured) {
  to->calls += calls;
  to->predicted += calls * predicted;
  to->measured += calls * measured;
}

static sl_status read_calls(const char *path, const cJSON *report, table *t) {
  const cJSON *ops = cJSON_GetObjectItemCaseSensitive(report, "ops"), *op;
  cJSON_ArrayForEach(op, ops) {
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(op, "op");
    double calls = number_of(op, "calls_per_step"), measured = number_of(op, "seconds");
    double predicted = number_of(op, "predicted_seconds");
    if (!cJSON_IsString(row) || calls < 0 || measured < 0 || predicted < 0) continue;
    add_calls(line_of(t, row->valuestring), calls, predicted, measured);
    add_calls(&t->all, calls, predicted, measured);
  }
  if (t->count) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: no calls that were both measured and predicted: it must be the --report of a run "
                 "on CPUs or GPUs with --machine", path);
}

/* ---- showing ----------------------------------------------------------------------------------------- */

/* What is furthest off comes first. */
static int by_error(const void *a, const void *b) {
  const line *x = a, *y = b;
  double dx = fabs(x->measured - x->predicted), dy = fabs(y->measured - y->predicted);
  return (dx < dy) - (dx > dy);
}

/* `whole`: what all devices together have of a step. */
static void show_line(const line *l, double whole) {
  char predicted[32], measured[32], calls[32] = "";
  if (l->calls > 0) snprintf(calls, sizeof calls, "%.0f", l->calls);
  printf("%-24s %8s %11s %11s", l->name, calls, sli_format_seconds(predicted, l->predicted),
         sli_format_seconds(measured, l->measured));
  if (l->predicted > 0 && l->measured < 10 * l->predicted)
    printf(" %+9.1f %%", 100 * (l->measured / l->predicted - 1));
  else printf(" %11s", "");
  printf(" %+9.2f %%\n", 100 * (l->measured - l->predicted) / whole);
}

static sl_status show(const char *path, const cJSON *report, table *t) {
  const cJSON *said = cJSON_GetObjectItemCaseSensitive(report, "predicted");
  double devices = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(report, "devices"));
  double measured = number_of(report, "step_seconds"), predicted = number_of(said, "step_seconds");
  if (measured <= 0 || predicted <= 0 || devices < 1)
    return sl_fail(SL_E_INPUT, "%s: it says nothing of a whole step: the run must have two steps or more", path);
  double whole = devices * measured;
  const line rest = {"outside of calls", 0, SLI_MAX(devices * predicted - t->all.predicted, 0),
                     SLI_MAX(whole - t->all.measured, 0)};
  qsort(t->of, t->count, sizeof *t->of, by_error);
  t->all.name = "all calls";
  printf("%-24s %8s %11s %11s %11s %11s\n", "of a step", "calls", "predicted", "measured", "longer by", "of the step");
  for (size_t i = 0; i < t->count; i++) show_line(&t->of[i], whole);
  show_line(&t->all, whole);
  show_line(&rest, whole);
  show_line(&(line){"the step", 0, predicted, measured}, measured);
  return SL_OK;
}

static sl_status compare(const char *path) {
  char *text = NULL;
  table t = {0};
  sl_status status = sli_file_read(path, &text);
  if (status) return status;
  cJSON *report = cJSON_Parse(text);
  free(text);
  status = read_calls(path, report, &t);
  if (!status) status = show(path, report, &t);
  free(t.of);
  cJSON_Delete(report);
  return status;
}

int compare_main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--help")) {
    puts("usage: actortune compare RUN.json\n\nRUN.json is the --report of a run with --machine. Shows what its calls "
         "took beside what the\nmachine file says of them: what is furthest off first.");
    return 0;
  }
  sl_status status = argc == 2 && argv[1][0] != '-'
                         ? compare(argv[1])
                         : sl_fail(SL_E_USAGE, "usage: actortune compare RUN.json, the --report of a run with --machine");
  if (status) fprintf(stderr, "actortune compare: %s\n", sl_detail());
  return sl_status_exit(status);
}
