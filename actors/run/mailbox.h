/* SPDX-License-Identifier: Apache-2.0 */
/* Mailbox for messages between workers.
 *
 * A mailbox is a ring of cells that many workers push to and one drains. A push draws a ticket,
 * which names its cell, and completes the cell by writing ticket + 1 into its sequence; the owner
 * takes cells in order of tickets.
 *
 * Cells are never marked free, and a push does not check whether its cell is free: a ring has more
 * cells than there can be messages in flight. The proof: every message belongs to a series (READY
 * of one slot to one worker, FREE of one slot from one port, QUOTA of one register). Each message
 * of a series is sent only after the one before has been taken and answered. WANTED follows the
 * READY, or the FREE, of a slot. While it is in flight, at most one more can be sent in the slot's
 * next series, so it counts for two series.
 *
 * Since a cell's last use, more tickets have been drawn than there are series, so two of them
 * belong to one series. The owner takes messages in order, so it had taken the old message before
 * the later of the two was sent. The read of the old message also happens before the write of the
 * new one: both follow the same path, the answer and the acquire-release chain through `tail`. */
#ifndef SLUICE_ACTORS_RUN_MAILBOX_H
#define SLUICE_ACTORS_RUN_MAILBOX_H

#include <stdatomic.h>
#include <stdlib.h>

#include "actors/run/message.h"
#include "base/memory.h"

_Static_assert(sizeof(sli_message) <= 48, "a message and its sequence number share a line");

typedef struct sli_cell {
  _Alignas(SLI_LINE_PAIR) _Atomic uint64_t sequence;
  sli_message message;
} sli_cell;

typedef struct sli_mailbox {
  sli_cell *cells;
  uint64_t mask;
  _Alignas(SLI_LINE_PAIR) _Atomic uint64_t tail; /* drawn by pushers: next ticket */
  _Alignas(SLI_LINE_PAIR) const sli_cell *next;  /* owner only: the cell to take next ... */
  uint64_t wanted;                               /* ... when it has this sequence number */
} sli_mailbox;

static inline void sli_mailbox_init(sli_mailbox *box, uint64_t most_messages) {
  uint64_t size = 16;
  while (size < most_messages + 1) size *= 2;
  box->cells = sli_aligned_alloc(SLI_LINE_PAIR, size * sizeof *box->cells);
  for (uint64_t i = 0; i < size; i++) atomic_init(&box->cells[i].sequence, 0);
  box->mask = size - 1;
  atomic_init(&box->tail, 0);
  box->next = box->cells;
  box->wanted = 1;
}

static inline void sli_mailbox_fini(sli_mailbox *box) { free(box->cells); }

/* Pushes a message. Any worker. Returns true if the owner was asleep, or about to be: wake it.
 *
 * The check for sleep comes between the ticket and the message. The owner announces its sleep and
 * then checks whether a ticket has been drawn; if a push and a sleep coincide, at least one sees
 * the other. A check after the message would have to wait until the owner's copy of the cache line
 * is gone. */
static inline bool sli_mailbox_push(sli_mailbox *box, const sli_message *message,
                                    const _Atomic uint32_t *sleeping) {
  uint64_t ticket = atomic_fetch_add(&box->tail, 1);
  bool asleep = atomic_load(sleeping);
  sli_cell *cell = &box->cells[ticket & box->mask];
  cell->message = *message;
  /* Releases the message to ready(). A plain store leaves together with the message, so the owner,
   * which polls this line, gets both in one transfer. */
  atomic_store_explicit(&cell->sequence, ticket + 1, memory_order_release);
  return asleep;
}

/* True if there is a message, or one on its way. Called by the owner, after it announces its
 * sleep. */
static inline bool sli_mailbox_expects(const sli_mailbox *box) {
  return atomic_load(&box->tail) != box->wanted - 1;
}

/* True if there is a message. Called by the owner. */
static inline bool sli_mailbox_ready(const sli_mailbox *box) {
  return atomic_load_explicit(&box->next->sequence, memory_order_acquire) == box->wanted;
}

/* Takes the next message if there is one. Called by the owner. */
static inline bool sli_mailbox_pop(sli_mailbox *box, sli_message *message) {
  uint64_t sequence = atomic_load_explicit(&box->next->sequence, memory_order_acquire);
  if (sequence != box->wanted) {
    SLI_CHECK(sequence < box->wanted, "mailbox overflow: more messages in flight than slots allow");
    return false;
  }
  *message = box->next->message;
  box->next = &box->cells[box->wanted++ & box->mask];
  return true;
}

#endif
