/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between actors: plain data, with handles instead of pointers, so they may cross
 * processes. */
#ifndef SLUICE_ACTORS_RUN_MESSAGE_H
#define SLUICE_ACTORS_RUN_MESSAGE_H

#include <stdint.h>

/* READY: a slot is complete. FREE: a consumer is done with one. WANTED: the producer waits for a
 * slot in step `key`; sent to lazy W only. QUOTA: the register has a new quota request. CARRY: the
 * carrier is to pass on a message to another process. The last two stay in their process. */
typedef enum sli_message_kind {
  SLI_READY,
  SLI_FREE,
  SLI_WANTED,
  SLI_QUOTA,
  SLI_CARRY
} sli_message_kind;

/* Flag: the firing in question is launched, not complete. `fence` is the low word of its fence, and
 * the receiver makes its queue wait for it. */
enum { SLI_FENCED = 1 };

typedef struct sli_message {
  int64_t key; /* explicit, never derived by the receiver */
  int32_t reg;
  int32_t slot;
  uint16_t kind;      /* sli_message_kind */
  uint16_t flags;     /* SLI_FENCED; CARRY: the kind of the message */
  int32_t valid_rows; /* READY of a link: number of valid rows in the slot, if its register has
                         rows; else 0. Within a process the number is stored beside the slot */
  uint32_t group;     /* READY: group of the register's consumers; FREE, fenced: the consumer;
                         CARRY: destination process */
  uint32_t fence;     /* READY of a link: its sequence number there */
} sli_message;

#endif
