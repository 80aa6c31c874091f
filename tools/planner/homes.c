/* SPDX-License-Identifier: Apache-2.0 */
/* Homes: data of a choice that is offloaded, and the time to copy it. */
#include <string.h>

#include "tools/planner/search_inner.h"

bool planner_state_is_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "state") || !strcmp(word, "both");
}

bool planner_acts_are_away(const plan_choice *choice) {
  const char *word = planner_word(PLAN_HOME, choice->at[PLAN_HOME]);
  return !strcmp(word, "act") || !strcmp(word, "both");
}

double planner_copy_seconds(const planner *p, const plan_choice *choice,
                            const sli_block_price *sum) {
  const sl_hardware *h = &p->settings->modelled.hardware;
  bool host = planner_away(p) == SL_SPACE_HOST;
  double rate = host ? h->copy_bytes_per_second
                     : SLI_MIN(h->disk_read_bytes_per_second, h->disk_write_bytes_per_second);
  double bytes = 0;
  for (int r = 0; r < SLI_ROLES; r++) {
    if (sli_roles[r].memory == SL_MEMORY_OPTIMIZER && planner_state_is_away(choice))
      bytes += sum->bytes[r];
    if (sli_roles[r].activation && planner_acts_are_away(choice))
      bytes += 0.8 * sum->bytes[r] * choice->at[PLAN_MICROBATCHES];
  }
  return rate > 0 ? bytes / rate : 0;
}
