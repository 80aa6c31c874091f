/* What one actor tells another: plain data, and handles instead of pointers, so it may
 * cross processes. */
#ifndef SLUICE_ACTORS_MESSAGE_H
#define SLUICE_ACTORS_MESSAGE_H

#include <stdint.h>

/* READY: a slot is complete. FREE: a consumer is done with one. WANTED: the producer waits for a
 * slot in step `key`; to lazy W alone. QUOTA: the register has been asked to have another number
 * of slots. CARRY: the carrier is to pass on a message to another process. The last two stay in
 * their process. */
typedef enum sli_message_kind {
  SLI_READY,
  SLI_FREE,
  SLI_WANTED,
  SLI_QUOTA,
  SLI_CARRY
} sli_message_kind;

/* Is the firing that the message is about only launched? Then `fence` is the end of its
 * fence: whoever is told makes its queue wait for it. */
enum { SLI_FENCED = 1 };

typedef struct sli_message {
  int64_t key;       /* explicit, never derived by the receiver */
  int32_t reg;
  int32_t slot;
  uint16_t kind;     /* sli_message_kind */
  uint16_t flags;    /* SLI_FENCED; CARRY: the kind of the message */
  int32_t extent;    /* READY of a link: how many rows of the slot are valid, where its register
                        has rows; else 0. Within a process it lies beside the slot */
  uint32_t group;    /* READY: which group of the register's consumers; FREE: fenced, which
                        of them; CARRY: to which process */
  uint32_t fence;    /* READY of a link: its number there */
} sli_message;

#endif
