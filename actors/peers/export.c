/* SPDX-License-Identifier: Apache-2.0 */
/* Merging the records of all processes after a run. One process exports its statistics and records
 * as portions of plain bytes. Another imports them, and then reports on the whole plan. The first
 * portion holds the statistics; it and later portions hold the records. */
#include "actors/status/status.h"
#include "actors/plan/plan.h"
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Header of a portion. In the first portion, peaks by device and by register follow it. Records
 * come last in every portion. */
typedef struct head {
  uint64_t plan_hash, base_ns; /* base: CLOCK_MONOTONIC time at which its clock was 0 */
  int64_t first_whole;
  uint64_t dropped, nrecords; /* nrecords: in this portion; dropped: of the run */
  int32_t process, number;    /* number: of the portion, from 0 */
  int32_t ndevices, nregs;    /* 0 except in the first portion */
  sl_runtime_counts counts;
} head;

static size_t peaks_bytes(const head *h) {
  return (size_t)h->ndevices * sizeof(double) + sli_align((size_t)h->nregs * sizeof(int32_t));
}

/* Bytes of row counts per record, if slots have rows. They follow all records. */
static size_t row_bytes(const sl_plan *plan) {
  bool any = false;
  for (int32_t r = 0; r < plan->nregs; r++) any |= plan->regs[r].rows > 0;
  return any ? sizeof(int32_t) : 0;
}

static size_t record_bytes(const sl_plan *plan) {
  return sizeof(sl_trace_record) + row_bytes(plan);
}

static size_t portion_bytes(const sl_plan *plan, const head *h) {
  return sizeof *h + peaks_bytes(h) + h->nrecords * record_bytes(plan);
}

/* ---- export ------------------------------------------------------------------------- */

struct sl_export {
  const sl_runtime *rt;
  size_t most; /* most bytes of a portion */
  head head;   /* header of the next portion */
  sl_trace_record *records;
  size_t nrecords, at; /* all records; those before `at` have been sent */
  char *bytes;         /* the last portion */
};

static int64_t step_of(const sl_runtime *rt, const sl_trace_record *r) {
  return sl_plan_tick(sli_runtime_plan(rt), r->actor, r->firing).step;
}

/* First step to keep so that at most `most` records remain. The last few steps are always kept. */
static int64_t first_kept(const sl_export *e, uint64_t most) {
  enum { FEW = 3 };
  int64_t from = e->head.first_whole, count = SLI_MAX(sl_runtime_steps(e->rt) - from, 0),
          kept = count;
  uint64_t *of_step = sli_calloc((size_t)count + 1, sizeof *of_step), sum = 0;
  for (size_t i = 0; i < e->nrecords; i++) {
    int64_t step = step_of(e->rt, &e->records[i]) - from;
    if (step >= 0 && step < count) of_step[step]++;
  }
  while (kept && (count - kept < FEW || sum + of_step[kept - 1] <= most)) sum += of_step[--kept];
  free(of_step);
  return from + kept;
}

/* Drops all but the newest whole steps. */
static void thin_out(sl_export *e, uint64_t most) {
  size_t n = 0;
  int64_t from = first_kept(e, most);
  for (size_t i = 0; i < e->nrecords; i++)
    if (step_of(e->rt, &e->records[i]) >= from) e->records[n++] = e->records[i];
  e->head.dropped += e->nrecords - n;
  e->head.first_whole = from;
  e->nrecords = n;
}

sl_export *sl_export_open(const sl_runtime *rt, size_t most_bytes, uint64_t most_records) {
  sl_export *e = sli_calloc(1, sizeof *e);
  *e = (sl_export){.rt = rt, .most = most_bytes ? most_bytes : SIZE_MAX};
  const sl_plan *plan = sli_runtime_plan(rt);
  e->head = (head){.plan_hash = plan->hash,
                   .base_ns = sli_runtime_base_ns(rt),
                   .first_whole = sli_first_whole_step(rt),
                   .process = sli_runtime_process(rt),
                   .ndevices = plan->ndevices,
                   .nregs = plan->nregs,
                   .counts = sl_runtime_count(rt)};
  e->nrecords = sli_runtime_records(rt, &e->records, &e->head.dropped);
  if (most_records && e->nrecords > most_records) thin_out(e, most_records);
  return e;
}

static void write_peaks(const sl_runtime *rt, const head *h, char *to) {
  double *peaks = (double *)to;
  int32_t *slots = (int32_t *)(peaks + h->ndevices);
  for (int32_t d = 0; d < h->ndevices; d++) peaks[d] = sl_runtime_peak_activations(rt, d);
  for (int32_t r = 0; r < h->nregs; r++) slots[r] = sl_runtime_peak_slots(rt, r);
}

static void write_rows(const sl_export *e, char *to) {
  for (size_t i = 0; i < e->head.nrecords; i++) {
    const sl_trace_record *r = &e->records[e->at + i];
    int32_t rows = sli_runtime_rows(e->rt, r->actor, r->firing);
    memcpy(to + i * sizeof rows, &rows, sizeof rows);
  }
}

size_t sl_export_next(sl_export *e, const void **out) {
  const sl_plan *plan = sli_runtime_plan(e->rt);
  head *h = &e->head;
  if (h->number && e->at == e->nrecords) return 0;
  size_t fixed = sizeof *h + peaks_bytes(h), each = record_bytes(plan);
  size_t room = e->most > fixed ? (e->most - fixed) / each : 0;
  if (!room && h->number) room = 1;
  h->nrecords = SLI_MIN(room, e->nrecords - e->at);
  size_t size = portion_bytes(plan, h), records = h->nrecords * sizeof *e->records;
  free(e->bytes);
  e->bytes = sli_calloc(1, size);
  memcpy(e->bytes, h, sizeof *h);
  write_peaks(e->rt, h, e->bytes + sizeof *h);
  if (h->nrecords) memcpy(e->bytes + fixed, e->records + e->at, records);
  if (row_bytes(plan)) write_rows(e, e->bytes + fixed + records);
  e->at += h->nrecords;
  h->number++;
  h->ndevices = h->nregs = 0;
  *out = e->bytes;
  return size;
}

void sl_export_close(sl_export *e) {
  if (!e) return;
  free(e->records);
  free(e->bytes);
  free(e);
}

size_t sl_runtime_export(const sl_runtime *rt, void **out) {
  sl_export *e = sl_export_open(rt, 0, 0);
  const void *bytes;
  size_t size = sl_export_next(e, &bytes);
  *out = e->bytes;
  e->bytes = NULL;
  sl_export_close(e);
  return size;
}

/* ---- import ------------------------------------------------------------------------- */

static const sli_remote *find_remote(const sl_runtime *rt, int32_t process) {
  const sli_remote *r = sli_runtime_remotes(rt);
  while (r && r->process != process) r = r->next;
  return r;
}

/* Checks a portion's sender. A first portion is always accepted: it replaces the process's export
 * of an earlier run. */
static sl_status check_sender(const sl_runtime *rt, const head *h) {
  bool other = h->process >= 0 && h->process < sli_runtime_plan(rt)->nprocesses &&
               h->process != sli_runtime_process(rt);
  if (!other)
    return sl_fail(SL_E_INPUT,
                   "trace records came from process %d, which is not another process of this run",
                   h->process);
  const sli_remote *known = find_remote(rt, h->process);
  int32_t due = known ? known->nportions : 0;
  if (h->number == due || !h->number) return SL_OK;
  return sl_fail(SL_E_INPUT, "trace records of process %d: portion %d came instead of %d",
                 h->process, h->number, due);
}

static bool fits_plan(const sl_plan *plan, const head *h, size_t size) {
  bool first = !h->number;
  return h->plan_hash == plan->hash && h->ndevices == (first ? plan->ndevices : 0) &&
         h->nregs == (first ? plan->nregs : 0) && h->nrecords <= size / sizeof(sl_trace_record) &&
         portion_bytes(plan, h) == size;
}

static bool is_record(const sl_plan *plan, const char *bytes) {
  sl_trace_record r;
  memcpy(&r, bytes, sizeof r);
  return r.actor >= 0 && r.actor < plan->nactors && r.reg < SLI_MAX((uint32_t)plan->nregs, 1u) &&
         r.end_ns >= r.start_ns;
}

static sl_status check_portion(const sl_runtime *rt, const head *h, const char *bytes,
                               size_t size) {
  if (!fits_plan(sli_runtime_plan(rt), h, size))
    return sl_fail(SL_E_INPUT, "trace records of process %d do not fit this plan", h->process);
  sl_status status = check_sender(rt, h);
  const char *records = bytes + sizeof *h + peaks_bytes(h);
  for (size_t i = 0; i < h->nrecords && !status; i++)
    if (!is_record(sli_runtime_plan(rt), records + i * sizeof(sl_trace_record)))
      status = sl_fail(SL_E_INPUT, "record %zu of process %d names no actor", i, h->process);
  return status;
}

static void begin_remote(sli_remote *r, const head *h) {
  r->nportions = 0;
  r->first_whole = h->first_whole;
  r->dropped = h->dropped;
  r->counts = h->counts;
  r->nrecords = 0;
}

/* Keeps records, converted to this process's clock. Times before its start become 0. */
static void keep_records(sli_remote *remote, const char *records, size_t n, int64_t shift_ns) {
  if (n)
    remote->records = sli_realloc(remote->records, remote->nrecords + n, sizeof *remote->records);
  if (n) memcpy(remote->records + remote->nrecords, records, n * sizeof *remote->records);
  for (size_t end = remote->nrecords + n; remote->nrecords < end; remote->nrecords++) {
    sl_trace_record *r = &remote->records[remote->nrecords];
    r->start_ns = (uint64_t)SLI_MAX((int64_t)r->start_ns + shift_ns, 0);
    r->end_ns = (uint64_t)SLI_MAX((int64_t)r->end_ns + shift_ns, 0);
  }
}

static void take_rows(sl_runtime *rt, const head *h, const char *records) {
  const char *rows = records + h->nrecords * sizeof(sl_trace_record);
  for (size_t i = 0; i < h->nrecords && row_bytes(sli_runtime_plan(rt)); i++) {
    sl_trace_record r;
    int32_t n;
    memcpy(&r, records + i * sizeof r, sizeof r);
    memcpy(&n, rows + i * sizeof n, sizeof n);
    sli_runtime_note_rows(rt, r.actor, r.firing, n);
  }
}

sl_status sl_runtime_import(sl_runtime *rt, const void *bytes, size_t size, int64_t ahead_ns) {
  head h;
  if (size < sizeof h) return sl_fail(SL_E_INPUT, "trace records of a process are truncated");
  memcpy(&h, bytes, sizeof h);
  sl_status status = check_portion(rt, &h, bytes, size);
  if (status) return status;
  const char *peaks = (const char *)bytes + sizeof h;
  sli_remote *remote = sli_runtime_remote(rt, h.process);
  if (!h.number) {
    const double *activations = (const double *)peaks;
    sli_runtime_set_peaks(rt, h.process, activations, (const int32_t *)(activations + h.ndevices));
    begin_remote(remote, &h);
  }
  keep_records(remote, peaks + peaks_bytes(&h), h.nrecords,
               (int64_t)(h.base_ns - sli_runtime_base_ns(rt)) - ahead_ns);
  take_rows(rt, &h, peaks + peaks_bytes(&h));
  remote->nportions++;
  return SL_OK;
}
