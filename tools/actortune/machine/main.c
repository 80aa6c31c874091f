/* SPDX-License-Identifier: Apache-2.0 */
/* actortune machine: measures this machine and writes a machine file.
 *
 * Small models of all sizes run first on one device and then on all of them, and the runtime times
 * their calls. Measured calls therefore have the chunks, forms and cache states of real runs.
 * Models too small for anything else show the overhead between calls. Many firings in a row give
 * the cost of a firing. A pipeline in which one device always waits for the other gives the cost of
 * a wake. Calls of servers are timed one by one (served.h). The devices of a machine belong to one
 * process and share memory, so links between them take no additional time. */
#include "tools/actortune/machine/machine.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sluice/version.h>

#include "graph/devices/devices.h"
#include "io/atomic.h"
#include "tools/actortune/actortune.h"
#include "tools/actortune/machine/grid.h"
#include "tools/actortune/machine/links.h"
#include "tools/actortune/machine/probe.h"
#include "tools/actortune/machine/served.h"

enum { STEPS = 3, TURNS = 4 };

/* The part of the time for calls of servers. */
#define SERVED 0.3

/* clang-format off */
static const tool_option options[] = {
    {"output", SL_OPTION_TEXT, "", "`FILE` to write, or - for standard output; short form: -o FILE; "
     "the file of --machine here if not given", 0, 0, GROUP_OUTPUT},
    {"seconds", SL_OPTION_FLOAT, "90", "time limit in seconds; points without time for a measurement "
     "are estimated from the nearest ones", 1, 1e6, GROUP_SEARCH},
    {0}};
/* clang-format on */

/* Creates the folders of a path. */
static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
}

/* Chooses the output path; "-" means standard output. */
static void find_output(const settings *s, char *path, size_t size) {
  const char *said = settings_text(s, "output");
  if (said) snprintf(path, size, "%s", said);
  else hardware_here(path, size, false);
}

static sl_status check_output(const settings *s) {
  char path[PATH_MAX];
  find_output(s, path, sizeof path);
  if (!settings_text(s, "output")) make_folders(path);
  return strcmp(path, "-") ? sli_atomic_check(path) : SL_OK;
}

static sl_status read_settings(settings *s) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  if (!kind->cores)
    return sl_fail(SL_E_UNSUPPORTED, "--devices %s: only CPU devices can be measured so far",
                   sl_arg_text(s->run, "devices"));
  return check_output(s);
}

static const char *const shared[] = {"devices", "dtype", "config", "print-config",
                                     "version", "help",  NULL};
static const tool machine_tool = {
    .name = "actortune machine",
    .purpose =
        "Measures this machine: the durations of kernels, firings and wake-ups between\n"
        "workers, on one device and with all devices busy. Writes a machine file for\n"
        "--machine.",
    .options = options,
    .shared = shared,
    .no_model = true,
    .read = read_settings};

/* ---- models to measure ----------------------------------------------------------------------- */

typedef struct measuring {
  const settings *settings;
  char path[PATH_MAX]; /* output path; "-" for standard output */
  int devices;         /* number of devices that compute concurrently */
  double begun, until; /* start and deadline, in seconds of the clock */
  bool progress;
  samples samples;
  double served_seconds; /* time for calls of servers */
  cJSON *served;         /* their curves */
  double firing, wake;
  bool linked;                 /* `links` was measured */
  double links[LINK_SIZES][2]; /* seconds, idle and with all devices busy */
} measuring;

static double now(void) { return (double)sli_now_ns() * 1e-9; }

/* Dimensions of matrix products; each pair of them is a map and its inverse. Dimensions of whole
 * pages are separate, because other sizes must not be extrapolated from them. */
static const int sizes[] = {64, 160, 416, 928, 2304};
static const int rows[] = {64, 128, 256, 1024};
static const int whole_pages[] = {1024, 4096};
/* Larger probes are left out: per operation they take as long as slightly smaller ones. */
static const double most_flops = 3.5e10;
/* Contexts of the attention probes. */
static const int contexts[] = {32, 64, 128, 256, 512, 1024, 2048};
static const int heads[] = {32, 64, 128};

/* A probe and its samples: on one device, and on all of them. */
typedef struct tried {
  probe probe;
  samples seen[2];
} tried;

typedef struct probes {
  size_t count, capacity;
  tried *items;
} probes;

/* Returns a number of blocks large enough that a block's data leaves the core's caches before the
 * block's next turn, as in full-size models. */
static int layers_of(const probe *p) {
  enum { LEAST_BYTES = 32 << 20, MOST_LAYERS = 12 };
  double tokens = (double)(p->rows * p->context), C = (double)p->width, N = (double)p->inner;
  double bytes = 8 * (2.5 * C * N + (p->heads ? 4 * C * C : 0)) + 4 * tokens * (4 * N + 8 * C);
  return 2 * (int)SLI_MIN(ceil(LEAST_BYTES / bytes / 2), MOST_LAYERS / 2);
}

static void machine_main_add(probes *all, probe p) {
  p.layers = layers_of(&p), p.stages = 1;
  if (probe_flops(&p) > most_flops) return;
  SLI_GROW(all->items, all->count, all->capacity);
  all->items[all->count++] = (tried){.probe = p};
}

static void add_product(probes *all, int m, int width, int inner) {
  machine_main_add(all, (probe){.rows = SLI_MAX(m / 64, 1),
                                .context = 64,
                                .width = width,
                                .inner = inner,
                                .vocab = 256,
                                .microbatches = 2});
}

static void list_products(probes *all) {
  for (size_t m = 0; m < SLI_COUNT(rows); m++) {
    for (size_t n = 0; n < SLI_COUNT(sizes); n++)
      for (size_t k = 0; k <= n; k++) add_product(all, rows[m], sizes[k], sizes[n]);
    for (size_t n = 0; n < SLI_COUNT(whole_pages); n++)
      for (int k = 256; k <= 1024; k *= 4) add_product(all, rows[m], k, whole_pages[n]);
  }
}

/* Adds attention probes. Long sequences get fewer heads and a separate step, to save time. */
static void add_attention(probes *all, int context, int head) {
  bool is_long = context > 256;
  int count = is_long ? 2 : 4;
  machine_main_add(all, (probe){.rows = SLI_MAX(256 / context, 1),
                                .context = context,
                                .width = count * head,
                                .inner = count * head,
                                .heads = count,
                                .vocab = 256,
                                .microbatches = is_long ? 1 : 2});
}

static void list_attention(probes *all) {
  for (size_t t = 0; t < SLI_COUNT(contexts); t++)
    for (size_t d = 0; d < SLI_COUNT(heads); d++) add_attention(all, contexts[t], heads[d]);
}

static void list_vocabularies(probes *all) {
  for (int vocab = 1000; vocab <= 32000; vocab *= 4)
    machine_main_add(all, (probe){.rows = 4,
                                  .context = 64,
                                  .width = 128,
                                  .inner = 256,
                                  .vocab = vocab,
                                  .microbatches = 2});
}

static int by_work(const void *a, const void *b) {
  double x = probe_flops(&((const tried *)a)->probe), y = probe_flops(&((const tried *)b)->probe);
  return (x > y) - (x < y);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void say(const measuring *m, const char *what, size_t done, size_t all) {
  if (m->progress) bar_draw(what, done, all, now() - m->begun, "");
}

/* Runs a probe on one device and right after on all of them, so that other load on the machine
 * affects both alike. */
static sl_status run_probe(const measuring *m, tried *t, double seconds) {
  sl_status status = SL_OK;
  for (int all = 0; all <= (m->devices > 1) && !status; all++)
    status = probe_run(m->settings, &t->probe, all ? m->devices : 1, STEPS, seconds, &t->seen[all],
                       NULL);
  return status;
}

/* Runs all probes once, small ones first. Skips those that do not fit in the time left. */
static sl_status run_turn(const measuring *m, const probes *all, const char *what) {
  sl_status status = SL_OK;
  double rate = 0; /* highest flops per second so far */
  for (size_t i = 0; i < all->count && !status && !interrupted(); i++) {
    double begun = now(), left = m->until - begun, flops = probe_flops(&all->items[i].probe);
    if (rate > 0 && 2 * flops / rate > left) continue;
    say(m, what, i, all->count);
    status = run_probe(m, &all->items[i], SLI_MAX(left / 40, 0.02));
    if (flops > 1e8) rate = SLI_MAX(rate, flops / (now() - begun));
  }
  return status;
}

/* Repeats the probes while time is left. On a machine with other load the fastest run shows what it
 * can do. */
static sl_status run_probes(measuring *m, probes *all) {
  static const char *const what[TURNS] = {"first turn", "second turn", "third turn", "fourth turn"};
  sl_status status = SL_OK;
  for (int turn = 0; turn < TURNS && !status && (!turn || now() < m->until); turn++)
    status = run_turn(m, all, what[turn]);
  return status;
}

/* Returns the sample of the same call on one device, or NULL. */
static const sample *alone(const samples *one, const sample *s) {
  sample wanted = *s;
  wanted.at[SL_CURVE_DEVICES] = 1;
  for (size_t i = 0; i < one->count; i++) {
    const sample *o = &one->items[i];
    if (!strcmp(o->op, s->op) && !memcmp(o->has, s->has, sizeof s->has) &&
        !memcmp(o->at, wanted.at, sizeof s->at))
      return o;
  }
  return NULL;
}

/* Corrects the samples of many devices. The fastest time of a call there comes from a step in which
 * the other devices happened to be idle. It is therefore replaced by the fastest time on one
 * device, times the ratio of quiet steps on many devices and on one, which is at least 1: other
 * programs may have slowed the one. The median is scaled by the same factor, so that the spread
 * stays as observed. */
static void slow_down(tried *t) {
  for (size_t i = 0; i < t->seen[1].count; i++) {
    sample *s = &t->seen[1].items[i];
    const sample *one = alone(&t->seen[0], s);
    if (!one) continue;
    double seconds = one->seconds * fmax(s->quiet / one->quiet, 1);
    s->median *= seconds / s->seconds;
    s->seconds = seconds;
  }
}

/* Collects all samples. */
static void collect(measuring *m, probes *all) {
  for (size_t i = 0; i < all->count; i++) slow_down(&all->items[i]);
  for (size_t i = 0; i < 2 * all->count; i++) {
    samples *from = &all->items[i / 2].seen[i % 2];
    for (size_t k = 0; k < from->count; k++) {
      SLI_GROW(m->samples.items, m->samples.count, m->samples.capacity);
      m->samples.items[m->samples.count++] = from->items[k];
    }
    free(from->items);
  }
}

/* Runs steps of a model with almost no computation. */
static sl_status run_small(measuring *m, int microbatches, int stages, probe_times *out) {
  const probe small = {.rows = 1,
                       .context = 8,
                       .width = 16,
                       .inner = 16,
                       .vocab = 16,
                       .layers = 2,
                       .microbatches = microbatches,
                       .stages = stages};
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

/* Measures the cost of a firing: how much longer additional firings take than their calls. Other
 * programs may hide it; then a usual one is taken. */
static sl_status measure_firings(measuring *m) {
  enum { TRIES = 5 };
  const double usual = 1e-7;
  probe_times few, many;
  for (int i = 0; i < TRIES && m->firing <= 0; i++) {
    sl_status status = run_small(m, 2, 1, &few);
    if (!status) status = run_small(m, 64, 1, &many);
    if (status) return status;
    double more = (many.step_seconds - many.call_seconds) - (few.step_seconds - few.call_seconds);
    m->firing = more / (double)(many.firings - few.firings);
  }
  if (m->firing > 0) return SL_OK;
  m->firing = usual;
  sli_log("note: the cost of a firing is lost among other programs' work: 100 ns are taken");
  return SL_OK;
}

/* Measures the cost of a wake. The first of two stages waits from the end of its only forward pass
 * to the end of the other's backward pass: one wake there, and one back. */
static sl_status measure_wakes(measuring *m) {
  probe_times t;
  m->wake = 1e-6;
  if (m->devices < 2) return SL_OK;
  sl_status status = run_small(m, 1, 2, &t);
  if (!status) m->wake = SLI_MAX((t.passes_seconds - t.pass_seconds) / 2 - m->firing, 1e-7);
  return status;
}

/* Measures links between processes, before threads exist. Omits them if two processes cannot
 * communicate. */
static void measure_links(measuring *m) {
  m->linked = m->devices > 1 && !links_measure(m->devices, m->links);
  if (m->devices > 1 && !m->linked)
    fprintf(stderr, "actortune machine: %s: left out\n", sl_detail());
}

static sl_status measure_all(measuring *m) {
  probes all = {0};
  list_products(&all);
  list_attention(&all);
  list_vocabularies(&all);
  qsort(all.items, all.count, sizeof *all.items, by_work);
  measure_links(m);
  sl_status status = measure_firings(m);
  if (!status) status = measure_wakes(m);
  if (!status) status = run_probes(m, &all);
  collect(m, &all);
  m->served = cJSON_CreateObject();
  if (!status) status = served_measure(m->settings, m->devices, m->served_seconds, m->served);
  free(all.items);
  if (m->progress) bar_clear();
  return !status && interrupted() ? sl_fail(SL_E_STOPPED, "stopped before the machine was measured")
                                  : status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Returns the highest rate at which an op's calls compute or move data on one device. */
static double best_rate(const samples *s, const char *row, sl_curve_axis what) {
  double best = 1;
  for (size_t i = 0; i < s->count; i++) {
    const sample *at = &s->items[i];
    if (!strcmp(at->op, row) && at->at[SL_CURVE_DEVICES] < 2)
      best = fmax(best, at->at[what] / at->seconds);
  }
  return best;
}

static double memory_bytes(const measuring *m) {
  return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / m->devices;
}

/* Makes the curve between processes: over bytes, and over the number of busy devices. */
static cJSON *link_curve(const measuring *m) {
  cJSON *curve = cJSON_CreateObject(), *seconds = cJSON_CreateArray();
  const double devices[2] = {1, m->devices};
  cJSON_AddItemToObject(curve, "bytes", cJSON_CreateDoubleArray(link_sizes, LINK_SIZES));
  cJSON_AddItemToObject(curve, "devices", cJSON_CreateDoubleArray(devices, 2));
  for (int s = 0; s < LINK_SIZES; s++)
    cJSON_AddItemToArray(seconds, cJSON_CreateDoubleArray(m->links[s], 2));
  cJSON_AddItemToObject(curve, "seconds", seconds);
  return curve;
}

static int cores_of(const measuring *m) { return SLI_MAX(m->settings->lower.devices.threads, 1); }

static cJSON *machine_main_describe(const measuring *m) {
  cJSON *root = cJSON_CreateObject();
  char host[256] = "this machine";
  gethostname(host, sizeof host - 1);
  cJSON_AddStringToObject(root, "name", host);
  char *source = sli_format("actortune machine %s: %d devices of %d cores, %.0f s", sl_version(),
                            m->devices, cores_of(m), now() - m->begun);
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
  for (size_t i = 0; i < SLI_COUNT(numbers); i++)
    cJSON_AddNumberToObject(root, numbers[i].name, numbers[i].value);
  if (m->linked) cJSON_AddItemToObject(root, "process_link", link_curve(m));
  cJSON_AddTrueToObject(cJSON_AddObjectToObject(root, "serving"), "joins_products");
  cJSON *curves = grid_curves(&m->samples);
  while (m->served->child) {
    cJSON *curve = cJSON_DetachItemViaPointer(m->served, m->served->child);
    cJSON_AddItemToObject(curves, curve->string, curve);
  }
  cJSON_AddItemToObject(root, "curves", curves);
  return root;
}

static sl_status write_file(const char *path, const char *text) {
  if (!strcmp(path, "-"))
    return puts(text) < 0 ? sl_fail(SL_E_IO, "cannot write to standard output") : SL_OK;
  return sli_atomic_text(path, text);
}

static sl_status write_machine(const measuring *m) {
  cJSON *root = machine_main_describe(m);
  char *text = cJSON_PrintUnformatted(root);
  SLI_CHECK(text, "no memory for the machine file");
  sl_status status = write_file(m->path, text);
  free(text);
  cJSON_Delete(root);
  return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void say_begin(const measuring *m) {
  sli_log(
      "measures %d device%s of %d core%s for %.0f s: products, attention, vocabularies, served calls, firings%s; nothing else should "
      "run meanwhile",
      m->devices, m->devices == 1 ? "" : "s", cores_of(m), cores_of(m) == 1 ? "" : "s",
      m->until - m->begun + m->served_seconds,
      m->devices > 1 ? ", wakes, messages between processes, of one device and of all at once"
                     : "");
}

static void say_end(const measuring *m) {
  char flops[32], bytes[32], firing[32];
  double spread = grid_spread(&m->samples);
  sli_log(
      "%s: a device multiplies at up to %s and moves up to %s; a firing takes %s; the median step took %.1f %% longer than "
      "the fastest (spread %.2g)",
      strcmp(m->path, "-") ? m->path : "standard output",
      sli_format_rate(flops, best_rate(&m->samples, "linear", SL_CURVE_FLOPS), "flop/s"),
      sli_format_rate(bytes, best_rate(&m->samples, "add", SL_CURVE_BYTES), "B/s"),
      sli_format_seconds(firing, m->firing), 100 * spread, spread);
  if (!hardware_is_rough(spread)) return;
  sli_log(
      "warning: other programs kept the machine busy: runs may take that much longer than predicted, and another plan may be faster; measure again when nothing else runs");
}

/* Uses one device per core, unless the user says otherwise. */
static void count_devices(settings *s) {
  if (sl_arg_given(s->run, "devices", 0)) return;
  s->lower.devices.count = (int)SLI_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
  s->lower.devices.threads = 1;
}

static sl_status measure_into(const settings *s, const char *path, double seconds) {
  double begun = now();
  measuring m = {.settings = s,
                 .devices = SLI_MAX(s->lower.devices.count, 1),
                 .begun = begun,
                 .until = begun + seconds * (1 - SERVED),
                 .served_seconds = seconds * SERVED,
                 .progress = isatty(STDERR_FILENO)};
  snprintf(m.path, sizeof m.path, "%s", path);
  say_begin(&m);
  sl_status status = measure_all(&m);
  if (!status) status = write_machine(&m);
  if (!status) say_end(&m);
  free(m.samples.items);
  cJSON_Delete(m.served);
  return status;
}

/* Measures both machines that --auto reads: one device per core, and one device with all cores. */
static sl_status measure_machine(settings *s) {
  char path[PATH_MAX];
  count_devices(s);
  double seconds = sl_arg_float(s->run, "seconds");
  bool both = !settings_text(s, "output") && !sl_arg_given(s->run, "devices", 0) &&
              s->lower.devices.count > 1;
  find_output(s, path, sizeof path);
  sl_status status = measure_into(s, path, both ? seconds * 2 / 3 : seconds);
  if (status || !both) return status;
  settings whole = *s;
  whole.lower.devices.threads = s->lower.devices.count, whole.lower.devices.count = 1;
  hardware_here(path, sizeof path, true);
  return measure_into(&whole, path, seconds / 3);
}

int machine_main(int argc, char **argv) {
  settings s;
  interrupt_catch();
  sl_status status = settings_read(&machine_tool, argc, argv, &s);
  if (!status && !s.done) status = measure_machine(&s);
  int exit_status = outputs_end("actortune machine", status, 0);
  settings_fini(&s);
  return exit_status;
}
