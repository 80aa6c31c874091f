/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of waits and their causes. */
#include "tools/actortrace/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- waits ------------------------------------------------------------------------------- */

/* Time by actor, by register, and time attributed to neither. */
typedef struct totals {
  const analysis *a;
  uint64_t *actor, *input, *credit, wait[SL_WAIT_COUNT], total;
} totals;

static totals totals_create(const analysis *a) {
  size_t nregs = (size_t)a->plan->nregs + 1;
  return (totals){.a = a,
                  .actor = sli_calloc((size_t)a->plan->nactors + 1, sizeof(uint64_t)),
                  .input = sli_calloc(nregs, sizeof(uint64_t)),
                  .credit = sli_calloc(nregs, sizeof(uint64_t))};
}

static void totals_fini(totals *t) {
  free(t->actor);
  free(t->input);
  free(t->credit);
}

static void count_wait(void *ctx, const piece *p) {
  totals *t = ctx;
  uint64_t ns = p->to_ns - p->from_ns;
  t->total += ns;
  if (p->wait == SL_WAIT_INPUT && p->reg >= 0) t->input[p->reg] += ns;
  else if (p->wait == SL_WAIT_CREDIT && p->reg >= 0) t->credit[p->reg] += ns;
  else t->wait[p->wait] += ns;
}

/* Returns whether a register is short of slots: in replays one more slot saves a fiftieth of the
 * step. Many waits for credit only move the bubble. */
static bool is_short_of_slots(const shower *s, int32_t reg) {
  for (int32_t i = 0; i < s->advices.count; i++) {
    const advice *k = &s->advices.items[i];
    if (k->step_seconds <= 0.98 * s->advices.step_seconds &&
        (k->stage != SL_NONE || k->pool != SL_NONE) && answers(s->plan, reg, k))
      return true;
  }
  return false;
}

static void count_segment(const shower *s, totals *t, const segment *x, uint64_t ns) {
  t->total += ns;
  if (x->credit != SL_NONE && is_short_of_slots(s, x->credit)) t->credit[x->credit] += ns;
  else if (x->wait == SL_WAIT_NONE) t->actor[t->a->firings[x->firing].record.actor] += ns;
  else t->wait[x->wait] += ns;
}

/* A step's critical path, latest first. */
typedef struct blame {
  const shower *shower;
  totals *totals;
  const segment *path;
  size_t count;
} blame;

/* Attributes an idle piece to what was on the critical path meanwhile. */
static void blame_path(void *ctx, const piece *p) {
  const blame *b = ctx;
  /* binary search for the first segment that begins before the piece ends */
  size_t low = 0, high = b->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (b->path[middle].from_ns >= p->to_ns) low = middle + 1;
    else high = middle;
  }
  for (size_t i = low; i < b->count && b->path[i].to_ns > p->from_ns; i++)
    count_segment(b->shower, b->totals, &b->path[i],
                  SLI_MIN(b->path[i].to_ns, p->to_ns) - SLI_MAX(b->path[i].from_ns, p->from_ns));
}

typedef struct entry {
  uint64_t ns;
  char text[160];
} entry;

static int by_ns(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
  return strcmp(x->text, y->text);
}

static void print_entries(const shower *s, entry *all, size_t count, uint64_t total) {
  enum { MOST = 6 };
  int64_t steps = SLI_MAX(count_steps(s->a->trace, s->range), 1);
  qsort(all, count, sizeof *all, by_ns);
  for (size_t i = 0; i < count && i < MOST && all[i].ns; i++) {
    char text[32];
    fprintf(s->out, "%9s %5.1f%%  ", format_ns(text, (double)all[i].ns / (double)steps),
            percent(all[i].ns, total));
    print_wrapped(s->out, s->width, ENTRY_INDENT, "%s", all[i].text);
  }
  if (!count || !all[0].ns) fputs("nothing\n", s->out);
}

static const char *producer_name(const sl_plan *plan, int32_t reg) {
  int32_t producer = plan->regs[reg].producer;
  return producer == SL_NONE ? "nobody" : plan->actors[producer].name;
}

static void describe_credit(const sl_plan *plan, int32_t reg, bool culprit, char *out,
                            size_t bytes) {
  const sl_register *r = &plan->regs[reg];
  const char *held = culprit ? ", held while others waited" : "";
  if (r->pool != SL_NONE)
    snprintf(out, bytes, "credit: register %s, %d slots, in pool %s of %d%s", r->name, r->quota,
             plan->pools[r->pool].name, plan->pools[r->pool].quota, held);
  else
    snprintf(out, bytes, "credit: register %s has only %d slot%s%s", r->name, r->quota,
             r->quota == 1 ? "" : "s", held);
}

static entry *list_entries(const shower *s, const totals *t, bool culprits, size_t *count) {
  const sl_plan *plan = s->plan;
  entry *all = sli_calloc((size_t)(plan->nactors + 2 * plan->nregs) + SL_WAIT_COUNT, sizeof *all);
  size_t n = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    if (!t->actor[i]) continue;
    all[n].ns = t->actor[i];
    snprintf(all[n++].text, sizeof all->text, "%s on %s was running", plan->actors[i].name,
             plan->queues[plan->actors[i].queue].name);
  }
  for (int32_t r = 0; r < plan->nregs; r++) {
    if (t->input[r]) {
      all[n].ns = t->input[r];
      snprintf(all[n++].text, sizeof all->text, "input: register %s from %s", plan->regs[r].name,
               producer_name(plan, r));
    }
    if (!t->credit[r]) continue;
    all[n].ns = t->credit[r];
    describe_credit(plan, r, culprits, all[n++].text, sizeof all->text);
  }
  static const char *const why[SL_WAIT_COUNT] = {
      [SL_WAIT_DEVICE] =
          "device: could have run, but its worker was busy, had no core or was not awake yet",
      [SL_WAIT_POLICY] = "policy: held back by the plan's order",
      [SL_WAIT_START] = "start: the run or the trace had not begun"};
  for (int w = 0; w < SL_WAIT_COUNT; w++) {
    if (!t->wait[w]) continue;
    all[n].ns = t->wait[w];
    snprintf(all[n++].text, sizeof all->text, "%s", why[w] ? why[w] : sl_wait_name((sl_wait)w));
  }
  *count = n;
  return all;
}

static void print_totals(const shower *s, const char *title, const totals *t, bool culprits) {
  show_heading(s, title);
  size_t count;
  entry *all = list_entries(s, t, culprits, &count);
  print_entries(s, all, count, t->total);
  free(all);
}

void print_waits(const shower *s) {
  totals waits = totals_create(s->a), culprits = totals_create(s->a);
  const sl_trace *t = s->a->trace;
  for (size_t i = next_step(t, s->range, 0); i < t->nsteps; i = next_step(t, s->range, i + 1)) {
    int64_t step = t->step[i].step;
    blame b = {.shower = s, .totals = &culprits};
    segment *path = critical_path(s->a, step, &b.count);
    b.path = path;
    for (int32_t d = 0; d < s->plan->ndevices; d++) {
      if (!is_shown(s, d)) continue;
      account x = account_make(s->a, d, step);
      visit_idle(s->a, &x, d, count_wait, &waits);
      visit_idle(s->a, &x, d, blame_path, &b);
    }
    free(path);
  }
  print_totals(s, "Idle devices waited for", &waits, false);
  print_totals(s, "Traced back to what held them up", &culprits, true);
  totals_fini(&waits);
  totals_fini(&culprits);
}

/* ---- critical path --------------------------------------------------------------------- */

/* Returns the actor that ran in a segment, or -1. */
static int32_t runner(const shower *s, const segment *l) {
  return l->wait == SL_WAIT_NONE ? s->a->firings[l->firing].record.actor : -1;
}

/* Prints "F0 x4 -> F1 -> ...", with consecutive firings of one actor merged. */
static void print_chain(const shower *s, const segment *path, size_t count) {
  enum { MOST = 24 };
  wrap w = {.out = s->out, .width = s->width};
  int shown = 0;
  for (size_t i = count; i > 0;) {
    const segment *l = &path[i - 1];
    int32_t actor = runner(s, l);
    int times = 0;
    for (; i > 0 && runner(s, &path[i - 1]) == actor; i--, times++)
      if (actor < 0 && path[i - 1].wait != l->wait) break;
    const char *arrow = i ? " \xe2\x86\x92" : "";
    char text[160];
    if (shown++ == MOST) snprintf(text, sizeof text, "...");
    else if (actor < 0)
      snprintf(text, sizeof text, "(%s)%s", sl_wait_name((sl_wait)l->wait), arrow);
    else if (times > 1)
      snprintf(text, sizeof text, "%s\xc3\x97%d%s", s->plan->actors[actor].name, times, arrow);
    else snprintf(text, sizeof text, "%s%s", s->plan->actors[actor].name, arrow);
    wrap_words(&w, text);
    if (shown > MOST) break;
  }
  fputc('\n', s->out);
}

void print_path(const shower *s) {
  size_t length, count;
  segment *path = critical_path(s->a, s->step, &length);
  totals t = totals_create(s->a);
  for (size_t i = 0; i < length; i++) {
    segment x = path[i];
    x.credit = SL_NONE; /* count by the actor that ran, regardless of the credit */
    count_segment(s, &t, &x, x.to_ns - x.from_ns);
  }
  char title[128], text[32];
  snprintf(title, sizeof title, "The critical path of step %" PRId64 ": %s in %zu firings", s->step,
           format_ns(text, (double)t.total), length);
  show_heading(s, title);
  print_chain(s, path, length);
  shower one = *s;
  one.range = (step_range){s->step, s->step};
  entry *all = list_entries(s, &t, false, &count);
  print_entries(&one, all, count, t.total);
  free(all);
  free(path);
  totals_fini(&t);
}
