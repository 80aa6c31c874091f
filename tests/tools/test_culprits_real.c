/* SPDX-License-Identifier: Apache-2.0 */
/* On the real clock, too, the slot that actortrace advises saves the predicted time, and reasons
 * add up to the nanosecond. The test is skipped on an overloaded machine, where durations mean
 * nothing.
 * labels: unthreaded long alone */
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/fault_injection.h"
#include "tests/support/test.h"

enum { TRIES = 4, SKIPPED = 77 };

static bool is_busy(void) {
  double load;
  return getloadavg(&load, 1) == 1 && load > 0.75 * (double)sysconf(_SC_NPROCESSORS_ONLN);
}

static bool is_kept_once(pipeline p, int stage) {
  for (int d = 0; d < STAGES; d++) p.forward[d] *= 2, p.backward[d] *= 2, p.link[d] *= 2;
  for (int i = 0; i < TRIES; i++)
    if (injection_keeps_promise(SL_CLOCK_REAL, p, stage)) return true;
  return false;
}

int main(void) {
  for (int stage = 0; stage <= 2; stage += 2) {
    pipeline p = injection_even;
    p.act[stage] = 1;
    if (is_kept_once(p, stage)) continue;
    CHECK(is_busy(), "the slot saves what was promised");
    printf("skipped: the machine is too busy to measure on the real clock\n");
    return SKIPPED;
  }
  return 0;
}
