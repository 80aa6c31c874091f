/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C: once to stop and show the results so far, twice to kill the program. */
#include "tools/actortune/actortune.h"

#include <signal.h>
#include <stdatomic.h>

/* Set by the handler, read by all threads. Relaxed: no other data depends on it. */
static atomic_bool stop;

static void on_signal(int number) {
  if (atomic_exchange_explicit(&stop, true, memory_order_relaxed)) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void interrupt_catch(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void) { return atomic_load_explicit(&stop, memory_order_relaxed); }
