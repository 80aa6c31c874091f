/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas and placement of weights that a served model supports. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "ops/planes.h"
#include "tools/actorserve/actorserve.h"

static bool is_weights(const sl_quota *q) { return !strcmp(q->name, "weights"); }
static bool is_experts(const sl_quota *q) { return !strcmp(q->name, "experts"); }

/* Returns whether something is off the device: experts, or other weights too. */
static bool any_move(const settings *s, bool experts) {
  const char *where = sl_arg_text(s->run, "weights");
  bool move = strcmp(where, "memory") != 0 && !(experts && !strcmp(where, "tables"));
  for (int i = 0; i < s->lower.memory.homes.count; i++)
    move |= s->lower.memory.homes.homes[i].space != SL_SPACE_DEVICE &&
            !(experts && !strcmp(s->lower.memory.homes.homes[i].name, "tables"));
  return move;
}
static bool weights_move(const settings *s) { return any_move(s, false); }
static bool experts_move(const settings *s) { return any_move(s, true); }

static sl_status check_quota(const settings *s, const sl_quota *q) {
  bool known = is_weights(q) || is_experts(q) || !strcmp(q->name, "kv");
  if (!known || q->stage != SL_NONE)
    return sl_fail(
        SL_E_USAGE,
        "--quota %s=%d: a server has only the quotas kv=N (pages), weights=N (blocks) and experts=N "
        "(of each layer), the same on all stages",
        q->name, q->slots);
  if ((is_weights(q) && !weights_move(s)) || (is_experts(q) && !experts_move(s)))
    return sl_fail(SL_E_USAGE,
                   "--quota %s=%d: needs --weights disk%s; otherwise all weights are in memory",
                   q->name, q->slots, is_experts(q) ? " or --weights experts" : "");
  return SL_OK;
}

/* Reads --experts planes:A..B, or planes:B for A = B, and the order of loads or the bit routers. */
static sl_status read_planes(const settings *s, sl_serving_experts *out) {
  const char *text = sl_arg_text(s->run, "experts"), *comma = strchr(text, ',');
  int a = 0, b = 0, one = -1, two = -1, end = comma ? (int)(comma - text) : (int)strlen(text);
  out->least = out->most = 0;
  if (!strcmp(text, "whole")) return SL_OK;
  sscanf(text, "planes:%d%n..%d%n", &a, &one, &b, &two);
  if (one == end) b = a, two = one;
  out->ascending = comma && !strcmp(comma, ",ascending");
  out->routed = comma && !strcmp(comma, ",routed");
  bool fine = two == end && a >= SLI_PLANES_LEAST && a <= b && b <= SLI_PLANES_MOST;
  if (!fine || (comma && !out->ascending && !out->routed))
    return sl_fail(SL_E_USAGE,
                   "--experts %s: must be whole, or planes:A..B with %d <= A <= B <= %d, or "
                   "planes:A..B,ascending or planes:A..B,routed",
                   text, SLI_PLANES_LEAST, SLI_PLANES_MOST);
  if (!experts_move(s))
    return sl_fail(SL_E_USAGE, "--experts %s: needs --weights experts or --weights disk", text);
  out->least = a;
  out->most = b;
  return SL_OK;
}

/* Checks --experts-held, the share that a modelled server holds. */
static sl_status check_held(const settings *s) {
  double held = sl_arg_float(s->run, "experts-held");
  if (s->clock != SL_CLOCK_VIRTUAL)
    return sl_fail(SL_E_USAGE,
                   "--experts-held %g: needs --clock virtual; a real server counts what it holds",
                   held);
  if (!experts_move(s))
    return sl_fail(SL_E_USAGE, "--experts-held %g: needs --weights experts or --weights disk",
                   held);
  return SL_OK;
}

sl_status homes_check(const settings *s) {
  static const char *const places[] = {"memory", "disk", "experts", "tables", NULL};
  sl_status status = options_check_word("weights", sl_arg_text(s->run, "weights"), places);
  if (!status) status = read_planes(s, &(sl_serving_experts){0});
  if (!status && sl_arg_int(s->run, "prefetch") && !experts_move(s))
    status = sl_fail(SL_E_USAGE, "--prefetch %lld: needs --weights experts or --weights disk",
                     (long long)sl_arg_int(s->run, "prefetch"));
  if (!status && sl_arg_given(s->run, "experts-held", 0)) status = check_held(s);
  for (int i = 0; i < s->lower.memory.nquotas && !status; i++)
    status = check_quota(s, &s->lower.memory.quotas[i]);
  static const char *const homes[] = {"weights", "experts", "tables"};
  for (int i = 0; i < s->lower.memory.homes.count && !status; i++) {
    const char *name = s->lower.memory.homes.homes[i].name;
    bool known = false;
    for (size_t h = 0; h < SLI_COUNT(homes); h++) known |= !strcmp(name, homes[h]);
    if (!known)
      status =
          sl_fail(SL_E_USAGE,
                  "--home %s: a server can move only weights, those of experts, and tables, off "
                  "the device",
                  name);
  }
  return status;
}

int64_t homes_pages(const settings *s) {
  int64_t pages = 0;
  for (int i = 0; i < s->lower.memory.nquotas; i++)
    if (!strcmp(s->lower.memory.quotas[i].name, "kv")) pages = s->lower.memory.quotas[i].slots;
  return pages;
}

sl_serving_experts homes_experts(const settings *s) {
  sl_serving_experts experts = {0};
  for (int i = 0; i < s->lower.memory.nquotas; i++)
    if (is_experts(&s->lower.memory.quotas[i])) experts.slots = s->lower.memory.quotas[i].slots;
  read_planes(s, &experts);
  if (sl_arg_given(s->run, "experts-held", 0)) /* a share of 0 is not its absence */
    experts.hits = SLI_MAX(sl_arg_float(s->run, "experts-held"), 1e-9);
  experts.prefetch = (int32_t)sl_arg_int(s->run, "prefetch");
  return experts;
}

/* Applies --weights to all parameters or all experts, before any more specific --home. */
static void apply_homes(settings *s, sl_home_options *to) {
  *to = s->lower.memory.homes;
  const char *where = sl_arg_text(s->run, "weights");
  if (!strcmp(where, "memory")) return;
  sl_home *all = sli_arena_alloc(&s->arena, (size_t)(to->count + 1) * sizeof *all);
  all[0] = (sl_home){.name = strcmp(where, "disk") ? where : "weights", .space = SL_SPACE_DISK};
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
