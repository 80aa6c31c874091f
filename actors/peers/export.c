/* What each process did, put side by side after a run: figures and records leave a process
 * as bytes and come in at another, which then answers for the whole plan. */
#include "actors/look/look.h"
#include "actors/plan/plan.h"
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of an export: this, then peaks by device, peaks by register, records. */
typedef struct export_head {
  uint64_t plan_hash, base_ns; /* base: when its clock was 0, of CLOCK_MONOTONIC */
  int64_t first_whole;
  uint64_t dropped, nrecords;
  int32_t process, ndevices, nregs;
  sl_runtime_counts counts;
} export_head;

static size_t export_head_bytes(const export_head *t) {
  return sizeof *t + (size_t)t->ndevices * sizeof(double) +
         (sli_align((size_t)t->nregs * sizeof(int32_t))) + t->nrecords * sizeof(sl_trace_record);
}

size_t sl_runtime_export(const sl_runtime *rt, void **out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  sl_trace_record *records;
  export_head t = {.plan_hash = plan->hash, .base_ns = sli_runtime_base_ns(rt),
                   .first_whole = sli_first_whole_step(rt), .process = sli_runtime_process(rt),
                   .ndevices = plan->ndevices, .nregs = plan->nregs,
                   .counts = sl_runtime_count(rt)};
  t.nrecords = sli_runtime_records(rt, &records, &t.dropped);
  size_t size = export_head_bytes(&t);
  char *bytes = sli_calloc(1, size);
  double *peaks = (double *)(bytes + sizeof t);
  int32_t *slots = (int32_t *)(peaks + t.ndevices);
  memcpy(bytes, &t, sizeof t);
  for (int32_t d = 0; d < t.ndevices; d++) peaks[d] = sl_runtime_peak_activations(rt, d);
  for (int32_t r = 0; r < t.nregs; r++) slots[r] = sl_runtime_peak_slots(rt, r);
  memcpy(bytes + size - t.nrecords * sizeof *records, records, t.nrecords * sizeof *records);
  free(records);
  *out = bytes;
  return size;
}

/* Records are in this process's time from here on; what was before its start is at it. */
static void keep_records(sl_runtime *rt, const export_head *t, const char *records,
                         int64_t ahead_ns) {
  sli_remote *remote = sli_calloc(1, sizeof *remote);
  *remote = (sli_remote){.first_whole = t->first_whole, .dropped = t->dropped,
                         .counts = t->counts, .nrecords = t->nrecords,
                         .records = sli_calloc(t->nrecords, sizeof *remote->records)};
  memcpy(remote->records, records, t->nrecords * sizeof *remote->records);
  int64_t shift = (int64_t)(t->base_ns - sli_runtime_base_ns(rt)) - ahead_ns;
  for (size_t i = 0; i < remote->nrecords; i++) {
    sl_trace_record *r = &remote->records[i];
    r->start_ns = (uint64_t)SLI_MAX((int64_t)r->start_ns + shift, 0);
    r->end_ns = (uint64_t)SLI_MAX((int64_t)r->end_ns + shift, 0);
  }
  sli_runtime_add_remote(rt, remote);
}

static bool is_record(const sl_plan *plan, const char *bytes) {
  sl_trace_record r;
  memcpy(&r, bytes, sizeof r);
  return r.actor >= 0 && r.actor < plan->nactors && r.reg < (uint32_t)plan->nregs &&
         r.end_ns >= r.start_ns;
}

sl_status sl_runtime_import(sl_runtime *rt, const void *bytes, size_t size, int64_t ahead_ns) {
  const sl_plan *plan = sli_runtime_plan(rt);
  export_head t;
  if (size < sizeof t) return sl_fail(SL_E_INPUT, "a process's figures are cut off");
  memcpy(&t, bytes, sizeof t);
  if (t.plan_hash != plan->hash || t.ndevices != plan->ndevices || t.nregs != plan->nregs ||
      t.nrecords > size / sizeof(sl_trace_record) || export_head_bytes(&t) != size)
    return sl_fail(SL_E_INPUT, "figures of process %d are not of this plan", t.process);
  const char *records = (const char *)bytes + size - t.nrecords * sizeof(sl_trace_record);
  for (size_t i = 0; i < t.nrecords; i++)
    if (!is_record(plan, records + i * sizeof(sl_trace_record)))
      return sl_fail(SL_E_INPUT, "record %zu of process %d is of no actor", i, t.process);
  const double *peaks = (const double *)((const char *)bytes + sizeof t);
  const int32_t *slots = (const int32_t *)(peaks + t.ndevices);
  sli_runtime_set_peaks(rt, t.process, peaks, slots);
  keep_records(rt, &t, records, ahead_ns);
  return SL_OK;
}
