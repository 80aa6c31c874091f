/* --log: what each step has given, in a file as the run goes. */
#ifndef SLUICE_TOOLS_ACTORRUN_LOG_H
#define SLUICE_TOOLS_ACTORRUN_LOG_H

#include <stdint.h>

#include <sluice/model.h>

typedef struct run_log run_log;

/* Opens what every --log names: FILE.csv, FILE.jsonl, or a folder for TensorBoard. A run that goes on
 * from step `first` keeps the lines up to there and writes on behind them; 0: files begin anew.
 * What evaluations find goes by these names, which outlive the log. *out NULL: there is none. SL_E_USAGE names what cannot be written, or is no log of ours. */
typedef struct log_evals {
  int count;
  const char *const *names;
} log_evals;
sl_status log_open(const sl_args *args, int64_t first, log_evals evals, run_log **out);

/* A step is done: how many that makes. */
typedef struct log_line {
  int64_t step;
  double loss, grad_norm, lr, seconds, tokens_per_second;
} log_line;
void log_step(run_log *log, const log_line *line);

/* What an evaluation after so many steps has found: on a line of its own. */
void log_eval(run_log *log, int64_t step, const double *values);

/* SL_E_IO names a file that could not be written. NULL is no log. */
sl_status log_close(run_log *log);

/* Is a path of --log a folder, in which each run has a file of its own? */
bool log_is_folder(const char *path);

#endif
