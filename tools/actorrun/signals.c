/* Ctrl-C and SIGTERM: the first ends the run after its step, the second ends everything. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tools/actorrun/actorrun.h"

/* `running` is written by the main thread and read by the handler, on whatever
 * thread that is; release and acquire, so that the runtime behind it is seen
 * complete. `interrupted` belongs to the handler; relaxed, a flag by itself. */
static _Atomic(sl_runtime *) running;
static atomic_bool interrupted;
static bool speaks = true; /* for the job: process 0; set before `running` */

static void on_signal(int signal_number) {
  sl_runtime *rt = atomic_load_explicit(&running, memory_order_acquire);
  if (!rt || atomic_exchange_explicit(&interrupted, true, memory_order_relaxed)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  static const char text[] = "\nfinishing this step; press Ctrl-C again to quit now\n";
  /* Nothing is to be done about it if that fails. */
  if (speaks && write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
  sl_runtime_stop(rt);
}

void signals_catch(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGXFSZ, SIG_IGN); /* a file too long is an error like others: who writes it says so */
}

void signals_watch(sl_runtime *rt, bool for_all) {
  speaks = for_all;
  atomic_store_explicit(&running, rt, memory_order_release);
}
