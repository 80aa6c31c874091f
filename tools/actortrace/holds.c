/* SPDX-License-Identifier: Apache-2.0 */
/* History of every slot (taken, ready, free again), from the key maps of the plan and the times
 * of the firings. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

#include "actors/plan/plan.h"

/* A firing's action on a slot. */
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
    if (flags & SL_LAST) *(*at)++ = (touch){ports[p].reg, output ? READY : FREE, key, firing};
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

/* Makes a hold from the touches of one slot, [first, end). */
static hold make_hold(const analysis *a, const touch *first, const touch *end) {
  const sl_register *r = &a->plan->regs[first->reg];
  hold h = {.reg = first->reg,
            .key = first->key,
            .freed_ns = UINT64_MAX,
            .taken_by = -1,
            .ready_by = -1,
            .freed_by = -1};
  int32_t frees = 0;
  for (const touch *t = first; t < end; t++) {
    const sl_trace_record *f = &a->firings[t->firing].record;
    if (t->what == TAKE) h.taken_ns = f->start_ns, h.taken_by = t->firing;
    if (t->what == READY) h.ready_ns = f->end_ns, h.ready_by = t->firing;
    if (t->what != FREE) continue;
    frees++;
    if (h.freed_by < 0 || f->end_ns > a->firings[h.freed_by].record.end_ns) h.freed_by = t->firing;
  }
  /* Some answers may precede the trace, but not those of a slot taken in it. */
  bool all =
      frees >= sli_flow_answers(a->flow, h.reg, h.key) || (h.taken_by < 0 && a->trace->dropped);
  if (h.freed_by >= 0 && all) h.freed_ns = a->firings[h.freed_by].record.end_ns;
  else h.freed_by = -1;
  if (!r->nconsumers && h.ready_by >= 0) h.freed_ns = h.ready_ns, h.freed_by = h.ready_by;
  if (h.freed_ns < h.taken_ns) h.freed_ns = h.taken_ns;
  return h;
}

void make_holds(analysis *a) {
  size_t count;
  touch *touches = list_touches(a, &count);
  a->holds = sli_calloc(count + 1, sizeof *a->holds);
  a->first_hold = sli_calloc((size_t)a->plan->nregs + 1, sizeof *a->first_hold);
  int32_t reg = 0;
  for (size_t i = 0, end; i < count; i = end) {
    for (end = i + 1;
         end < count && touches[end].reg == touches[i].reg && touches[end].key == touches[i].key;
         end++) {}
    while (reg < touches[i].reg) a->first_hold[++reg] = a->nholds;
    a->holds[a->nholds++] = make_hold(a, &touches[i], &touches[end]);
  }
  while (reg < a->plan->nregs) a->first_hold[++reg] = a->nholds;
  free(touches);
}

const hold *find_hold(const analysis *a, int32_t reg, int64_t key) {
  size_t low = a->first_hold[reg], high = a->first_hold[reg + 1];
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (a->holds[middle].key < key) low = middle + 1;
    else high = middle;
  }
  return low < a->first_hold[reg + 1] && a->holds[low].key == key ? &a->holds[low] : NULL;
}
