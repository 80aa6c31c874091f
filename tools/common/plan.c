/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/plan.h"

#include <string.h>

#include "base/base.h"

static void feed_zeros(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)ctx, (void)tick;
  memset(tokens, 0, (size_t)count * sizeof *tokens);
}

enum { ANY_CHUNKS = 6 }; /* divisible into 1, 2 or 3 chunks */

static sl_status check_stages(const settings *s) {
  enum { MOST = 1 << 16 };
  if ((int64_t)s->stages * s->chunks <= MOST) return SL_OK;
  return sl_fail(SL_E_USAGE, "--stages %d with --chunks %d: a model is cut into at most %d parts",
                 s->stages, s->chunks, MOST);
}

_Thread_local const char *volatile model_being_built;

sl_status plan_build(const settings *s, sl_graph *g) {
  model_being_built = s->model->name;
  sl_status status = s->model->build(g, s->model_args);
  model_being_built = NULL;
  sl_status misuse = sl_args_status(s->model_args);
  if (misuse) return misuse; /* other errors may follow from the misuse */
  return status ? status : sl_graph_status(g);
}

/* Makes the model's graph. A graph for inference needs no data. */
static sl_status make_graph(const settings *s, const sl_lower_options *run, planned *out) {
  bool balanced = !strcmp(sl_arg_text(s->run, "cut"), "balanced");
  bool infer = s->use == USE_INFERENCE, steps = s->use == USE_TRAINING;
  bool eval = run && run->report.on_eval && steps;
  sl_graph_options options = {.microbatches = infer ? 1 : s->microbatches,
                              .pieces = infer ? 1 : s->pieces,
                              .cut = balanced ? SL_CUT_BALANCED : SL_CUT_EVEN,
                              .stages = s->stages * (s->chunks ? s->chunks : ANY_CHUNKS),
                              .infer = infer,
                              .training = &s->training,
                              .feed_tokens = feed_zeros,
                              .eval = eval ? settings_text(s, "eval") : NULL,
                              .eval_every = eval ? sl_arg_int(s->run, "eval-every") : 0,
                              .eval_rows = eval ? sl_arg_int(s->run, "eval-rows") : 0,
                              .shuffle = s->data.shuffle,
                              .tokenizer = s->data.tokenizer,
                              .no_data = !steps || !sl_device_computes(s->devices.kind)};
  out->graph = sl_graph_create(&options);
  sl_status status = plan_build(s, out->graph);
  if (!status) out->items = sl_graph_items(out->graph, &out->word);
  return status;
}

/* Says whether one device stands for all of its stage: for large grids this is as accurate and
 * much faster. */
static bool one_for_all(const settings *s) {
  enum { MOST_DEVICES = 16 };
  return s->clock == SL_CLOCK_VIRTUAL && s->stages * settings_ranks(s) > MOST_DEVICES;
}

/* Counts the barriers given; 0: none were. */
static int barriers_given(const settings *s) {
  return sl_arg_given(s->run, "vocab-barriers", 0) ? (int)sl_arg_int(s->run, "vocab-barriers") : 0;
}

sl_status plan_make(const settings *s, const sl_lower_options *run, planned *out) {
  planned p = {0};
  sl_lower_options options = {.parallel.stages = s->stages,
                              .parallel.data = s->grid.data,
                              .parallel.sequence = s->grid.sequence,
                              .parallel.sequence_attention = settings_text(s, "sequence-attention"),
                              .parallel.sequence_layout = settings_text(s, "sequence-layout"),
                              .parallel.tensor = s->grid.tensor,
                              .experts.parallel = s->grid.experts,
                              .experts.tensor = s->grid.expert_tensor,
                              .experts.routing = settings_text(s, "routing"),
                              .experts.rows = sl_arg_float(s->run, "expert-rows"),
                              .parallel.layout = settings_text(s, "layout"),
                              .parallel.assign = run && run->parallel.assign ? run->parallel.assign : settings_text(s, "assign"),
                              .parallel.free_data = s->grid.free_data,
                              .vocabulary.parallel = sl_arg_flag(s->run, "vocab-parallel"),
                              .vocabulary.barriers = barriers_given(s),
                              .simulation.alike = one_for_all(s) || (run && run->simulation.alike),
                              .simulation.any_order = run && run->simulation.any_order,
                              .print.after = run ? run->print.after : NULL,
                              .print.graph = run ? run->print.graph : NULL,
                              .print.sharing = run ? run->print.sharing : NULL,
                              .memory.shard = run && run->memory.shard ? run->memory.shard
                                                         : s->kept.shard,
                              .schedule.grain = settings_text(s, "grain"),
                              .parallel.exchange = settings_text(s, "exchange"),
                              .schedule.piece_order = sl_arg_text(s->run, "piece-order"),
                              .memory.recompute = run && run->memory.recompute ? run->memory.recompute : s->kept.recompute,
                              .parallel.ngiven = s->given.count,
                              .parallel.given = s->given.of,
                              .parallel.processes = s->processes,
                              .schedule.chunks = s->chunks,
                              .parallel.placement = settings_text(s, "placement"),
                              .schedule.name = s->schedule,
                              .schedule.activations = s->activations,
                              .schedule.look_ahead = sl_arg_float(s->run, "look-ahead"),
                              .schedule.chosen = run ? run->schedule.chosen : NULL,
                              .schedule.order = settings_text(s, "order"),
                              .schedule.backward = settings_text(s, "backward"),
                              .schedule.paths = settings_text(s, "paths"),
                              .schedule.skip = sl_arg_float(s->run, "skip"),
                              .schedule.skip_in_turn = run && run->schedule.skip_in_turn,
                              .schedule.swap = sl_arg_flag(s->run, "swap"),
                              .memory.nquotas = s->nquotas,
                              .memory.quotas = s->quotas,
                              .memory.homes = s->kept.homes,
                              .devices = s->devices,
                              .simulation.cost = s->modelled.cost,
                              .simulation.hardware = s->modelled.hardware.flops_per_second > 0 ? &s->modelled.hardware : NULL,
                              .simulation.op_seconds = s->profile ? profile_seconds : NULL,
                              .simulation.op_seconds_ctx = s->profile,
                              .numbers.dtype = settings_dtype(s),
                              .numbers.check_finite = run && run->numbers.check_finite,
                              .numbers.seed = (uint64_t)sl_arg_int(s->run, "seed"),
                              .report.on_step = run ? run->report.on_step : NULL,
                              .report.on_eval = run ? run->report.on_eval : NULL,
                              .report.on_metric = run ? run->report.on_metric : NULL,
                              .report.ctx = run ? run->report.ctx : NULL,
                              .store.every = run ? run->store.every : 0,
                              .store.on_store = run ? run->store.on_store : NULL,
                              .store.on_stored = run ? run->store.on_stored : NULL,
                              .store.ctx = run ? run->store.ctx : NULL};
  sl_status status = check_stages(s);
  if (!status) status = make_graph(s, run, &p);
  if (!status) status = sl_lower(p.graph, &options, &p.lowered);
  if (status) {
    plan_free(&p);
    return status;
  }
  p.plan = sl_lowered_plan(p.lowered);
  *out = p;
  return SL_OK;
}

void plan_free(planned *p) {
  sl_lowered_destroy(p->lowered);
  sl_graph_destroy(p->graph);
  *p = (planned){0};
}
