/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace shares: how busy each resource of a device was, which share each firing had, and what
 * it cost to run beside others. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <stdlib.h>

#include "actors/plan/plan.h"

/* Sums over firings: of a lane, or of an actor with one share. */
typedef struct tally {
  int64_t firings;
  double took, alone, held; /* seconds; held: by share */
} tally;

static void tally_add(tally *t, double seconds, sl_share s) {
  t->firings++;
  t->took += seconds;
  t->alone += seconds * s.rate;
  t->held += seconds * s.part;
}

typedef struct window {
  const sl_trace *trace;
  step_range steps;
  uint64_t from_ns, to_ns;
} window;

static bool is_counted(const window *w, const sl_trace_firing *f, int32_t device) {
  const sl_plan *plan = w->trace->plan;
  const sl_queue *q = &plan->queues[plan->actors[f->record.actor].queue];
  return q->lane && q->device == device && f->tick.step >= w->steps.first &&
         f->tick.step <= w->steps.last;
}

static sl_share share_of(const window *w, const sl_trace_firing *f) {
  return sli_share_of(&w->trace->plan->actors[f->record.actor], f->tick.number);
}

/* Finds the time from the first start to the last end on a device's lanes. */
static void find_window(window *w, int32_t device) {
  w->from_ns = UINT64_MAX, w->to_ns = 0;
  for (size_t i = 0; i < w->trace->nfirings; i++) {
    const sl_trace_firing *f = &w->trace->firings[i];
    if (!is_counted(w, f, device)) continue;
    w->from_ns = SLI_MIN(w->from_ns, f->record.start_ns);
    w->to_ns = SLI_MAX(w->to_ns, f->record.end_ns);
  }
}

/* Returns the seconds in which no lane had a firing. Firings are sorted by start. */
static double idle_seconds(const window *w, int32_t device) {
  uint64_t end = w->from_ns, idle = 0;
  for (size_t i = 0; i < w->trace->nfirings; i++) {
    const sl_trace_firing *f = &w->trace->firings[i];
    if (!is_counted(w, f, device)) continue;
    if (f->record.start_ns > end) idle += f->record.start_ns - end;
    end = SLI_MAX(end, f->record.end_ns);
  }
  return (double)idle * 1e-9;
}

static tally tally_lane(const window *w, int32_t device, int32_t queue, int32_t actor) {
  const sl_plan *plan = w->trace->plan;
  tally sum = {0};
  for (size_t i = 0; i < w->trace->nfirings; i++) {
    const sl_trace_firing *f = &w->trace->firings[i];
    if (!is_counted(w, f, device) || (actor != SL_NONE && f->record.actor != actor) ||
        (queue != SL_NONE && plan->actors[f->record.actor].queue != queue))
      continue;
    tally_add(&sum, (double)(f->record.end_ns - f->record.start_ns) * 1e-9, share_of(w, f));
  }
  return sum;
}

static void print_lanes(const window *w, int32_t device, FILE *out) {
  const sl_plan *plan = w->trace->plan;
  double span = (double)(w->to_ns - w->from_ns) * 1e-9;
  tally all = tally_lane(w, device, SL_NONE, SL_NONE);
  char text[32], cost[32];
  fprintf(out,
          "%s, step %" PRId64 " to %" PRId64
          ", %s: %.1f %% of its shares are held, and for %.1f %% "
          "of the time\nnothing runs. Running beside others costs %s.\n\n",
          plan->devices[device].name, w->steps.first, w->steps.last, sli_format_seconds(text, span),
          100 * all.held / span, 100 * idle_seconds(w, device) / span,
          sli_format_seconds(cost, all.took - all.alone));
  fprintf(out, "%-14s %8s %8s %8s %8s %12s\n", "resource", "firings", "busy %", "idle %", "held %",
          "slowdown");
  for (int32_t q = 0; q < plan->nqueues; q++) {
    if (!plan->queues[q].lane || plan->queues[q].device != device) continue;
    tally t = tally_lane(w, device, q, SL_NONE);
    fprintf(out, "%-14s %8" PRId64 " %8.1f %8.1f %8.1f %12s\n", plan->queues[q].lane, t.firings,
            100 * t.took / span, 100 - 100 * t.took / span, 100 * t.held / span,
            sli_format_seconds(text, t.took - t.alone));
  }
}

/* Prints the actors of a device's lanes: mean share, and a firing's mean time alone and beside
 * others. */
static void print_actors(const window *w, int32_t device, FILE *out) {
  const sl_plan *plan = w->trace->plan;
  fprintf(out, "\n%-24s %-14s %8s %8s %12s %12s %12s\n", "actor", "resource", "firings", "share",
          "alone", "took", "slowdown");
  for (int32_t i = 0; i < plan->nactors; i++) {
    tally t = tally_lane(w, device, SL_NONE, i);
    char alone[32], took[32], cost[32];
    if (!t.firings || t.took <= 0) continue;
    fprintf(out, "%-24s %-14s %8" PRId64 " %8.3f %12s %12s %12s\n", plan->actors[i].name,
            plan->queues[plan->actors[i].queue].lane, t.firings, t.held / t.took,
            sli_format_seconds(alone, t.alone / (double)t.firings),
            sli_format_seconds(took, t.took / (double)t.firings),
            sli_format_seconds(cost, (t.took - t.alone) / (double)t.firings));
  }
}

sl_status command_shares(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  window w = {.trace = t, .steps = steps_to_count(a)};
  bool any = false;
  if (o->step >= 0) w.steps = (step_range){o->step, o->step};
  for (int32_t d = 0; d < t->plan->ndevices; d++) {
    if (o->device >= 0 && o->device != d) continue;
    find_window(&w, d);
    if (w.from_ns >= w.to_ns) continue;
    if (any) fputc('\n', out);
    any = true;
    print_lanes(&w, d, out);
    print_actors(&w, d, out);
  }
  analysis_destroy(a);
  return any ? SL_OK
             : sl_fail(SL_E_USAGE, "%s: no device has lanes, so none of its firings has a share",
                       o->path);
}
