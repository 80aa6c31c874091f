/* SPDX-License-Identifier: Apache-2.0 */
/* The walk back from a firing along its waits, and the critical path of a step. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

typedef struct walker {
  const analysis *a;
  on_segment *on;
  void *ctx;
  uint64_t from_ns, to_ns;
  int32_t credit;
  int64_t holder;    /* firing that held the slot of `credit` */
  uint64_t since_ns; /* time from which one more slot would have let the waiting firing start */
  bool past;         /* the walk has passed the holder, which had to wait too */
} walker;

/* Explains the stretch from `from` to the walk's position. */
static void explain(walker *w, uint64_t from, int64_t firing, uint8_t wait) {
  from = SLI_MAX(from, w->from_ns);
  if (from >= w->to_ns) return;
  if (w->credit != SL_NONE && from < w->since_ns) { /* it began before the credit was wanted */
    explain(w, w->since_ns, firing, wait);
    w->credit = SL_NONE;
    w->past = false;
    if (from >= w->to_ns) return;
  }
  w->on(w->ctx, &(segment){from, w->to_ns, firing, wait, w->past ? w->credit : SL_NONE});
  w->to_ns = from;
}

static uint64_t end_before(const analysis *a, int64_t firing) {
  return a->before[firing] < 0 ? 0 : a->firings[a->before[firing]].record.end_ns;
}

/* Returns whether firing x lacked a slot. The previous firing on its queue held the slot that x
 * wanted, and the queue had been idle waiting for that firing; with one more slot x could have run
 * instead. */
static bool lacked_slot(const analysis *a, int64_t x) {
  const cause *c = &a->causes[x];
  int64_t before = a->before[x];
  return c->wait == SL_WAIT_CREDIT && c->by >= 0 && c->by == before &&
         a->firings[before].record.start_ns > end_before(a, before);
}

/* Follows the credit that firing x waited for. With one more slot x could have started once its
 * inputs were ready and its queue was idle. */
static void want_credit(walker *w, int64_t x, bool lacked) {
  const cause *c = &w->a->causes[x];
  w->credit = c->reg;
  w->holder = c->by;
  w->past = lacked;
  w->since_ns = SLI_MAX(c->input_ns, end_before(w->a, lacked ? w->a->before[x] : x));
}

/* Explains what a firing waited for, up to the walk's position. Returns the firing that ran before,
 * whose waiting comes next, or -1 if the trace does not say. */
static int64_t walk_step(walker *w, int64_t x) {
  const analysis *a = w->a;
  const cause *c = &a->causes[x];
  const sl_queue *q = &a->plan->queues[a->plan->actors[a->firings[x].record.actor].queue];
  int64_t before = q->ops->overlaps ? -1 : a->before[x];
  uint64_t free_ns = before >= 0 ? a->firings[before].record.end_ns : 0;
  bool lacked = before >= 0 && lacked_slot(a, x);
  explain(w, SLI_MAX(c->ready_ns, free_ns), x, wait_once_ready(a, x));
  if (before >= 0 && free_ns >= c->ready_ns && !lacked) {
    explain(w, a->firings[before].record.start_ns, before, SL_WAIT_NONE);
    return before;
  }
  if (c->by < 0) return -1;
  if (w->credit != SL_NONE && x == w->holder) w->past = true;
  if (c->wait == SL_WAIT_CREDIT) want_credit(w, x, lacked);
  explain(w, a->firings[c->by].record.start_ns, c->by, SL_WAIT_NONE);
  return c->by;
}

void walk_back(const analysis *a, int64_t firing, uint64_t from_ns, uint64_t to_ns, on_segment *on,
               void *ctx) {
  walker w = {a, on, ctx, from_ns, to_ns, SL_NONE, -1, 0, false};
  int64_t last = firing;
  for (size_t steps = 0; firing >= 0 && w.to_ns > from_ns && steps <= a->nfirings; steps++)
    last = firing, firing = walk_step(&w, firing);
  explain(&w, from_ns, last, SL_WAIT_START);
}

typedef struct path {
  segment *segments;
  size_t count, capacity;
} path;

static void add_segment(void *ctx, const segment *x) {
  path *p = ctx;
  SLI_GROW(p->segments, p->count, p->capacity);
  p->segments[p->count++] = *x;
}

/* Returns the firing of the step's work that ends last. */
static int64_t last_of_step(const analysis *a, int64_t step) {
  int64_t last = -1;
  for (int32_t d = 0; d < a->plan->ndevices; d++) {
    account x = account_make(a, d, step);
    size_t at = account_span(&x) ? find_piece(&a->lines[d], x.to_ns - 1) : a->lines[d].count;
    if (at >= a->lines[d].count) continue;
    int64_t firing = a->lines[d].pieces[at].firing;
    if (last < 0 || a->firings[firing].record.end_ns > a->firings[last].record.end_ns)
      last = firing;
  }
  return last;
}

segment *critical_path(const analysis *a, int64_t step, size_t *count) {
  path p = {0};
  uint64_t from, to;
  int64_t last = work_window(a, step, &from, &to) ? last_of_step(a, step) : -1;
  if (last >= 0) {
    const sl_trace_record *f = &a->firings[last].record;
    add_segment(&p, &(segment){SLI_MAX(f->start_ns, from), f->end_ns, last, SL_WAIT_NONE, SL_NONE});
    walk_back(a, last, from, f->start_ns, add_segment, &p);
  }
  *count = p.count;
  return p.segments;
}
