/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/planner/plan.h"

#include <string.h>

#include "base/base.h"
#include "graph/compile/compile.h"

static void feed_zeros(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)ctx, (void)tick;
  memset(tokens, 0, (size_t)count * sizeof *tokens);
}

enum { ANY_CHUNKS = 6 }; /* divisible into 1, 2 or 3 chunks */

static sl_status check_stages(const settings *s) {
  enum { MOST = 1 << 16 };
  if ((int64_t)s->lower.parallel.stages * s->lower.schedule.chunks <= MOST) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--stages %d with --chunks %d: a model can be cut into at most %d parts",
                 s->lower.parallel.stages, s->lower.schedule.chunks, MOST);
}

_Thread_local const char *volatile model_being_built;

sl_status plan_build(const settings *s, sl_graph *g) {
  model_being_built = s->model->name;
  sl_status status = sl_model_build(s->model, g, s->model_args);
  model_being_built = NULL;
  sl_status misuse = sl_args_status(s->model_args);
  if (misuse) return misuse; /* other errors may follow from this one */
  return status ? status : sl_graph_status(g);
}

/* Makes the model's graph. A graph for inference needs no data. */
static sl_status make_graph(const settings *s, const sl_lower_options *run, planned *out) {
  bool balanced = !strcmp(sl_arg_text(s->run, "cut"), "balanced");
  bool infer = s->use == USE_INFERENCE, steps = s->use == USE_TRAINING;
  bool eval = run && run->report.on_eval && steps;
  sl_graph_options options = {
      .microbatches = infer ? 1 : s->microbatches,
      .pieces = infer ? 1 : s->pieces,
      .cut = balanced ? SL_CUT_BALANCED : SL_CUT_EVEN,
      .stages = s->lower.parallel.stages *
                (s->lower.schedule.chunks ? s->lower.schedule.chunks : ANY_CHUNKS),
      .infer = infer,
      .training = &s->training,
      .objective = steps ? s->objective : NULL,
      .feed_tokens = feed_zeros,
      .eval = eval ? settings_text(s, "eval") : NULL,
      .eval_every = eval ? sl_arg_int(s->run, "eval-every") : 0,
      .eval_rows = eval ? sl_arg_int(s->run, "eval-rows") : 0,
      .shuffle = s->data.shuffle,
      .tokenizer = s->data.tokenizer,
      .chat_template = s->data.chat_template,
      .learn = s->data.learn,
      .long_chats = s->data.long_chats,
      .no_data = !steps || !sl_device_computes(s->lower.devices.kind)};
  out->graph = sl_graph_create(&options);
  sl_status status = plan_build(s, out->graph);
  if (!status) out->items = sl_graph_items(out->graph, &out->word);
  return status;
}

sl_status plan_graph(const settings *s, sl_graph **out) {
  planned p = {0};
  sl_status status = make_graph(s, NULL, &p);
  *out = p.graph;
  return status;
}

sl_status plan_data(const settings *s, sl_graph **out) {
  sl_graph_options options = {.shuffle = s->data.shuffle,
                              .tokenizer = s->data.tokenizer,
                              .chat_template = s->data.chat_template,
                              .learn = s->data.learn,
                              .long_chats = s->data.long_chats};
  *out = sl_graph_create(&options);
  return plan_build(s, *out);
}

bool plan_is_alike(const settings *s, int devices) {
  enum { MOST_DEVICES = 16 };
  return s->clock == SL_CLOCK_VIRTUAL && devices > MOST_DEVICES;
}

/* Copies from `run` its callbacks and printing, and any other field that it sets, which overrides
 * the settings. */
static void take_run(const sl_lower_options *run, sl_lower_options *to) {
  to->print = run->print;
  to->report = run->report;
  to->store = run->store;
  to->schedule.chosen = run->schedule.chosen;
  to->schedule.skip_in_turn = run->schedule.skip_in_turn;
  to->simulation.any_order = run->simulation.any_order;
  to->simulation.microbatches = run->simulation.microbatches;
  to->simulation.alike |= run->simulation.alike;
  to->numbers.check_finite = run->numbers.check_finite;
  if (run->parallel.assign) to->parallel.assign = run->parallel.assign;
  if (run->memory.shard) to->memory.shard = run->memory.shard;
  if (run->memory.recompute) to->memory.recompute = run->memory.recompute;
}

sl_status plan_make(const settings *s, const sl_lower_options *run, planned *out) {
  planned p = {0};
  sl_lower_options options = s->lower;
  if (s->modelled.hardware.flops_per_second > 0)
    options.simulation.hardware = &s->modelled.hardware;
  if (s->profile)
    options.simulation.op_seconds = profile_seconds, options.simulation.op_seconds_ctx = s->profile;
  options.simulation.alike = plan_is_alike(s, s->lower.parallel.stages * settings_ranks(s));
  if (run) take_run(run, &options);
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

sl_status plan_again(const planned *base, const settings *s, planned *out) {
  planned p = {.items = base->items, .word = base->word};
  sl_status status = sli_lower_again(base->lowered, &s->lower.memory.homes, &p.lowered);
  if (status) return status;
  p.plan = sl_lowered_plan(p.lowered);
  *out = p;
  return SL_OK;
}

void plan_free(planned *p) {
  sl_lowered_destroy(p->lowered);
  sl_graph_destroy(p->graph);
  *p = (planned){0};
}
