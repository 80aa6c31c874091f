/* Sums over threads: all lay their data open, each sums one part of it and writes the
 * result into everybody's. Nobody reads a part that somebody else writes, so nothing
 * is needed but that all have come before, and that nobody leaves before all are
 * done. The second cannot be stopped: who has come will get there. */
#include "comm/collective.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct sli_thread_group {
  int nmembers;
  pthread_mutex_t lock; /* of all below */
  pthread_cond_t all_came;
  int came;
  uint64_t times; /* all have come together */
  bool stopped;
  float **data; /* each member writes its own before it comes */
  size_t *counts;
};

sli_thread_group *sli_thread_group_create(int nmembers) {
  SLI_CHECK(nmembers > 0, "a group of %d threads", nmembers);
  sli_thread_group *g = sli_calloc(1, sizeof *g);
  g->nmembers = nmembers;
  g->data = sli_calloc((size_t)nmembers, sizeof *g->data);
  g->counts = sli_calloc((size_t)nmembers, sizeof *g->counts);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->all_came, NULL);
  return g;
}

void sli_thread_group_destroy(sli_thread_group *g) {
  if (!g) return;
  pthread_cond_destroy(&g->all_came);
  pthread_mutex_destroy(&g->lock);
  free(g->counts);
  free(g->data);
  free(g);
}

void sli_thread_group_stop(sli_thread_group *g) {
  pthread_mutex_lock(&g->lock);
  g->stopped = true;
  pthread_cond_broadcast(&g->all_came);
  pthread_mutex_unlock(&g->lock);
}

/* False if it was stopped before all came. */
static bool meet(sli_thread_group *g, bool can_stop) {
  pthread_mutex_lock(&g->lock);
  uint64_t now = g->times;
  if (++g->came == g->nmembers && !(can_stop && g->stopped)) { /* else some have left */
    g->came = 0;
    g->times++;
    pthread_cond_broadcast(&g->all_came);
  }
  while (g->times == now && !(can_stop && g->stopped)) pthread_cond_wait(&g->all_came, &g->lock);
  bool met = g->times != now;
  pthread_mutex_unlock(&g->lock);
  return met;
}

/* Part `self` of everybody's data. */
static void sum_part(sli_thread_group *g, int self, size_t count) {
  int n = g->nmembers;
  const float *in[n];
  size_t begin = sli_group_begin(n, self, count), share = sli_group_share(n, self, count);
  for (int m = 0; m < n; m++) {
    SLI_CHECK(g->counts[m] == count, "thread %d sums %zu numbers and thread %d %zu", self, count, m,
              g->counts[m]);
    in[m] = g->data[m] + begin;
  }
  float *sum = g->data[self] + begin;
  sli_sum_f32(sum, in, n, share);
  for (int m = 0; m < n; m++)
    if (m != self) memcpy(g->data[m] + begin, sum, share * sizeof *sum);
}

sl_status sli_thread_group_all_reduce_f32(sli_thread_group *g, int self, float *data,
                                          size_t count) {
  g->data[self] = data;
  g->counts[self] = count;
  if (!meet(g, true)) return sl_fail(SL_E_STOPPED, "a sum over threads was stopped");
  if (count) sum_part(g, self, count);
  meet(g, false);
  return SL_OK;
}
