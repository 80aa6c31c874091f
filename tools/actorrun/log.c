/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/journal.h"
#include "tools/actorrun/events.h"

/* Number of columns after the step. */
enum { COLUMNS = 5 };
static const char *const columns[COLUMNS] = {"loss", "grad_norm", "lr", "seconds",
                                             "tokens_per_second"};

static double value_of(const log_line *line, int column) {
  const double values[COLUMNS] = {line->loss, line->grad_norm, line->lr, line->seconds,
                                  line->tokens_per_second};
  return values[column];
}

/* ---- formats ----------------------------------------------------------------------------- */

static double wall_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void begin_csv(FILE *file, const log_columns *own) {
  fprintf(file, "step");
  for (int c = 0; c < COLUMNS; c++) fprintf(file, ",%s", columns[c]);
  for (int c = 0; c < own->nfigures; c++) fprintf(file, ",%s", own->figures[c]);
  for (int c = 0; c < own->count; c++) fprintf(file, ",eval_%s", own->names[c]);
  fputc('\n', file);
}

static void eval_csv(FILE *file, int64_t step, const log_columns *own, const double *values) {
  fprintf(file, "%" PRId64, step);
  for (int c = 0; c < COLUMNS + own->nfigures; c++) fputc(',', file);
  for (int c = 0; c < own->count; c++) fprintf(file, ",%.9g", values[c]);
  fputc('\n', file);
}

static void write_csv(FILE *file, const log_columns *own, const log_line *line) {
  fprintf(file, "%" PRId64, line->step);
  for (int c = 0; c < COLUMNS; c++) fprintf(file, ",%.9g", value_of(line, c));
  for (int c = 0; c < own->nfigures; c++) fprintf(file, ",%.9g", line->figures[c]);
  for (int c = 0; c < own->count; c++) fputc(',', file);
  fputc('\n', file);
}

/* Writes a JSON value, with null for NaN. */
static void put_jsonl(FILE *file, const char *prefix, const char *name, double value) {
  if (isfinite(value)) fprintf(file, ", \"%s%s\": %.9g", prefix, name, value);
  else fprintf(file, ", \"%s%s\": null", prefix, name);
}

static void write_jsonl(FILE *file, const log_columns *own, const log_line *line) {
  fprintf(file, "{\"step\": %" PRId64, line->step);
  for (int c = 0; c < COLUMNS; c++) put_jsonl(file, "", columns[c], value_of(line, c));
  for (int c = 0; c < own->nfigures; c++) put_jsonl(file, "", own->figures[c], line->figures[c]);
  fprintf(file, "}\n");
}

static void eval_jsonl(FILE *file, int64_t step, const log_columns *own, const double *values) {
  fprintf(file, "{\"step\": %" PRId64, step);
  for (int c = 0; c < own->count; c++) put_jsonl(file, "eval_", own->names[c], values[c]);
  fprintf(file, "}\n");
}

static void begin_events(FILE *file, const log_columns *own) {
  (void)own;
  events_begin(file, wall_seconds());
}

static void write_events(FILE *file, const log_columns *own, const log_line *line) {
  double now = wall_seconds();
  for (int c = 0; c < COLUMNS; c++)
    events_scalar(file, now, line->step, columns[c], value_of(line, c));
  for (int c = 0; c < own->nfigures; c++)
    events_scalar(file, now, line->step, own->figures[c], line->figures[c]);
}

static void eval_events(FILE *file, int64_t step, const log_columns *own, const double *values) {
  for (int c = 0; c < own->count; c++) {
    char *name = sli_format("eval_%s", own->names[c]);
    events_scalar(file, wall_seconds(), step, name, values[c]);
    free(name);
  }
}

typedef struct format {
  const char *suffix; /* NULL: a folder in which each run has a separate file */
  void (*begin)(FILE *f, const log_columns *own); /* writes the header of a file, or NULL */
  void (*write)(FILE *f, const log_columns *own, const log_line *line);
  void (*eval)(FILE *f, int64_t step, const log_columns *own, const double *values);
  const char *step; /* text before a line's step */
} format;

static const format formats[] = {{".csv", begin_csv, write_csv, eval_csv, ""},
                                 {".jsonl", NULL, write_jsonl, eval_jsonl, "{\"step\": "},
                                 {NULL, begin_events, write_events, eval_events, NULL}};

static const format *format_of(const char *path) {
  const format *f = formats;
  for (size_t n = strlen(path); f->suffix; f++) {
    size_t m = strlen(f->suffix);
    if (n > m && !strcmp(path + n - m, f->suffix)) break;
  }
  return f;
}

bool log_is_folder(const char *path) { return !format_of(path)->suffix; }

/* ---- opening ----------------------------------------------------------------------------- */

typedef struct log_file {
  const format *format;
  char *path;
  sli_journal *to;
} log_file;

struct run_log {
  size_t count, capacity;
  log_file *files;
  log_columns own; /* columns after those that every run has */
};

/* Returns the offset after the last line up to step `first`, or -1 if the file has another
 * format. */
static long end_of(const format *f, const char *text, int64_t first, const log_columns *own) {
  const char *at = text;
  if (f->begin) {
    char *header = NULL;
    size_t bytes;
    FILE *memory = sli_memory_stream(&header, &bytes);
    f->begin(memory, own);
    fclose(memory);
    bool ours = !strncmp(text, header, bytes);
    free(header);
    if (!ours) return -1;
    at += bytes;
  }
  for (const char *end; (end = strchr(at, '\n')); at = end + 1) {
    size_t n = strlen(f->step);
    char *number_end;
    if (strncmp(at, f->step, n)) return -1;
    long long step = strtoll(at + n, &number_end, 10);
    if (number_end == at + n) return -1;
    if (step > first) break;
  }
  return at - text;
}

static sl_status cannot_write(const char *path) {
  return sl_fail(SL_E_USAGE, "--log: cannot write %s: %s", path, strerror(errno));
}

/* Opens the file to append to what an earlier run wrote. */
static sl_status open_behind(log_file *l, int64_t first, const log_columns *own) {
  char *text = NULL;
  sl_status status = sli_file_read(l->path, &text);
  if (status) return status;
  long end = end_of(l->format, text, first, own);
  free(text);
  if (end < 0)
    return sl_fail(SL_E_USAGE, "--log %s: the existing file is not a log that a run can continue",
                   l->path);
  status = sli_journal_continue(l->path, end, &l->to);
  return status ? sl_fail(SL_E_USAGE, "--log: %s", sl_detail()) : SL_OK;
}

static sl_status open_new(log_file *l, const log_columns *own) {
  if (sli_journal_create(l->path, &l->to)) return sl_fail(SL_E_USAGE, "--log: %s", sl_detail());
  if (l->format->begin) l->format->begin(sli_journal_stream(l->to), own);
  return SL_OK;
}

/* Makes a unique file name that TensorBoard recognizes. */
static sl_status name_in_folder(log_file *l, const char *folder) {
  char host[64] = "";
  if (mkdir(folder, 0777) && errno != EEXIST) return cannot_write(folder);
  if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "localhost");
  free(l->path);
  l->path = sli_format("%s/events.out.tfevents.%.0f.%s.%ld", folder, floor(wall_seconds()), host,
                       (long)getpid());
  return SL_OK;
}

static sl_status open_file(log_file *l, int64_t first, const log_columns *own) {
  char *given = sli_strdup(l->path);
  sl_status status = l->format->suffix ? SL_OK : name_in_folder(l, given);
  free(given);
  if (status) return status;
  return first && !access(l->path, F_OK) ? open_behind(l, first, own) : open_new(l, own);
}

sl_status log_open(const sl_args *args, int64_t first, log_columns own, run_log **out) {
  run_log *log = NULL;
  sl_status status = SL_OK;
  const char *path;
  for (int i = 0; !status && (path = sl_arg_given(args, "log", i)); i++) {
    if (!log) log = sli_calloc(1, sizeof *log);
    log->own = own;
    SLI_GROW(log->files, log->count, log->capacity);
    log_file *l = &log->files[log->count++];
    *l = (log_file){.format = format_of(path), .path = sli_strdup(path)};
    status = open_file(l, first, &own);
  }
  *out = log;
  return status;
}

/* ---- writing ----------------------------------------------------------------------------- */

/* log_close() reports a lost line. */
void log_step(run_log *log, const log_line *line) {
  for (size_t i = 0; log && i < log->count; i++) {
    const log_file *l = &log->files[i];
    l->format->write(sli_journal_stream(l->to), &log->own, line);
    sli_journal_end(l->to);
  }
}

void log_eval(run_log *log, int64_t step, const double *values) {
  for (size_t i = 0; log && i < log->count; i++) {
    const log_file *l = &log->files[i];
    l->format->eval(sli_journal_stream(l->to), step, &log->own, values);
    sli_journal_end(l->to);
  }
}

sl_status log_close(run_log *log) {
  sl_status status = SL_OK;
  for (size_t i = 0; log && i < log->count; i++) {
    log_file *l = &log->files[i];
    status = sli_journal_finish(l->to, "log", status);
    free(l->path);
  }
  if (log) free(log->files);
  free(log);
  return status;
}
