/* --log: what each step has given, in a file as the run goes. */
#ifndef SLUICE_TOOLS_ACTORRUN_LOG_H
#define SLUICE_TOOLS_ACTORRUN_LOG_H

#include <stdint.h>

#include <sluice/model.h>

typedef struct run_log run_log;

/* Opens what every --log names: FILE.csv, FILE.jsonl, or a folder for TensorBoard. A run that goes on
 * from step `first` keeps the lines up to there and writes on behind them; 0: files begin anew.
 * *out NULL: there is none. SL_E_USAGE names what cannot be written, or is no log of ours. */
sl_status log_open(const sl_args *args, int64_t first, run_log **out);

/* A step is done: how many that makes. */
typedef struct log_line {
  int64_t step;
  double loss, grad_norm, lr, seconds, tokens_per_second;
} log_line;
void log_step(run_log *log, const log_line *line);

/* The loss of an evaluation after so many steps: on a line of its own. */
void log_eval(run_log *log, int64_t step, double loss);

/* SL_E_IO names a file that could not be written. NULL is no log. */
sl_status log_close(run_log *log);

#endif
