/* SPDX-License-Identifier: Apache-2.0 */
/* Wire format of the control plane: frames of a fixed little-endian layout.
 *
 *   0  u32 magic  "SLCF"        16  u64 instance   drawn by each sli_control_open
 *   4  u16 version              24  u64 sequence   1, 2, 3, ... on each line
 *   6  u16 type                 32  u32 body bytes
 *   8  u32 process (sender)     36  u32 zero
 *  12  u32 incarnation          40  body
 *
 * A body has a fixed-size part, which depends on the type, and a tail of equal units. One table
 * describes both; a frame that does not match it is rejected. Numbers are checked here as far as a
 * single frame allows. */
#ifndef SLUICE_COMM_CONTROL_FRAME_H
#define SLUICE_COMM_CONTROL_FRAME_H

#include "base/base.h"

enum {
  SLI_FRAME_VERSION = 4,
  SLI_FRAME_HEADER_BYTES = 40,
  SLI_FRAME_TAIL_BYTES = 1 << 20, /* longest tail of one frame */
  SLI_FRAME_MAX_BYTES = SLI_FRAME_HEADER_BYTES + 512 + SLI_FRAME_TAIL_BYTES,
  SLI_FRAME_TEXT_BYTES = 1024,
  SLI_FRAME_WORD_CHARS = 16, /* including the final 0 */
  SLI_FRAME_NAME_CHARS = 64,
  SLI_FRAME_DIRECT_CHARS = 128,
  SLI_FRAME_DATA_BYTES = 64 << 20, /* most data that is split into frames */
};

typedef enum sli_frame_type {
  SLI_FRAME_HELLO = 1, /* hello: sent to process 0 until it replies */
  SLI_FRAME_WAIT,      /* process 0 has received the HELLO; tail: text, the missing processes */
  SLI_FRAME_REFUSE,    /* process 0 refuses the sender; tail: text, why */
  SLI_FRAME_DATA,      /* a part of long data; tail: the part */
  SLI_FRAME_PING,      /* heartbeat; requests the time */
  SLI_FRAME_PONG,      /* reply to a PING, with the time */
  SLI_FRAME_CLOCKS,    /* tail: the clock of each process minus that of process 0 */
  SLI_FRAME_ABORT,     /* the job is over; tail: text, why */
  SLI_FRAME_BYE,       /* the sender leaves normally */
  SLI_FRAME_TYPES
} sli_frame_type;

/* Content of a DATA frame. */
typedef enum sli_data_kind {
  SLI_DATA_TABLE = 1, /* process 0 to all: everybody's HELLO */
  SLI_DATA_WORD,      /* word: sent to process 0, which forwards it to its target */
  SLI_DATA_MEET,      /* to process 0: a process has arrived; target -1: all get all data */
  SLI_DATA_RELEASE,   /* process 0 to all: the meeting is complete, with everybody's data */
  SLI_DATA_KINDS
} sli_data_kind;

typedef struct sli_frame {
  uint16_t version, type;
  uint32_t process, incarnation;
  uint64_t instance, sequence;
  union {
    struct {
      uint32_t nprocesses;
      char job[SLI_FRAME_NAME_CHARS], host[SLI_FRAME_NAME_CHARS];
      char direct[SLI_FRAME_DIRECT_CHARS]; /* "HOST:PORT", ":PORT" on process 0's host */
    } hello;
    struct {
      uint32_t kind, from;
      int32_t target; /* -1: all */
      char word[SLI_FRAME_WORD_CHARS];
      uint64_t total_bytes, offset_bytes;
    } data;
    struct {
      uint64_t asked_ns, received_ns, answered_ns;
    } clock; /* PING: only asked_ns is set */
    struct {
      uint32_t culprit, status;
    } abort;
  };
  const void *tail;
  size_t tail_bytes;
} sli_frame;

/* Return the size of the written frame, and write it. */
size_t sli_frame_bytes(const sli_frame *frame);
void sli_frame_write(const sli_frame *frame, uint8_t *out);

/* Reads a frame, whose tail points into `bytes`. Returns NULL, or a text that says what is wrong.
 * If the version is wrong, the header fields are set. */
const char *sli_frame_parse(const void *bytes, size_t count, sli_frame *out);

/* Copies a tail as text: 0-terminated, without control characters; returns `out`. */
char *sli_frame_text(const sli_frame *frame, char out[SLI_FRAME_TEXT_BYTES + 1]);

const char *sli_frame_name(unsigned type);

/* Write and read numbers inside tails. */
void sli_frame_put64(uint8_t *at, uint64_t value);
uint64_t sli_frame_take64(const uint8_t *at);

#endif
