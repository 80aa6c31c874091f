/* SPDX-License-Identifier: Apache-2.0 */
/* Time of each device as one line of firings and waits, and its totals in a step. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

void find_queues(analysis *a) {
  const sl_plan *plan = a->plan;
  bool *has_work = sli_calloc((size_t)plan->ndevices + 1, sizeof *has_work);
  a->work_queue = sli_calloc((size_t)plan->nqueues + 1, sizeof *a->work_queue);
  for (int32_t i = 0; i < plan->nactors; i++) {
    if (!is_work(plan->actors[i].cls)) continue;
    a->work_queue[plan->actors[i].queue] = true;
    has_work[actor_device(plan, i)] = true;
  }
  for (int32_t q = 0; q < plan->nqueues; q++)
    if (!has_work[plan->queues[q].device]) a->work_queue[q] = true;
  free(has_work);
}

void find_before(analysis *a) {
  a->before = sli_calloc(a->nfirings + 1, sizeof *a->before);
  int64_t *last = sli_calloc((size_t)a->plan->nqueues + 1, sizeof *last);
  for (int32_t q = 0; q < a->plan->nqueues; q++) last[q] = -1;
  for (size_t i = 0; i < a->nfirings; i++) {
    int32_t q = a->plan->actors[a->firings[i].record.actor].queue;
    a->before[i] = last[q];
    last[q] = (int64_t)i;
  }
  free(last);
}

/* Assigns each firing the first free lane (shelf) of its queue. */
void find_shelves(analysis *a) {
  struct row {
    uint64_t free_ns;
    size_t next; /* next lane of the same queue, plus 1 */
  } *rows = NULL;
  size_t nqueues = (size_t)a->plan->nqueues, capacity = 0, count = 0;
  size_t *first = sli_calloc(nqueues + 1, sizeof *first);
  a->shelf = sli_calloc(a->nfirings + 1, sizeof *a->shelf);
  a->shelves = sli_calloc(nqueues + 1, sizeof *a->shelves);
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_record *f = &a->firings[i].record;
    int32_t queue = a->plan->actors[f->actor].queue, number = 0;
    size_t at = first[queue], last = 0;
    for (; at && rows[at - 1].free_ns > f->start_ns; number++) last = at, at = rows[at - 1].next;
    if (!at) {
      SLI_GROW(rows, count, capacity);
      at = ++count;
      if (last) rows[last - 1].next = at;
      else first[queue] = at;
      a->shelves[queue]++;
    }
    rows[at - 1].free_ns = f->end_ns;
    a->shelf[i] = number;
  }
  free(first);
  free(rows);
}

uint8_t wait_once_ready(const analysis *a, int64_t firing) {
  const sl_trace_record *f = &a->firings[firing].record;
  const sl_actor *x = &a->plan->actors[f->actor];
  const sl_queue *q = &a->plan->queues[x->queue];
  if (f->wait == SL_WAIT_START || f->wait == SL_WAIT_POLICY) return f->wait;
  if (q->look_ahead > 0 || (q->lazy_w && x->cls == SL_CLASS_W)) return SL_WAIT_POLICY;
  return SL_WAIT_DEVICE;
}

static void add_piece(line *l, piece p) {
  if (p.to_ns > p.from_ns) l->pieces[l->count++] = p;
}

static void add_gap(const analysis *a, line *l, uint64_t from, int64_t firing) {
  const sl_trace_record *f = &a->firings[firing].record;
  const cause *c = &a->causes[firing];
  if (!c->known) {
    bool waited = f->wait == SL_WAIT_INPUT || f->wait == SL_WAIT_CREDIT;
    uint8_t wait = f->wait == SL_WAIT_NONE ? SL_WAIT_DEVICE : (uint8_t)f->wait;
    add_piece(l, (piece){from, f->start_ns, firing, waited ? (int32_t)f->reg : SL_NONE, wait});
    return;
  }
  uint64_t ready = SLI_MIN(SLI_MAX(c->ready_ns, from), f->start_ns);
  add_piece(l, (piece){from, ready, firing, c->reg, c->wait});
  add_piece(l, (piece){ready, f->start_ns, firing, SL_NONE, wait_once_ready(a, firing)});
}

void draw_lines(analysis *a) {
  size_t ndevices = (size_t)a->plan->ndevices;
  size_t *count = sli_calloc(ndevices + 1, sizeof *count);
  uint64_t *end = sli_calloc(ndevices + 1, sizeof *end);
  a->lines = sli_calloc(ndevices + 1, sizeof *a->lines);
  for (size_t i = 0; i < a->nfirings; i++)
    count[actor_device(a->plan, a->firings[i].record.actor)]++;
  for (size_t d = 0; d < ndevices; d++) end[d] = a->nfirings ? a->firings[0].record.start_ns : 0;
  for (size_t d = 0; d < ndevices; d++)
    a->lines[d].pieces = sli_calloc(3 * count[d] + 1, sizeof *a->lines[d].pieces);
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_record *f = &a->firings[i].record;
    if (!a->work_queue[a->plan->actors[f->actor].queue]) continue;
    int32_t d = actor_device(a->plan, f->actor);
    if (f->start_ns > end[d]) add_gap(a, &a->lines[d], end[d], (int64_t)i);
    add_piece(&a->lines[d],
              (piece){SLI_MAX(f->start_ns, end[d]), f->end_ns, (int64_t)i, SL_NONE, SL_WAIT_NONE});
    end[d] = SLI_MAX(end[d], f->end_ns);
  }
  free(count);
  free(end);
}

/* ---- accounts -------------------------------------------------------------------- */

size_t find_piece(const line *l, uint64_t ns) {
  size_t low = 0, high = l->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (l->pieces[middle].to_ns <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Returns whether a firing belongs to its device's work in a step. If a device does no work of the
 * usual classes, all its firings count. */
static bool is_work_of(const analysis *a, const sl_trace_firing *f, int64_t step) {
  const sl_actor *x = &a->plan->actors[f->record.actor];
  return f->tick.step == step && a->work_queue[x->queue] && is_work(x->cls);
}

static void find_span(const analysis *a, int32_t device, int64_t step, account *x) {
  const sl_trace_step *s = find_step(a->trace, step);
  const line *l = &a->lines[device];
  bool found = false;
  for (size_t i = s ? find_piece(l, s->start_ns) : l->count; i < l->count; i++) {
    const piece *p = &l->pieces[i];
    if (p->from_ns >= s->end_ns) break;
    if (p->wait != SL_WAIT_NONE || !is_work_of(a, &a->firings[p->firing], step)) continue;
    if (!found) x->from_ns = p->from_ns;
    x->to_ns = p->to_ns;
    found = true;
  }
}

account account_make(const analysis *a, int32_t device, int64_t step) {
  account x = {0};
  find_span(a, device, step, &x);
  const line *l = &a->lines[device];
  for (size_t i = find_piece(l, x.from_ns); i < l->count; i++) {
    const piece *p = &l->pieces[i];
    if (p->from_ns >= x.to_ns) break;
    uint64_t ns = SLI_MIN(p->to_ns, x.to_ns) - SLI_MAX(p->from_ns, x.from_ns);
    if (p->wait != SL_WAIT_NONE) x.idle_ns[p->wait] += ns;
    else if (is_work_of(a, &a->firings[p->firing], step)) x.busy_ns += ns;
    else x.other_ns += ns;
  }
  return x;
}

bool work_window(const analysis *a, int64_t step, uint64_t *from_ns, uint64_t *to_ns) {
  const sl_trace_step *s = find_step(a->trace, step);
  uint64_t from = UINT64_MAX, to = 0;
  for (int32_t d = 0; d < a->plan->ndevices && s; d++) {
    account x = account_make(a, d, step);
    if (!account_span(&x)) continue;
    from = SLI_MIN(from, x.from_ns);
    to = SLI_MAX(to, x.to_ns);
  }
  if (!s) return false;
  *from_ns = from < to ? from : s->start_ns;
  *to_ns = from < to ? to : SLI_MAX(s->end_ns, s->start_ns + 1);
  return true;
}

void visit_idle(const analysis *a, const account *x, int32_t device, on_piece *on, void *ctx) {
  const line *l = &a->lines[device];
  for (size_t i = find_piece(l, x->from_ns); i < l->count; i++) {
    piece p = l->pieces[i];
    if (p.from_ns >= x->to_ns) break;
    if (p.wait == SL_WAIT_NONE) continue;
    p.from_ns = SLI_MAX(p.from_ns, x->from_ns);
    p.to_ns = SLI_MIN(p.to_ns, x->to_ns);
    on(ctx, &p);
  }
}
