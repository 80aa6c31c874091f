/* SPDX-License-Identifier: Apache-2.0 */
/* Per-thread buffers. */
#include "kernels/cpu/room.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"

typedef struct rooms {
  struct {
    void *data;
    size_t bytes;
  } items[SLI_ROOMS];
} rooms;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void thread_end(void *arg) {
  rooms *r = arg;
  for (int i = 0; i < SLI_ROOMS; i++) free(r->items[i].data);
  free(r);
}

static void make_key(void) {
  SLI_CHECK(!pthread_key_create(&key, thread_end), "out of thread-specific data keys");
}

static rooms *this_thread(void) {
  static _Thread_local rooms *known;
  if (known) return known;
  pthread_once(&once, make_key);
  known = sli_calloc(1, sizeof *known);
  pthread_setspecific(key, known);
  return known;
}

void *sli_room(int which, size_t bytes) {
  rooms *r = this_thread();
  bytes = (bytes + 63) / 64 * 64;
  if (bytes <= r->items[which].bytes) return r->items[which].data;
  free(r->items[which].data);
  r->items[which].data = sli_aligned_alloc(64, bytes);
  r->items[which].bytes = bytes;
  return r->items[which].data;
}
