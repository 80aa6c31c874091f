/* SPDX-License-Identifier: Apache-2.0 */
/* --verify: runs the fastest plans for real, with actorrun as a user would. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>

#include "graph/devices/devices.h"

typedef struct measured {
  double seconds, bytes;
} measured;

static sl_status take_bytes(const sli_json *report, const cJSON *device, measured *out) {
  const cJSON *bytes = NULL;
  double total = 0;
  const sli_json_field field = {"total", SLI_JSON_NUMBER, &total, 0, 1e18, true};
  sl_status status = sli_json_member(report, device, "peak_bytes", SLI_JSON_OBJECT, true, &bytes);
  if (!status) status = sli_json_pick(report, bytes, &field, 1);
  out->bytes = SLI_MAX(out->bytes, total);
  return status;
}

static sl_status take_measured(const sli_json *report, measured *out) {
  const cJSON *devices = NULL;
  *out = (measured){0};
  const sli_json_field fields[] = {{"step_seconds", SLI_JSON_NUMBER, &out->seconds, 0, 1e9, true},
                                   {"devices", SLI_JSON_ARRAY, &devices, 0, 0, true}};
  sl_status status = sli_json_pick(report, report->root, fields, SLI_COUNT(fields));
  for (const cJSON *at = status ? NULL : devices->child; at && !status; at = at->next)
    status = take_bytes(report, at, out);
  if (!status && !(out->seconds > 0))
    status = sl_fail(SL_E_INPUT, "actorrun reports no step's time");
  return status;
}

static sl_status run_point(const tuning *t, const point *p, measured *out) {
  words w = {0};
  words_add(&w, "--steps");
  words_add(&w, "%lld", (long long)sl_arg_int(t->settings->run, "verify-steps"));
  words_add(&w, "--quiet");
  command_words(t, p, &w);
  sli_json report = {0};
  sl_status status = actorrun_run(&w, "verifying", &report);
  words_fini(&w);
  if (!status) status = take_measured(&report, out);
  sli_json_fini(&report);
  return status;
}

/* Prints for how many pairs of plans the measured order matches the predicted order. */
static void print_order(const frontier *f, const measured *m, size_t from) {
  size_t pairs = 0, right = 0;
  for (size_t i = from; i < f->count; i++)
    for (size_t j = i + 1; j < f->count; j++) {
      pairs++;
      right += m[i].seconds >= m[j].seconds;
    }
  if (pairs)
    printf("%zu of %zu pairs of plans are in the order that was predicted\n", right, pairs);
}

static void print_cores(const settings *s) {
  sl_machine *machine = NULL;
  if (!sli_kind_find(s->lower.devices.kind)->cores || sl_machine_create(NULL, &machine)) return;
  int cores = sl_machine_cores(machine),
      want = s->lower.devices.count * SLI_MAX(s->lower.devices.threads, 1);
  if (cores < want)
    printf(
        "This machine has %d cores for the %d that %d devices want: they take turns, and the\n"
        "measured times cannot be those predicted. Memory can.\n",
        cores, want, s->lower.devices.count);
  sl_machine_destroy(machine);
}

static void print_point(const frontier *f, size_t i, const measured *m) {
  const point *p = &f->points[i];
  char a[32], b[32], c[32], d[32];
  printf("%3zu  %11s %11s %+7.1f%%  %11s %11s %+7.1f%%\n", i + 1,
         format_memory(a, (double)p->bytes), format_memory(b, m->bytes),
         100 * (m->bytes / (double)p->bytes - 1), sli_format_seconds(c, p->seconds),
         sli_format_seconds(d, m->seconds), 100 * (m->seconds / p->seconds - 1));
  fflush(stdout);
}

sl_status verify(const tuning *t, const frontier *f, size_t count) {
  size_t from = f->count - SLI_MIN(count, f->count);
  measured *m = sli_calloc(f->count + 1, sizeof *m);
  sl_status status = SL_OK;
  printf("\n%-4s %-33s  %-33s\n%3s  %11s %11s %8s  %11s %11s %8s\n", "", "memory", "step", "",
         "predicted", "measured", "", "predicted", "measured", "");
  for (size_t i = from; i < f->count && !status; i++) {
    status = run_point(t, &f->points[i], &m[i]);
    if (!status) print_point(f, i, &m[i]);
  }
  if (!status) print_order(f, m, from);
  if (!status) print_cores(t->settings);
  free(m);
  return status;
}
