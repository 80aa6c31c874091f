/* SPDX-License-Identifier: Apache-2.0 */
/* Serializes a run's status: one process's knowledge of the run, for another process of the job. */
#include <sluice/run_status.h>

#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Header of an export; nfacts facts follow. */
typedef struct export_head {
  uint64_t plan_hash, nfacts;
} export_head;

typedef enum subject { OF_ACTOR, OF_REGISTER, OF_QUEUE, OF_DEVICE } subject;

typedef struct fact {
  int32_t subject, id;
  int64_t number; /* firings, slots, or the running actor */
  double seconds; /* seconds of a queue; idle fraction of a device */
} fact;

static size_t list_facts(const sl_run_status *rs, fact *out) {
  const sl_plan *plan = rs->plan;
  size_t n = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (rs->fired[i] != SL_UNKNOWN) out[n++] = (fact){OF_ACTOR, i, rs->fired[i], 0};
  for (int32_t i = 0; i < plan->nregs; i++)
    if (rs->slots[i] != SL_UNKNOWN) out[n++] = (fact){OF_REGISTER, i, rs->slots[i], 0};
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (rs->queues[i].running != SL_UNKNOWN)
      out[n++] = (fact){OF_QUEUE, i, rs->queues[i].running, rs->queues[i].seconds};
  for (int32_t i = 0; i < plan->ndevices; i++)
    if (rs->idle[i] != SL_UNKNOWN) out[n++] = (fact){OF_DEVICE, i, 0, rs->idle[i]};
  return n;
}

size_t sl_runtime_run_status_export(const sl_runtime *rt, void **out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  size_t most =
      (size_t)plan->nactors + (size_t)plan->nregs + (size_t)plan->nqueues + (size_t)plan->ndevices;
  sl_run_status *rs = sl_run_status_create(plan);
  sl_runtime_run_status(rt, rs);
  export_head *h = sli_calloc(1, sizeof *h + most * sizeof(fact));
  h->plan_hash = plan->hash;
  h->nfacts = list_facts(rs, (fact *)(h + 1));
  sl_run_status_destroy(rs);
  *out = h;
  return sizeof *h + h->nfacts * sizeof(fact);
}

/* Upper bound of the firings of any run, so that keys and ticks computed from them do not
 * overflow. */
enum { MOST_FIRINGS_LOG2 = 40 };

static bool is_fact(const sl_plan *plan, const fact *f) {
  const int32_t most[] = {plan->nactors, plan->nregs, plan->nqueues, plan->ndevices};
  if (f->subject < OF_ACTOR || f->subject > OF_DEVICE) return false;
  if (f->id < 0 || f->id >= most[f->subject]) return false;
  if (f->subject == OF_REGISTER) return f->number >= 0 && f->number <= INT32_MAX;
  if (f->subject != OF_QUEUE) return f->number >= 0 && !(f->number >> MOST_FIRINGS_LOG2);
  return f->number == SL_NONE ||
         (f->number >= 0 && f->number < plan->nactors && plan->actors[f->number].queue == f->id);
}

static void learn(sl_run_status *rs, const fact *f) {
  switch ((subject)f->subject) {
  case OF_ACTOR: rs->fired[f->id] = f->number; break;
  case OF_REGISTER: rs->slots[f->id] = (int32_t)f->number; break;
  case OF_QUEUE: rs->queues[f->id] = (sl_queue_status){(int32_t)f->number, f->seconds}; break;
  case OF_DEVICE: rs->idle[f->id] = f->seconds; break;
  }
}

sl_status sl_run_status_import(sl_run_status *rs, const void *bytes, size_t size) {
  export_head h;
  fact f;
  if (size < sizeof h) return sl_fail(SL_E_INPUT, "the status is truncated");
  memcpy(&h, bytes, sizeof h);
  if (h.plan_hash != rs->plan->hash || h.nfacts != (size - sizeof h) / sizeof f ||
      (size - sizeof h) % sizeof f)
    return sl_fail(SL_E_INPUT, "the status does not fit this plan");
  const char *facts = (const char *)bytes + sizeof h;
  for (uint64_t i = 0; i < h.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    if (!is_fact(rs->plan, &f)) return sl_fail(SL_E_INPUT, "the status has an invalid fact");
  }
  for (uint64_t i = 0; i < h.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    learn(rs, &f);
  }
  return SL_OK;
}
