/* SPDX-License-Identifier: Apache-2.0 */
/* The registers that quotas and homes name. */
#include <string.h>

#include "base/base.h"
#include "graph/lower/lower.h"

bool sli_quota_counts_activations(const char *name) {
  const sli_role_row *row = sli_role_find(name);
  return row && row->activation;
}

bool sli_quota_names(const sl_quota *q, const char *name, int stage) {
  bool both = !strcmp(q->name, "act") && sli_quota_counts_activations(name);
  return (both || !strcmp(q->name, name)) && (q->stage == SL_NONE || q->stage == stage);
}

bool sli_home_names(const sl_home *h, sli_role role) {
  sl_quota q = {.name = h->name, .stage = SL_NONE};
  return sli_roles[role].home && sli_quota_names(&q, sli_roles[role].home, 0);
}

bool sli_home_given(const sl_lower_options *o, sli_role role) {
  for (int i = 0; i < o->memory.homes.count; i++)
    if (o->memory.homes.homes[i].space != SL_SPACE_DEVICE &&
        sli_home_names(&o->memory.homes.homes[i], role))
      return true;
  return false;
}
