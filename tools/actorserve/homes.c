/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas and placement of weights that a served model supports. */
#include <string.h>

#include "tools/actorserve/actorserve.h"

static bool is_weights(const sl_quota *q) { return !strcmp(q->name, "weights"); }

static bool weights_move(const settings *s) {
  bool move = !strcmp(sl_arg_text(s->run, "weights"), "disk");
  for (int i = 0; i < s->lower.memory.homes.count; i++)
    move |= s->lower.memory.homes.homes[i].space != SL_SPACE_DEVICE;
  return move;
}

static sl_status check_quota(const settings *s, const sl_quota *q) {
  bool known = is_weights(q) || !strcmp(q->name, "kv");
  if (!known || q->stage != SL_NONE)
    return sl_fail(
        SL_E_USAGE,
        "--quota %s=%d: a server has only the quotas kv=N (pages) and weights=N (blocks), the same on all stages",
        q->name, q->slots);
  if (is_weights(q) && !weights_move(s))
    return sl_fail(SL_E_USAGE,
                   "--quota weights=%d: needs --weights disk; otherwise all weights are in memory",
                   q->slots);
  return SL_OK;
}

sl_status homes_check(const settings *s) {
  static const char *const places[] = {"memory", "disk", NULL};
  sl_status status = options_check_word("weights", sl_arg_text(s->run, "weights"), places);
  for (int i = 0; i < s->lower.memory.nquotas && !status; i++)
    status = check_quota(s, &s->lower.memory.quotas[i]);
  for (int i = 0; i < s->lower.memory.homes.count && !status; i++)
    if (strcmp(s->lower.memory.homes.homes[i].name, "weights"))
      status = sl_fail(SL_E_USAGE, "--home %s: a server can move only weights off the device",
                       s->lower.memory.homes.homes[i].name);
  return status;
}

int64_t homes_pages(const settings *s) {
  int64_t pages = 0;
  for (int i = 0; i < s->lower.memory.nquotas; i++)
    if (!is_weights(&s->lower.memory.quotas[i])) pages = s->lower.memory.quotas[i].slots;
  return pages;
}

/* Applies --weights to all parameters, before any more specific --home. */
static void apply_homes(settings *s, sl_home_options *to) {
  *to = s->lower.memory.homes;
  if (strcmp(sl_arg_text(s->run, "weights"), "disk")) return;
  sl_home *all = sli_arena_alloc(&s->arena, (size_t)(to->count + 1) * sizeof *all);
  all[0] = (sl_home){.name = "weights", .space = SL_SPACE_DISK};
  for (int i = 0; i < to->count; i++) all[i + 1] = to->homes[i];
  to->homes = all;
  to->count++;
}

void homes_apply(settings *s, sl_lower_options *to) {
  sl_quota *weights =
      sli_arena_alloc(&s->arena, (size_t)(s->lower.memory.nquotas + 1) * sizeof *weights);
  to->memory.nquotas = 0;
  for (int i = 0; i < s->lower.memory.nquotas; i++)
    if (is_weights(&s->lower.memory.quotas[i]))
      weights[to->memory.nquotas++] = s->lower.memory.quotas[i];
  to->memory.quotas = weights;
  apply_homes(s, &to->memory.homes);
}
