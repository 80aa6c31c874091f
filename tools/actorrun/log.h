/* SPDX-License-Identifier: Apache-2.0 */
/* --log: values of each step, written to a file during the run. */
#ifndef SLUICE_TOOLS_ACTORRUN_LOG_H
#define SLUICE_TOOLS_ACTORRUN_LOG_H

#include <stdint.h>

#include <sluice/model.h>

typedef struct run_log run_log;

/* Names of columns: the figures of a step, and evaluation results. */
typedef struct log_columns {
  int nfigures;
  const char *const *figures;
  int count;
  const char *const *names;
} log_columns;
/* Opens the files of all --log options: FILE.csv, FILE.jsonl, or a folder for TensorBoard. A run
 * that resumes at step `first` keeps the lines up to that step and appends; 0 truncates the files.
 * The names must outlive the log. *out is NULL if there are no such options. SL_E_USAGE names a
 * file that cannot be written, or that is not a log. */
sl_status log_open(const sl_args *args, int64_t first, log_columns columns, run_log **out);

/* Values of a finished step, and the number of steps done. */
typedef struct log_line {
  int64_t step;
  double loss, grad_norm, lr, seconds, tokens_per_second;
  const double *figures; /* [nfigures] NaN if not known */
} log_line;
void log_step(run_log *log, const log_line *line);

/* Logs the results of an evaluation after `step` steps, on a separate line. */
void log_eval(run_log *log, int64_t step, const double *values);

/* Closes a log, or does nothing for NULL. SL_E_IO names a file that could not be written. */
sl_status log_close(run_log *log);

/* Returns whether a path of --log is a folder, in which each run has a separate file. */
bool log_is_folder(const char *path);

#endif
