/* SPDX-License-Identifier: Apache-2.0 */
/* Per-thread work buffers, kept from call to call. */
#ifndef SLUICE_KERNELS_CPU_ROOM_H
#define SLUICE_KERNELS_CPU_ROOM_H

#include <stddef.h>

enum {
  SLI_ROOM_LIBRARY, /* oneDNN's scratch */
  SLI_ROOM_ROWS,    /* rows of A, in bf16 or turned */
  SLI_ROOM_STRIP,
  SLI_ROOM_PANELS,
  SLI_ROOM_SUMS, /* sums of a chunk on tiles */
  SLI_ROOM_LEFT,
  SLI_ROOM_RIGHT, /* operands gathered from experts' rows */
  SLI_ROOM_LEAF,  /* sums over a leaf of their rows */
  SLI_ROOMS
};

/* Returns this thread's buffer, 64-byte aligned, valid until the next request for the same one.
 * Ends the process if memory runs out. */
void *sli_room(int which, size_t bytes);

#endif
