/* What --eval has found: the smallest loss and where it was, --patience, and DIR/best.
 *
 * `best` in the directory of --checkpoint holds the files of the checkpoint after which the loss was
 * smallest, as links, so that they stay when the checkpoint itself goes, and eval.json with its step and
 * loss. The loss of a step and its checkpoint are known one after the other, in either order: so
 * whether the checkpoint is there is asked after every step. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic.h"
#include "io/file.h"
#include "tools/actorrun/actorrun.h"

/* ---- DIR/best ------------------------------------------------------------------------------ */

/* Removes a folder of files, if there is one. */
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
    char *old = sli_format("%s/%s", from, entry->d_name), *new = sli_format("%s/%s", to, entry->d_name);
    good = !link(old, new);
    free(old);
    free(new);
  }
  if (folder) closedir(folder);
  return good;
}

static bool write_eval(const char *folder, const eval_record *best) {
  char *path = sli_format("%s/eval.json", folder);
  FILE *file = fopen(path, "w");
  if (file) fprintf(file, "{\"step\": %lld, \"loss\": %.17g}\n", (long long)best->step, best->loss);
  bool good = file && !ferror(file);
  if (file) good &= !fclose(file);
  free(path);
  return good;
}

/* Takes the place of the one before at once. */
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
  if (!dir || !e->pending || sl_checkpoints_newest(j->checkpoints) < e->best.step) return;
  char *from = sli_format("%s/step-%lld", dir, (long long)e->best.step);
  char *to = sli_format("%s/best", dir), *new = sli_format("%s/best.tmp", dir);
  remove_folder(new);
  if (!access(from, F_OK)) {
    bool good = link_files(from, new) && write_eval(new, &e->best) && replace(new, to);
    if (!good) sli_log("%s: not kept as the best: %s", from, strerror(errno));
  }
  e->pending = false;
  free(from);
  free(to);
  free(new);
}

/* What earlier parts of the run have found. */
static void read_best(evals *e, const char *dir) {
  char *path = sli_format("%s/best/eval.json", dir), *text = NULL;
  if (!access(path, R_OK) && !sli_file_read(path, &text)) {
    cJSON *root = cJSON_Parse(text);
    const cJSON *step = cJSON_GetObjectItem(root, "step"), *loss = cJSON_GetObjectItem(root, "loss");
    if (cJSON_IsNumber(step) && cJSON_IsNumber(loss))
      e->best = (eval_record){(int64_t)step->valuedouble, loss->valuedouble};
    cJSON_Delete(root);
  }
  free(text);
  free(path);
}

/* ---- evaluations --------------------------------------------------------------------------- */

sl_status evals_check(const settings *s) {
  int64_t every = sl_arg_int(s->run, "eval-every"), checkpoints = sl_arg_int(s->run, "every");
  if (!settings_text(s, "eval") || !settings_text(s, "checkpoint") || every % checkpoints == 0)
    return SL_OK;
  return sl_fail(SL_E_USAGE, "--eval-every %lld: not a multiple of --every %lld, so the best would be "
                 "where there is no checkpoint", (long long)every, (long long)checkpoints);
}

void evals_init(job *j) {
  const char *dir = settings_text(j->settings, "checkpoint");
  j->evals = (evals){.best = {.step = 0, .loss = INFINITY}};
  if (dir && sl_checkpoints_start(j->checkpoints)) read_best(&j->evals, dir);
}

void evals_fini(evals *e) {
  free(e->records);
  *e = (evals){0};
}

static void print_eval(job *j, const eval_record *r) {
  if (j->progress.quiet) return;
  progress_close(&j->progress);
  printf("step %lld/%lld  eval %.4f%s\n", (long long)r->step, (long long)j->progress.steps, r->loss,
         r->step == j->evals.best.step ? "  the smallest so far" : "");
  fflush(stdout);
}

void job_eval(void *ctx, int64_t step, double loss) {
  job *j = ctx;
  evals *e = &j->evals;
  const eval_record now = {step + 1, loss};
  int64_t patience = sl_arg_int(j->settings->run, "patience");
  SLI_GROW(e->records, e->count, e->capacity);
  e->records[e->count++] = now;
  bool better = loss < e->best.loss;
  if (better) e->best = now;
  e->pending |= better;
  e->without = better ? 0 : e->without + 1;
  print_eval(j, &now);
  log_eval(j->log, now.step, loss);
  keep_best(j);
  if (!patience || e->without < patience) return;
  e->ended = true;
  sl_runtime_stop(j->rt);
}

void evals_step(job *j) { keep_best(j); }
