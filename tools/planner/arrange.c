/* SPDX-License-Identifier: Apache-2.0 */
/* Arrangements: assignments of devices to places that a plan can distinguish.
 *
 * Two assignments make plans of the same duration if each pair of places has the same link, and the
 * same places share hosts. Of n! assignments only one of each such class is listed: eight devices
 * of one host with one slow link have 28 arrangements, not 40,320. */
#include <stdlib.h>
#include <string.h>

#include "tools/planner/search_inner.h"

enum { FEW = PLANNER_FEW_DEVICES, PAIRS = FEW * (FEW - 1) / 2 };

/* Views of an assignment in progress: link and host of each place. */
typedef struct arranging {
  const sl_hardware *h;
  int devices, per_host;
  uint8_t link[FEW][FEW]; /* number of the link of two devices; equal links have equal numbers */
  uint8_t device[FEW];    /* of each place */
  uint64_t *seen;         /* [mask + 1] hashes of listed arrangements; 0: free */
  size_t mask;
  planner_arrangements *to;
  size_t capacity;
} arranging;

/* ---- links ----------------------------------------------------------------------------------- */

/* Returns the index of the described link of two devices, or SL_NONE. */
static int find_pair(const sl_hardware *h, int a, int b) {
  for (int i = 0; i < h->npairs; i++) {
    const sl_hardware_pair *p = &h->pairs[i];
    if ((p->from == a && p->to == b) || (p->from == b && p->to == a)) return i;
  }
  return SL_NONE;
}

static bool is_equal(const sl_hardware_link *a, const sl_hardware_link *b) {
  return a->seconds == b->seconds && a->bytes_per_second == b->bytes_per_second;
}

/* Returns 0 for two devices without a described link, else 1 + the first link equal to theirs. */
static uint8_t number_link(const sl_hardware *h, int a, int b) {
  int own = find_pair(h, a, b), first = 0;
  if (own == SL_NONE) return 0;
  while (!is_equal(&h->pairs[first].link, &h->pairs[own].link)) first++;
  return (uint8_t)(1 + SLI_MIN(first, UINT8_MAX - 1));
}

static void number_links(arranging *a) {
  for (int i = 0; i < a->devices; i++)
    for (int k = 0; k < a->devices; k++) a->link[i][k] = number_link(a->h, i, k);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Hashes the links between places and the places of each host. Never returns 0. */
static uint64_t hash_of(const arranging *a) {
  uint8_t view[PAIRS + FEW], *to = view;
  int first[FEW]; /* place of the first device of each host */
  for (int h = 0; h < FEW; h++) first[h] = FEW;
  for (int i = 0; i < a->devices; i++) {
    int *host = &first[a->device[i] / a->per_host];
    *host = SLI_MIN(*host, i);
    *to++ = (uint8_t)*host;
    for (int k = 0; k < i; k++) *to++ = a->link[a->device[i]][a->device[k]];
  }
  return sli_hash(SLI_HASH_SEED, view, (size_t)(to - view)) | 1;
}

/* Lists the assignment unless one like it is there. */
static void arrange_add(arranging *a) {
  uint64_t hash = hash_of(a);
  size_t at = hash & a->mask;
  for (; a->seen[at]; at = (at + 1) & a->mask)
    if (a->seen[at] == hash) return;
  a->seen[at] = hash;
  planner_arrangements *to = a->to;
  SLI_GROW(to->items, (size_t)to->count, a->capacity);
  for (int i = 0; i < a->devices; i++) to->items[to->count].device[i] = a->device[i];
  to->count++;
}

/* Tries all orders of the devices from a place on, in ascending order. */
static void permute(arranging *a, int place, unsigned used) {
  if (place == a->devices) arrange_add(a);
  for (int d = 0; d < a->devices && place < a->devices; d++) {
    if (used >> d & 1) continue;
    a->device[place] = (uint8_t)d;
    permute(a, place + 1, used | 1u << d);
  }
}

planner_arrangements planner_arrange(const sl_hardware *h, int devices) {
  enum { ROOM = 1 << 17 }; /* more than twice as many as there are assignments */
  planner_arrangements found = {0};
  if (devices > FEW) return found;
  arranging a = {.h = h,
                 .devices = devices,
                 .per_host = SLI_MAX(h->devices_per_host, 1),
                 .seen = sli_calloc(ROOM, sizeof(uint64_t)),
                 .mask = ROOM - 1,
                 .to = &found};
  number_links(&a);
  permute(&a, 0, 0);
  free(a.seen);
  return found;
}
