/* Room for what a thread works on: buffers that stay its own from call to call. */
#ifndef SLUICE_ROOM_H
#define SLUICE_ROOM_H

#include <stddef.h>

enum {
  SLI_ROOM_LIBRARY,              /* oneDNN's scratch */
  SLI_ROOM_ROWS,                 /* rows of A, in bf16 or turned */
  SLI_ROOM_STRIP, SLI_ROOM_PANELS, SLI_ROOM_SUMS, /* of a chunk on tiles */
  SLI_ROOM_LEFT, SLI_ROOM_RIGHT, /* operands that rows of experts put together */
  SLI_ROOMS
};

/* This thread's room, 64-byte aligned: until it asks for that one again. Ends the process if there is no memory. */
void *sli_room(int which, size_t bytes);

#endif
