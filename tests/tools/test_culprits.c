/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace names the injected culprit. On pipelines with too few slots in one register, one slow
 * stage, one slow link or a late loader, it traces the idle time back to that cause. Reasons add up
 * to the nanosecond, and the slot that it advises saves the time that it predicted.
 * labels: unthreaded long first */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fault_injection.h"
#include "tests/support/test.h"

static void check_culprit(const char *what, const pipeline *p, const char *culprit) {
  injection_run(p, SL_CLOCK_VIRTUAL);
  char line[256], *text = injection_ask("show --no-color");
  CHECK(strstr(injection_line(text, "Traced back", line), culprit), "%s: %s is named, not %s\n%s",
        what, culprit, line, text);
  free(text);
  double credit_ns;
  injection_check_sums(&credit_ns);
}

static void injected_culprits_are_named(void) {
  pipeline starved = injection_even, slow = injection_even, link = injection_even,
           late = injection_even, blocked = injection_even;
  starved.act[0] = 1;
  check_culprit("a starved register", &starved, "credit: register act@0 has only 1 slot");
  slow.forward[1] = 12, slow.backward[1] = 24;
  check_culprit("a slow stage", &slow, "1 on pass@1 was running");
  slow.forward[1] = 4, slow.backward[1] = 8, slow.forward[3] = 12, slow.backward[3] = 24;
  check_culprit("another slow stage", &slow, "3 on pass@3 was running");
  link.link[1] = 40;
  check_culprit("a slow link", &link, "send1 on link@1 was running");
  late.load = 30;
  check_culprit("a late loader", &late, "load0 on host@0 was running");
  /* All activations have slots, but sent values do not: the first device stalls for lack of credit,
   * and the slow device is its neighbour. */
  for (int d = 0; d < STAGES; d++) blocked.act[d] = MICROBATCHES;
  blocked.fwd = 1;
  blocked.forward[1] = 16;
  check_culprit("back pressure", &blocked, "F1 on pass@1 was running");
  double credit_ns;
  injection_check_sums(&credit_ns);
  CHECK(credit_ns > 0, "waiting for credit is called that");
}

static void advised_slots_save_what_was_said(void) {
  static const int starved[] = {0, 1, 2};
  for (size_t i = 0; i < sizeof starved / sizeof *starved; i++) {
    pipeline p = injection_even;
    p.act[starved[i]] = 1;
    CHECK(injection_keeps_promise(SL_CLOCK_VIRTUAL, p, starved[i]),
          "the slot saves what was promised");
  }
}

int main(void) {
  RUN(injected_culprits_are_named);
  RUN(advised_slots_save_what_was_said);
  return 0;
}
