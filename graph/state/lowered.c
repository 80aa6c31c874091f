/* sl_lower: passes over the graph, a schedule found or given, a lowering; and what the result
 * offers. */
#include "graph/build/build.h"
#include "graph/lower/lower.h"
#include "graph/cost/cost.h"
#include "graph/passes/passes.h"
#include "graph/schedule/schedule.h"
#include "graph/search/search.h"
#include "graph/state/state.h"
#include "graph/state/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STORE_EVERY = 1000000 };

/* One output that inference delivers. */
typedef struct output_sink {
  sl_sink sink;
  sl_lowered *lowered;
  const char *name;
  sl_type type;
} output_sink;

struct sl_lowered {
  sl_graph *g;
  sl_lower_options options;
  char *schedule, *chosen, *paths;
  int chunks, stages, ranks, alike;
  uint64_t (*exchanged)[SLI_AXES]; /* [devices] */
  sli_inputs inputs;               /* what it was lowered from, but for the options */
  sli_sent *sent;                  /* NULL: of hardware that nobody described */
  double flops;
  const char *products, *tensors;
  const char *cut, *versions; /* as terms have them */
  int nterms, nresults;       /* 0: not made yet */
  sl_term *terms;
  sl_plan *plan;
  int nparams;
  const sl_param_info *params;
  int nquotas;
  sl_quota *quotas;
  sl_runtime *rt; /* where failures go */
  sl_sink step_sink, eval_sink;
  sli_mean *evaluated; /* the loss and metrics; NULL: nothing is */
  output_sink *outputs;
  sli_stores *stores;
  sli_fingerprints fingerprints;
  sli_arena arena;
};

/* ---- reports ------------------------------------------------------------------ */

/* What losses_op's attrs.user points to. */
typedef struct addend {
  sl_lowered *lowered;
  const sli_mean *mean;
  bool eval;
  bool finite; /* or the run ends */
} addend;

/* Which length of piece that of a tick is. */
static int variant_of(const sl_graph *g, const sl_tick *tick) {
  int v = 0;
  while (v < g->nvariants && g->variant_lengths[v] != tick->rows) v++;
  return v < g->nvariants ? v : 0;
}

/* That of a tick: of all devices that have a part, each by its share. */
static double whole(const sli_mean *mean, int variant, const sl_type *types,
                    const void *const *values) {
  double sum = 0;
  for (int i = 0; i < mean->nparts; i++) {
    double part = types[i].dtype == SL_F32 ? (double)*(const float *)values[i] : *(const double *)values[i];
    sum += (mean->parts[i].share ? mean->parts[i].share[variant] : 1) * part;
  }
  return sum;
}

/* losses(part ...), attrs.user = addend -> the sum over the microbatches of a step or an evaluation (acc). */
static sl_status losses_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static void losses_cpu(const sl_call *call) {
  const addend *a = call->attrs->user;
  const sl_lowered *l = a->lowered;
  const sl_tick *tick = &call->tick;
  double loss = whole(a->mean, variant_of(l->g, tick), call->in_type, call->in);
  int first;
  double *sum = call->out[0], share = a->eval ? sli_evaluation_weight(l->g, tick->microbatch, &first) : 1;
  if (tick->rows && !a->mean->adds) share *= (double)tick->rows / (double)l->g->length;
  *sum = call->accumulate & 1 ? *sum + share * loss : share * loss;
  if (isfinite(loss) || !a->finite || !l->rt) return;
  char text[160];
  snprintf(text, sizeof text, "the loss of step %lld, microbatch %d, is %g%s",
           (long long)tick->step + 1, tick->microbatch, loss,
           l->options.check_finite ? "" : " (--check-finite says where it comes from)");
  sl_runtime_fail(l->rt, SL_E_NUMERIC, text);
}

static const sl_op losses_op = {.name = "losses", .min_in = 1, .max_in = -1, .nout = 1,
                                .infer = losses_infer, .kernels = SL_CPU_KERNEL(losses_cpu), .accumulates = 1};

/* tally(part ...) -> f64 [n]: the sum of the devices' parts over the microbatches of a step (acc). */
static sl_status tally_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = SL_TYPE(SL_F64, in[0].dim[0]);
  return SL_OK;
}

static void tally_cpu(const sl_call *call) {
  double *sum = call->out[0];
  for (int64_t e = 0; e < call->out_type[0].dim[0]; e++) {
    if (!(call->accumulate & 1)) sum[e] = 0;
    for (int i = 0; i < call->nin; i++) sum[e] += (double)((const float *)call->in[i])[e];
  }
}

static const sl_op tally_op = {.name = "tally", .min_in = 1, .max_in = -1, .nout = 1,
                               .infer = tally_infer, .kernels = SL_CPU_KERNEL(tally_cpu), .accumulates = 1};

/* The loss, the norm, tallies. */
static void report_step(const sl_lowered *l, const sl_tick *tick, int n, const void *const *values) {
  if (!l->options.on_step) return;
  sl_tally_values tallies[n];
  for (int i = 2; i < n; i++) {
    const sli_mean *t = &l->g->metrics.tallies.of[i - 2];
    tallies[i - 2] = (sl_tally_values){t->name, t->tensor->type.dim[0], values[i]};
  }
  sl_step_report report = {.step = tick->step,
                           .loss = *(const double *)values[0] / l->plan->microbatches,
                           .grad_norm = *(const double *)values[1],
                           .lr = sl_optimizer_lr(&l->g->training.optimizer, tick->step),
                           .ntallies = n - 2,
                           .tallies = tallies};
  l->options.on_step(l->options.ctx, &report);
}

/* An update by gradients that are not finite leaves no weights worth keeping, whatever the loss was. */
static void take_step(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  const sl_lowered *l = ctx;
  double norm = *(const double *)values[1];
  report_step(l, tick, n, values);
  if (isfinite(norm) || !l->rt) return;
  char text[160];
  snprintf(text, sizeof text, "the norm of the gradients of step %lld is %g%s", (long long)tick->step + 1, norm,
           l->options.check_finite ? "" : " (--check-finite says where it comes from)");
  sl_runtime_fail(l->rt, SL_E_NUMERIC, text);
}

/* Metrics come before the loss. */
static void take_eval(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  sl_lowered *l = ctx;
  const sl_lower_options *o = &l->options;
  const struct sli_evaluated *e = &l->g->evaluated;
  double microbatches = e->whole + (e->rest ? (double)e->rest / e->rows : 0);
  for (int i = 1; i < n && o->on_metric; i++)
    o->on_metric(o->ctx, tick->step, l->evaluated[i].name, *(const double *)values[i] / microbatches);
  if (o->on_eval) o->on_eval(o->ctx, tick->step, *(const double *)values[0] / microbatches);
}

static void take_output(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  (void)tick, (void)n;
  output_sink *o = ctx;
  const sl_lower_options *options = &o->lowered->options;
  if (options->on_output) options->on_output(options->ctx, o->name, &o->type, values[0]);
}

static void pass_output(void *ctx, const sl_tick *tick) {
  take_output(ctx, tick, 1, (const void *[]){NULL});
}

static void mark(sli_node *n, bool eval) {
  n->eval = eval;
  if (eval) n->phase = SLI_PHASE_EVAL;
}

static void add_report(sl_graph *g, const char *name, int count, sl_tensor *const *t,
                       const sl_sink *sink, bool per_step, bool eval) {
  sl_attrs attrs = {.user = sink};
  sli_node *n = sli_graph_node(g, &sl_op_report, name, &attrs, SL_CLASS_L, -1, count, t, 0);
  n->per_step = per_step;
  mark(n, eval);
}

/* By `op` the sum over a step or an evaluation of what comes tick by tick. */
static sl_tensor *add_sum(sl_lowered *l, const sl_op *op, const sli_mean *mean, bool eval, bool finite) {
  sl_graph *g = l->g;
  addend *a = sli_arena_alloc(&l->arena, sizeof *a);
  *a = (addend){l, mean, eval, finite};
  const sl_attrs attrs = {.user = a};
  sl_tensor *parts[mean->nparts];
  int count = sli_mean_tensors(mean, parts, 0);
  const char *name = sli_arena_format(&g->arena, eval ? "report:eval.%s" : "report:%s", mean->name);
  sli_node *n = sli_graph_node(g, op, name, &attrs, SL_CLASS_L, -1, count, parts, 1);
  mark(n, eval);
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
  add_report(l->g, "report:eval", count, values, &l->eval_sink, true, true);
}

static void add_training_reports(sl_lowered *l) {
  sl_graph *g = l->g;
  int count = 2 + g->metrics.tallies.count;
  sl_tensor *values[count];
  values[0] = add_sum(l, &losses_op, &g->loss, false, true);
  values[1] = g->grad_norm;
  for (int i = 2; i < count; i++) values[i] = add_sum(l, &tally_op, &g->metrics.tallies.of[i - 2], false, false);
  l->step_sink = (sl_sink){.take = take_step, .ctx = l};
  add_report(g, "report:step", count, values, &l->step_sink, true, false);
  if (l->evaluated) add_evaluation_report(l);
}

static void add_reports(sl_lowered *l) {
  sl_graph *g = l->g;
  if (!g->options.infer) {
    add_training_reports(l);
    return;
  }
  l->outputs = sli_arena_alloc(&l->arena, (size_t)g->noutputs * sizeof *l->outputs);
  for (int i = 0; i < g->noutputs; i++) {
    output_sink *o = &l->outputs[i];
    *o = (output_sink){{.take = take_output, .ctx = o, .passed = pass_output}, l, g->outputs[i].name, g->outputs[i].tensor->type};
    add_report(g, sli_arena_format(&l->arena, "report:%s", o->name), 1, &g->outputs[i].tensor,
               &o->sink, false, false);
  }
}

/* ---- options ------------------------------------------------------------------------ */

static bool is_auto(const sl_lower_options *o) {
  return o->schedule && !strcmp(o->schedule, "auto");
}

/* Only where there are several processes is the library looked for. */
static sl_status check_links(const sl_lower_options *o, sli_inputs *in) {
  sl_gpu_links links = o->devices.links;
  if (!in->kind->direct || links == SL_LINKS_HOST || o->processes < 2) return SL_OK;
  sl_status status = in->kind->direct();
  in->direct = !status;
  return links == SL_LINKS_DIRECT ? status : SL_OK;
}

static sl_status check_options(const sl_lower_options *o, sli_inputs *in) {
  in->kind = sli_kind_find(o->devices.kind);
  if (!in->kind) return sl_fail(SL_E_USAGE, "unknown device kind '%s'", o->devices.kind);
  sl_status status = sli_lower_read_update(in);
  if (!status) status = sli_lower_read_offload(in);
  if (!status) status = check_links(o, in);
  if (status) return status;
  in->p = o->stages ? o->stages : 1;
  if (in->p < 1 || o->chunks < 0)
    return sl_fail(SL_E_USAGE, "%d stages of %d chunks: both must be at least 1", in->p, o->chunks);
  if (o->devices.threads < 0 || o->devices.count < 0)
    return sl_fail(SL_E_USAGE, "%d devices of %d threads: neither may be below 0", o->devices.count, o->devices.threads);
  if (o->data_parallel < 0 || o->sequence < 0 || o->tensor < 0 || o->expert_parallel < 0)
    return sl_fail(SL_E_USAGE, "a grid of %d x %d x %d devices, %d of them with experts: none may be below 0",
                   o->data_parallel, o->sequence, o->tensor, o->expert_parallel);
  if (o->store_every < 0 || o->store_every > INT32_MAX / ((int64_t)in->m * in->k) || o->store_every > MOST_STORE_EVERY)
    return sl_fail(SL_E_USAGE, "a checkpoint every %lld steps: too seldom for %d microbatches of "
                   "%d pieces", (long long)o->store_every, in->m, in->k);
  if (o->backward && strcmp(o->backward, "split") && strcmp(o->backward, "fused"))
    return sl_fail(SL_E_USAGE, "unknown backward '%s': fused and split are known", o->backward);
  return SL_OK;
}

static sl_status read_paths(sli_inputs *in) {
  const char *file = in->options->paths;
  if (file && in->options->skip > 0)
    return sl_fail(SL_E_USAGE, "paths %s, skip %g: paths are given, or looked for", file, in->options->skip);
  if (in->options->swap && !(in->options->skip > 0))
    return sl_fail(SL_E_USAGE, "swap without skip: it is said of paths that are looked for");
  return file ? sli_paths_read(file, in->m, &in->g->arena, &in->paths) : SL_OK;
}

/* What is not to be searched for. */
static sl_status pick(const sli_inputs *in, sli_pick *out) {
  const sl_lower_options *o = in->options;
  if (is_auto(o)) return o->chosen ? sli_pick_read(o->chosen, out) : SL_OK;
  const sli_schedule *row = sli_schedule_find(o->schedule ? o->schedule : "1f1b");
  if (!row) return sl_fail(SL_E_USAGE, "unknown schedule '%s'", o->schedule);
  int chunks = o->chunks ? o->chunks : sl_schedule_chunks(row->name);
  if (row->chunks_fixed && chunks != row->chunks)
    return sl_fail(SL_E_USAGE, "schedule %s is for --chunks %d, not %d", row->name, row->chunks,
                   chunks);
  *out = (sli_pick){.schedule = row, .v = chunks, .split = sli_schedule_splits(row, o->backward), .paths = in->paths};
  return SL_OK;
}

/* ---- passes over the graph ---------------------------------------------------------- */

/* How often a node's call is made for a piece: what sweeps over the pieces before it, as often as there are
 * such, which is half of them on average, and each call is the like part of the whole (sl_op.cost). */
static double calls_of(const sli_node *n, const sli_inputs *in) {
  return n->op->sweeps ? (in->k + 1) / 2.0 : 1;
}

/* What the passes of a step compute, however it is shared out. */
static double count_flops(const sl_graph *g, const sli_inputs *in) {
  double sum = 0;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->cls == SL_CLASS_L || n->cls == SL_CLASS_U) continue;
    for (int k = 0; k < in->k; k++) {
      double flops, bytes;
      int v = 0;
      while (n->shapes && g->variant_lengths[v] != g->lengths[k]) v++;
      sli_call_cost(n, n->shapes ? n->shapes[v].in : n->in_type,
                    n->shapes ? n->shapes[v].out : n->out_type, &flops, &bytes);
      sum += calls_of(n, in) * flops * in->m;
    }
  }
  return sum;
}

/* Which blocks a path leaves out is the same on every grid. */
static void find_cut(sli_inputs *in) {
  if (!in->paths && !(in->options->skip > 0)) return;
  double *seconds = sli_block_seconds(in->g, NULL);
  size_t n = (size_t)sli_blocks_in_line(in->g) + 1;
  in->block_seconds = memcpy(sli_arena_alloc(&in->g->arena, n * sizeof *seconds), seconds, n * sizeof *seconds);
  free(seconds);
}

static sl_status prepare_training(sl_graph *g, sli_inputs *in) {
  find_cut(in);
  sl_status status = sli_lower_check_given(in->options);
  if (!status) status = sli_lower_check_homes(in);
  if (!status) sli_lower_sweeps(in);
  bool parts = in->k > 1 || sli_grid_ranks(&in->grid) > 1;
  if (!status && parts) status = sli_pass_losses(g);
  if (!status) status = sli_lower_attention(in);
  if (!status) status = sli_pass_cut(g, in->options->hardware);
  if (!status) status = sli_pass_gradients(g);
  if (!status && in->barriers == 1) status = sli_pass_ahead(g);
  if (!status) status = sli_pass_pieces(g);
  if (!status) in->flops = count_flops(g, in);
  if (!status && (sli_grid_ranks(&in->grid) > 1 || in->barriers)) {
    if (in->narrow) sli_narrow_mark(g); /* what tensors are will say what their exchange costs */
    status = sli_lower_share_out(in);
  }
  if (status) return status;
  sli_graph_drop_unread(g, sli_home_given(in->options, SLI_ROLE_PARAM));
  if (in->leaving != SL_NONE && in->leaving < in->k) sli_pass_offload(g, in->leaving);
  return sli_pass_recompute(g, in->options->recompute);
}

/* What is multiplied, as asked for and as far as the devices can. */
static sl_status check_dtype(const sl_lower_options *o, sli_inputs *in) {
  if (o->dtype != SL_F32 && o->dtype != SL_BF16)
    return sl_fail(SL_E_USAGE, "products are in f32 or bf16, not in %s", sl_dtype_name(o->dtype));
  in->bf16 = o->dtype == SL_BF16 && in->kind->bf16 ? in->kind->bf16() : NULL;
  in->narrow = in->bf16 && in->kind->narrow;
  if (!in->bf16 || in->narrow || in->sharding != SLI_SHARD_PARAMETERS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "products in bf16 read weights packed once a step here, but "
                 "with --shard parameters no device has them for a step: --shard gradients, or "
                 "--dtype fp32");
}

/* Passes over the graph, once. */
static sl_status run_passes(sl_lowered *to, sli_inputs *in) {
  sl_graph *g = in->g;
  sli_graph_seed(g, in->options->seed);
  sl_status status = g->options.serve   ? sli_lower_serve(in)
                     : g->options.infer ? sli_pass_outputs(g) : prepare_training(g, in);
  if (status) return status;
  if (in->bf16) sli_pass_products(g, !in->narrow);
  if (sli_evaluates(g)) {
    to->evaluated = sli_arena_alloc(&to->arena, (size_t)sli_graph_means(g) * sizeof *to->evaluated);
    status = sli_pass_evaluate(g, to->evaluated);
    if (status) return status;
  }
  add_reports(to);
  status = sli_pass_extents(g);
  if (status || !in->narrow) return status;
  sli_pass_narrow(g);
  sli_pass_pad(g);
  return SL_OK;
}

/* ---- lowering ---------------------------------------------------------------------- */

static void keep_result(sl_lowered *to, const sli_inputs *in, sli_lowering *l) {
  const sli_pick *pick = sli_lowering_pick(l);
  to->schedule = sli_format(is_auto(in->options) ? "auto (%s)" : "%s", pick->schedule->name);
  to->chosen = sli_pick_format(pick);
  to->paths = in->options->skip > 0 ? sli_paths_format(pick->paths) : NULL;
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
  to->versions = sli_terms_versions(l, to->stages, to->cut, &to->arena);
  sli_stores_keep(to->stores, l);
  if (in->options->hardware) to->sent = sli_lower_sent(l);
  to->plan = sli_lowering_take_plan(l);
}

/* One schedule, or the best that is found. */
static sl_status lower(sl_lowered *to, sli_inputs *in, sli_pick *pick) {
  enum { MOST_CHUNKS = 3 };
  sl_status status = run_passes(to, in);
  if (!status && !pick->schedule)
    status = sli_search(in, in->options->chunks, MOST_CHUNKS, pick);
  if (!status && in->options->skip > 0)
    status = sli_skip(in, in->options->skip, in->options->swap, pick);
  if (status) return status;
  sli_lowering *l = sli_lowering_create(in, pick);
  status = sli_lower(l);
  if (!status) keep_result(to, in, l);
  sli_lowering_destroy(l);
  return status;
}

static sl_status lower_with(sl_graph *g, const sl_lower_options *options, sl_lowered **out) {
  if (sl_graph_status(g)) return sl_graph_status(g);
  sli_inputs in = {.g = g, .options = options, .m = SLI_MAX(g->options.microbatches, 1),
                   .k = SLI_MAX(g->options.pieces, 1), .ranks = 1};
  sli_pick found = {0};
  sl_status status = check_options(options, &in);
  if (!status) status = read_paths(&in);
  if (!status) status = pick(&in, &found);
  if (!status) status = sli_lower_grid(&in);
  if (!status) status = check_dtype(options, &in);
  if (status) return status;
  sl_lowered *to = sli_calloc(1, sizeof *to);
  to->fingerprints = sli_graph_fingerprints(g, &to->arena);
  to->g = g;
  to->options = *options;
  to->stores = in.stores = sli_stores_create(options);
  in.rt = &to->rt;
  status = lower(to, &in, &found);
  if (status) {
    sl_lowered_destroy(to);
    return status;
  }
  *out = to;
  return SL_OK;
}

sl_status sl_lower(sl_graph *g, const sl_lower_options *options, sl_lowered **out) {
  if (!options->hardware) return lower_with(g, options, out);
  sl_hardware *shared = sli_arena_alloc(&g->arena, sizeof *shared);
  sl_lower_options own = *options;
  *shared = sli_lower_hardware(options);
  own.hardware = shared;
  return lower_with(g, &own, out);
}

/* ---- what the result offers ------------------------------------------------------- */

void sl_lowered_destroy(sl_lowered *l) {
  if (!l) return;
  sl_plan_destroy(l->plan);
  sli_stores_destroy(l->stores);
  sli_sent_destroy(l->sent);
  free(l->schedule);
  free(l->chosen);
  free(l->paths);
  sli_arena_fini(&l->arena);
  free(l);
}

const sl_plan *sl_lowered_plan(const sl_lowered *l) { return l->plan; }
const sli_fingerprints *sli_lowered_fingerprints(const sl_lowered *l) { return &l->fingerprints; }
const char *sl_lowered_schedule(const sl_lowered *l) { return l->schedule; }
const char *sl_lowered_chosen(const sl_lowered *l) { return l->chosen; }
int sl_lowered_chunks(const sl_lowered *l) { return l->chunks; }
const char *sl_lowered_paths(const sl_lowered *l) { return l->paths; }
bool sli_lowered_own_code(const sl_lowered *l) {
  return l->fingerprints.own_ops || l->g->training.optimizer.rate;
}

const char *sli_lowered_library(const sl_lowered *l) {
  const sli_kind *kind = l->inputs.kind;
  return kind->computes && !strcmp(kind->name, "cpu") ? sl_cpu_products(l->inputs.bf16 != NULL) : NULL;
}

int sli_lowered_results(const sl_lowered *l, const sl_term **out) {
  sl_lowered *to = (sl_lowered *)l; /* made when they are first asked for: the library is loaded */
  const sli_terms_of of = {l->versions, l->cut, l->inputs.paths, sli_lowered_library(l), l->nparams, l->params};
  if (!l->terms) to->nterms = sli_terms_make(&of, &to->arena, &to->terms, &to->nresults);
  *out = l->terms;
  return l->nresults;
}

int sl_lowered_terms(const sl_lowered *l, const sl_term **out) {
  sli_lowered_results(l, out);
  return l->nterms;
}

const char *sl_lowered_products(const sl_lowered *l) { return l->products; }
const char *sl_lowered_tensors(const sl_lowered *l) { return l->tensors; }

void sl_lowered_attach(sl_lowered *l, sl_runtime *rt) {
  l->rt = rt;
  sli_stores_attach(l->stores, rt);
}

int sl_lowered_stages(const sl_lowered *l) { return l->stages; }
int sl_lowered_ranks(const sl_lowered *l) { return l->ranks; }
int sl_lowered_alike(const sl_lowered *l) { return l->alike; }
double sl_lowered_flops(const sl_lowered *l) { return l->flops; }

double sli_lowered_call_seconds(const sl_lowered *l, const sl_program *program, int call) {
  const sl_hardware *h = l->options.hardware;
  return h ? sli_call_of_program_seconds(h, program, l->g->options.pieces, call) : 0;
}

char *sli_lowered_assign(const sl_lowered *l, const sl_hardware *h, uint64_t seed) {
  return sli_lower_anneal(&l->inputs, l->sent, h, seed);
}

void sl_lowered_moved(const sl_lowered *l, uint64_t (*to)[SL_TRAFFIC_COUNT]) {
  sl_plan_moved(l->plan, to);
  for (int32_t d = 0; d < l->plan->ndevices && l->alike > 1; d++) {
    for (int a = 0; a < SLI_AXES; a++)
      if (a != SLI_AXIS_STAGES && sli_axes[a].of == a) to[d][sli_axes[a].traffic] = l->exchanged[d][a];
  }
}

void sl_lowered_crossed(const sl_lowered *l, int devices_per_host, double to[SL_TRAFFIC_COUNT]) {
  sli_lower_crossed(&l->inputs, l->plan, l->exchanged, devices_per_host, to);
}

int sl_lowered_state(const sl_lowered *l, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out) {
  return sli_stores_state(l->stores, l->plan, rt, stage, rank, out);
}

/* As it is now: what registers of that quota have, where the runtime has been given another. */
static int slots_now(const sl_lowered *l, const sl_quota *q) {
  for (int32_t i = 0; l->rt && i < l->plan->nregs; i++) {
    const sl_register *r = &l->plan->regs[i];
    bool is_its = r->producer != SL_NONE && !r->held && r->quota == q->slots && !strcmp(r->quota_name, q->name) &&
                  l->plan->actors[r->producer].stage == q->stage;
    if (is_its) return sl_runtime_quota(l->rt, i);
  }
  return q->slots;
}

void sl_lowered_quotas(const sl_lowered *l,
                       void (*fn)(void *ctx, const char *name, int stage, int slots), void *ctx) {
  for (int i = 0; i < l->nquotas; i++)
    fn(ctx, l->quotas[i].name, l->quotas[i].stage, slots_now(l, &l->quotas[i]));
}

int sl_lowered_params(const sl_lowered *l, const sl_param_info **out) {
  *out = l->params;
  return l->nparams;
}
