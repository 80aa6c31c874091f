/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping, holding, ending and failing a run: the public functions, on top of the gate. */
#include "actors/run/state.h"

#include <stdio.h>

static void wake_all(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->nworkers; i++) sli_worker_wake(&rt->workers[i]);
}

/* Requests a stop. With peers it remains a request: all processes must end with the same step. */
void sl_runtime_stop(sl_runtime *rt) {
  if (rt->options.peers) {
    atomic_store(&rt->wants_stop, true);
    return;
  }
  gate_stop(&rt->gate);
  wake_all(rt);
}

bool sl_runtime_ends(const sl_runtime *rt) { return gate_look(&rt->gate).closed; }

bool sl_runtime_aborted(const sl_runtime *rt) { return gate_look(&rt->gate).aborted; }

bool sl_runtime_wants_stop(const sl_runtime *rt) { return atomic_load(&rt->wants_stop); }

int64_t sl_runtime_hold(sl_runtime *rt) { return gate_hold(&rt->gate); }

void sl_runtime_end_at(sl_runtime *rt, int64_t steps) {
  gate_end(&rt->gate, steps);
  wake_all(rt);
}

int64_t sl_runtime_begun(const sl_runtime *rt) { return gate_look(&rt->gate).begun; }

/* Keeps the first failure; later ones are ignored. */
static void keep_failure(failure *f, sl_status status, const char *detail) {
  int none = NO_FAILURE;
  if (!atomic_compare_exchange_strong(&f->state, &none, FAILURE_IN_WRITING)) return;
  f->status = status;
  snprintf(f->text, sizeof f->text, "%s", detail);
  atomic_store_explicit(&f->state, FAILURE_KEPT, memory_order_release);
}

void sl_runtime_fail(sl_runtime *rt, sl_status status, const char *detail) {
  keep_failure(&rt->failure, status, detail);
  sl_runtime_stop(rt);
}

sl_status sl_runtime_resume(sl_runtime *rt) {
  gate_view gate = gate_look(&rt->gate);
  if (gate.aborted) return sl_fail(rt->failure.status, "%s", rt->failure.text);
  if (gate.begun > rt->steps)
    return sl_fail(SL_E_USAGE, "the run ended within step %lld and cannot continue",
                   (long long)rt->steps);
  atomic_store(&rt->wants_stop, false);
  atomic_store(&rt->failure.state, NO_FAILURE);
  gate_reopen(&rt->gate, rt->steps);
  return SL_OK;
}

void sl_runtime_abort(sl_runtime *rt, sl_status status, const char *detail) {
  keep_failure(&rt->failure, status, detail);
  gate_abort(&rt->gate);
  wake_all(rt);
}
