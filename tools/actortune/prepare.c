/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of a sweep: every schedule with every number of chunks, microbatches
 * and pieces. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CHUNKS = 3 }; /* as for --schedule auto */

static config *add_config(tuning *t, const char *schedule, int chunks, int m, int k) {
  t->configs = sli_realloc(t->configs, (size_t)t->nconfigs + 1, sizeof *t->configs);
  config *c = &t->configs[t->nconfigs++];
  *c = (config){.settings = *t->settings};
  c->settings.lower.schedule.name = schedule;
  c->settings.lower.schedule.chunks = chunks;
  c->settings.microbatches = m;
  c->settings.pieces = k;
  return c;
}

static void add_chunks(tuning *t, const char *schedule, int m, int k) {
  const numbers *given = &t->sweep.chunks;
  int own = sl_schedule_chunks(schedule);
  for (int i = 0; i < given->count; i++)
    if (given->values[i] == own || own > 1) add_config(t, schedule, given->values[i], m, k);
  if (given->count) return;
  for (int v = own; v <= (own > 1 ? MOST_CHUNKS : own); v++)
    add_config(t, schedule, v, m, k)->tried = v != own;
}

static void add_configs(tuning *t) {
  const sweep *w = &t->sweep;
  for (int m = 0; m < w->microbatches.count; m++)
    for (int k = 0; k < w->pieces.count; k++)
      for (int i = 0; i < w->nschedules; i++)
        add_chunks(t, w->schedules[i], w->microbatches.values[m], w->pieces.values[k]);
}

/* Determines the devices' thread count, which is part of a plan. */
static sl_status find_threads(settings *s) {
  machine m;
  sl_status status = machine_place(s, &m);
  if (!status) machine_fini(&m);
  return status;
}

static int default_threads(const settings *s) {
  int given = (int)sl_arg_int(s->run, "threads");
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return given ? given : (int)SLI_MAX(cores, 1);
}

sl_status tuning_prepare(settings *s, tuning *out) {
  tuning t = {
      .settings = s, .effort = (size_t)sl_arg_int(s->run, "effort"), .threads = default_threads(s)};
  sl_status status = sweep_read(s, &t.sweep);
  if (!status) status = find_threads(s);
  if (!status) add_configs(&t);
  if (!status && !t.nconfigs)
    status = sl_fail(SL_E_USAGE, "--chunks %s: no schedule supports this number",
                     sl_arg_text(s->run, "chunks"));
  if (!status) status = configs_add_homes(&t);
  if (!status) status = measure(&t);
  if (status) tuning_fini(&t);
  else *out = t;
  return status;
}

static void point_fini(point *p) {
  free(p->values);
  free(p->failure);
  free(p->quotas);
}

void frontier_fini(frontier *f) {
  for (size_t i = 0; i < f->count; i++) point_fini(&f->points[i]);
  free(f->points);
  *f = (frontier){0};
}

/* Frees the profiles. Configurations with the same microbatches and pieces share one. */
static void profiles_fini(tuning *t) {
  for (int i = 0; i < t->nconfigs; i++) {
    profile *p = t->configs[i].settings.profile;
    if (!p || p == t->settings->profile) continue;
    for (int j = i; j < t->nconfigs; j++)
      if (t->configs[j].settings.profile == p) t->configs[j].settings.profile = NULL;
    profile_destroy(p);
  }
}

void tuning_fini(tuning *t) {
  for (size_t i = 0; i < t->npoints; i++) point_fini(&t->points[i]);
  profiles_fini(t);
  for (int i = 0; i < t->nconfigs; i++) {
    free(t->configs[i].knobs);
    free((char *)t->configs[i].profile_path);
  }
  free(t->points);
  free(t->configs);
  sweep_fini(&t->sweep);
  sli_arena_fini(&t->arena);
  *t = (tuning){0};
}
