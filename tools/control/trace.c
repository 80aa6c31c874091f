/* SPDX-License-Identifier: Apache-2.0 */
/* Trace of a run between two moments, switched on and off during the run.
 *
 * Workers always write their trace rings, so switching on only records the time, in every process.
 * The process that is asked to switch off collects the firings that have ended since then from all
 * processes, converts them to its own clock, and writes the file. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/trace.h>

#include "io/atomic.h"
#include "tools/control/control.h"

enum { PATIENCE_MS = 5000 };

/* ---- this process --------------------------------------------------------------------------- */

static void switch_on(tracing *t, const subject *s, const char *path) {
  free(t->path);
  *t = (tracing){sli_strdup(path), sli_now_ns(), sl_runtime_fired(s->rt)};
}

static void switch_off(tracing *t, const subject *s, FILE *out) {
  sl_trace_snapshot x = sl_runtime_trace_snapshot(s->rt, t->since_ns, t->fired);
  fwrite(&x, sizeof x, 1, out);
  if (x.nfirings) fwrite(x.firings, sizeof *x.firings, x.nfirings, out);
  free(x.firings);
  free(t->path);
  *t = (tracing){0};
}

/* Switches tracing on, with the file's path; an empty text switches it off. */
static void answer_trace(control *c, const subject *s, const void *data, size_t bytes, FILE *out) {
  char *text = sli_format("%.*s", (int)bytes, bytes ? (const char *)data : "");
  if (*text) switch_on(control_tracing(c), s, text);
  else switch_off(control_tracing(c), s, out);
  fputc(0, out); /* an answer even if there is nothing to report */
  free(text);
}

const question question_trace = {"trace", answer_trace};

/* ---- all processes ------------------------------------------------------------------------ */

static void free_answers(sl_blob *answers, int n) {
  for (int i = 0; i < n; i++) free(answers[i].data);
  free(answers);
}

static sl_status check_all(const sl_blob *answers, int n) {
  for (int i = 0; i < n; i++)
    if (!answers[i].data)
      return sl_fail(SL_E_PEER, "trace: process %d has not answered within %d s", i,
                     PATIENCE_MS / 1000);
  return SL_OK;
}

/* Adds a process's trace snapshot, its times converted to this process's clock. */
static sl_status add_snapshot(const sl_blob *answer, uint64_t base_ns, int64_t ahead_ns,
                              sl_trace_snapshot *all) {
  sl_trace_snapshot x;
  size_t most = answer->bytes < sizeof x ? 0 : (answer->bytes - sizeof x) / sizeof *x.firings;
  if (answer->bytes >= sizeof x) memcpy(&x, answer->data, sizeof x);
  if (answer->bytes < sizeof x || x.nfirings > most)
    return sl_fail(SL_E_INPUT, "one process's part of the trace is truncated");
  int64_t shift = (int64_t)(x.base_ns - base_ns) - ahead_ns;
  all->firings = sli_realloc(all->firings, all->nfirings + x.nfirings + 1, sizeof *all->firings);
  sl_trace_firing *f = all->firings + all->nfirings;
  memcpy(f, (const char *)answer->data + sizeof x, x.nfirings * sizeof *f);
  all->nfirings += x.nfirings;
  all->dropped += x.dropped;
  for (; f < all->firings + all->nfirings; f++) {
    f->record.start_ns = (uint64_t)SLI_MAX((int64_t)f->record.start_ns + shift, 0);
    f->record.end_ns = (uint64_t)SLI_MAX((int64_t)f->record.end_ns + shift, 0);
  }
  return SL_OK;
}

static sl_status write_all(const subject *s, const char *path, const sl_blob *answers, int n,
                           FILE *out) {
  sl_trace_snapshot all = {0};
  const sl_blob *own = &answers[sl_job_process(s->processes)];
  sl_status status = check_all(answers, n);
  if (!status && own->bytes >= sizeof all) memcpy(&all.base_ns, own->data, sizeof all.base_ns);
  for (int i = 0; i < n && !status; i++)
    status = add_snapshot(&answers[i], all.base_ns, sli_job_clock_offset(s->processes, i), &all);
  if (!status) status = sl_trace_snapshot_write(path, s->plan, s->rt, &all);
  if (!status) fprintf(out, "%s: %zu firings", path, all.nfirings);
  if (!status && all.dropped)
    fprintf(out, ", without the oldest %llu", (unsigned long long)all.dropped);
  if (!status) fputc('\n', out);
  free(all.firings);
  return status;
}

/* Checks that the file can be written. */
static sl_status try_path(const char *path) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (!status) sli_atomic_abandon(&file);
  return status;
}

static sl_status trace_begin(control *c, const subject *s, const char *path, FILE *out) {
  const char *before = control_tracing(c)->path;
  if (before)
    return sl_fail(SL_E_USAGE, "trace %s: %s is still being recorded; end it with trace off", path,
                   before);
  sl_status status = try_path(path);
  if (status) return status;
  int n = sl_job_processes(s->processes);
  sl_blob *answers = control_ask(c, &question_trace, path, strlen(path), PATIENCE_MS);
  status = check_all(answers, n);
  if (!status) fprintf(out, "%s\n", path);
  free_answers(answers, n);
  return status;
}

static sl_status end(control *c, const subject *s, FILE *out) {
  if (!control_tracing(c)->path)
    return sl_fail(SL_E_USAGE, "trace off: no trace is being recorded");
  char *path = sli_strdup(control_tracing(c)->path);
  int n = sl_job_processes(s->processes);
  sl_blob *answers = control_ask(c, &question_trace, NULL, 0, PATIENCE_MS);
  sl_status status = write_all(s, path, answers, n, out);
  free_answers(answers, n);
  free(path);
  return status;
}

sl_status request_trace(control *c, const subject *s, const char *text, FILE *out) {
  const char *path = control_tracing(c)->path;
  if (!strcmp(text, "off")) return end(c, s, out);
  if (*text) return trace_begin(c, s, text, out);
  fprintf(out, "%s\n", path ? path : "off");
  return SL_OK;
}
