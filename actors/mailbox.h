/* Messages, and the mailbox that carries them between workers.
 *
 * A mailbox is a bounded ring that many workers push to and one drains. Each
 * cell has a sequence number: `pos` when free for the push that drew ticket
 * pos, `pos + 1` when full. A ring is sized to the largest number of messages
 * that can be under way (each slot has at most one answer outstanding per
 * port), so a push never waits and never fails. */
#ifndef SLUICE_ACTORS_MAILBOX_H
#define SLUICE_ACTORS_MAILBOX_H

#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"

typedef enum sli_message_kind { SLI_READY, SLI_FREE } sli_message_kind;

/* Plain data, 32 bytes, handles instead of pointers: it may cross processes.
 * `flags`, `priority`, `extent` and `fence` belong to the layout of a message
 * between processes and devices; within a process a message is sent when its
 * slot is complete and they are zero. */
typedef struct sli_message {
  int64_t key;       /* explicit, never derived by the receiver */
  int32_t reg;
  int32_t slot;
  uint8_t kind;      /* sli_message_kind */
  uint8_t flags;     /* more, last, empty, cancel */
  uint16_t priority; /* within the class */
  uint32_t group;    /* READY: which group of the register's consumers */
  uint32_t extent;   /* valid rows */
  uint32_t fence;
} sli_message;
_Static_assert(sizeof(sli_message) <= 48, "a message and its sequence number share a line");

typedef struct sli_cell {
  _Alignas(SLI_CACHE_LINE) _Atomic uint64_t sequence;
  sli_message message;
} sli_cell;

typedef struct sli_mailbox {
  sli_cell *cells;
  uint64_t mask;
  _Alignas(SLI_CACHE_LINE) _Atomic uint64_t tail; /* pushers: next ticket */
  _Alignas(SLI_CACHE_LINE) uint64_t head;         /* owner only: next to drain */
} sli_mailbox;

static inline void sli_mailbox_init(sli_mailbox *box, uint64_t most_messages) {
  uint64_t size = 16;
  while (size < most_messages + 1) size *= 2;
  box->cells = aligned_alloc(SLI_CACHE_LINE, size * sizeof *box->cells);
  SLI_CHECK(box->cells, "no memory for a mailbox of %llu messages", (unsigned long long)size);
  for (uint64_t i = 0; i < size; i++) atomic_init(&box->cells[i].sequence, i);
  box->mask = size - 1;
  atomic_init(&box->tail, 0);
  box->head = 0;
}

static inline void sli_mailbox_fini(sli_mailbox *box) { free(box->cells); }

/* Any worker. */
static inline void sli_mailbox_push(sli_mailbox *box, const sli_message *message) {
  uint64_t ticket = atomic_fetch_add_explicit(&box->tail, 1, memory_order_relaxed);
  sli_cell *cell = &box->cells[ticket & box->mask];
  /* acquire: pairs with the release in pop, so the old message has been read */
  SLI_CHECK(atomic_load_explicit(&cell->sequence, memory_order_acquire) == ticket,
            "a mailbox overflowed: more messages under way than slots allow");
  cell->message = *message;
  /* release: pairs with the acquire in pop */
  atomic_store_explicit(&cell->sequence, ticket + 1, memory_order_release);
}

/* The owner. Is there a message? */
static inline bool sli_mailbox_ready(const sli_mailbox *box) {
  const sli_cell *cell = &box->cells[box->head & box->mask];
  return atomic_load_explicit(&cell->sequence, memory_order_acquire) == box->head + 1;
}

/* The owner. Takes the next message if there is one. */
static inline bool sli_mailbox_pop(sli_mailbox *box, sli_message *message) {
  sli_cell *cell = &box->cells[box->head & box->mask];
  if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != box->head + 1) return false;
  *message = cell->message;
  atomic_store_explicit(&cell->sequence, box->head + box->mask + 1, memory_order_release);
  box->head++;
  return true;
}

#endif
