/* actortune machine: measures the machine that it runs on, and writes down what it found as a machine file.
 *
 * Small models of all sizes run on one device and then on all at once, and the runtime times their
 * calls: what is measured is what runs, in the chunks, forms and caches in which it runs. What is
 * between calls comes from models so small that nothing else is left: a firing from many of them on
 * end, a wake from a pipeline in which one device always waits for the other. Devices of a machine are those
 * of one process, which read each other's memory: links between them take no time of their own. */
#include "tools/actortune/machine/machine.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "io/atomic.h"
#include "tools/actortune/actortune.h"
#include "tools/actortune/machine/grid.h"
#include "tools/actortune/machine/probe.h"

enum { STEPS = 5 };

static const sl_option options[] = {
    {"output", SL_OPTION_TEXT, "", "`FILE` to write, -o for short, - for standard output; what --machine here reads if not given", 0, 0},
    {"seconds", SL_OPTION_FLOAT, "90", "how long it may take; what there is no time for is drawn from what is "
     "nearest to it", 1, 1e6},
    {0}};

/* Makes the folders of a path. */
static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
}

/* Where it goes; "-": to standard output. */
static void find_output(const settings *s, char *path, size_t size) {
  const char *said = settings_text(s, "output");
  if (said) snprintf(path, size, "%s", said);
  else hardware_here(path, size);
}

static sl_status check_output(const settings *s) {
  char path[PATH_MAX];
  find_output(s, path, sizeof path);
  if (!settings_text(s, "output")) make_folders(path);
  return strcmp(path, "-") ? sli_atomic_check(path) : SL_OK;
}

static sl_status read_settings(settings *s) {
  const sli_kind *kind = sli_kind_find(s->devices.kind);
  if (!kind->cores)
    return sl_fail(SL_E_UNSUPPORTED, "--devices %s: only CPU devices can be measured so far",
                   sl_arg_text(s->run, "devices"));
  return check_output(s);
}

static const char *const shared[] = {"devices", "dtype", "version", "help", NULL};
static const tool machine_tool = {
    .name = "actortune machine",
    .purpose = "Measures the machine it runs on: how long what kernels compute, firings and wakes between workers\n"
               "take, on one device and with all of them busy. Writes a machine file for --machine.",
    .options = options, .shared = shared, .no_model = true, .read = read_settings};

/* ---- what is measured ------------------------------------------------------------------------------- */

typedef struct measuring {
  const settings *settings;
  int devices;             /* that compute at once */
  double begun, until;     /* seconds of the clock */
  bool progress;
  samples samples;
  double firing, wake;
} measuring;

static double now(void) { return (double)sli_now_ns() * 1e-9; }

/* Numbers that products are made of; each pair of them is a map there and back. Those of whole pages are
 * apart, since other numbers must not be drawn from them. */
static const int sizes[] = {64, 160, 416, 928, 2304};
static const int whole_pages[] = {1024, 4096};
static const int rows[] = {64, 256, 1024};
/* Attention. */
static const int contexts[] = {32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048};
static const int heads[] = {32, 64, 128};

typedef struct probes {
  size_t count, capacity;
  probe *of;
} probes;

static void add(probes *all, probe p) {
  SLI_GROW(all->of, all->count, all->capacity);
  all->of[all->count++] = p;
}

static void add_product(probes *all, int m, int width, int inner) {
  add(all, (probe){.rows = SLI_MAX(m / 64, 1), .context = 64, .width = width, .inner = inner, .vocab = 256,
                   .layers = 2, .microbatches = 2, .stages = 1});
}

static void list_products(probes *all) {
  for (size_t m = 0; m < SLI_COUNT(rows); m++) {
    for (size_t n = 0; n < SLI_COUNT(sizes); n++)
      for (size_t k = 0; k <= n; k++) add_product(all, rows[m], sizes[k], sizes[n]);
    for (size_t n = 0; n < SLI_COUNT(whole_pages); n++)
      for (int k = 256; k <= whole_pages[n]; k *= 4) add_product(all, rows[m], k, whole_pages[n]);
  }
}

static void list_attention(probes *all) {
  for (size_t t = 0; t < SLI_COUNT(contexts); t++)
    for (size_t d = 0; d < SLI_COUNT(heads); d++)
      add(all, (probe){.rows = SLI_MAX(512 / contexts[t], 1), .context = contexts[t], .width = 4 * heads[d],
                       .inner = 4 * heads[d], .heads = 4, .vocab = 256, .layers = 2, .microbatches = 2,
                       .stages = 1});
}

static void list_vocabularies(probes *all) {
  for (int vocab = 1000; vocab <= 32000; vocab *= 4)
    add(all, (probe){.rows = 4, .context = 64, .width = 128, .inner = 256, .vocab = vocab,
                     .layers = 1, .microbatches = 2, .stages = 1});
}

static int by_work(const void *a, const void *b) {
  double x = probe_flops(a), y = probe_flops(b);
  return (x > y) - (x < y);
}

/* ---- measuring ------------------------------------------------------------------------------------------ */

static void say(const measuring *m, const char *what, size_t done, size_t all) {
  if (m->progress) bar_draw(what, done, all, now() - m->begun, "");
}

/* The small ones first; of those that there is no time for, none. What is left of the time is for
 * all that are left. */
static sl_status run_probes(measuring *m, const probes *all, int devices, double until) {
  sl_status status = SL_OK;
  double rate = 0; /* flops a second, as the last ones had it */
  for (size_t i = 0; i < all->count && !status && !interrupted(); i++) {
    const probe *p = &all->of[i];
    double begun = now(), left = until - begun, flops = probe_flops(p);
    if (rate > 0 && 3 * flops / rate > left) continue;
    say(m, devices > 1 ? "all devices busy" : "one device", i, all->count);
    status = probe_run(m->settings, p, devices, STEPS, SLI_MAX(left / 20, 0.02), &m->samples, NULL);
    if (flops > 1e8) rate = flops * STEPS / (now() - begun);
  }
  return status;
}

/* Steps of a model that has next to nothing to compute. */
static sl_status run_small(measuring *m, int microbatches, int stages, probe_times *out) {
  const probe small = {.rows = 1, .context = 8, .width = 16, .inner = 16, .vocab = 16,
                       .layers = 2, .microbatches = microbatches, .stages = stages};
  enum { TIMES = 5 };
  sl_status status = SL_OK;
  *out = (probe_times){.step_seconds = INFINITY};
  for (int i = 0; i < TIMES && !status; i++) {
    probe_times now;
    status = probe_run(m->settings, &small, stages, 20, 0, NULL, &now);
    if (!status && now.step_seconds < out->step_seconds) *out = now;
  }
  return status;
}

/* What many more firings take beyond their calls. */
static sl_status measure_firings(measuring *m) {
  probe_times few, many;
  sl_status status = run_small(m, 2, 1, &few);
  if (!status) status = run_small(m, 64, 1, &many);
  if (status) return status;
  double more = (many.step_seconds - many.call_seconds) - (few.step_seconds - few.call_seconds);
  m->firing = SLI_MAX(more / (double)(many.firings - few.firings), 1e-9);
  return SL_OK;
}

/* The first of two stages waits from the end of its only pass forward until that back of the other has
 * ended: a wake there, one back. */
static sl_status measure_wakes(measuring *m) {
  probe_times t;
  m->wake = 1e-6;
  if (m->devices < 2) return SL_OK;
  sl_status status = run_small(m, 1, 2, &t);
  if (!status) m->wake = SLI_MAX((t.passes_seconds - t.pass_seconds) / 2 - m->firing, 1e-7);
  return status;
}

static sl_status measure_all(measuring *m) {
  probes all = {0};
  list_products(&all);
  list_attention(&all);
  list_vocabularies(&all);
  qsort(all.of, all.count, sizeof *all.of, by_work);
  sl_status status = measure_firings(m);
  if (!status) status = measure_wakes(m);
  double half = (m->until - now()) / (m->devices > 1 ? 2 : 1);
  if (!status) status = run_probes(m, &all, 1, now() + half);
  if (!status && m->devices > 1) status = run_probes(m, &all, m->devices, m->until);
  free(all.of);
  if (m->progress) bar_clear();
  return !status && interrupted() ? sl_fail(SL_E_STOPPED, "stopped before the machine was measured") : status;
}

/* ---- the file --------------------------------------------------------------------------------------------- */

/* The most of what the calls of a row compute or move in a second. */
static double best_rate(const samples *s, const char *row, sl_curve_axis what) {
  double best = 1;
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(s->of[i].op, row)) best = fmax(best, s->of[i].at[what] / s->of[i].seconds);
  return best;
}

static double memory_bytes(const measuring *m) {
  return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / m->devices;
}

static cJSON *describe(const measuring *m) {
  cJSON *root = cJSON_CreateObject();
  char host[256] = "this machine";
  gethostname(host, sizeof host - 1);
  cJSON_AddStringToObject(root, "name", host);
  char *source = sli_format("actortune machine %s: %d devices of %d cores, %.0f s", SLUICE_VERSION, m->devices,
                            SLI_MAX(m->settings->devices.threads, 1), now() - m->begun);
  cJSON_AddStringToObject(root, "source", source);
  free(source);
  cJSON *rates = cJSON_AddObjectToObject(root, "flops_per_second");
  cJSON_AddNumberToObject(rates, sl_dtype_name(settings_dtype(m->settings)),
                          round(best_rate(&m->samples, "linear", SL_CURVE_FLOPS)));
  const struct {
    const char *name;
    double value;
  } numbers[] = {{"flops_efficiency", 1},
                 {"bytes_per_second", round(best_rate(&m->samples, "add", SL_CURVE_BYTES))},
                 {"bytes_efficiency", 1},
                 {"op_seconds", 1e-6},
                 {"firing_seconds", m->firing},
                 {"memory_bytes", floor(memory_bytes(m))},
                 {"devices_per_host", m->devices},
                 {"wake_seconds", m->wake},
                 {"link_seconds", 0},
                 {"link_bytes_per_second", 0},
                 {"spread", grid_spread(&m->samples)}};
  for (size_t i = 0; i < SLI_COUNT(numbers); i++) cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
  cJSON_AddItemToObject(root, "curves", grid_curves(&m->samples));
  return root;
}

static sl_status write_file(const char *path, const char *text) {
  if (!strcmp(path, "-")) return puts(text) < 0 ? sl_fail(SL_E_IO, "cannot write to standard output") : SL_OK;
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  fprintf(file.stream, "%s\n", text);
  return sli_atomic_commit(&file);
}

static sl_status write_machine(const measuring *m) {
  cJSON *root = describe(m);
  char *text = cJSON_PrintUnformatted(root);
  SLI_CHECK(text, "no memory for the machine file");
  char path[PATH_MAX];
  find_output(m->settings, path, sizeof path);
  sl_status status = write_file(path, text);
  free(text);
  cJSON_Delete(root);
  return status;
}

/* A device for each core, unless the user says otherwise. */
static void count_devices(settings *s) {
  if (sl_arg_given(s->run, "devices", 0)) return;
  s->devices.count = (int)SLI_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
  s->devices.threads = 1;
}

static sl_status measure_machine(settings *s) {
  count_devices(s);
  double begun = now();
  measuring m = {.settings = s, .devices = SLI_MAX(s->devices.count, 1), .begun = begun,
                 .until = begun + sl_arg_float(s->run, "seconds"), .progress = isatty(STDERR_FILENO)};
  sl_status status = measure_all(&m);
  if (!status) status = write_machine(&m);
  free(m.samples.of);
  return status;
}

int machine_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&machine_tool, argc, argv, &s);
  if (!status && !s.done) status = measure_machine(&s);
  if (status) fprintf(stderr, "actortune machine: %s\n", sl_detail());
  settings_fini(&s);
  return sl_status_exit(status);
}
