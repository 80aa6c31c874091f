/* Programs made ready: what calls keep, and the scratch they need. */
#include <sluice/program.h>

#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"

/* ---- states that calls of a device share (sl_op.keeps) ------------------------------- */

typedef struct shared {
  struct shared *next;
  int32_t device;
  sli_prepare *prepare; /* of the CPU or of a GPU */
  size_t (*keeps)(const sl_call *call, uint64_t *which);
  uint64_t which;
  void *state;
  int users;
} shared;

static shared *all_shared; /* of the process; with its members, under the lock */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;

static shared *find_shared(const shared *wanted) {
  shared *s = all_shared;
  while (s && (s->device != wanted->device || s->prepare != wanted->prepare ||
               s->keeps != wanted->keeps || s->which != wanted->which))
    s = s->next;
  return s;
}

static sl_status share(const sl_call *call, int32_t device, sli_prepare *prepare, void **state) {
  shared wanted = {.device = device, .prepare = prepare, .keeps = call->op->keeps};
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

static bool leave(const void *state) {
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
  bool last = leave(state);
  pthread_mutex_unlock(&sharing);
  return last;
}

/* ---- programs ---------------------------------------------------------------------- */

sl_status sl_program_prepare(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    if (!c->op->prepare || c->state) continue;
    sl_call call = sli_call_shape(c);
    sl_status status = c->op->keeps
                           ? sli_state_share(&call, program->device, c->op->prepare, &c->state)
                           : c->op->prepare(&call, &c->state);
    if (status) return status;
  }
  return SL_OK;
}

void sl_program_release(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    bool last = c->state && (!c->op->keeps || sli_state_leave(c->state));
    if (last && c->op->release) c->op->release(c->state);
    c->state = NULL;
  }
}

size_t sl_program_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (!c->op->scratch) continue;
    sl_call call = sli_call_shape(c);
    most = SLI_MAX(most, c->op->scratch(&call, threads));
  }
  return most;
}
