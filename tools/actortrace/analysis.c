/* Why devices were idle.
 *
 * The key maps of the plan say which slots a firing took, completed and gave
 * back. Together with the times of the firings that is the whole history of
 * every slot: taken, ready, free again. From it follows, to the nanosecond, when
 * each firing could have gone and what it waited for last: the input that was
 * ready last, or the credit that came back last. A gap before a firing is split
 * there: up to that moment it waited for that register; from then on nothing
 * kept it but the worker (device), or the plan's wish (policy).
 *
 * The reason of a gap says who is to blame next door. walk_back() asks on: what
 * did the producer do meanwhile? It ran, or it waited too, for another, and so
 * on to a firing that ran. From the last firing of a step that is the critical
 * path: what was on it at some moment is what every idle device was waiting for
 * in the end. A wait for credit is to blame itself while the one who held the
 * slot was waiting in turn; if it was running, it was slow. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>
#include <string.h>

bool is_work(sl_class cls) {
  return cls == SL_CLASS_F || cls == SL_CLASS_B || cls == SL_CLASS_W;
}

int32_t actor_device(const sl_plan *plan, int32_t actor) {
  return plan->queues[plan->actors[actor].queue].device;
}

/* ---- slots --------------------------------------------------------------------- */

/* What a firing did to a slot. */
typedef struct touch {
  int32_t reg;
  enum { TAKE, READY, FREE } what;
  int64_t key, firing;
} touch;

static int by_slot(const void *a, const void *b) {
  const touch *x = a, *y = b;
  if (x->reg != y->reg) return x->reg < y->reg ? -1 : 1;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->what != y->what) return x->what < y->what ? -1 : 1;
  return x->firing < y->firing ? -1 : x->firing > y->firing;
}

static void touch_ports(const analysis *a, int64_t firing, const sl_port *ports, int32_t count,
                        bool output, touch **at) {
  int64_t n = a->firings[firing].record.firing;
  for (int32_t p = 0; p < count; p++) {
    uint32_t flags;
    int64_t key = sl_map_key(&a->plan->maps[ports[p].map], n, &flags);
    if (flags & SL_SKIP) continue;
    if (output && (flags & SL_FIRST)) *(*at)++ = (touch){ports[p].reg, TAKE, key, firing};
    if (flags & SL_LAST)
      *(*at)++ = (touch){ports[p].reg, output ? READY : FREE, key, firing};
  }
}

static touch *list_touches(const analysis *a, size_t *count) {
  size_t most = 0;
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_actor *x = &a->plan->actors[a->firings[i].record.actor];
    most += (size_t)(x->nin + 2 * x->nout);
  }
  touch *all = sli_calloc(most + 1, sizeof *all), *at = all;
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_actor *x = &a->plan->actors[a->firings[i].record.actor];
    touch_ports(a, (int64_t)i, x->in, x->nin, false, &at);
    touch_ports(a, (int64_t)i, x->out, x->nout, true, &at);
  }
  *count = (size_t)(at - all);
  qsort(all, *count, sizeof *all, by_slot);
  return all;
}

/* The touches of one slot, from first to end, as a hold. */
static hold make_hold(const analysis *a, const touch *first, const touch *end) {
  const sl_register *r = &a->plan->regs[first->reg];
  hold h = {.reg = first->reg, .key = first->key, .freed_ns = UINT64_MAX, .taken_by = -1,
            .ready_by = -1, .freed_by = -1};
  int32_t frees = 0;
  for (const touch *t = first; t < end; t++) {
    const sl_trace_record *f = &a->firings[t->firing].record;
    if (t->what == TAKE) h.taken_ns = f->start_ns, h.taken_by = t->firing;
    if (t->what == READY) h.ready_ns = f->end_ns, h.ready_by = t->firing;
    if (t->what != FREE) continue;
    frees++;
    if (h.freed_by < 0 || f->end_ns > a->firings[h.freed_by].record.end_ns) h.freed_by = t->firing;
  }
  /* Some answers may lie before the trace; those of a slot taken in it do not. */
  bool all = frees >= r->nconsumers || (h.taken_by < 0 && a->trace->dropped);
  if (h.freed_by >= 0 && all) h.freed_ns = a->firings[h.freed_by].record.end_ns;
  else h.freed_by = -1;
  if (!r->nconsumers && h.ready_by >= 0) h.freed_ns = h.ready_ns, h.freed_by = h.ready_by;
  if (h.freed_ns < h.taken_ns) h.freed_ns = h.taken_ns;
  return h;
}

static void make_holds(analysis *a) {
  size_t count;
  touch *touches = list_touches(a, &count);
  a->holds = sli_calloc(count + 1, sizeof *a->holds);
  a->first_hold = sli_calloc((size_t)a->plan->nregs + 1, sizeof *a->first_hold);
  int32_t reg = 0;
  for (size_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && touches[end].reg == touches[i].reg &&
                      touches[end].key == touches[i].key; end++) {}
    while (reg < touches[i].reg) a->first_hold[++reg] = a->nholds;
    a->holds[a->nholds++] = make_hold(a, &touches[i], &touches[end]);
  }
  while (reg < a->plan->nregs) a->first_hold[++reg] = a->nholds;
  free(touches);
}

/* Holds are in order of their keys until the causes are known. */
static const hold *find_hold(const analysis *a, int32_t reg, int64_t key) {
  size_t low = a->first_hold[reg], high = a->first_hold[reg + 1];
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (a->holds[middle].key < key) low = middle + 1;
    else high = middle;
  }
  return low < a->first_hold[reg + 1] && a->holds[low].key == key ? &a->holds[low] : NULL;
}

/* ---- causes -------------------------------------------------------------------- */

/* Of two that came at the same time the recorded one is kept. */
static void consider(const analysis *a, int64_t firing, cause candidate) {
  cause *c = &a->causes[firing];
  const sl_trace_record *f = &a->firings[firing].record;
  if (candidate.wait == SL_WAIT_INPUT) c->input_ns = SLI_MAX(c->input_ns, candidate.ready_ns);
  if (candidate.ready_ns < c->ready_ns) return;
  bool recorded = f->wait == candidate.wait && (int32_t)f->reg == candidate.reg;
  if (candidate.ready_ns == c->ready_ns && c->wait != SL_WAIT_NONE && !recorded) return;
  candidate.known = c->known;
  candidate.input_ns = c->input_ns;
  *c = candidate;
}

static void find_inputs(analysis *a, int64_t firing) {
  const sl_trace_record *f = &a->firings[firing].record;
  const sl_actor *x = &a->plan->actors[f->actor];
  for (int32_t p = 0; p < x->nin; p++) {
    uint32_t flags;
    int64_t key = sl_map_key(&a->plan->maps[x->in[p].map], f->firing, &flags);
    if (!(flags & SL_FIRST) || (flags & SL_SKIP)) continue;
    const sl_register *r = &a->plan->regs[x->in[p].reg];
    const hold *h = find_hold(a, x->in[p].reg, key);
    bool initial = r->producer == SL_NONE || key < r->initial;
    if (h && h->ready_by >= 0)
      consider(a, firing, (cause){.ready_ns = h->ready_ns, .by = h->ready_by,
                                  .reg = x->in[p].reg, .wait = SL_WAIT_INPUT});
    else if (!initial)
      a->causes[firing].known = false;
  }
}

/* A slot is taken or comes back. */
typedef struct change {
  uint64_t ns;
  size_t hold;
  bool freed;
} change;

/* At the same time in order of being taken, so that a slot that came and went
 * within no time did so before the next was taken. */
static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  if (x->hold != y->hold) return x->hold < y->hold ? -1 : 1;
  return x->freed - y->freed;
}

/* How full the registers are that share credits: a pool's, or one by itself. */
typedef struct sharing {
  const sl_plan *plan;
  int32_t pool, nregs;
  const int32_t *regs;
  int32_t *used;      /* [nregs of the plan] */
  bool *full;         /* the same: no slot could be taken */
  change *opened;     /* the same: what let the next slot be taken */
  bool *open;         /* ... and is there such a thing */
} sharing;

static bool may_take(const sharing *s, int32_t reg) {
  const sl_register *r = &s->plan->regs[reg];
  if (s->used[reg] >= r->quota) return false;
  if (s->pool == SL_NONE || s->used[reg] < SLI_MAX(r->kept, 1)) return true;
  int64_t used = 0;
  for (int32_t i = 0; i < s->nregs; i++)
    used += SLI_MAX(s->used[s->regs[i]], SLI_MAX(s->plan->regs[s->regs[i]].kept, 1));
  return used < s->plan->pools[s->pool].quota;
}

static void apply_change(analysis *a, sharing *s, const change *c) {
  const hold *h = &a->holds[c->hold];
  if (c->freed) {
    s->used[h->reg]--;
  } else {
    if (s->open[h->reg]) {
      const hold *by = &a->holds[s->opened[h->reg].hold];
      consider(a, h->taken_by, (cause){.ready_ns = s->opened[h->reg].ns, .by = by->freed_by,
                                       .reg = h->reg, .wait = SL_WAIT_CREDIT});
    }
    s->used[h->reg]++;
    s->open[h->reg] = false;
  }
  for (int32_t i = 0; i < s->nregs; i++) {
    int32_t reg = s->regs[i];
    bool full = !may_take(s, reg);
    if (s->full[reg] && !full && c->freed) s->opened[reg] = *c, s->open[reg] = true;
    s->full[reg] = full;
  }
}

static int by_taking(const void *a, const void *b) {
  const hold *x = a, *y = b;
  if (x->taken_ns != y->taken_ns) return x->taken_ns < y->taken_ns ? -1 : 1;
  if (x->taken_by != y->taken_by) return x->taken_by < y->taken_by ? -1 : 1;
  return x->key < y->key ? -1 : x->key > y->key;
}

static void find_credits(analysis *a, sharing *s) {
  size_t count = 0, n = 0;
  for (int32_t i = 0; i < s->nregs; i++)
    count += 2 * (a->first_hold[s->regs[i] + 1] - a->first_hold[s->regs[i]]);
  change *changes = sli_calloc(count + 1, sizeof *changes);
  for (int32_t i = 0; i < s->nregs; i++)
    for (size_t h = a->first_hold[s->regs[i]]; h < a->first_hold[s->regs[i] + 1]; h++) {
      const hold *x = &a->holds[h];
      if (x->taken_by >= 0) changes[n++] = (change){x->taken_ns, h, false};
      else s->used[x->reg]++;
      if (x->freed_ns != UINT64_MAX) changes[n++] = (change){x->freed_ns, h, true};
    }
  for (int32_t i = 0; i < s->nregs; i++) s->full[s->regs[i]] = !may_take(s, s->regs[i]);
  qsort(changes, n, sizeof *changes, by_time);
  for (size_t i = 0; i < n; i++) apply_change(a, s, &changes[i]);
  free(changes);
}

static void find_all_credits(analysis *a) {
  const sl_plan *plan = a->plan;
  size_t n = (size_t)plan->nregs + 1;
  int32_t *regs = sli_calloc(n, sizeof *regs);
  sharing s = {.plan = plan, .regs = regs, .used = sli_calloc(n, sizeof *s.used),
               .full = sli_calloc(n, sizeof *s.full), .opened = sli_calloc(n, sizeof *s.opened),
               .open = sli_calloc(n, sizeof *s.open)};
  for (s.pool = SL_NONE; s.pool < plan->npools; s.pool++) {
    s.nregs = 0;
    for (int32_t r = 0; r < plan->nregs; r++) {
      if (plan->regs[r].pool != s.pool || plan->regs[r].held) continue;
      regs[s.nregs++] = r;
      if (s.pool != SL_NONE) continue;
      find_credits(a, &s);
      s.nregs = 0;
    }
    if (s.nregs) find_credits(a, &s);
  }
  free(regs);
  free(s.used);
  free(s.full);
  free(s.opened);
  free(s.open);
}

static void find_causes(analysis *a) {
  a->causes = sli_calloc(a->nfirings + 1, sizeof *a->causes);
  for (size_t i = 0; i < a->nfirings; i++)
    a->causes[i] = (cause){.by = -1, .reg = SL_NONE, .known = true};
  for (size_t i = 0; i < a->nfirings; i++) find_inputs(a, (int64_t)i);
  for (int32_t r = 0; r < a->plan->nregs; r++)
    qsort(a->holds + a->first_hold[r], a->first_hold[r + 1] - a->first_hold[r], sizeof *a->holds,
          by_taking);
  find_all_credits(a);
}

/* ---- lines ----------------------------------------------------------------------- */

static void find_queues(analysis *a) {
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

static void find_before(analysis *a) {
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

/* Each firing goes to the first row of its queue that is free. */
static void find_shelves(analysis *a) {
  struct row {
    uint64_t free_ns;
    size_t next; /* of the same queue, plus 1 */
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

/* Why a firing that could have gone did not. */
static uint8_t wait_once_ready(const analysis *a, int64_t firing) {
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

static void draw_lines(analysis *a) {
  size_t ndevices = (size_t)a->plan->ndevices;
  size_t *count = sli_calloc(ndevices + 1, sizeof *count);
  uint64_t *end = sli_calloc(ndevices + 1, sizeof *end);
  a->lines = sli_calloc(ndevices + 1, sizeof *a->lines);
  for (size_t i = 0; i < a->nfirings; i++)
    count[actor_device(a->plan, a->firings[i].record.actor)]++;
  for (size_t d = 0; d < ndevices; d++)
    a->lines[d].pieces = sli_calloc(3 * count[d] + 1, sizeof *a->lines[d].pieces);
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_record *f = &a->firings[i].record;
    if (!a->work_queue[a->plan->actors[f->actor].queue]) continue;
    int32_t d = actor_device(a->plan, f->actor);
    if (f->start_ns > end[d]) add_gap(a, &a->lines[d], end[d], (int64_t)i);
    add_piece(&a->lines[d], (piece){SLI_MAX(f->start_ns, end[d]), f->end_ns, (int64_t)i, SL_NONE,
                                    SL_WAIT_NONE});
    end[d] = SLI_MAX(end[d], f->end_ns);
  }
  free(count);
  free(end);
}

analysis *analysis_create(const sl_trace *trace) {
  analysis *a = sli_calloc(1, sizeof *a);
  a->trace = trace;
  a->plan = trace->plan;
  a->firings = trace->firings;
  a->nfirings = trace->nfirings;
  make_holds(a);
  find_causes(a);
  find_queues(a);
  find_before(a);
  find_shelves(a);
  draw_lines(a);
  return a;
}

void analysis_destroy(analysis *a) {
  if (!a) return;
  for (int32_t d = 0; d < a->plan->ndevices; d++) free(a->lines[d].pieces);
  free(a->lines);
  free(a->causes);
  free(a->before);
  free(a->shelf);
  free(a->shelves);
  free(a->holds);
  free(a->first_hold);
  free(a->work_queue);
  free(a);
}

/* ---- accounts -------------------------------------------------------------------- */

/* The first piece that ends after `ns`. */
static size_t find_piece(const line *l, uint64_t ns) {
  size_t low = 0, high = l->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (l->pieces[middle].to_ns <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* If a device does no work of the usual classes, everything it does counts. */
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

void visit_idle(const analysis *a, const account *x, int32_t device, piece_visitor *on, void *ctx) {
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

/* ---- walking back ------------------------------------------------------------------ */

typedef struct walker {
  const analysis *a;
  segment_visitor *on;
  void *ctx;
  uint64_t from_ns, to_ns;
  int32_t credit;
  int64_t holder;    /* who held the slot of `credit` */
  uint64_t since_ns; /* when the one who wanted it could have gone with one */
  bool past;         /* the holder had to wait in turn */
} walker;

/* The stretch from `from` to where the walk has come is explained. */
static void explain(walker *w, uint64_t from, int64_t firing, uint8_t wait) {
  from = SLI_MAX(from, w->from_ns);
  if (from >= w->to_ns) return;
  if (w->credit != SL_NONE && from < w->since_ns) { /* in part before the credit was wanted */
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

/* Did the firing before this one on its queue also hold the slot that this one
 * wanted, while the queue stood idle for that firing's sake? Then this one could
 * have gone instead, had there been a slot more. */
static bool lacked_slot(const analysis *a, int64_t x) {
  const cause *c = &a->causes[x];
  int64_t before = a->before[x];
  return c->wait == SL_WAIT_CREDIT && c->by >= 0 && c->by == before &&
         a->firings[before].record.start_ns > end_before(a, before);
}

/* The walk follows the credit that firing x waited for. With one more slot it
 * could have gone as soon as its inputs were there and its queue was idle. */
static void want_credit(walker *w, int64_t x, bool lacked) {
  const cause *c = &w->a->causes[x];
  w->credit = c->reg;
  w->holder = c->by;
  w->past = lacked;
  w->since_ns = SLI_MAX(c->input_ns, end_before(w->a, lacked ? w->a->before[x] : x));
}

/* What the firing waited for, up to where the walk has come. Returns the firing
 * that ran before, whose own waiting comes next; -1: the trace does not say. */
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

void walk_back(const analysis *a, int64_t firing, uint64_t from_ns, uint64_t to_ns,
               segment_visitor *on, void *ctx) {
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

/* The last firing of the step's work to end. */
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

/* ---- steps ---------------------------------------------------------------- */

const sl_trace_step *find_step(const sl_trace *t, int64_t step) {
  for (size_t i = 0; i < t->nsteps; i++)
    if (t->step[i].step == step) return &t->step[i];
  return NULL;
}

step_range steps_to_count(const analysis *a) {
  const sl_trace *t = a->trace;
  uint64_t whole = 0;
  for (int32_t i = 0; i < a->plan->nactors; i++)
    whole += (uint64_t)a->plan->actors[i].firings_per_step;
  step_range range = {0, -1};
  size_t count = 0;
  int64_t newest = a->nfirings ? a->firings[a->nfirings - 1].tick.step : -1;
  for (size_t i = 0; i < t->nsteps; i++) {
    bool cut = t->truncated && t->step[i].step >= newest;
    if (t->step[i].firings < whole || cut) continue;
    if (!count++) range.first = t->step[i].step;
    range.last = t->step[i].step;
  }
  if (range.first == 0 && count > 1) range.first = 1;
  if (count || !t->nsteps) return range;
  return (step_range){t->step[0].step, t->step[0].step}; /* none is whole: what there is */
}

typedef struct length {
  uint64_t ns;
  int64_t step;
} length;

static int by_length(const void *a, const void *b) {
  const length *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return x->step < y->step ? -1 : x->step > y->step;
}

int64_t typical_step(const analysis *a) {
  step_range range = steps_to_count(a);
  length *lengths = sli_calloc(a->trace->nsteps + 1, sizeof *lengths);
  size_t n = 0;
  for (size_t i = 0; i < a->trace->nsteps; i++) {
    const sl_trace_step *s = &a->trace->step[i];
    if (s->step < range.first || s->step > range.last) continue;
    lengths[n++] = (length){s->end_ns - s->start_ns, s->step};
  }
  qsort(lengths, n, sizeof *lengths, by_length);
  int64_t step = n ? lengths[(n - 1) / 2].step : 0;
  free(lengths);
  return step;
}
