/* SPDX-License-Identifier: Apache-2.0 */
/* Results of evaluations: the best by --best and its step, --patience, and DIR/best.
 *
 * `best` in the --checkpoint directory holds links to the files of the best checkpoint, so that the
 * files survive the checkpoint's removal. eval.json beside them has the step and the results. A
 * step's evaluation and its checkpoint may finish in either order, so the code checks after every
 * step whether the checkpoint exists. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic.h"
#include "io/json.h"
#include "tools/actorrun/actorrun.h"

/* ---- DIR/best ------------------------------------------------------------------------------ */

/* Removes a folder that contains only files, if it exists. */
static void remove_folder(const char *path) {
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      unlinkat(dirfd(folder), entry->d_name, 0);
  if (folder) closedir(folder);
  rmdir(path);
}

static bool link_files(const char *from, const char *to) {
  DIR *folder = opendir(from);
  bool good = folder && !mkdir(to, 0777);
  for (struct dirent *entry; good && (entry = readdir(folder));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    char *old = sli_format("%s/%s", from, entry->d_name),
         *new = sli_format("%s/%s", to, entry->d_name);
    good = !link(old, new);
    free(old);
    free(new);
  }
  if (folder) closedir(folder);
  return good;
}

static bool write_eval(const char *folder, const evals *e) {
  char *path = sli_format("%s/eval.json", folder);
  const eval_record *best = &e->records[0];
  for (size_t i = 0; i < e->count; i++)
    if (e->records[i].step == e->best_step) best = &e->records[i];
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (!status) {
    fprintf(file.stream, "{\"step\": %lld", (long long)best->step);
    for (int i = 0; i < e->nvalues; i++)
      if (isfinite(best->values[i]))
        fprintf(file.stream, ", \"%s\": %.17g", e->names[i], best->values[i]);
    fprintf(file.stream, "}\n");
    status = sli_atomic_commit(&file);
  }
  free(path);
  return !status;
}

/* Replaces the previous folder atomically. */
static bool replace(const char *new, const char *path) {
  if (!rename(new, path)) return true;
  bool swapped = (errno == EEXIST || errno == ENOTEMPTY) &&
                 !renameat2(AT_FDCWD, new, AT_FDCWD, path, RENAME_EXCHANGE);
  remove_folder(new);
  return swapped;
}

static void keep_best(job *j) {
  evals *e = &j->evals;
  const char *dir = settings_text(j->settings, "checkpoint");
  if (!dir || !e->pending || sl_checkpoints_newest(j->checkpoints) < e->best_step) return;
  char *from = sli_format("%s/step-%lld", dir, (long long)e->best_step);
  char *to = sli_format("%s/best", dir), *new = sli_format("%s/best.tmp", dir);
  remove_folder(new);
  if (!access(from, F_OK)) {
    bool good = link_files(from, new) && write_eval(new, e) && replace(new, to);
    if (!good) sli_log("%s: cannot keep the best checkpoint: %s", from, strerror(errno));
  }
  e->pending = false;
  free(from);
  free(to);
  free(new);
}

/* Reads the best result of earlier runs that this run continues. */
static void read_best(evals *e, const char *dir) {
  char *path = sli_format("%s/best/eval.json", dir);
  const sli_json_field fields[] = {
      {"step", SLI_JSON_WHOLE, &e->best_step, 0, 1e15, true},
      {e->names[e->by], SLI_JSON_NUMBER, &e->best, -DBL_MAX, DBL_MAX, false}};
  sli_json doc = {0};
  sl_status status = access(path, R_OK) ? SL_OK : sli_json_open(path, &doc);
  if (!status && doc.root) status = sli_json_pick(&doc, doc.root, fields, SLI_COUNT(fields));
  if (status) sli_log("%s; the best evaluation so far is not known", sl_detail());
  sli_json_fini(&doc);
  free(path);
}

/* ---- evaluations --------------------------------------------------------------------------- */

bool settings_evaluate(const settings *s) {
  return settings_text(s, "eval") || sl_arg_given(s->run, "eval-every", 0);
}

sl_status evals_check(const settings *s) {
  int64_t every = sl_arg_int(s->run, "eval-every"), checkpoints = sl_arg_int(s->run, "every");
  int64_t steps = sl_arg_int(s->run, "steps");
  if (!settings_evaluate(s)) return SL_OK;
  if (every > steps)
    return sl_fail(
        SL_E_USAGE,
        "--eval-every %lld: the run ends earlier, with --steps %lld, and would evaluate nothing",
        (long long)every, (long long)steps);
  if (!settings_text(s, "checkpoint") || every % checkpoints == 0) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "--eval-every %lld: must be a multiple of --every %lld, so that the best evaluation has a checkpoint",
      (long long)every, (long long)checkpoints);
}

/* Parses "NAME", "NAME:min" or "NAME:max". The default is min for the loss, and max for all
 * metrics. */
static sl_status read_by(evals *e, const char *text) {
  size_t length = strcspn(text, ":");
  const char *word = text + length;
  e->by = 0;
  while (e->by < e->nvalues &&
         (strlen(e->names[e->by]) != length || strncmp(e->names[e->by], text, length)))
    e->by++;
  bool known = !*word || !strcmp(word, ":min") || !strcmp(word, ":max");
  e->largest = *word ? !strcmp(word, ":max") : e->by > 0;
  if (e->by < e->nvalues && known) return SL_OK;
  char *names = sli_strdup("");
  for (int i = 0; i < e->nvalues; i++) {
    char *longer = sli_format("%s%s%s", names, i ? ", " : "", e->names[i]);
    free(names);
    names = longer;
  }
  sl_status status = sl_fail(
      SL_E_USAGE, "--best %s: must be one of %s, optionally followed by :min or :max", text, names);
  free(names);
  return status;
}

sl_status evals_init(job *j) {
  const char *dir = settings_text(j->settings, "checkpoint");
  evals *e = &j->evals;
  *e = (evals){.nvalues = 1};
  while (sl_graph_metric(j->made.graph, e->nvalues - 1)) e->nvalues++;
  e->names = sli_calloc((size_t)e->nvalues, sizeof *e->names);
  e->next = sli_calloc((size_t)e->nvalues, sizeof *e->next);
  e->names[0] = "loss";
  for (int i = 1; i < e->nvalues; i++) e->names[i] = sl_graph_metric(j->made.graph, i - 1);
  sl_status status = read_by(e, sl_arg_text(j->settings->run, "best"));
  e->best = e->largest ? -INFINITY : INFINITY;
  if (!status && dir && sl_checkpoints_start(j->checkpoints)) read_best(e, dir);
  return status;
}

void evals_fini(evals *e) {
  for (size_t i = 0; i < e->count; i++) free(e->records[i].values);
  free(e->records);
  free(e->names);
  free(e->next);
  *e = (evals){0};
}

static void print_eval(job *j, const eval_record *r) {
  const evals *e = &j->evals;
  if (j->progress.quiet) return;
  progress_close(&j->progress);
  printf("step %lld/%lld  eval %.4f", (long long)r->step, (long long)j->progress.steps,
         r->values[0]);
  for (int i = 1; i < e->nvalues; i++) printf("  %s %.4f", e->names[i], r->values[i]);
  printf("%s\n", r->step != e->best_step ? ""
                 : e->by                 ? "  the best so far"
                                         : "  the smallest so far");
  fflush(stdout);
}

void job_metric(void *ctx, int64_t step, const char *name, double value) {
  (void)step;
  evals *e = &((job *)ctx)->evals;
  for (int i = 1; i < e->nvalues; i++)
    if (!strcmp(e->names[i], name)) e->next[i] = value;
}

static const eval_record *keep_record(evals *e, int64_t step, double loss) {
  SLI_GROW(e->records, e->count, e->capacity);
  eval_record *r = &e->records[e->count++];
  *r = (eval_record){step, sli_calloc((size_t)e->nvalues, sizeof *r->values)};
  e->next[0] = loss;
  memcpy(r->values, e->next, (size_t)e->nvalues * sizeof *r->values);
  return r;
}

void job_eval(void *ctx, int64_t step, double loss) {
  job *j = ctx;
  evals *e = &j->evals;
  const eval_record *now = keep_record(e, step + 1, loss);
  int64_t patience = sl_arg_int(j->settings->run, "patience");
  double value = now->values[e->by];
  bool better = e->largest ? value > e->best : value < e->best;
  if (better) e->best = value, e->best_step = now->step;
  e->pending |= better;
  e->without = better ? 0 : e->without + 1;
  print_eval(j, now);
  log_eval(j->log, now->step, now->values);
  keep_best(j);
  if (!patience || e->without < patience) return;
  e->ended = true;
  sl_runtime_stop(j->rt);
}

void evals_step(job *j) { keep_best(j); }
