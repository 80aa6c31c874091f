/* SPDX-License-Identifier: Apache-2.0 */
/* The registers that quotas and homes name. */
#include <string.h>

#include "base/base.h"
#include "graph/build/build.h"
#include "graph/lower/lower.h"
#include "ops/expert_loads.h"
#include "ops/ops.h"
#include "ops/table_loads.h"

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

/* Homes of what ops of served graphs read as ticks want it. */
static const struct {
  const sl_op *op;
  const char *name;
} loaded[] = {{&sl_op_load_experts, "experts"}, {&sl_op_load_rows, "tables"}};

const char *sli_loads_home(const sl_op *op) {
  for (size_t i = 0; i < SLI_COUNT(loaded); i++)
    if (loaded[i].op == op) return loaded[i].name;
  return NULL;
}

bool sli_home_is_loaded(const sl_home *h) {
  bool any = false;
  for (size_t i = 0; i < SLI_COUNT(loaded); i++) any |= !strcmp(h->name, loaded[i].name);
  return any;
}

const sl_home *sli_home_of(const sl_lower_options *o, sli_role role, const char *block,
                           const sl_op *loads) {
  static const sl_home device = {.space = SL_SPACE_DEVICE};
  const char *name = sli_loads_home(loads);
  const sl_home *home = &device;
  for (int i = 0; i < o->memory.homes.count; i++) {
    const sl_home *h = &o->memory.homes.homes[i];
    bool named = sli_home_names(h, role) || (name && !strcmp(h->name, name));
    if (named && (!h->block || sli_pattern_finds(h->block, block))) home = h;
  }
  return home;
}

bool sli_loads_move(const sl_lower_options *o, const sl_op *loads) {
  bool any = false;
  for (int i = 0; i < o->memory.homes.count; i++)
    any |= !strcmp(o->memory.homes.homes[i].name, sli_loads_home(loads)) &&
           o->memory.homes.homes[i].space != SL_SPACE_DEVICE;
  return any;
}

bool sli_home_given(const sl_lower_options *o, sli_role role) {
  for (int i = 0; i < o->memory.homes.count; i++)
    if (o->memory.homes.homes[i].space != SL_SPACE_DEVICE &&
        sli_home_names(&o->memory.homes.homes[i], role))
      return true;
  return false;
}
