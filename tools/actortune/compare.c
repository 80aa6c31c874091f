/* SPDX-License-Identifier: Apache-2.0 */
/* actortune compare: checks a machine file against a run with --machine and --report. Compares
 * the measured time of calls with the predicted time, op by op, and shows the rest of the step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/json.h"
#include "tools/actortune/actortune.h"

/* Totals of an op in one step, over all devices. */
typedef struct line {
  const char *name;
  double calls, predicted, measured;
} line;

typedef struct table {
  size_t count, capacity;
  line *lines;
  line all; /* sum over all calls */
} table;

static line *line_of(table *t, const char *name) {
  for (size_t i = 0; i < t->count; i++)
    if (!strcmp(t->lines[i].name, name)) return &t->lines[i];
  SLI_GROW(t->lines, t->count, t->capacity);
  t->lines[t->count] = (line){.name = name};
  return &t->lines[t->count++];
}

static void add_calls(line *to, double calls, double predicted, double measured) {
  to->calls += calls;
  to->predicted += calls * predicted;
  to->measured += calls * measured;
}

static sl_status read_call(const sli_json *report, const cJSON *op, table *t) {
  const char *row = NULL;
  double calls = -1, measured = -1, predicted = -1;
  const sli_json_field fields[] = {
      {"op", SLI_JSON_TEXT, &row, 0, 0, false},
      {"calls_per_step", SLI_JSON_NUMBER, &calls, 0, 1e18, false},
      {"seconds", SLI_JSON_NUMBER, &measured, 0, 1e9, false},
      {"predicted_seconds", SLI_JSON_NUMBER, &predicted, 0, 1e9, false}};
  sl_status status = sli_json_pick(report, op, fields, SLI_COUNT(fields));
  if (status || !row || calls < 0 || measured < 0 || predicted < 0) return status;
  add_calls(line_of(t, row), calls, predicted, measured);
  add_calls(&t->all, calls, predicted, measured);
  return SL_OK;
}

static sl_status read_calls(const sli_json *report, table *t) {
  const cJSON *ops = NULL;
  sl_status status = sli_json_member(report, report->root, "ops", SLI_JSON_ARRAY, false, &ops);
  for (const cJSON *at = ops ? ops->child : NULL; at && !status; at = at->next)
    status = read_call(report, at, t);
  if (status || t->count) return status;
  return sl_fail(
      SL_E_INPUT,
      "%s: no calls that were both measured and predicted: it must be the --report of a run "
      "on CPUs or GPUs with --machine",
      report->name);
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Orders by the size of the error, largest first. */
static int by_error(const void *a, const void *b) {
  const line *x = a, *y = b;
  double dx = fabs(x->measured - x->predicted), dy = fabs(y->measured - y->predicted);
  return (dx < dy) - (dx > dy);
}

/* Prints a line. `whole` is a step's time summed over all devices. */
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

/* A whole step: measured and predicted time, and the number of devices. */
typedef struct step {
  double measured, predicted, devices;
} step;

static sl_status read_step(const sli_json *report, step *out) {
  const cJSON *said = NULL, *devices = NULL;
  const sli_json_field fields[] = {{"step_seconds", SLI_JSON_NUMBER, &out->measured, 0, 1e9, false},
                                   {"predicted", SLI_JSON_OBJECT, &said, 0, 0, false},
                                   {"devices", SLI_JSON_ARRAY, &devices, 0, 0, false}};
  const sli_json_field predicted = {"step_seconds", SLI_JSON_NUMBER, &out->predicted, 0, 1e9,
                                    false};
  sl_status status = sli_json_pick(report, report->root, fields, SLI_COUNT(fields));
  if (!status && said) status = sli_json_pick(report, said, &predicted, 1);
  out->devices = (double)sli_json_count(devices);
  if (status || (out->measured > 0 && out->predicted > 0 && devices)) return status;
  return sl_fail(SL_E_INPUT,
                 "%s: has no time of a whole step: the run must have at least two steps",
                 report->name);
}

static void show(const step *of, table *t) {
  double whole = of->devices * of->measured;
  const line rest = {"outside of calls", 0,
                     SLI_MAX(of->devices * of->predicted - t->all.predicted, 0),
                     SLI_MAX(whole - t->all.measured, 0)};
  qsort(t->lines, t->count, sizeof *t->lines, by_error);
  t->all.name = "all calls";
  printf("%-24s %8s %11s %11s %11s %11s\n", "of a step", "calls", "predicted", "measured",
         "longer by", "of the step");
  for (size_t i = 0; i < t->count; i++) show_line(&t->lines[i], whole);
  show_line(&t->all, whole);
  show_line(&rest, whole);
  show_line(&(line){"the step", 0, of->predicted, of->measured}, of->measured);
}

static sl_status compare(const char *path) {
  table t = {0};
  step of = {0};
  sli_json report;
  sl_status status = sli_json_open(path, &report);
  if (status) return status;
  status = read_calls(&report, &t);
  if (!status) status = read_step(&report, &of);
  if (!status) show(&of, &t);
  free(t.lines);
  sli_json_fini(&report);
  return status;
}

int compare_main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--help")) {
    puts(
        "usage: actortune compare RUN.json\n\nRUN.json is the --report of a run with --machine. Shows what its calls "
        "took beside what\nthe machine file says of them: what is furthest off first.");
    return 0;
  }
  sl_status status =
      argc == 2 && argv[1][0] != '-'
          ? compare(argv[1])
          : sl_fail(SL_E_USAGE,
                    "usage: actortune compare RUN.json, the --report of a run with --machine");
  return outputs_end("actortune compare", status, 0);
}
