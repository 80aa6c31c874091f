/* SPDX-License-Identifier: Apache-2.0 */
/* States of kernels, shared by the calls of a device (sl_op_memory.keeps). */
#include <sluice/program.h>

#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "ops/facets.h"

typedef struct shared {
  struct shared *next;
  int32_t device;
  sli_prepare *prepare; /* prepare() of the CPU or of a GPU */
  size_t (*keeps)(const sl_call *call, uint64_t *which);
  uint64_t which;
  void *state;
  int users;
} shared;

/* all shared states of the process; the lock guards the list and its members */
static shared *all_shared;
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;

static shared *find_shared(const shared *wanted) {
  shared *s = all_shared;
  while (s && (s->device != wanted->device || s->prepare != wanted->prepare ||
               s->keeps != wanted->keeps || s->which != wanted->which))
    s = s->next;
  return s;
}

static sl_status share(const sl_call *call, int32_t device, sli_prepare *prepare, void **state) {
  shared wanted = {.device = device, .prepare = prepare, .keeps = sli_op_memory(call->op)->keeps};
  wanted.keeps(call, &wanted.which);
  shared *s = find_shared(&wanted);
  if (!s) {
    sl_status status = prepare(call, &wanted.state);
    if (status) return status;
    s = sli_calloc(1, sizeof *s);
    *s = wanted;
    s->next = all_shared;
    all_shared = s;
  }
  s->users++;
  *state = s->state;
  return SL_OK;
}

static bool states_leave(const void *state) {
  shared **at = &all_shared, *s;
  while ((*at)->state != state) at = &(*at)->next;
  s = *at;
  if (--s->users) return false;
  *at = s->next;
  free(s);
  return true;
}

sl_status sli_state_share(const sl_call *call, int32_t device, sli_prepare *prepare, void **state) {
  pthread_mutex_lock(&sharing);
  sl_status status = share(call, device, prepare, state);
  pthread_mutex_unlock(&sharing);
  return status;
}

bool sli_state_leave(const void *state) {
  pthread_mutex_lock(&sharing);
  bool last = states_leave(state);
  pthread_mutex_unlock(&sharing);
  return last;
}
