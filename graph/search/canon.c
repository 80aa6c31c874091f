/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical order of devices by their links, independent of their numbers.
 *
 * Each device has a key that is refined repeatedly from the keys of its neighbours (colour
 * refinement: Weisfeiler and Leman, 1968): over pairs that have specific links, and over the
 * devices of its host. Ties between equal keys are broken one at a time; for symmetric devices it
 * does not matter which comes first. Renumbering hosts and devices therefore does not change the
 * order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "graph/search/place.h"

typedef struct keys {
  const sl_hardware *h;
  int n, per_host, *order;
  uint64_t *device, *next,
      *host; /* [n] keys of devices; keys of hosts, the sums over their devices */
} keys;

static uint64_t mix(uint64_t a, uint64_t b) {
  uint32_t word[4] = {(uint32_t)a, (uint32_t)(a >> 32), 0, 0};
  sli_philox(word, b);
  return word[0] | (uint64_t)word[1] << 32;
}

static uint64_t bits(double x) {
  uint64_t word;
  memcpy(&word, &x, sizeof word);
  return word;
}

/* Hashes a neighbour's key with the link to it. A sum of these hashes does not depend on their
 * order. */
static uint64_t heard(const sl_hardware_link *link, uint64_t other) {
  return mix(mix(bits(link->seconds), bits(link->bytes_per_second)), other);
}

static void sum_hosts(const keys *k) {
  memset(k->host, 0, (size_t)k->n * sizeof *k->host);
  for (int d = 0; d < k->n; d++) k->host[d / k->per_host] += mix(k->device[d], 1);
}

/* Refines all keys once. */
static void refine_once(keys *k) {
  sum_hosts(k);
  for (int d = 0; d < k->n; d++) k->next[d] = mix(k->device[d], k->host[d / k->per_host]);
  for (int i = 0; i < k->h->npairs; i++) {
    const sl_hardware_pair *p = &k->h->pairs[i];
    if (p->from >= k->n || p->to >= k->n) continue;
    k->next[p->from] += heard(&p->link, mix(k->device[p->to], 2));
    k->next[p->to] += heard(&p->link, mix(k->device[p->from], 2));
  }
  memcpy(k->device, k->next, (size_t)k->n * sizeof *k->device);
}

static _Thread_local const keys *sorted;

static int by_key(const void *a, const void *b) {
  uint64_t x = sorted->device[*(const int *)a], y = sorted->device[*(const int *)b];
  return x < y ? -1 : x > y;
}

/* Compares devices by host first, so that devices of one host stay together. */
static int by_host(const void *a, const void *b) {
  uint64_t x = sorted->host[*(const int *)a / sorted->per_host],
           y = sorted->host[*(const int *)b / sorted->per_host];
  return x < y ? -1 : x > y ? 1 : by_key(a, b);
}

static void sort_by(keys *k, int (*compare)(const void *, const void *)) {
  sorted = k;
  qsort(k->order, (size_t)k->n, sizeof *k->order, compare);
}

static int differing(keys *k) {
  int count = 1;
  sort_by(k, by_key);
  for (int i = 1; i < k->n; i++) count += k->device[k->order[i]] != k->device[k->order[i - 1]];
  return count;
}

/* Refines until the number of distinct keys no longer grows, and returns it. */
static int refine(keys *k) {
  int before = 0, now = 1;
  while (before < now) {
    before = now;
    refine_once(k);
    now = differing(k);
  }
  return now;
}

/* Gives one of the first devices with equal keys a unique key. */
static void tell_apart(keys *k, int step) {
  for (int i = 1; i < k->n; i++)
    if (k->device[k->order[i]] == k->device[k->order[i - 1]]) {
      k->device[k->order[i]] = mix(k->device[k->order[i]], (uint64_t)step + 3);
      return;
    }
}

void sli_place_order(const sl_hardware *h, int devices, int *order) {
  uint64_t *words = sli_calloc(3 * (size_t)devices, sizeof *words);
  keys k = {h,
            devices,
            SLI_MAX(h->devices_per_host, 1),
            order,
            words,
            words + devices,
            words + 2 * devices};
  for (int d = 0; d < devices; d++) order[d] = d;
  for (int step = 0; refine(&k) < devices; step++) tell_apart(&k, step);
  sum_hosts(&k);
  sort_by(&k, by_host);
  free(words);
}
