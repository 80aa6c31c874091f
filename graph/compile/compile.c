/* SPDX-License-Identifier: Apache-2.0 */
/* sl_lower: from a graph to a plan. Options are read, passes change the graph, a schedule is chosen
 * or searched for, and lowering makes a plan from both. */
#include "actors/plan/plan.h"
#include "base/memory.h"
#include "graph/build/build.h"
#include "graph/compile/compile_inner.h"
#include "graph/search/search.h"

#include <stdlib.h>
#include <string.h>

static void keep_result(sl_lowered *to, const sli_inputs *in, sli_lowering *l) {
  const sli_pick *pick = sli_lowering_pick(l);
  to->schedule =
      sli_format(sli_compile_searches(in->options) ? "auto (%s)" : "%s", pick->schedule->name);
  to->chosen = sli_pick_format(pick);
  to->paths = in->options->schedule.skip > 0 ? sli_paths_format(pick->paths) : NULL;
  to->chunks = pick->v;
  to->stages = in->p * pick->v;
  to->ranks = in->ranks;
  to->alike = in->grid.alike ? sli_grid_ranks(&in->grid) : 1;
  to->flops = in->flops;
  to->products = in->bf16 ? in->bf16 : sl_dtype_name(SL_F32);
  to->tensors = sl_dtype_name(in->narrow ? SL_BF16 : SL_F32);
  to->exchanged = sli_lower_exchanged(l, &to->arena);
  to->inputs = *in;
  to->inputs.options = &to->options;
  to->nparams = sli_params_keep(l, &to->arena, &to->params);
  to->nquotas = sli_lowering_quotas(l, &to->arena, &to->quotas);
  to->cut = sli_lowering_cut(l, &to->arena);
  to->versions = sli_fingerprint_versions(l, to->stages, to->cut, &to->arena);
  sli_stores_keep(to->stores, l);
  if (in->options->simulation.hardware) to->sent = sli_lower_sent(l);
  if (in->options->simulation.any_order && to->stages == 1)
    to->prices = sli_lowering_prices(l, &to->arena);
  to->plan = sli_lowering_take_plan(l);
}

/* Lowers with the given schedule, or with the best one that a search finds. */
static sl_status lower(sl_lowered *to, sli_inputs *in, sli_pick *pick) {
  enum { MOST_CHUNKS = 3 };
  sl_status status = SL_OK;
  if (!pick->schedule) status = sli_search(in, in->options->schedule.chunks, MOST_CHUNKS, pick);
  if (!status && in->options->schedule.skip > 0 && !pick->paths) status = sli_skip(in, pick);
  if (status) return status;
  sli_lowering *l = sli_lowering_create(in, pick);
  status = sli_lower(l);
  if (!status) keep_result(to, in, l);
  sli_lowering_destroy(l);
  return status ? status : sli_memory_check();
}

static sl_status keep_or_destroy(sl_lowered *to, sl_status status, sl_lowered **out) {
  if (status) sl_lowered_destroy(to);
  else *out = to;
  return status;
}

/* Rejects what would read a delay in other ticks than those that write it, or in parts. */
static sl_status check_delays(sl_graph *g, const sli_inputs *in) {
  const sl_lower_options *o = in->options;
  const sli_delay *delay = sli_delay_first(g);
  SLI_TRY(sli_delays_check(g));
  const char *what = !delay                             ? NULL
                     : in->k > 1                        ? "--pieces"
                     : sli_grid_ranks(&in->grid) > 1    ? "several devices per stage"
                     : sli_evaluates(g)                 ? "evaluations (--eval)"
                     : o->schedule.paths                ? "--paths"
                     : o->schedule.skip > 0             ? "--skip"
                     : o->rollouts.make                 ? "rollouts"
                     : o->store.every                   ? "checkpoints, which do not hold its slots"
                     : !strcmp(o->devices.kind, "cuda") ? "cuda devices"
                                                        : NULL;
  return what ? sl_fail(SL_E_UNSUPPORTED, "delay %s: not supported with %s", delay->name, what)
              : SL_OK;
}

static sl_status lower_with(sl_graph *g, const sl_lower_options *options, sl_lowered **out) {
  if (sl_graph_status(g)) return sl_graph_status(g);
  g->weighed = options->simulation.microbatches;
  sli_inputs in = {.g = g,
                   .options = options,
                   .m = SLI_MAX(g->options.microbatches, 1),
                   .k = SLI_MAX(g->options.pieces, 1),
                   .ranks = 1};
  sli_pick found = {0};
  SLI_TRY(sli_memory_check());
  sl_status status = sli_compile_options(options, &in);
  if (!status) status = check_delays(g, &in);
  if (!status) status = sli_compile_pick(&in, &found);
  if (status) return status;
  if (in.scattered && !found.schedule)
    return sl_fail(SL_E_UNSUPPORTED,
                   "boundary scattered: not supported with schedule auto, which searches for the "
                   "number of stages; name a schedule");
  if (found.schedule) {
    const char *placement = options->parallel.placement;
    in.stages = in.p * found.v;
    in.placement = placement ? placement : found.schedule->placement;
  }
  sl_lowered *to = sli_calloc(1, sizeof *to);
  to->fingerprints = sli_graph_fingerprints(g, &to->arena);
  to->g = g;
  to->options = *options;
  to->stores = in.stores = sli_stores_create(options);
  in.rt = &to->rt;
  status = sli_compile_passes(to, &in);
  if (!status) status = lower(to, &in, &found);
  if (!status) to->plan->hash = sli_plan_hash(to->plan);
  return keep_or_destroy(to, status, out);
}

sl_status sli_lower_again(const sl_lowered *from, const sl_home_options *homes, sl_lowered **out) {
  sl_lowered *to = sli_calloc(1, sizeof *to);
  sli_inputs in = from->inputs,
             read = {.g = in.g, .options = &to->options, .m = in.m, .k = in.k, .ranks = 1};
  sli_pick found = {0};
  to->g = from->g, to->fingerprints = from->fingerprints;
  to->options = from->options;
  to->options.memory.homes = *homes;
  to->stores = in.stores = sli_stores_create(&to->options);
  in.options = &to->options, in.rt = &to->rt;
  sl_status status = sli_compile_options(&to->options, &read);
  in.by_block = read.by_block; /* all that homes decide before lowering */
  if (!status) status = sli_compile_pick(&in, &found);
  if (!status) status = sli_lower_check_homes(&in);
  return keep_or_destroy(to, status ? status : lower(to, &in, &found), out);
}

sl_status sl_lower(sl_graph *g, const sl_lower_options *options, sl_lowered **out) {
  if (!options->simulation.hardware) return lower_with(g, options, out);
  sl_hardware *shared = sli_arena_alloc(&g->arena, sizeof *shared);
  sl_lower_options own = *options;
  *shared = sli_lower_hardware(options);
  own.simulation.hardware = shared;
  return lower_with(g, &own, out);
}
