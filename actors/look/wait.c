/* Who waits for whom: the picture of a plan that does not move.
 *
 * Every actor that has not fired its share waits at some port: an input waits
 * for the register's producer, an output for the consumer that holds its slots.
 * Following one such edge after another from any waiting actor must come back
 * to an actor already seen: that is the cycle, and it is written out actor by
 * actor and register by register. A watchdog may call this while workers run;
 * what it reads may then be a moment old. */
#include "actors/look/look.h"
#include "actors/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(const sl_plan *plan, int32_t actor) {
  return actor == SL_NONE ? "nobody" : plan->actors[actor].name;
}

/* What actor `id` waits for: prints it and returns the actor that could help, or SL_NONE. */
static int32_t waits_for(const sl_runtime *rt, int32_t id, FILE *out) {
  const sl_plan *plan = sli_runtime_plan(rt);
  const sl_actor *a = &plan->actors[id];
  sli_actor_state state = sli_runtime_actor(rt, id);
  for (int32_t i = 0; i < a->nin; i++) {
    sli_port_state p = sli_runtime_input(rt, id, i);
    if (!p.waiting) continue;
    const sl_register *r = &plan->regs[a->in[i].reg];
    fprintf(out, "  %s (firing %lld) waits for key %lld of register %s from %s\n", a->name,
            (long long)state.fired, (long long)p.key, r->name, name_of(plan, r->producer));
    return r->producer;
  }
  for (int32_t i = 0; i < a->nout; i++) {
    if (!sli_runtime_output(rt, id, i).waiting) continue;
    const sl_register *r = &plan->regs[a->out[i].reg];
    int32_t reader = sli_runtime_slowest_reader(rt, a->out[i].reg);
    fprintf(out, "  %s (firing %lld) waits for a free slot of register %s (quota %s = %d) from %s\n",
            a->name, (long long)state.fired, r->name, r->quota_name, r->quota,
            name_of(plan, reader));
    return reader;
  }
  for (int32_t i = 0; i < a->nout; i++) {
    int32_t pool = plan->regs[a->out[i].reg].pool;
    if (state.missing || pool == SL_NONE || !sli_runtime_output(rt, id, i).takes) continue;
    fprintf(out, "  %s (firing %lld) waits for pool %s (quota %d, in use %d)\n", a->name,
            (long long)state.fired, plan->pools[pool].name, plan->pools[pool].quota,
            sli_runtime_pool_used(rt, pool));
    return sli_runtime_slowest_reader(rt, a->out[i].reg);
  }
  const sl_queue *q = &plan->queues[a->queue];
  int32_t next = q->order ? sli_runtime_next_in_order(rt, a->queue) : id;
  if (next != id) {
    fprintf(out, "  %s (firing %lld) could fire, but the order of queue %s has %s next\n", a->name,
            (long long)state.fired, q->name, name_of(plan, next));
    return next;
  }
  fprintf(out, "  %s (firing %lld) %s\n", a->name, (long long)state.fired,
          state.gated ? "waits for the next step" : "could fire, or is running");
  return SL_NONE;
}

/* The first actor that lacks something other than a step to begin. */
static int32_t first_waiting(const sl_runtime *rt) {
  for (int32_t i = 0; i < sli_runtime_plan(rt)->nactors; i++) {
    sli_actor_state state = sli_runtime_actor(rt, i);
    if (!state.gated && state.missing) return i;
  }
  return SL_NONE;
}

char *sli_explain(const sl_runtime *rt) {
  const sl_plan *plan = sli_runtime_plan(rt);
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  bool *seen = sli_calloc((size_t)plan->nactors, sizeof *seen);
  FILE *nowhere = fopen("/dev/null", "w");
  int32_t at = first_waiting(rt), last = at;
  for (; at != SL_NONE && !seen[at] && nowhere; at = waits_for(rt, at, nowhere))
    seen[at] = true, last = at;
  if (nowhere) fclose(nowhere);
  if (at != SL_NONE) { /* back at an actor already seen: once more around, aloud */
    fprintf(out, "these actors wait for each other in a circle:\n");
    int32_t start = at;
    do at = waits_for(rt, at, out);
    while (at != SL_NONE && at != start);
  } else if (last != SL_NONE) {
    fprintf(out, "everything waits for %s:\n", name_of(plan, last));
    waits_for(rt, last, out);
  } else {
    fprintf(out, "no actor waits for another\n");
  }
  fclose(out);
  free(seen);
  if (size && text[size - 1] == '\n') text[size - 1] = 0;
  return text;
}
