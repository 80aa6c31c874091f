/* Durations of ops for every microbatch size: from the reports that the user
 * names, or from runs of a few steps on one CPU device, which is as large as each
 * of the pipeline's will be. What an op takes does not depend on the stage it
 * lies on, so one device stands for all.
 *
 * Other programs can only make a run slower: the model is run several times, and of each op
 * the fastest of these runs counts. */
#include "tools/actortune/actortune.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "graph/devices/devices.h"
#include "graph/lower/lower.h"
#include "io/atomic.h"
#include "io/file.h"

enum { RUNS = 3 };

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
  sl_status status = sli_file_read(path, &text);
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
  words_add(w, "%s:1x%d", s->devices.kind, SLI_MAX(s->devices.threads, 1));
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

/* The same plan has the same ops in the same order. */
static void take_faster(cJSON *best, const cJSON *other) {
  cJSON *to = cJSON_GetObjectItemCaseSensitive(best, "ops");
  const cJSON *from = cJSON_GetObjectItemCaseSensitive(other, "ops");
  to = to ? to->child : NULL;
  from = from ? from->child : NULL;
  for (; to && from; to = to->next, from = from->next) {
    cJSON *mine = cJSON_GetObjectItemCaseSensitive(to, "seconds");
    const cJSON *its = cJSON_GetObjectItemCaseSensitive(from, "seconds");
    if (cJSON_IsNumber(mine) && cJSON_IsNumber(its))
      cJSON_SetNumberValue(mine, SLI_MIN(mine->valuedouble, its->valuedouble));
  }
}

static sl_status run_several(const words *w, cJSON **out) {
  cJSON *best = NULL;
  sl_status status = SL_OK;
  for (int i = 0; i < RUNS && !status; i++) {
    cJSON *root = NULL;
    status = actorrun_run(w, "measuring", &root);
    if (!status && best) take_faster(best, root);
    if (!best) best = root;
    else cJSON_Delete(root);
  }
  if (status) cJSON_Delete(best);
  else *out = best;
  return status;
}

/* The report with --keep, for --profile of later runs. */
static sl_status keep_report(const tuning *t, const config *c, const cJSON *root, char **out) {
  const char *prefix = settings_text(t->settings, "keep");
  int m = c->settings.microbatches, k = c->settings.pieces;
  *out = NULL;
  if (!prefix) return SL_OK;
  char *path = k > 1 ? sli_format("%s-m%d-k%d.json", prefix, m, k)
                     : sli_format("%s-m%d.json", prefix, m);
  char *text = cJSON_Print(root);
  SLI_CHECK(text, "no memory for the report");
  sl_status status = sli_atomic_text(path, text);
  free(text);
  if (status) free(path);
  else *out = path;
  return status;
}

static void say_measured(const tuning *t, const config *c, double seconds, const char *kept) {
  int threads = SLI_MAX(c->settings.devices.threads, 1);
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
  cJSON *root = NULL;
  char *kept = NULL;
  profile *p = NULL;
  measuring_words(t, c, &w);
  uint64_t start = sli_now_ns();
  sl_status status = run_several(&w, &root);
  if (!status) status = profile_make(root, "the measured report", &p);
  if (!status) status = keep_report(t, c, root, &kept);
  if (!status) {
    give(t, i, p, kept);
    say_measured(t, c, (double)(sli_now_ns() - start) * 1e-9, kept);
  } else {
    profile_destroy(p);
  }
  cJSON_Delete(root);
  free(kept);
  words_fini(&w);
  return status;
}

/* Modelled durations need no measuring: those of --cost and --machine, and the
 * ops' own on devices that are no cores. */
static bool is_modelled(const settings *s) {
  bool cost = sli_cost_is_given(&s->modelled.cost);
  return cost || s->modelled.hardware.flops_per_second > 0 || !sli_kind_find(s->devices.kind)->cores;
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
