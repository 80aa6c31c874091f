/* SPDX-License-Identifier: Apache-2.0 */
/* Valid lengths: the number of valid rows in a slot.
 *
 * The number is stored beside the slot and belongs to the slot's owner: to its producer until the
 * slot is announced, to its consumers until they give it back. Within a process the READY message
 * thus publishes it without carrying it, and a firing gets a pointer to it. Only a link's message
 * carries the number itself, because its far end fills a different slot.
 *
 * Programs read and write valid lengths where they run. On queues that wait on the device, a firing
 * writes them only when it completes. Its readers are therefore not launched before that (wire.c).
 * Queues that touch no data take them from the plan's tables, and a link passes on its input's. */
#ifndef SLUICE_ACTORS_RUN_LENGTH_H
#define SLUICE_ACTORS_RUN_LENGTH_H

#include <string.h>

#include "actors/run/poison.h"

static int32_t *slot_length(const reg *r, const walk *at, int32_t slot) {
  return r->contents.lengths && !(at->now->flags & SL_SKIP) ? &r->contents.lengths[slot] : NULL;
}

static void count_rows(_Atomic uint64_t *sum, int32_t rows) {
  uint64_t so_far = atomic_load_explicit(sum, memory_order_relaxed);
  atomic_store_explicit(sum, so_far + (uint64_t)rows, memory_order_relaxed);
}

/* Valid length of a key according to the register's table. */
static int32_t planned_length(const sl_register *r, int64_t key) {
  return r->nlengths ? r->lengths[key % r->nlengths] : r->rows;
}

/* Sets the outputs' valid lengths on queues whose programs do not run. */
static void fill_without_data(const actor *a, const sl_plan *plan) {
  lengths *x = a->bound.lengths;
  int32_t *noted = x->now[a->plan->nin + a->plan->nout];
  for (const out_port *p = a->out; p < a->out_end; p++) {
    int32_t *valid_rows = x->now[a->plan->nin + (p - a->out)];
    if (valid_rows) *noted = *valid_rows = planned_length(&plan->regs[p->reg->id], p->at.key);
  }
}

/* Prepares a link's transfer: as many rows as its input has, and only their bytes. */
static void move_rows(const actor *a, const sl_runtime *rt) {
  const lengths *x = a->bound.lengths;
  sl_move *move = a->bound.move;
  move->valid_rows = *x->now[0];
  if (x->now[a->plan->nin]) *x->now[a->plan->nin] = move->valid_rows;
  if (!rt->options.no_data)
    move->bytes = sl_row_bytes(&rt->plan->regs[move->reg]) * (size_t)move->valid_rows;
}

/* Passes pointers to the slots' valid lengths to the launch. */
static NOINLINE void bind_lengths(actor *a) {
  const sl_runtime *rt = a->queue->worker->rt;
  lengths *x = a->bound.lengths;
  row_note *note = &x->notes[(uint64_t)a->fired & x->mask];
  int32_t **now = x->now, *noted = &note->rows;
  *note = (row_note){a->fired, 0};
  bool first = true;
  for (const in_port *p = a->in; p < a->in_end; p++, now++) {
    *now = slot_length(p->reg, &p->at, *p->entry - 1);
    if (!*now) continue;
    count_rows(&x->read[p - a->in], **now);
    if (first) *noted = **now;
    first = false;
  }
  for (const out_port *p = a->out; p < a->out_end; p++, now++) {
    *now = slot_length(p->reg, &p->at, p->slot);
    if (*now && p->reg->contents.blank && a->queue->run_ahead == 1 && (p->at.now->flags & SL_FIRST))
      /* no firing in flight reads it any more */
      poison(slot_address(p->reg, p->slot), p->reg->contents.blank);
  }
  *now = noted;
  if (a->bound.move) move_rows(a, rt);
  else if (a->queue->ops->modelled) fill_without_data(a, rt->plan);
}

#endif
