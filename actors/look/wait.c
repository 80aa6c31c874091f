/* Who waits for whom: the picture of a plan that does not move.
 *
 * Every actor that has not fired its share waits at some port: an input waits
 * for the register's producer, an output for the consumer that holds its slots.
 * Following one such edge after another from any waiting actor must come back
 * to an actor already seen: that is the cycle, and it is written out actor by
 * actor and register by register. A watchdog may call this while workers run;
 * what it reads may then be a moment old. */
#include "actors/run/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define RACY __attribute__((no_sanitize("thread")))
#else
#define RACY
#endif

/* The consumer that has not freed the oldest slot of a register. */
RACY static const actor *slow_consumer(const reg *r) {
  const in_port *slowest = NULL;
  for (int32_t i = 0; i < r->nconsumers; i++) {
    const in_port *p = r->consumers[i];
    if (!slowest || p->at.key < slowest->at.key) slowest = p;
  }
  return slowest ? slowest->actor : NULL;
}

/* What `a` waits for: prints it and returns the actor that could help. */
RACY static const actor *waits_for(const sl_runtime *rt, const actor *a, FILE *out) {
  const sl_plan *plan = rt->plan;
  for (const in_port *p = a->in; p < a->in_end; p++) {
    if (!p->waiting) continue;
    const actor *producer = p->reg->producer ? p->reg->producer->actor : NULL;
    fprintf(out, "  %s (firing %lld) waits for key %lld of register %s from %s\n", a->plan->name,
            (long long)a->fired, (long long)p->at.key, plan->regs[p->reg->id].name,
            producer ? producer->plan->name : "nobody");
    return producer;
  }
  for (const out_port *p = a->out; p < a->out_end; p++) {
    if (!p->waiting) continue;
    const sl_register *r = &plan->regs[p->reg->id];
    const actor *consumer = slow_consumer(p->reg);
    fprintf(out, "  %s (firing %lld) waits for a free slot of register %s (quota %s = %d) from %s\n",
            a->plan->name, (long long)a->fired, r->name, r->quota_name, r->quota,
            consumer ? consumer->plan->name : "nobody");
    return consumer;
  }
  for (const out_port *p = a->out; p < a->out_end; p++) {
    const pool *pl = p->reg->pool;
    if (a->missing || !pl || (p->at.now->flags & SL_FIRST) == 0) continue;
    const actor *consumer = slow_consumer(p->reg);
    fprintf(out, "  %s (firing %lld) waits for pool %s (quota %d, in use %d)\n", a->plan->name,
            (long long)a->fired, plan->pools[plan->regs[p->reg->id].pool].name, pl->quota,
            pl->used);
    return consumer;
  }
  const sl_queue *q = a->queue->plan;
  const actor *next = q->order ? &rt->actors[q->order[a->queue->in_order]] : a;
  if (next != a) {
    fprintf(out, "  %s (firing %lld) could fire, but the order of queue %s has %s next\n",
            a->plan->name, (long long)a->fired, q->name, next->plan->name);
    return next;
  }
  fprintf(out, "  %s (firing %lld) %s\n", a->plan->name, (long long)a->fired,
          a->gated ? "waits for the next step" : "could fire, or is running");
  return NULL;
}

RACY char *sli_explain(const sl_runtime *rt) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  bool *seen = sli_calloc((size_t)rt->plan->nactors, sizeof *seen);
  FILE *nowhere = fopen("/dev/null", "w");
  const actor *at = NULL;
  for (int32_t i = 0; i < rt->plan->nactors && !at; i++)
    if (!rt->actors[i].gated && rt->actors[i].missing) at = &rt->actors[i];
  const actor *last = at;
  for (; at && !seen[at->id] && nowhere; at = waits_for(rt, at, nowhere))
    seen[at->id] = true, last = at;
  if (nowhere) fclose(nowhere);
  if (at) { /* back at an actor already seen: once more around, aloud */
    fprintf(out, "these actors wait for each other in a circle:\n");
    const actor *start = at;
    do at = waits_for(rt, at, out);
    while (at && at != start);
  } else if (last) {
    fprintf(out, "everything waits for %s:\n", last->plan->name);
    waits_for(rt, last, out);
  } else {
    fprintf(out, "no actor waits for another\n");
  }
  fclose(out);
  free(seen);
  if (size && text[size - 1] == '\n') text[size - 1] = 0;
  return text;
}
