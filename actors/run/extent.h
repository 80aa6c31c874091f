/* Extents: how many rows of a slot are valid.
 *
 * The number lies beside the slot and is whose the slot is: of its producer until the slot is
 * announced, of its consumers until they give it back. So within a process the message that the slot
 * is ready brings it along without carrying it, and a firing is told where it stands. Only a link's
 * message takes the number itself, for at the far end the slot lies beside another one.
 *
 * Programs read and write extents where they run; on queues that wait on the device they are written when
 * the firing is complete, and read before that only where it is launched (wire.c). What touches no data has them from the plan's
 * tables, and a link hands on what it reads. */
#ifndef SLUICE_ACTORS_EXTENT_H
#define SLUICE_ACTORS_EXTENT_H

#include <string.h>

#include "actors/run/poison.h"

static int32_t *slot_extent(const reg *r, const walk *at, int32_t slot) {
  return r->contents.extents && !(at->now->flags & SL_SKIP) ? &r->contents.extents[slot] : NULL;
}

static void count_rows(_Atomic uint64_t *sum, int32_t rows) {
  uint64_t so_far = atomic_load_explicit(sum, memory_order_relaxed);
  atomic_store_explicit(sum, so_far + (uint64_t)rows, memory_order_relaxed);
}

/* What the table of a register says of a key. */
static int32_t planned_extent(const sl_register *r, int64_t key) {
  return r->nextents ? r->extents[key % r->nextents] : r->rows;
}

/* No program runs that would do it. */
static void fill_without_data(const actor *a, const sl_plan *plan) {
  extents *x = a->bound.extents;
  int32_t *noted = x->now[a->plan->nin + a->plan->nout];
  for (const out_port *p = a->out; p < a->out_end; p++) {
    int32_t *extent = x->now[a->plan->nin + (p - a->out)];
    if (extent) *noted = *extent = planned_extent(&plan->regs[p->reg->id], p->at.key);
  }
}

/* A link: as many rows as it reads, and no bytes of others. */
static void move_rows(const actor *a, const sl_runtime *rt) {
  const extents *x = a->bound.extents;
  sl_move *move = a->bound.move;
  move->extent = *x->now[0];
  if (x->now[a->plan->nin]) *x->now[a->plan->nin] = move->extent;
  if (!rt->options.no_data)
    move->bytes = sl_row_bytes(&rt->plan->regs[move->reg]) * (size_t)move->extent;
}

/* Tells the launch where the extents of its slots stand. */
static NOINLINE void bind_extents(actor *a) {
  const sl_runtime *rt = a->queue->worker->rt;
  extents *x = a->bound.extents;
  row_note *note = &x->notes[(uint64_t)a->fired & x->mask];
  int32_t **now = x->now, *noted = &note->rows;
  *note = (row_note){a->fired, 0};
  for (const in_port *p = a->in; p < a->in_end; p++, now++) {
    *now = slot_extent(p->reg, &p->at, *p->entry - 1);
    if (*now) count_rows(&x->read[p - a->in], *noted = **now);
  }
  for (const out_port *p = a->out; p < a->out_end; p++, now++) {
    *now = slot_extent(p->reg, &p->at, p->slot);
    if (*now && p->reg->contents.blank && a->queue->run_ahead == 1 && (p->at.now->flags & SL_FIRST))
      poison(slot_address(p->reg, p->slot), p->reg->contents.blank); /* nothing reads it any more */
  }
  *now = noted;
  if (a->bound.move) move_rows(a, rt);
  else if (a->queue->ops->modelled) fill_without_data(a, rt->plan);
}

#endif
