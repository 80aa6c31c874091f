/* The mailbox that carries messages between workers.
 *
 * A mailbox is a ring of cells that many workers push to and one drains. A push
 * draws a ticket, which names its cell, and completes the cell by writing
 * ticket + 1 into its sequence; the owner takes cells in order of tickets.
 *
 * Nobody writes a cell free, and a push does not look whether it is: a ring has
 * more cells than messages can be under way. Every message belongs to a line of
 * messages (READY of one slot to one worker, FREE of one slot from one port,
 * QUOTA of one register) of which each is sent only after the one before has
 * been taken and answered. WANTED follows the READY, or the FREE, of a slot, and
 * of the next such line one more may be sent while it is on its way, but not
 * two: it counts for two lines. Of the tickets since the one that used a cell last there are
 * more than lines, so two belong to one line, and the owner, who takes in order, had taken
 * the old message before the later of the two was sent. That the old message was read before
 * this one is written follows along the same path: the answer, and the acquire-release chain
 * through `tail`. */
#ifndef SLUICE_ACTORS_MAILBOX_H
#define SLUICE_ACTORS_MAILBOX_H

#include <stdatomic.h>
#include <stdlib.h>

#include "actors/run/message.h"
#include "base/base.h"

_Static_assert(sizeof(sli_message) <= 48, "a message and its sequence number share a line");

typedef struct sli_cell {
  _Alignas(SLI_LINE_PAIR) _Atomic uint64_t sequence;
  sli_message message;
} sli_cell;

typedef struct sli_mailbox {
  sli_cell *cells;
  uint64_t mask;
  _Alignas(SLI_LINE_PAIR) _Atomic uint64_t tail; /* pushers: next ticket */
  _Alignas(SLI_LINE_PAIR) const sli_cell *next;  /* owner only: the cell to take ... */
  uint64_t wanted;                                /* ... when it has this sequence */
} sli_mailbox;

static inline void sli_mailbox_init(sli_mailbox *box, uint64_t most_messages) {
  uint64_t size = 16;
  while (size < most_messages + 1) size *= 2;
  box->cells = aligned_alloc(SLI_LINE_PAIR, size * sizeof *box->cells);
  SLI_CHECK(box->cells, "no memory for a mailbox of %llu messages", (unsigned long long)size);
  for (uint64_t i = 0; i < size; i++) atomic_init(&box->cells[i].sequence, 0);
  box->mask = size - 1;
  atomic_init(&box->tail, 0);
  box->next = box->cells;
  box->wanted = 1;
}

static inline void sli_mailbox_fini(sli_mailbox *box) { free(box->cells); }

/* Any worker. True if the owner was asleep, or about to be: wake it.
 *
 * Whether it is, is asked between the ticket and the message. The owner says that it sleeps and then
 * looks whether a ticket has been drawn; of two that do so at once one sees the other. To ask after the
 * message would be to wait until the owner's copy of the cell is gone. */
static inline bool sli_mailbox_push(sli_mailbox *box, const sli_message *message,
                                    const _Atomic uint32_t *sleeping) {
  uint64_t ticket = atomic_fetch_add(&box->tail, 1);
  bool asleep = atomic_load(sleeping);
  sli_cell *cell = &box->cells[ticket & box->mask];
  cell->message = *message;
  /* Releases the message to ready(). A plain store, so that it leaves together
   * with the message and the owner, who polls this line, gets both at once. */
  atomic_store_explicit(&cell->sequence, ticket + 1, memory_order_release);
  return asleep;
}

/* The owner, once it has said that it sleeps. Is there a message, or one on its way? */
static inline bool sli_mailbox_expects(const sli_mailbox *box) {
  return atomic_load(&box->tail) != box->wanted - 1;
}

/* The owner. Is there a message? */
static inline bool sli_mailbox_ready(const sli_mailbox *box) {
  return atomic_load_explicit(&box->next->sequence, memory_order_acquire) == box->wanted;
}

/* The owner. Takes the next message if there is one. */
static inline bool sli_mailbox_pop(sli_mailbox *box, sli_message *message) {
  uint64_t sequence = atomic_load_explicit(&box->next->sequence, memory_order_acquire);
  if (sequence != box->wanted) {
    SLI_CHECK(sequence < box->wanted,
              "a mailbox overflowed: more messages under way than slots allow");
    return false;
  }
  *message = box->next->message;
  box->next = &box->cells[box->wanted++ & box->mask];
  return true;
}

#endif
