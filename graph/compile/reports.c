/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: ops at the end of the graph that pass losses, norms, counters and outputs to the
 * caller. */
#include "graph/compile/compile_inner.h"
#include "ops/leaves.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Record behind attrs.user of losses_op. */
typedef struct addend {
  sl_lowered *lowered;
  const sli_mean *mean;
  bool eval;
  bool finite; /* a value that is not finite ends the run */
} addend;

/* The log-probabilities of a step, collected tick by tick. */
typedef struct logprobs_sink {
  sl_sink sink;
  const sl_lowered *lowered;
  int taken;            /* ticks of the step received so far */
  int64_t rows, length; /* size of the step's batch */
  float *logprobs;      /* [rows, length] */
} logprobs_sink;

/* Returns the variant for the length of a tick's piece. */
static int variant_of(const sl_graph *g, const sl_tick *tick) {
  int v = 0;
  while (v < g->cut.nvariants && g->cut.variant_lengths[v] != tick->rows) v++;
  return v < g->cut.nvariants ? v : 0;
}

/* Returns a part of a mean times its weight. An exact mean is weighted by rows, and adds its op's
 * sums, which are multiples of 2^-30: such sums are exact up to 2^20. */
static double weigh(const sli_mean *mean, double part, double weight) {
  return mean->rows ? sli_loss_round(part * round((double)mean->rows * weight)) : part * weight;
}

/* Returns a tick's contribution to the mean: all devices' parts, weighted by their shares and the
 * tick's weight. */
static double whole(const sli_mean *mean, int variant, const sl_type *types,
                    const void *const *values, double weight) {
  double sum = 0;
  for (int i = 0; i < mean->nparts; i++) {
    double part =
        types[i].dtype == SL_F32 ? (double)*(const float *)values[i] : *(const double *)values[i];
    double share = mean->parts[i].share ? mean->parts[i].share[variant] : 1;
    sum += weigh(mean, part, share * weight);
  }
  return sum;
}

/* losses(part ...), attrs.user = addend -> the sum over the microbatches of a step or an evaluation
 * (acc). */
static sl_status losses_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static void losses_cpu(const sl_call *call) {
  const addend *a = call->attrs->user;
  const sl_lowered *l = a->lowered;
  const sl_tick *tick = &call->tick;
  int first;
  double *sum = call->out[0],
         share = a->eval ? sli_evaluation_weight(l->g, tick->microbatch, &first) : 1;
  if (tick->rows && !a->mean->adds) share *= (double)tick->rows / (double)l->g->cut.length;
  double loss = whole(a->mean, variant_of(l->g, tick), call->in_type, call->in, share);
  *sum = call->accumulate & 1 ? *sum + loss : loss;
  if (isfinite(loss) || !a->finite || !l->rt) return;
  char text[160];
  snprintf(
      text, sizeof text, "the loss of step %lld, microbatch %d, is %g%s", (long long)tick->step + 1,
      tick->microbatch, loss,
      l->options.numbers.check_finite ? "" : " (numbers.check_finite says where it comes from)");
  sl_runtime_fail(l->rt, SL_E_NUMERIC, text);
}

static const sl_op losses_op = {.name = "losses",
                                .min_in = 1,
                                .max_in = -1,
                                .nout = 1,
                                .infer = losses_infer,
                                .kernels = SL_CPU_KERNEL(losses_cpu),
                                .accumulates = 1};

/* tally(part ...) -> f64 [n]: the sum of the devices' parts [n] over the microbatches of a step
 * (acc); or, n = 1, the largest element of all parts. */
static const sli_mean *counter_of(const sl_attrs *attrs) {
  return ((const addend *)attrs->user)->mean;
}

static sl_status counter_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  out[0] = SL_TYPE(SL_F64, counter_of(attrs)->largest ? 1 : in[0].dim[0]);
  return SL_OK;
}

static void find_largest(const sl_call *call) {
  double *most = call->out[0];
  if (!(call->accumulate & 1)) *most = -INFINITY;
  for (int i = 0; i < call->nin; i++)
    for (int64_t e = 0; e < call->in_type[i].dim[0]; e++) {
      float value = ((const float *)call->in[i])[e];
      if (value > *most) *most = value;
    }
}

static void counter_cpu(const sl_call *call) {
  double *sum = call->out[0];
  if (counter_of(call->attrs)->largest) {
    find_largest(call);
    return;
  }
  for (int64_t e = 0; e < call->out_type[0].dim[0]; e++) {
    if (!(call->accumulate & 1)) sum[e] = 0;
    for (int i = 0; i < call->nin; i++) sum[e] += (double)((const float *)call->in[i])[e];
  }
}

static const sl_op counter_op = {.name = "tally",
                                 .min_in = 1,
                                 .max_in = -1,
                                 .nout = 1,
                                 .infer = counter_infer,
                                 .kernels = SL_CPU_KERNEL(counter_cpu),
                                 .accumulates = 1};

/* Returns the mean over microbatches of the sum from losses_op. With exact numbers, means of
 * several sums are rounded so that they do not depend on the order of summation. */
static double mean_of(const sl_graph *g, const sli_mean *mean, double sum, double microbatches) {
  if (mean->rows) return sum / ((double)mean->rows * microbatches);
  return sli_is_exact(g) ? sli_loss_round(sum / microbatches) : sum / microbatches;
}

/* Reports the step's loss, norm, counters and logged numbers. */
static void report_step(const sl_lowered *l, const sl_tick *tick, int n,
                        const void *const *values) {
  if (!l->options.report.on_step) return;
  sl_counter_values counters[n];
  sl_step_number numbers[n];
  int ncounters = 0, nnumbers = 0;
  for (int i = 2; i < n; i++) {
    const sli_mean *t = &l->g->metrics.counters.of[i - 2];
    if (t->value)
      numbers[nnumbers++] = (sl_step_number){t->name, *(const double *)values[i] / t->divisor};
    else counters[ncounters++] = (sl_counter_values){t->name, t->tensor->type.dim[0], values[i]};
  }
  sl_step_report report = {
      .step = tick->step,
      .loss = mean_of(l->g, &l->g->loss, *(const double *)values[0], l->plan->microbatches),
      .grad_norm = *(const double *)values[1],
      .lr = sl_optimizer_lr(&l->g->training.optimizer, tick->step),
      .ncounters = ncounters,
      .counters = counters,
      .nvalues = nnumbers,
      .values = numbers};
  l->options.report.on_step(l->options.report.ctx, &report);
}

/* Reports a step. Gradients that are not finite end the run even if the loss is finite, because the
 * update has ruined the weights. */
static void take_step(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  const sl_lowered *l = ctx;
  double norm = *(const double *)values[1];
  report_step(l, tick, n, values);
  if (isfinite(norm) || !l->rt) return;
  char text[160];
  snprintf(
      text, sizeof text, "the norm of the gradients of step %lld is %g%s",
      (long long)tick->step + 1, norm,
      l->options.numbers.check_finite ? "" : " (numbers.check_finite says where it comes from)");
  sl_runtime_fail(l->rt, SL_E_NUMERIC, text);
}

/* Copies a device's numbers of a tick to their place in the step. */
static void place_logprobs(const logprobs_sink *to, const sl_tick *tick, const sli_node *n,
                           const float *from) {
  const sli_shapes *shapes = n->shapes ? &n->shapes[variant_of(to->lowered->g, tick)] : NULL;
  const sl_call call = {.attrs = shapes ? &shapes->attrs : &n->attrs,
                        .out_type = shapes ? shapes->out : n->out_type,
                        .tick = *tick};
  int64_t count = sl_type_elements(&call.out_type[0]), run;
  for (int64_t e = 0; e < count; e += run) {
    int64_t where = sl_call_where(&call, e, &run);
    run = SLI_MIN(run, count - e);
    memcpy(to->logprobs + where, from + e, (size_t)run * sizeof *from);
  }
}

/* Moves the rows together without the positions of sink tokens, which have no targets. */
static void drop_sinks(const logprobs_sink *to) {
  int64_t sinks = to->lowered->g->served.sinks, rest = to->length - sinks;
  for (int64_t row = 0; sinks && row < to->rows; row++)
    memmove(to->logprobs + row * rest, to->logprobs + row * to->length + sinks,
            (size_t)rest * sizeof *to->logprobs);
}

/* Collects a tick's log-probabilities; reports the step once it is complete. */
static void take_logprobs(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  logprobs_sink *to = ctx;
  const sl_lowered *l = to->lowered;
  for (int i = 0; i < n; i++)
    place_logprobs(to, tick, l->g->logprobs.parts[i].tensor->producer, values[i]);
  if (++to->taken < l->g->options.microbatches * l->g->options.pieces) return;
  to->taken = 0;
  drop_sinks(to);
  const sl_logprobs_report report = {tick->step, to->rows, to->length - l->g->served.sinks,
                                     to->logprobs};
  l->options.report.on_logprobs(l->options.report.ctx, &report);
}

/* Reports an evaluation: the metrics, then the loss. */
static void take_eval(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  sl_lowered *l = ctx;
  const sl_lower_options *o = &l->options;
  const struct sli_evaluated *e = &l->g->evaluated;
  double microbatches = e->whole + (e->rest ? (double)e->rest / e->rows : 0);
  for (int i = 1; i < n && o->report.on_metric; i++)
    o->report.on_metric(o->report.ctx, tick->step, l->evaluated[i].name,
                        mean_of(l->g, &l->evaluated[i], *(const double *)values[i], microbatches));
  if (o->report.on_eval)
    o->report.on_eval(o->report.ctx, tick->step,
                      mean_of(l->g, &l->evaluated[0], *(const double *)values[0], microbatches));
}

static void take_output(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  (void)tick, (void)n;
  output_sink *o = ctx;
  if (o->on_output) o->on_output(o->ctx, o->name, &o->type, values[0]);
}

static void pass_output(void *ctx, const sl_tick *tick) {
  take_output(ctx, tick, 1, (const void *[]){NULL});
}

static void mark(sli_node *n, sli_pace pace) {
  n->pace = pace;
  if (pace) n->phase = pace == SLI_PACE_EVAL ? SLI_PHASE_EVAL : SLI_PHASE_ROLLOUT;
}

static sli_node *add_report(sl_graph *g, const char *name, int count, sl_tensor *const *t,
                            const sl_sink *sink, bool per_step, sli_pace pace) {
  sl_attrs attrs = {.user = sink};
  sli_node *n = sli_graph_node(g, &sl_op_report, name, &attrs, SL_CLASS_L, -1, count, t, 0);
  n->per_step = per_step;
  mark(n, pace);
  return n;
}

/* Adds `op`, which sums a tick's values over a step or an evaluation. */
static sl_tensor *add_sum(sl_lowered *l, const sl_op *op, const sli_mean *mean, bool eval,
                          bool finite) {
  sl_graph *g = l->g;
  addend *a = sli_arena_alloc(&l->arena, sizeof *a);
  *a = (addend){l, mean, eval, finite};
  const sl_attrs attrs = {.user = a};
  sl_tensor *parts[mean->nparts];
  int count = sli_mean_tensors(mean, parts, 0);
  const char *name = sli_arena_format(&g->arena, eval ? "report:eval.%s" : "report:%s", mean->name);
  sli_node *n = sli_graph_node(g, op, name, &attrs, SL_CLASS_L, -1, count, parts, 1);
  mark(n, eval ? SLI_PACE_EVAL : SLI_PACE_TRAINING);
  n->accumulate_span = 1;
  sl_status status = sli_node_infer(n);
  SLI_CHECK(!status, "%s: %s", n->name, sl_detail());
  return sli_node_output(g, n, 0, name + strlen("report:"));
}

static void add_evaluation_report(sl_lowered *l) {
  int count = sli_graph_means(l->g);
  sl_tensor *values[count];
  for (int i = 0; i < count; i++) values[i] = add_sum(l, &losses_op, &l->evaluated[i], true, !i);
  l->eval_sink = (sl_sink){.take = take_eval, .ctx = l};
  add_report(l->g, "report:eval", count, values, &l->eval_sink, true, SLI_PACE_EVAL);
}

static void add_logprobs_report(sl_lowered *l) {
  const sli_mean *of = &l->g->logprobs;
  sl_tensor *parts[of->nparts];
  int count = sli_mean_tensors(of, parts, 0);
  const sl_type *step = &l->g->logprobs_of_step;
  logprobs_sink *to = sli_arena_alloc(&l->arena, sizeof *to);
  *to = (logprobs_sink){.sink = {.take = take_logprobs, .ctx = to},
                        .lowered = l,
                        .rows = step->dim[0],
                        .length = sl_type_elements(step) / step->dim[0],
                        .logprobs = sli_arena_alloc(&l->arena, sl_type_bytes(step))};
  add_report(l->g, "report:logprobs", count, parts, &to->sink, false, SLI_PACE_TRAINING);
}

static output_sink sink_of(output_sink *at, const char *name, const sl_tensor *t) {
  return (output_sink){.sink = {.take = take_output, .ctx = at, .passed = pass_output},
                       .name = name,
                       .type = t->type};
}

static void add_rollouts_reports(sl_lowered *l) {
  struct sli_rollouts *r = &l->g->rollouts;
  output_sink *o = l->outputs = sli_arena_alloc(&l->arena, (size_t)r->count * sizeof *o);
  const sl_rollout_options *options = &l->options.rollouts;
  for (int i = 0; i < r->count; i++, o++, options = options->next) {
    *o = sink_of(o, "sampled", r->items[i].sampled);
    o->on_output = options->on_output, o->ctx = options->ctx;
    const char *name = i ? sli_arena_format(&l->arena, "report:rollouts#%d", i) : "report:rollouts";
    r->items[i].report =
        add_report(l->g, name, 1, &r->items[i].sampled, &o->sink, false, SLI_PACE_ROLLOUT);
  }
}

static void add_training_reports(sl_lowered *l) {
  sl_graph *g = l->g;
  int count = 2 + g->metrics.counters.count;
  sl_tensor *values[count];
  values[0] = add_sum(l, &losses_op, &g->loss, false, true);
  values[1] = g->grad_norm;
  for (int i = 2; i < count; i++)
    values[i] = add_sum(l, &counter_op, &g->metrics.counters.of[i - 2], false, false);
  l->step_sink = (sl_sink){.take = take_step, .ctx = l};
  add_report(g, "report:step", count, values, &l->step_sink, true, SLI_PACE_TRAINING);
  if (g->logprobs.tensor) add_logprobs_report(l);
  if (l->evaluated) add_evaluation_report(l);
  if (g->rollouts.ticks) add_rollouts_reports(l);
}

void sli_compile_reports(sl_lowered *l) {
  sl_graph *g = l->g;
  if (!g->options.infer) {
    add_training_reports(l);
    return;
  }
  l->outputs = sli_arena_alloc(&l->arena, (size_t)g->noutputs * sizeof *l->outputs);
  for (int i = 0; i < g->noutputs; i++) {
    output_sink *o = &l->outputs[i];
    *o = sink_of(o, g->outputs[i].name, g->outputs[i].tensor);
    o->on_output = l->options.report.on_output, o->ctx = l->options.report.ctx;
    add_report(g, sli_arena_format(&l->arena, "report:%s", o->name), 1, &g->outputs[i].tensor,
               &o->sink, false, SLI_PACE_TRAINING);
  }
}
