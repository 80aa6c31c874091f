#include "tools/actorrun/auto.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/devices/devices.h"
#include "tools/actorrun/actorrun.h"

/* What the user says is not chosen. */
static sl_status fix_given(planner *p, const settings *s) {
  sl_status status = SL_OK;
  for (int d = 0; d < PLAN_DIMS && !status; d++) {
    const char *text = sl_arg_given(s->run, plan_dims[d].option, 0);
    if (!text || p->fixed[d] >= 0) continue;
    char *said = sli_format("%s=%s", plan_dims[d].name, text);
    status = planner_fix(p, said);
    free(said);
    if (status == SL_E_USAGE) status = sl_fail(SL_E_USAGE, "--auto with --%s %s: %s", plan_dims[d].option, text, sl_detail());
  }
  return status;
}

/* As many CPU devices as the machine was measured with, if the user does not say. */
static void count_devices(settings *s) {
  bool said = sl_arg_given(s->run, "devices", 0) || !sli_kind_find(s->devices.kind)->cores;
  if (!said) s->devices.count = SLI_MAX(s->modelled.hardware.devices_per_host, 1);
}

/* Of devices of which nothing is said, what was measured of this machine counts, if it was. */
static sl_status take_here(settings *s, bool *here) {
  char path[PATH_MAX];
  static const char *const said[] = {"machine", "profile", "cost"};
  bool known = !sli_kind_find(s->devices.kind)->cores;
  for (size_t i = 0; i < SLI_COUNT(said); i++) known |= *sl_arg_text(s->run, said[i]);
  hardware_here(path, sizeof path);
  *here = !known && !access(path, R_OK);
  if (!*here) return SL_OK;
  sl_status status = hardware_read("here", settings_dtype(s), &s->arena, &s->modelled.hardware);
  if (!s->devices.budget_bytes) s->devices.budget_bytes = s->modelled.hardware.memory_bytes;
  return status;
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

/* Which plan, and what comes second of each thing there was to choose. */
static void say(const planner *p, const words *w) {
  char step[32], memory[32];
  const char *before = "; the next best with ";
  const plan_choice *best = &p->choices[0];
  char *line = words_line(w);
  printf("chosen: %s\n%s a step, %s a device; %zu plans of %zu looked at in %.1f s", line,
         sli_format_seconds(step, best->seconds), sli_format_bytes(memory, (double)best->bytes), p->tried, p->count,
         p->seconds);
  for (int d = 0; d < PLAN_DIMS; d++) say_seconds(p, (plan_dim)d, &before);
  printf("\n");
  fflush(stdout);
  free(line);
}

static sl_status begin_anew(const planner *p, bool here, char *name) {
  static const char *const apart[] = {"auto", NULL};
  const settings *s = p->settings;
  words w = {0};
  if (!sl_arg_given(s->run, "devices", 0)) words_add(&w, "--devices"), words_add(&w, "%s:%d", s->devices.kind, p->devices);
  if (here) words_add(&w, "--machine"), words_add(&w, "here");
  planner_words(p, &p->choices[0], apart, &w);
  if (!sl_arg_flag(s->run, "quiet")) say(p, &w);
  char **argv = sli_calloc(w.count + 2, sizeof *argv);
  argv[0] = name;
  memcpy(argv + 1, w.items, w.count * sizeof *argv);
  execv("/proc/self/exe", argv);
  sl_status status = sl_fail(SL_E_IO, "--auto: cannot begin anew: %s", strerror(errno));
  free(argv);
  words_fini(&w);
  return status;
}

sl_status auto_run(settings *s, char *name) {
  planner p;
  bool here = false;
  sl_status status = take_here(s, &here);
  if (status) return status;
  count_devices(s);
  status = planner_init(&p, s);
  if (status == SL_E_USAGE) return sl_fail(status, "--auto: %s", sl_detail());
  p.run = job_options(s);
  if (!status) status = fix_given(&p, s);
  if (!status) status = planner_search(&p);
  if (!status) status = begin_anew(&p, here, name);
  planner_fini(&p);
  return status;
}
