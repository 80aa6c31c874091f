/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C and SIGTERM: the first one ends the run after its step, the second one kills it. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tools/actorrun/actorrun.h"

/* Runtime to stop. The main thread writes `running` and the handler reads it, on any thread.
 * Release and acquire order make the runtime behind it visible. Only the handler uses
 * `interrupted`, with relaxed order because no other data depends on it. */
static _Atomic(sl_runtime *) running;
static atomic_bool interrupted;
static bool speaks = true; /* true in process 0; set before `running` */

static void on_signal(int signal_number) {
  sl_runtime *rt = atomic_load_explicit(&running, memory_order_acquire);
  if (!rt || atomic_exchange_explicit(&interrupted, true, memory_order_relaxed)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  static const char text[] = "\nfinishing this step; press Ctrl-C again to quit now\n";
  /* A failed write cannot be handled here. */
  if (speaks && write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
  sl_runtime_stop(rt);
}

void signals_catch(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  /* a file over the size limit fails its write, which reports the error */
  signal(SIGXFSZ, SIG_IGN);
}

void signals_watch(sl_runtime *rt, bool for_all) {
  speaks = for_all;
  atomic_store_explicit(&running, rt, memory_order_release);
}
