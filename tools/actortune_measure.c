/* Durations of ops for every microbatch size: from the reports that the user
 * names, or from runs of a few steps on one CPU device, which is as large as each
 * of the pipeline's will be. What an op takes does not depend on the stage it
 * lies on, so one device tells all. */
#include "tools/actortune.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/atomic.h"
#include "tools/common_file.h"

/* The size a report was measured at; 0 where it does not say. */
typedef struct size {
  int microbatches, pieces;
} size;

static int number_of(const cJSON *options, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(options, name);
  return cJSON_IsNumber(item) ? item->valueint : 0;
}

static sl_status read_size(const char *path, size *out) {
  char *text;
  sl_status status = file_read(path, &text);
  if (status) return status;
  cJSON *root = cJSON_Parse(text);
  free(text);
  const cJSON *options = cJSON_GetObjectItemCaseSensitive(root, "options");
  *out = (size){number_of(options, "microbatches"), SLI_MAX(number_of(options, "pieces"), 1)};
  cJSON_Delete(root);
  return SL_OK;
}

static bool same_size(const config *a, const config *b) {
  return a->settings.microbatches == b->settings.microbatches &&
         a->settings.pieces == b->settings.pieces;
}

/* The configurations of the size of configuration i get this profile. */
static void give(tuning *t, int i, profile *p, const char *path) {
  for (int j = i; j < t->nconfigs; j++) {
    if (!same_size(&t->configs[i], &t->configs[j])) continue;
    t->configs[j].settings.profile = p;
    t->configs[j].profile_path = path ? sli_strdup(path) : NULL;
  }
}

/* ---- the user's ------------------------------------------------------------------------ */

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
  return sl_fail(SL_E_USAGE, "--profile: no report was measured at --microbatches %d%s; durations "
                 "hold for one size only", c->settings.microbatches, pieces);
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
  words_add(w, "cpu:1x%d", SLI_MAX(s->devices.threads, 1));
  words_add(w, "--stages");
  words_add(w, "1");
  words_add(w, "--microbatches");
  words_add(w, "%d", s->microbatches);
  words_add(w, "--pieces");
  words_add(w, "%d", s->pieces);
  words_add(w, "--cut");
  words_add(w, "%s", sl_arg_text(s->run, "cut"));
  words_add(w, "--steps");
  words_add(w, "%lld", (long long)sl_arg_int(s->run, "measure"));
  words_add(w, "--quiet");
  model_words(t, w);
}

static sl_status keep_report(const tuning *t, const config *c, const char *report, char **out) {
  const char *prefix = settings_text(t->settings, "keep");
  *out = NULL;
  if (!prefix) return SL_OK;
  char *text;
  sl_status status = file_read(report, &text);
  if (status) return status;
  char *path = c->settings.pieces > 1 ? sli_format("%s-m%d-k%d.json", prefix,
                                                   c->settings.microbatches, c->settings.pieces)
                                      : sli_format("%s-m%d.json", prefix, c->settings.microbatches);
  sli_atomic_file file;
  status = sli_atomic_open(path, &file);
  if (!status) {
    sli_atomic_write(&file, text, strlen(text)); /* commit finds errors */
    status = sli_atomic_commit(&file);
  }
  free(text);
  if (status) free(path);
  else *out = path;
  return status;
}

static sl_status measure_now(tuning *t, int i) {
  const config *c = &t->configs[i];
  words w = {0};
  char *report = NULL, *kept = NULL;
  profile *p = NULL;
  measuring_words(t, c, &w);
  uint64_t start = sli_now_ns();
  sl_status status = actorrun_run(&w, "measuring", &report);
  if (!status) status = profile_read(report, &p);
  if (!status) status = keep_report(t, c, report, &kept);
  if (!status) {
    give(t, i, p, kept);
    printf("measured: %lld steps of %d microbatches%s on one CPU device of %d %s, %.1f s%s%s\n",
           (long long)sl_arg_int(t->settings->run, "measure"), c->settings.microbatches,
           c->settings.pieces > 1 ? " in pieces" : "", SLI_MAX(c->settings.devices.threads, 1),
           c->settings.devices.threads > 1 ? "cores" : "core",
           (double)(sli_now_ns() - start) * 1e-9, kept ? ", kept in " : "", kept ? kept : "");
    fflush(stdout);
  } else {
    profile_destroy(p);
  }
  if (report) unlink(report);
  free(report);
  free(kept);
  words_fini(&w);
  return status;
}

/* Modelled durations need no measuring: those of --cost and --machine, and the
 * ops' own on timed devices. */
static bool is_modelled(const settings *s) {
  bool cost = s->cost.F > 0 || s->cost.B > 0 || s->cost.W > 0;
  return cost || s->hardware.flops_per_second > 0 || strcmp(s->devices.kind, "cpu");
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
