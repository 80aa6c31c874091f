/* --verify: the fastest plans for real, by actorrun as a user would run it. */
#include "tools/actortune/actortune.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "graph/devices/devices.h"

typedef struct measured {
  double seconds, bytes;
} measured;

static double number_at(const cJSON *from, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);
  return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static sl_status take_figures(const cJSON *report, measured *out) {
  *out = (measured){.seconds = number_at(report, "step_seconds")};
  const cJSON *device, *devices = cJSON_GetObjectItemCaseSensitive(report, "devices");
  cJSON_ArrayForEach(device, devices) {
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(device, "peak_bytes");
    out->bytes = SLI_MAX(out->bytes, number_at(bytes, "total"));
  }
  return out->seconds > 0 ? SL_OK : sl_fail(SL_E_INPUT, "actorrun reports no step's time");
}

static sl_status run_point(const tuning *t, const point *p, measured *out) {
  words w = {0};
  words_add(&w, "--steps");
  words_add(&w, "%lld", (long long)sl_arg_int(t->settings->run, "verify-steps"));
  words_add(&w, "--quiet");
  command_words(t, p, &w);
  cJSON *report = NULL;
  sl_status status = actorrun_run(&w, "verifying", &report);
  words_fini(&w);
  if (!status) status = take_figures(report, out);
  cJSON_Delete(report);
  return status;
}

/* How many pairs of plans are as fast, compared with each other, as predicted. */
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
  if (!sli_kind_find(s->devices.kind)->cores || sl_machine_create(NULL, &machine)) return;
  int cores = sl_machine_cores(machine), want = s->devices.count * SLI_MAX(s->devices.threads, 1);
  if (cores < want)
    printf("This machine has %d cores for the %d that %d devices want: they take turns, and the\n"
           "measured times cannot be those predicted. Memory can.\n", cores, want,
           s->devices.count);
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
