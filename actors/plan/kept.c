/* SPDX-License-Identifier: Apache-2.0 */
/* State that calls keep between firings (sl_op_memory.keeps): once per device, for all calls that
 * share it. */
#include "actors/plan/plan.h"

#include <stdlib.h>

#include "kernels/bind.h"
#include "ops/facets.h"

typedef struct kept {
  int32_t device;
  sl_space space;
  size_t (*keeps)(const sl_call *call, uint64_t *which);
  uint64_t which;
} kept;

typedef struct keeping {
  sl_plan *plan;
  int count;
  size_t capacity;
  kept *all;
} keeping;

static bool is_known(const keeping *k, const kept *wanted) {
  for (int i = 0; i < k->count; i++)
    if (k->all[i].device == wanted->device && k->all[i].space == wanted->space &&
        k->all[i].keeps == wanted->keeps && k->all[i].which == wanted->which)
      return true;
  return false;
}

static void keep_call(keeping *k, const sl_queue *q, const sl_program_call *c) {
  sl_call call = sli_call_shape(c);
  kept wanted = {.device = q->device, .space = q->space, .keeps = sli_op_memory(c->op)->keeps};
  size_t bytes = sli_op_memory(c->op)->keeps(&call, &wanted.which);
  if (!bytes || is_known(k, &wanted)) return;
  SLI_GROW(k->all, (size_t)k->count, k->capacity);
  k->all[k->count++] = wanted;
  k->plan->devices[q->device].room[q->space].kept_bytes += sli_align(bytes);
}

void sli_plan_keep(sl_plan *plan) {
  keeping k = {.plan = plan};
  for (int32_t d = 0; d < plan->ndevices; d++)
    for (int s = 0; s < SL_SPACE_COUNT; s++) plan->devices[d].room[s].kept_bytes = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    sl_program *program = plan->actors[i].program;
    const sl_queue *q = &plan->queues[plan->actors[i].queue];
    if (!program) continue;
    program->device = q->device;
    for (int c = 0; c < sli_program_call_count(program); c++)
      if (sli_op_memory(program->calls[c].op)->keeps) keep_call(&k, q, &program->calls[c]);
  }
  free(k.all);
}
