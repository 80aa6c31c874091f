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
  bool eval = run && run->on_eval && steps;
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
  sl_lower_options options = {.stages = s->stages,
                              .data_parallel = s->grid.data,
                              .sequence = s->grid.sequence,
                              .sequence_attention = settings_text(s, "sequence-attention"),
                              .sequence_layout = settings_text(s, "sequence-layout"),
                              .tensor = s->grid.tensor,
                              .expert_parallel = s->grid.experts,
                              .expert_tensor = s->grid.expert_tensor,
                              .routing = settings_text(s, "routing"),
                              .expert_rows = sl_arg_float(s->run, "expert-rows"),
                              .layout = settings_text(s, "layout"),
                              .assign = run && run->assign ? run->assign : settings_text(s, "assign"),
                              .free_data = s->grid.free_data,
                              .vocab_parallel = sl_arg_flag(s->run, "vocab-parallel"),
                              .vocab_barriers = barriers_given(s),
                              .alike = one_for_all(s) || (run && run->alike),
                              .any_order = run && run->any_order,
                              .print_after = run ? run->print_after : NULL,
                              .printed = run ? run->printed : NULL,
                              .sharing = run ? run->sharing : NULL,
                              .shard = run && run->shard ? run->shard
                                                         : s->kept.shard,
                              .grain = settings_text(s, "grain"),
                              .exchange = settings_text(s, "exchange"),
                              .piece_order = sl_arg_text(s->run, "piece-order"),
                              .recompute = run && run->recompute ? run->recompute : s->kept.recompute,
                              .ngiven = s->given.count,
                              .given = s->given.of,
                              .processes = s->processes,
                              .chunks = s->chunks,
                              .placement = settings_text(s, "placement"),
                              .schedule = s->schedule,
                              .activations = s->activations,
                              .look_ahead = sl_arg_float(s->run, "look-ahead"),
                              .chosen = run ? run->chosen : NULL,
                              .order = settings_text(s, "order"),
                              .backward = settings_text(s, "backward"),
                              .paths = settings_text(s, "paths"),
                              .skip = sl_arg_float(s->run, "skip"),
                              .skip_in_turn = run && run->skip_in_turn,
                              .swap = sl_arg_flag(s->run, "swap"),
                              .nquotas = s->nquotas,
                              .quotas = s->quotas,
                              .homes = s->kept.homes,
                              .devices = s->devices,
                              .cost = s->modelled.cost,
                              .hardware = s->modelled.hardware.flops_per_second > 0 ? &s->modelled.hardware : NULL,
                              .op_seconds = s->profile ? profile_seconds : NULL,
                              .op_seconds_ctx = s->profile,
                              .dtype = settings_dtype(s),
                              .check_finite = run && run->check_finite,
                              .seed = (uint64_t)sl_arg_int(s->run, "seed"),
                              .on_step = run ? run->on_step : NULL,
                              .on_eval = run ? run->on_eval : NULL,
                              .on_metric = run ? run->on_metric : NULL,
                              .ctx = run ? run->ctx : NULL,
                              .store_every = run ? run->store_every : 0,
                              .on_store = run ? run->on_store : NULL,
                              .on_stored = run ? run->on_stored : NULL,
                              .store_ctx = run ? run->store_ctx : NULL};
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
