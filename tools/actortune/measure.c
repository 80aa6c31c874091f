/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of ops for every microbatch size. They come from reports that the user names, or from
 * runs of a few steps on one CPU device, which is as large as each device of the pipeline. An op's
 * duration does not depend on its stage, so one device represents all.
 *
 * Other programs can only slow a run down. The model therefore runs several times, and the fastest
 * time of each op counts. */
#include "tools/actortune/actortune.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "graph/devices/devices.h"
#include "graph/lower/lower.h"
#include "io/atomic.h"
#include "io/json.h"

enum { RUNS = 3 };

/* The microbatch size of a report; 0 if it is not stated. */
typedef struct size {
  int64_t microbatches, pieces;
} size;

static sl_status take_size(const sli_json *report, size *out) {
  const cJSON *options = NULL;
  const sli_json_field fields[] = {
      {"microbatches", SLI_JSON_WHOLE, &out->microbatches, 1, INT32_MAX, false},
      {"pieces", SLI_JSON_WHOLE, &out->pieces, 1, INT32_MAX, false}};
  *out = (size){0, 1};
  sl_status status =
      sli_json_member(report, report->root, "options", SLI_JSON_OBJECT, false, &options);
  return status || !options ? status : sli_json_pick(report, options, fields, SLI_COUNT(fields));
}

static sl_status read_size(const char *path, size *out) {
  sli_json report;
  sl_status status = sli_json_open(path, &report);
  if (status) return status;
  status = take_size(&report, out);
  sli_json_fini(&report);
  return status;
}

static bool same_size(const config *a, const config *b) {
  return a->settings.microbatches == b->settings.microbatches &&
         a->settings.pieces == b->settings.pieces;
}

/* Gives a profile to all configurations of the size of configuration i. */
static void give(tuning *t, int i, profile *p, const char *path) {
  for (int j = i; j < t->nconfigs; j++) {
    if (!same_size(&t->configs[i], &t->configs[j])) continue;
    t->configs[j].settings.profile = p;
    t->configs[j].profile_path = path ? sli_strdup(path) : NULL;
  }
}

/* ---- the user's reports ---------------------------------------------------------------- */

static sl_status find_report(const tuning *t, const config *c, const char **out) {
  const char *path;
  for (int i = 0; (path = sl_arg_given(t->settings->run, "profile", i)); i++) {
    size at;
    sl_status status = read_size(path, &at);
    if (status) return status;
    bool unsaid = !at.microbatches;
    if (!unsaid && (at.microbatches != c->settings.microbatches || at.pieces != c->settings.pieces))
      continue;
    *out = path;
    return SL_OK;
  }
  char pieces[48] = "";
  if (c->settings.pieces > 1) snprintf(pieces, sizeof pieces, " --pieces %d", c->settings.pieces);
  return sl_fail(SL_E_USAGE,
                 "--profile: no report was measured at --microbatches %d%s; durations "
                 "hold for one size only",
                 c->settings.microbatches, pieces);
}

static sl_status take_report(tuning *t, int i) {
  const char *path = NULL;
  profile *p = NULL;
  sl_status status = find_report(t, &t->configs[i], &path);
  if (!status) status = profile_read(path, &p);
  if (!status) give(t, i, p, path);
  return status;
}

/* ---- measuring --------------------------------------------------------------------------- */

static void measuring_words(const tuning *t, const config *c, words *w) {
  const settings *s = &c->settings;
  words_add(w, "--devices");
  words_add(w, "%s:1x%d", s->lower.devices.kind, SLI_MAX(s->lower.devices.threads, 1));
  words_add(w, "--stages");
  words_add(w, "1");
  words_add(w, "--microbatches");
  words_add(w, "%d", s->microbatches);
  words_add(w, "--pieces");
  words_add(w, "%d", s->pieces);
  words_add(w, "--cut");
  words_add(w, "%s", sl_arg_text(s->run, "cut"));
  words_add(w, "--dtype");
  words_add(w, "%s", sl_arg_text(s->run, "dtype"));
  words_add(w, "--steps");
  words_add(w, "%lld", (long long)sl_arg_int(s->run, "measure"));
  words_add(w, "--quiet");
  words_model(t->settings, w);
}

/* Takes the faster time of each op. The same plan has the same ops in the same order. */
static sl_status take_faster(const sli_json *best, const sli_json *other) {
  const cJSON *to = NULL, *from = NULL, *mine = NULL, *its = NULL;
  sl_status status = sli_json_member(best, best->root, "ops", SLI_JSON_ARRAY, true, &to);
  if (!status) status = sli_json_member(other, other->root, "ops", SLI_JSON_ARRAY, true, &from);
  if (status) return status;
  for (to = to->child, from = from->child; to && from && !status;
       to = to->next, from = from->next) {
    status = sli_json_member(best, to, "seconds", SLI_JSON_NUMBER, true, &mine);
    if (!status) status = sli_json_member(other, from, "seconds", SLI_JSON_NUMBER, true, &its);
    if (!status) cJSON_SetNumberValue((cJSON *)mine, SLI_MIN(mine->valuedouble, its->valuedouble));
  }
  return status;
}

static sl_status run_several(const words *w, sli_json *out) {
  sl_status status = actorrun_run(w, "measuring", out);
  for (int i = 1; i < RUNS && !status; i++) {
    sli_json other = {0};
    status = actorrun_run(w, "measuring", &other);
    if (!status) status = take_faster(out, &other);
    sli_json_fini(&other);
  }
  return status;
}

/* Keeps the report for --keep, so that later runs can use it as --profile. */
static sl_status keep_report(const tuning *t, const config *c, const cJSON *root, char **out) {
  const char *prefix = settings_text(t->settings, "keep");
  int m = c->settings.microbatches, k = c->settings.pieces;
  *out = NULL;
  if (!prefix) return SL_OK;
  char *path =
      k > 1 ? sli_format("%s-m%d-k%d.json", prefix, m, k) : sli_format("%s-m%d.json", prefix, m);
  char *text = sli_json_mend(cJSON_Print(root));
  SLI_CHECK(text, "no memory for the report");
  sl_status status = sli_atomic_text(path, text);
  free(text);
  if (status) free(path);
  else *out = path;
  return status;
}

static void say_measured(const tuning *t, const config *c, double seconds, const char *kept) {
  int threads = SLI_MAX(c->settings.lower.devices.threads, 1);
  printf("measured: %d times %lld steps of %d microbatches", RUNS,
         (long long)sl_arg_int(t->settings->run, "measure"), c->settings.microbatches);
  if (c->settings.pieces > 1) printf(" in %d pieces", c->settings.pieces);
  char name[1024];
  printf(" on one CPU device of %d %s, %.1f s%s%s\n", threads, threads > 1 ? "cores" : "core",
         seconds, kept ? ", kept in " : "", sli_escape(name, sizeof name, kept ? kept : ""));
  fflush(stdout);
}

static sl_status measure_now(tuning *t, int i) {
  const config *c = &t->configs[i];
  words w = {0};
  sli_json report = {0};
  char *kept = NULL;
  profile *p = NULL;
  measuring_words(t, c, &w);
  uint64_t start = sli_now_ns();
  sl_status status = run_several(&w, &report);
  if (!status) status = profile_make(&report, &p);
  if (!status) status = keep_report(t, c, report.root, &kept);
  if (!status) {
    give(t, i, p, kept);
    say_measured(t, c, (double)(sli_now_ns() - start) * 1e-9, kept);
  } else {
    profile_destroy(p);
  }
  sli_json_fini(&report);
  free(kept);
  words_fini(&w);
  return status;
}

/* Returns whether durations need not be measured: with --cost, --machine, or devices other than
 * CPUs, which have their own. */
static bool is_modelled(const settings *s) {
  bool cost = sli_cost_is_given(&s->lower.simulation.cost);
  return cost || s->modelled.hardware.flops_per_second > 0 ||
         !sli_kind_find(s->lower.devices.kind)->cores;
}

sl_status measure(tuning *t) {
  bool given = settings_text(t->settings, "profile") != NULL;
  if (!given && is_modelled(t->settings)) return SL_OK;
  for (int i = 0; i < t->nconfigs; i++) t->configs[i].settings.profile = NULL;
  for (int i = 0; i < t->nconfigs; i++) {
    if (t->configs[i].settings.profile) continue;
    sl_status status = given ? take_report(t, i) : measure_now(t, i);
    if (status) return status;
  }
  return SL_OK;
}
