/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/auto.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "tools/actorrun/actorrun.h"

/* Fixes the dimensions that the user gave. */
static sl_status fix_given(planner *p, const settings *s) {
  sl_status status = SL_OK;
  for (int d = 0; d < PLAN_DIMS && !status; d++) {
    const char *text = sl_arg_given(s->run, plan_dims[d].option, 0);
    if (!text || p->fixed[d] >= 0) continue;
    char *said = sli_format("%s=%s", plan_dims[d].name, text);
    status = planner_fix(p, said);
    free(said);
    if (status == SL_E_USAGE)
      status =
          sl_fail(SL_E_USAGE, "--auto with --%s %s: %s", plan_dims[d].option, text, sl_detail());
  }
  return status;
}

/* Uses as many CPU devices as the machine file was measured with, unless the user gave a number. */
static void count_devices(settings *s) {
  bool said = sl_arg_given(s->run, "devices", 0) || !sli_kind_find(s->lower.devices.kind)->cores;
  if (!said) s->lower.devices.count = SLI_MAX(s->modelled.hardware.devices_per_host, 1);
}

static bool was_measured(bool whole) {
  char path[PATH_MAX];
  hardware_here(path, sizeof path, whole);
  return !access(path, R_OK);
}

static sl_status take_machine(settings *s, const char *word, sli_arena *arena) {
  sl_status status = hardware_read(word, settings_rate(s), false, arena, &s->modelled.hardware,
                                   &s->modelled.spread);
  if (!*sl_arg_text(s->run, "memory"))
    s->lower.devices.budget_bytes = s->modelled.hardware.memory_bytes;
  return status;
}

/* Uses the measurements of this machine, if they exist, for devices that the user did not
 * describe. */
static sl_status take_here(settings *s, const char **here) {
  static const char *const said[] = {"machine", "profile", "cost"};
  bool known = !sli_kind_find(s->lower.devices.kind)->cores;
  for (size_t i = 0; i < SLI_COUNT(said); i++) known |= *sl_arg_text(s->run, said[i]);
  *here = !known && was_measured(false) ? "here" : NULL;
  return *here ? take_machine(s, *here, &s->arena) : SL_OK;
}

static void say_seconds(const planner *p, plan_dim dim, const char **before) {
  const plan_choice *second = planner_second(p, dim), *best = &p->choices[0];
  const char *word = second ? planner_word(dim, second->at[dim]) : NULL;
  if (!second) return;
  printf("%s--%s ", *before, plan_dims[dim].option);
  if (word) printf("%s", word);
  else printf("%d", second->at[dim]);
  printf(" %+.1f %%", 100 * (second->seconds / best->seconds - 1));
  *before = ", ";
}

/* Plans for one way to divide the cores. */
typedef struct attempt {
  settings settings;
  planner planner;
  const char *here; /* value of --machine; NULL if the user described the devices */
  sl_status status;
  char *why;
} attempt;

/* Prints the chosen plan, and the runner-up in each dimension. */
static void say(const attempt *a, const attempt *other, const words *w) {
  char step[32], memory[32];
  const char *before = "; the next best with ";
  const planner *p = &a->planner;
  const plan_choice *best = &p->choices[0];
  char *line = words_line(w);
  printf("chosen: %s\n%s a step, %s a device; %zu of %zu plans examined in %.1f s", line,
         sli_format_seconds(step, best->seconds), sli_format_bytes(memory, (double)best->bytes),
         p->tried, p->count, p->seconds);
  for (int d = 0; d < PLAN_DIMS; d++) say_seconds(p, (plan_dim)d, &before);
  if (other->here && !other->status) {
    const sl_device_options *devices = &other->settings.lower.devices;
    printf("%s%d device%s of %d core%s each %+.1f %%", before, devices->count,
           devices->count == 1 ? "" : "s", SLI_MAX(devices->threads, 1),
           devices->threads > 1 ? "s" : "",
           100 * (other->planner.choices[0].seconds / best->seconds - 1));
  }
  printf("\n");
  fflush(stdout);
  free(line);
}

static sl_status begin_anew(const attempt *a, const attempt *other, char *name) {
  static const char *const apart[] = {"auto", NULL};
  const settings *s = &a->settings;
  words w = {0};
  if (!sl_arg_given(s->run, "devices", 0)) {
    words_add(&w, "--devices");
    if (s->lower.devices.threads > 1)
      words_add(&w, "%s:%dx%d", s->lower.devices.kind, a->planner.devices,
                s->lower.devices.threads);
    else words_add(&w, "%s:%d", s->lower.devices.kind, a->planner.devices);
  }
  if (a->here) words_add(&w, "--machine"), words_add(&w, "%s", a->here);
  planner_words(&a->planner, &a->planner.choices[0], apart, &w);
  if (!sl_arg_flag(s->run, "quiet")) say(a, other, &w);
  char **argv = sli_calloc(w.count + 2, sizeof *argv);
  argv[0] = name;
  memcpy(argv + 1, w.items, w.count * sizeof *argv);
  execv("/proc/self/exe", argv);
  sl_status status = sl_fail(SL_E_IO, "--auto: cannot restart the program: %s", strerror(errno));
  free(argv);
  words_fini(&w);
  return status;
}

static void auto_choose(attempt *a) {
  planner *p = &a->planner;
  a->status = planner_init(p, &a->settings);
  if (a->status == SL_E_USAGE) a->status = sl_fail(a->status, "--auto: %s", sl_detail());
  p->run = job_options(&a->settings);
  if (!a->status) a->status = fix_given(p, &a->settings);
  if (!a->status) a->status = planner_search(p);
  if (a->status) a->why = options_named(sl_detail());
}

/* Considers one device with all cores, if that was measured too and the user fixed neither
 * devices nor processes. */
static void choose_whole(attempt *whole, const attempt *each, sli_arena *arena) {
  const settings *s = &each->settings;
  whole->status = SL_E_UNSUPPORTED;
  bool free = each->here && !sl_arg_given(s->run, "devices", 0) &&
              s->lower.parallel.processes <= 1 && s->lower.devices.count > 1;
  if (!free || !was_measured(true)) return;
  whole->settings = *s, whole->here = "here-whole";
  whole->settings.lower.devices.threads = s->lower.devices.count,
  whole->settings.lower.devices.count = 1;
  whole->status = take_machine(&whole->settings, whole->here, arena);
  if (!whole->status) auto_choose(whole);
}

static bool is_better(const attempt *a, const attempt *b) {
  return !a->status && (b->status || a->planner.choices[0].seconds < b->planner.choices[0].seconds);
}

sl_status auto_run(settings *s, char *name) {
  attempt each = {0}, whole = {0};
  sl_status status = take_here(s, &each.here);
  if (status) return status;
  count_devices(s);
  each.settings = *s;
  auto_choose(&each);
  choose_whole(&whole, &each, &s->arena);
  if (is_better(&whole, &each)) status = begin_anew(&whole, &each, name);
  else if (!each.status) status = begin_anew(&each, &whole, name);
  else status = sl_fail(each.status, "%s", each.why);
  if (each.planner.settings) planner_fini(&each.planner);
  if (whole.planner.settings) planner_fini(&whole.planner);
  free(each.why), free(whole.why);
  return status;
}
