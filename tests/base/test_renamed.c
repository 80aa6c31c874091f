/* SPDX-License-Identifier: Apache-2.0 */
/* Old names of types, functions and fields still work unless a program disables them.
 * labels: unthreaded */
#undef SLUICE_NO_OLD_NAMES
#include <sluice/look.h>
#include <sluice/sluice.h>

#include "tests/support/test.h"

static void types_are_the_same(void) {
  sl_statistics stats = {.step_seconds = 2};
  const sl_figures *figures = &stats;
  sl_fingerprint_item item = {"--seed", "1"};
  const sl_term *term = &item;
  CHECK(figures->step_seconds == 2 && term->value == item.value, "a type has two names");
  CHECK(sl_runtime_figures == sl_runtime_statistics && sl_tally_at == sl_counter_at &&
            sl_look_create == sl_run_status_create && sl_session_rehearse == sl_session_simulate,
        "a function has two names");
}

static void fields_are_the_same(void) {
  sl_fingerprint_item items[2];
  sl_checkpoint_options kept = {.nterms = 2, .terms = items};
  CHECK(kept.nfingerprint == 2 && kept.fingerprint == items, "options of checkpoints");
  sl_session_options session = {.nterms = 2, .terms = items};
  CHECK(session.nfingerprint == 2 && session.fingerprint == items, "options of a session");
  sl_cost cost = {.nspread = 1};
  sl_step_report report = {.ntallies = 3};
  sl_trace trace = {.ntallies = 4};
  CHECK(cost.nsharded == 1 && report.ncounters == 3 && trace.ncounters == 4, "counts");
}

int main(void) {
  types_are_the_same();
  fields_are_the_same();
  return 0;
}
