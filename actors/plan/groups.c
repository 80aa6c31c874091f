/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of queues that fire together. */
#include "actors/plan/plan.h"

#include <string.h>

int32_t sli_plan_groups(const sl_plan *plan) {
  int32_t count = 0;
  for (int32_t i = 0; i < plan->nqueues; i++) count = SLI_MAX(count, plan->queues[i].group);
  return count;
}

int32_t sli_queue_rank(const sl_plan *plan, int32_t queue) {
  int32_t rank = 0;
  for (int32_t i = 0; i < queue; i++) rank += plan->queues[i].group == plan->queues[queue].group;
  return rank;
}

static bool same_name(const char *a, const char *b) {
  size_t n = strcspn(a, "#");
  return n == strcspn(b, "#") && !strncmp(a, b, n);
}

bool sli_actors_alike(const sl_actor *a, const sl_actor *b) {
  const sl_program *p = a->program, *q = b->program;
  bool alike = a->firings_per_step == b->firings_per_step && !p == !q;
  int count = p && alike ? p->ncalls * SLI_MAX(p->nvariants, 1) : 0;
  alike = alike && (!p || count == q->ncalls * SLI_MAX(q->nvariants, 1));
  for (int i = 0; alike && i < count; i++)
    alike = p->calls[i].op == q->calls[i].op && same_name(p->calls[i].name, q->calls[i].name) &&
            (sl_type_equal(&p->calls[i].in_type[0], &q->calls[i].in_type[0]) ||
             p->calls[i].attrs.user); /* members with parts of unequal size */
  return alike;
}
