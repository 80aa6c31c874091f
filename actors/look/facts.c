/* SPDX-License-Identifier: Apache-2.0 */
/* A look as bytes: one process's knowledge of a run, for another process of its job. */
#include <sluice/look.h>

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
  int64_t number;  /* firings, slots, or the running actor */
  double seconds;  /* seconds of a queue; idle fraction of a device */
} fact;

static size_t list_facts(const sl_look *look, fact *out) {
  const sl_plan *plan = look->plan;
  size_t n = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (look->fired[i] != SL_UNKNOWN) out[n++] = (fact){OF_ACTOR, i, look->fired[i], 0};
  for (int32_t i = 0; i < plan->nregs; i++)
    if (look->slots[i] != SL_UNKNOWN) out[n++] = (fact){OF_REGISTER, i, look->slots[i], 0};
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (look->queues[i].running != SL_UNKNOWN)
      out[n++] = (fact){OF_QUEUE, i, look->queues[i].running, look->queues[i].seconds};
  for (int32_t i = 0; i < plan->ndevices; i++)
    if (look->idle[i] != SL_UNKNOWN) out[n++] = (fact){OF_DEVICE, i, 0, look->idle[i]};
  return n;
}

size_t sl_runtime_look_export(const sl_runtime *rt, void **out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  size_t most = (size_t)plan->nactors + (size_t)plan->nregs + (size_t)plan->nqueues +
                (size_t)plan->ndevices;
  sl_look *look = sl_look_create(plan);
  sl_runtime_look(rt, look);
  export_head *h = sli_calloc(1, sizeof *h + most * sizeof(fact));
  h->plan_hash = plan->hash;
  h->nfacts = list_facts(look, (fact *)(h + 1));
  sl_look_destroy(look);
  *out = h;
  return sizeof *h + h->nfacts * sizeof(fact);
}

/* Upper bound of the firings of any run, so that their keys and ticks are numbers too. */
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

static void learn(sl_look *look, const fact *f) {
  switch ((subject)f->subject) {
  case OF_ACTOR: look->fired[f->id] = f->number; break;
  case OF_REGISTER: look->slots[f->id] = (int32_t)f->number; break;
  case OF_QUEUE: look->queues[f->id] = (sl_queue_look){(int32_t)f->number, f->seconds}; break;
  case OF_DEVICE: look->idle[f->id] = f->seconds; break;
  }
}

sl_status sl_look_import(sl_look *look, const void *bytes, size_t size) {
  export_head h;
  fact f;
  if (size < sizeof h) return sl_fail(SL_E_INPUT, "a look is cut off");
  memcpy(&h, bytes, sizeof h);
  if (h.plan_hash != look->plan->hash || h.nfacts != (size - sizeof h) / sizeof f ||
      (size - sizeof h) % sizeof f)
    return sl_fail(SL_E_INPUT, "a look is not of this plan");
  const char *facts = (const char *)bytes + sizeof h;
  for (uint64_t i = 0; i < h.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    if (!is_fact(look->plan, &f)) return sl_fail(SL_E_INPUT, "a look has an impossible fact");
  }
  for (uint64_t i = 0; i < h.nfacts; i++) {
    memcpy(&f, facts + i * sizeof f, sizeof f);
    learn(look, &f);
  }
  return SL_OK;
}
