/* SPDX-License-Identifier: Apache-2.0 */
/* Session life cycle: builds graph and plan, and runs the plan in a thread. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <sluice/trace.h>

#include "actors/plan/plan.h"
#include "base/memory.h"
#include "base/monotonic.h"
#include "comm/job/job.h"
#include "graph/graph.h"
#include "graph/state/state.h"
#include "io/shards/shards.h"
#include "ops/batch.h"
#include "ops/storage.h"
#include "serve/kept.h"

/* ---- thread ---------------------------------------------------------------------------- */

static sl_status run_plan(const sl_session *s) {
  const int64_t for_ever = INT64_C(1) << 40; /* ticks */
  return s->options.job ? sl_job_run(s->options.job, for_ever)
                        : sl_runtime_run(s->about.rt, for_ever);
}

void sli_session_run(sl_session *s) {
  sl_status status = run_plan(s);
  pthread_mutex_lock(&s->lock);
  s->end.status = status == SL_E_STOPPED ? SL_OK : status;
  s->end.detail = sli_strdup(status ? sl_detail() : "");
  s->end.closing = true;
  sli_session_finish_all(s, s->end.status ? SL_END_FAILED : SL_END_CANCELLED);
  pthread_cond_broadcast(&s->idle);
  pthread_mutex_unlock(&s->lock);
}

static void *session_run(void *arg) {
  sli_session_run(arg);
  return NULL;
}

/* ---- creation and destruction ------------------------------------------------------------- */

static int default_to(int64_t given, int64_t otherwise) { return (int)(given ? given : otherwise); }

static bool is_on_gpus(const sl_session *s) {
  const char *kind = s->options.lower.devices.kind;
  return kind && !strcmp(kind, "cuda");
}

static sl_storage storage_of(void *ctx, const char *param) {
  const sl_session *s = ctx;
  if (s->options.storage) return s->options.storage;
  if (s->stored) {
    if (is_on_gpus(s)) return sli_weights_storage(s->stored, param, SL_STORAGE_MXFP4);
    return sli_storage_on_cpus(sli_weights_storage(s->stored, param, SL_STORAGE_BF16));
  }
  return s->options.lower.numbers.dtype == SL_BF16 ? SL_STORAGE_BF16 : SL_STORAGE_F32;
}

/* Lowers the graph. The passes see only the index of the weight files (s->stored). */
static sl_status lower_plan(sl_session *s, const sl_lower_options *lower, sl_lowered **out) {
  sl_status status = s->options.stored ? sli_shards_open(s->options.stored, &s->stored) : SL_OK;
  if (status) return status;
  status = sl_lower(s->graph, lower, out);
  sli_shards_close(s->stored);
  s->stored = NULL;
  return status;
}

static bool is_modelled(const sl_session *s) {
  return !sl_device_computes(s->options.lower.devices.kind);
}

/* Sets the sizes that do not depend on the model. */
static sl_status read_sizes(sl_session *s) {
  enum { ROWS = 64, SEQUENCES = 64, QUEUE = 1024, MOST_GROUPS = 64, STATE_EVERY = 8 };
  sl_session_options *o = &s->options;
  int stages = SLI_MAX(o->lower.parallel.stages, 1) * SLI_MAX(o->lower.schedule.chunks, 1);
  o->queue = default_to(o->queue, QUEUE);
  o->state_every = o->state_every ? o->state_every : STATE_EVERY;
  s->serving = (sl_serving){
      .rows = default_to(o->rows, ROWS),
      .kv = o->kv,
      .drafted = (s->speculation.target ? &s->speculation.target->options : o)->speculation.tokens,
      .exact = o->lower.numbers.exact,
      .edits = o->penalties ? SL_SESSION_BIASES : 0,
      .fill = sli_session_choose,
      .await = sli_session_await,
      .storage = storage_of,
      .hidden = (o->embeddings || o->speculation.hidden) && !is_modelled(s),
      .experts = o->experts,
      .prompt_blocks = o->prompt_blocks,
      .choices = &s->reads.blocks,
      .ctx = s};
  s->serving.experts.reads = &s->reads.experts;
  s->serving.row_reads = &s->reads.rows;
  s->serving.sequences = default_to(o->sequences, SLI_MIN(s->serving.rows, SEQUENCES));
  s->serving.groups = default_to(o->groups, stages > 1 ? stages + 1 : 1);
  s->serving.picks =
      (int)SLI_MIN((int64_t)s->serving.sequences * (1 + o->speculation.tokens), s->serving.rows);
  sl_status status = sli_adapters_read(s);
  if (status) return status;
  if (s->serving.rows < 1 || s->serving.sequences < 1 || o->pages < 0 || o->context < 0)
    return sl_fail(SL_E_USAGE,
                   "rows and sequences must be at least 1, pages and context must not be negative");
  status = sli_chunk_check(s);
  if (status) return status;
  if (o->state_every < 1)
    return sl_fail(SL_E_USAGE, "state_every is %lld: it must be at least 1",
                   (long long)o->state_every);
  if (o->kv != SL_STORAGE_F32 && o->kv != SL_STORAGE_BF16 && o->kv != SL_STORAGE_Q8_0 &&
      o->kv != SL_STORAGE_FP8)
    return sl_fail(SL_E_USAGE, "keys and values are stored in f32, bf16, fp8 or Q8_0, not in %s",
                   sli_storage_name(o->kv));
  if (o->speculation.tokens < 0 || o->speculation.tokens > SL_SESSION_DRAFTED)
    return sl_fail(SL_E_USAGE, "speculation: %d draft tokens: must be from 0 to %d",
                   o->speculation.tokens, SL_SESSION_DRAFTED);
  if (s->serving.groups < 1 || s->serving.groups > MOST_GROUPS)
    return sl_fail(SL_E_USAGE, "groups is %d: it must be from 1 to %d", s->serving.groups,
                   MOST_GROUPS);
  return SL_OK;
}

/* Returns the bytes of one page, or of one slot, that an op keeps in a served graph. */
static int64_t op_kept_bytes(const sl_session *s, const sli_node *n, bool slots) {
  const sl_op_serve *form = n->op->serve;
  const sl_tensor *batch = s->graph->served.batch;
  if (!form || form->slots != slots || !batch) return 0;
  sl_attrs attrs = n->attrs;
  int inputs = n->op->max_in;
  sl_type in[inputs + 1], out[form->op->nout];
  attrs.pages.count = 1;
  attrs.numbers.bf16 = false;
  if (sli_op_memory(form->op)->updates && !slots) attrs.pages.storage = s->serving.kv;
  for (int i = 0; i < inputs; i++) in[i] = i < n->nin ? n->in_type[i] : *sl_tensor_type(NULL);
  in[inputs] = batch->type;
  int64_t bytes = 0;
  if (form->op->infer(&attrs, inputs + 1, in, out)) return 0;
  for (int o = 0; o < form->op->nout; o++)
    if (sli_op_memory(form->op)->updates >> o & 1) bytes += (int64_t)sl_type_bytes(&out[o]);
  return bytes;
}

/* Returns the bytes of one page, or of one sequence's state, over all stages. */
static int64_t kept_bytes(const sl_session *s, bool slots) {
  int64_t bytes = 0;
  for (int i = 0; i < s->graph->nnodes; i++) bytes += op_kept_bytes(s, s->graph->nodes[i], slots);
  return bytes;
}

int64_t sli_session_page_bytes(const sl_session *s) { return kept_bytes(s, false); }

/* Returns the default page count: enough for all sequences at full length, within a limit in
 * bytes. */
static int64_t usual_pages(const sl_session *s, int64_t least) {
  const int64_t usual_bytes = INT64_C(512) << 20, page = SLI_MAX(kept_bytes(s, false), 1);
  int64_t all = SLI_MIN(least * s->about.sequences, usual_bytes / page);
  return SLI_MAX(SLI_MAX(least, all), sli_pages_of(4 * s->about.rows));
}

/* Sets how many states are kept for pages. */
static void settle_states(sl_session *s) {
  const int64_t usual_bytes = INT64_C(512) << 20;
  sl_session_info *a = &s->about;
  a->state_bytes = kept_bytes(s, true);
  a->state_slots = sli_states_slots(s);
  bool none = !a->state_bytes || s->options.states < 0 || s->options.prefixes == SL_PREFIXES_APART;
  int64_t usual = a->state_bytes ? usual_bytes / a->state_bytes : 0;
  usual = SLI_MIN(usual, 2 * (int64_t)a->sequences);
  a->states = none ? 0 : default_to(s->options.states, usual);
  s->serving.kept = a->states;
}

/* Sets the sizes that depend on the model. */
static sl_status settle_sizes(sl_session *s) {
  const sl_session_options *o = &s->options;
  sl_session_info *a = &s->about;
  sl_serving *v = &s->serving;
  int64_t most = v->context - v->sinks;
  if (o->context > most && !s->speculation.target)
    return sl_fail(SL_E_USAGE, "context is %lld: the model supports at most %lld",
                   (long long)o->context, (long long)most);
  a->context = o->context ? SLI_MIN(o->context, most) : most;
  a->rows = v->rows;
  a->sequences = v->sequences;
  a->groups = v->groups;
  settle_states(s);
  int64_t least = sli_pages_of(sli_session_positions(s));
  a->pages = v->pages = o->pages ? o->pages : usual_pages(s, least);
  s->stats.limits = (sl_session_limits){a->rows, a->pages, a->sequences, a->groups, o->queue};
  if (a->pages >= least) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "kv=%lld is too small: one sequence of %lld tokens needs kv=%lld; a context of %lld would "
      "fit",
      (long long)a->pages, (long long)a->context, (long long)least,
      (long long)(a->pages * SL_PAGE - v->sinks));
}

static sl_status find_vocabulary(sl_session *s) {
  const sl_graph *g = s->graph;
  for (int i = 0; i < g->noutputs; i++)
    if (!strcmp(g->outputs[i].name, "logits") && g->outputs[i].tensor->type.dtype == SL_F32)
      s->about.vocabulary = sl_type_last(&g->outputs[i].tensor->type);
  return s->about.vocabulary ? SL_OK
                             : sl_fail(SL_E_UNSUPPORTED, "model %s has no f32 output \"logits\"",
                                       s->options.model->name);
}

/* Divides the logits by the temperature of the training that embeds the session. */
static void settle_temperature(sl_session *s) {
  sl_graph *g = s->graph;
  for (int i = 0; i < g->noutputs && s->steps.temperature > 0 && s->steps.temperature != 1; i++)
    if (!strcmp(g->outputs[i].name, "logits"))
      g->outputs[i].tensor = sl_scale(g, g->outputs[i].tensor, 1 / s->steps.temperature);
}

/* Makes each tick carry the mask of allowed next tokens. */
static void settle_constraints(sl_session *s) {
  if (!s->options.constraints || is_modelled(s)) return;
  s->serving.allow = sli_session_allow;
  s->serving.words = (s->about.vocabulary + 31) / 32;
}

static sl_status build(sl_session *s) {
  const sl_session_options *o = &s->options;
  s->graph = sl_graph_create(&(sl_graph_options){.microbatches = s->serving.groups,
                                                 .pieces = 1,
                                                 .infer = true,
                                                 .training = o->training,
                                                 .serve = &s->serving});
  sl_status status = sl_model_build(o->model, s->graph, o->args);
  sl_status misuse = sl_args_status(o->args);
  if (misuse) return misuse;
  if (!status) status = sl_graph_status(s->graph);
  if (!status) settle_temperature(s);
  if (!status) status = sl_graph_status(s->graph);
  if (!status) status = find_vocabulary(s);
  if (!status) settle_constraints(s);
  return status ? status : settle_sizes(s);
}

/* Rejects speculation on devices that compute no tokens. */
static sl_status check_speculation(const sl_session *s) {
  if (!s->options.speculation.tokens || !is_modelled(s)) return SL_OK;
  return sl_fail(
      SL_E_UNSUPPORTED,
      "speculation: not supported on devices that compute nothing, since they choose no tokens");
}

/* Rejects data sharding, since a tick has rows of any sequences, and rows that devices cannot share
 * evenly. */
static sl_status check_lower(const sl_session *s, const sl_lower_options *o) {
  if (o->parallel.data > 1)
    return sl_fail(SL_E_UNSUPPORTED,
                   "a session does not support parallel.data: its devices share "
                   "tensors (parallel.tensor) or rows (parallel.sequence)");
  if (o->parallel.sequence <= 1 || s->serving.rows % o->parallel.sequence == 0) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "parallel.sequence %d: ticks of %lld rows cannot be shared evenly; the rows of a "
                 "tick must be a multiple",
                 o->parallel.sequence, (long long)s->serving.rows);
}

static void find_width(sl_session *s) {
  const sl_graph *g = s->graph;
  for (int i = 0; i < g->noutputs; i++)
    if (!strcmp(g->outputs[i].name, "hidden"))
      s->about.width = sl_type_last(&g->outputs[i].tensor->type);
}

static sl_status make_plan(sl_session *s) {
  sl_lower_options lower = s->options.lower;
  sl_status wrong = check_lower(s, &lower);
  if (wrong) return wrong;
  if (s->options.storage && sl_device_computes(lower.devices.kind))
    return sl_fail(SL_E_USAGE, "storage: devices that compute cannot read this format of weights");
  if (lower.numbers.exact && lower.numbers.dtype == SL_BF16)
    return sl_fail(SL_E_UNSUPPORTED, "numbers.exact: not supported with numbers.dtype bf16");
  lower.numbers.dtype =
      SL_F32; /* dtype of the matrix products; weights keep their storage format */
  lower.report.on_output = sli_session_take;
  lower.report.ctx = s;
  sl_lowered *lowered = NULL;
  sl_status status = lower_plan(s, &lower, &lowered);
  if (status) return status;
  s->about.lowered = lowered;
  find_width(s);
  s->about.plan = sl_lowered_plan(lowered);
  s->about.experts = s->serving.experts;
  s->about.device_bytes = sli_plan_most_bytes(s->about.plan);
  status = check_speculation(s);
  if (!status) status = sli_mirror_check(s);
  return status ? status : sl_plan_prove(s->about.plan);
}

/* Joins the job with the run fingerprint: items of the options and of the lowered graph. */
static sl_status join_job(const sl_session *s) {
  const sl_session_options *o = &s->options;
  const sl_fingerprint_item *more;
  int nmore = sl_lowered_fingerprint(s->about.lowered, &more), n = 0;
  sl_fingerprint_item *all = sli_calloc((size_t)(o->nfingerprint + nmore + 1), sizeof *all);
  for (int i = 0; i < o->nfingerprint; i++) all[n++] = o->fingerprint[i];
  for (int i = 0; i < nmore; i++) all[n++] = more[i];
  sl_status status = sl_job_join(o->job, s->about.plan, n, all);
  free(all);
  return status;
}

static sl_status make_runtime(sl_session *s) {
  sl_runtime_options run = s->options.run;
  sl_job *job = s->options.job;
  run.watchdog_seconds = -1; /* a source may wait indefinitely */
  if (is_modelled(s)) run.no_data = true, run.duration = sli_price_firing, run.duration_ctx = s;
  if (s->simulator) run.clock = SL_CLOCK_VIRTUAL;
  if (job) run.peers = sl_job_peers(job), run.process = sl_job_process(job);
  sl_status status = job ? join_job(s) : SL_OK;
  if (!status) status = sl_runtime_create(s->about.plan, &run, &s->about.rt);
  if (status) return status;
  sl_lowered_attach((sl_lowered *)s->about.lowered, s->about.rt);
  if (is_modelled(s)) return job ? sl_job_attach(job, s->about.rt, 0) : SL_OK;
  status = s->options.load(s->options.load_ctx, s->about.lowered, s->about.rt);
  if (!status) status = sli_adapters_load(s);
  return status || !job ? status : sl_job_attach(job, s->about.rt, 0);
}

static sl_status make_ticks(sl_session *s) {
  size_t groups = (size_t)s->about.groups, sequences = (size_t)s->about.sequences;
  SLI_TRY(SLI_ALLOCATE(s->ticks.ring, groups, "ticks"));
  s->ticks.most = s->about.groups;
  for (size_t i = 0; i < groups; i++) {
    SLI_TRY(SLI_ALLOCATE(s->ticks.ring[i].parts, sequences, "the sequences of a tick"));
    SLI_TRY(SLI_ALLOCATE(s->ticks.ring[i].sampled, (size_t)s->serving.picks, "a tick's tokens"));
  }
  SLI_TRY(SLI_ALLOCATE(s->speculation.wanted, sequences, "the sequences of a tick"));
  SLI_TRY(sli_pages_init(s));
  if (is_modelled(s) && s->about.plan) sli_price_init(s);
  return sli_memory_check();
}

static sl_status start_thread(sl_session *s) {
  s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (s->wake < 0)
    return sl_fail(SL_E_IO, "cannot make a file descriptor for the session's events");
  s->thread.started = s->thread.ran = !pthread_create(&s->thread.id, NULL, session_run, s);
  return s->thread.started ? SL_OK : sl_fail(SL_E_MEMORY, "cannot start a thread for the session");
}

sl_status sl_session_check(const sl_session_options *options, sl_session_info *out) {
  sl_session s = {.options = *options};
  sl_status status = read_sizes(&s);
  if (!status) status = build(&s);
  if (!status) status = make_plan(&s);
  if (!status) *out = s.about;
  sl_lowered_destroy((sl_lowered *)s.about.lowered);
  sl_graph_destroy(s.graph);
  sli_adapters_free(&s);
  if (status) return status;
  out->plan = NULL;
  out->lowered = NULL;
  return SL_OK;
}

static void make_lock(sl_session *s) {
  pthread_mutex_init(&s->lock, NULL);
  sli_cond_init(&s->work);
  sli_cond_init(&s->idle);
}

/* Opens and starts the draft model's session, in process 0 only. */
static sl_status open_draft(sl_session *s) {
  const sl_speculation *how = &s->options.speculation;
  if (!how->draft || !how->tokens || (s->options.job && sl_job_process(s->options.job)))
    return SL_OK;
  sl_session_options o = sli_mirror_options(s);
  sl_status status = sli_session_open(&o, NULL, s, &s->speculation.draft);
  s->speculation.draft->steps.note = sli_mirror_note;
  if (!status) status = start_thread(s->speculation.draft);
  return status ? sl_fail(status, "the draft model: %s", sl_detail()) : SL_OK;
}

static const sli_drafter *drafter_of(const sl_speculation *how) {
  if (!how->tokens) return NULL;
  return how->draft ? &sli_drafter_model : &sli_drafter_ngram;
}

sl_status sli_session_open(const sl_session_options *options, sli_simulator *simulator,
                           const sl_session *target, sl_session **out) {
  sl_session *s = *out = sli_calloc(1, sizeof *s);
  s->options = *options;
  s->simulator = simulator;
  s->speculation.target = target;
  s->speculation.drafter = drafter_of(&options->speculation);
  s->wake = -1;
  make_lock(s);
  sl_status status = read_sizes(s);
  if (!status) status = build(s);
  if (!status) status = make_plan(s);
  if (!status) status = open_draft(s);
  if (!status) status = sli_log_open(s);
  if (!status) status = make_ticks(s);
  if (!status) status = make_runtime(s);
  return status ? status : sli_kept_open(s);
}

sl_status sli_session_open_driven(const sl_session_options *options, sli_simulator *simulator,
                                  bool planned, sl_session **out) {
  sl_session *s = *out = sli_calloc(1, sizeof *s);
  s->options = *options;
  s->options.lower.simulation.alike = true;
  s->simulator = simulator;
  s->wake = -1;
  make_lock(s);
  sl_status status = read_sizes(s);
  if (!status) status = build(s);
  if (!status) status = check_speculation(s);
  if (!status && planned) status = make_plan(s);
  if (!status) status = make_ticks(s);
  return status;
}

/* Returns the options without files and clocks, which training provides. */
static sl_session_options embedded(const sl_session_options *o) {
  return (sl_session_options){.model = o->model,
                              .args = o->args,
                              .training = o->training,
                              .context = o->context,
                              .rows = o->rows,
                              .sequences = o->sequences,
                              .groups = o->groups,
                              .pages = o->pages,
                              .kv = o->kv,
                              .admit = o->admit,
                              .prefixes = o->prefixes,
                              .states = o->states,
                              .state_every = o->state_every,
                              .queue = o->queue,
                              .hash = o->hash,
                              .penalties = o->penalties,
                              .lower = {.parallel.stages = o->lower.parallel.stages,
                                        .numbers.exact = o->lower.numbers.exact,
                                        .schedule.chunks = o->lower.schedule.chunks}};
}

/* Rebuilds the graph with the current sizes. */
static sl_graph *make_again(void *ctx) {
  sl_session *s = ctx;
  SLI_GROW(s->earlier.graphs, s->earlier.count, s->earlier.capacity);
  s->earlier.graphs[s->earlier.count++] = s->graph;
  s->graph = NULL;
  return build(s) ? NULL : s->graph;
}

sl_status sl_session_embed(const sl_session_options *options, const sl_session_steps *steps,
                           sl_rollout_options *rollouts, sl_session **out) {
  sl_session *s = sli_calloc(1, sizeof *s);
  s->options = embedded(options);
  s->steps = *steps;
  s->wake = -1;
  make_lock(s);
  sl_status status = read_sizes(s);
  if (!status) status = build(s);
  if (!status) status = make_ticks(s);
  if (status) {
    char *detail = sli_strdup(sl_detail());
    sl_session_destroy(s);
    sl_fail(status, "%s", detail);
    free(detail);
    return status;
  }
  s->serving.storage = NULL; /* training stores all weights in f32 */
  *rollouts = (sl_rollout_options){
      .make = make_again, .ticks = steps->ticks, .on_output = sli_session_take, .ctx = s};
  *out = s;
  return SL_OK;
}

sl_status sl_session_create(const sl_session_options *options, sl_session **out) {
  sl_session *s;
  sl_status status = sli_session_open(options, NULL, NULL, &s);
  if (!status) status = start_thread(s);
  if (!status) {
    *out = s;
    return SL_OK;
  }
  s->end.status = status; /* reported to the job by sl_session_destroy */
  char *detail = sli_strdup(sl_detail());
  sl_session_destroy(s);
  sl_fail(status, "%s", detail);
  free(detail);
  return status;
}

static void stop_thread(sl_session *s) {
  if (!s->thread.started) return;
  pthread_mutex_lock(&s->lock);
  s->end.closing = true;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  sl_runtime_stop(s->about.rt);
  pthread_join(s->thread.id, NULL);
}

static sl_status free_ticks(sl_session *s) {
  for (int i = 0; i < s->ticks.most; i++) {
    free(s->ticks.ring[i].parts);
    free(s->ticks.ring[i].sampled);
    free(s->ticks.ring[i].paged);
  }
  free(s->ticks.ring);
  sli_pages_fini(s);
  sli_kept_close(s);
  return sli_log_close(s);
}

/* Ends the job if it was joined; without a runtime it has no peers to notify. */
static void end_job(sl_session *s) {
  sl_job *job = s->options.job;
  if (!job) return;
  if (s->about.rt) sl_job_end(job, s->end.status);
  sli_job_leave(job);
}

static sl_status write_trace(const sl_session *s) {
  sl_job *job = s->options.job;
  sl_status status = job ? sl_job_gather(job, 0) : SL_OK;
  if (status || (job && sl_job_process(job))) return status;
  return sl_trace_write(s->options.trace, s->about.plan, s->about.rt,
                        s->simulator ? SL_CLOCK_VIRTUAL : SL_CLOCK_REAL);
}

/* Writes the trace of all processes, in process 0, unless the session has failed. */
static sl_status keep_trace(const sl_session *s) {
  bool failed = s->options.job && s->end.status;
  return s->thread.ran && s->options.trace && !failed ? write_trace(s) : SL_OK;
}

static void free_all(sl_session *s) {
  sli_price_fini(s); /* reads the plan */
  sl_runtime_destroy(s->about.rt);
  sl_lowered_destroy((sl_lowered *)s->about.lowered);
  sl_graph_destroy(s->graph);
  for (size_t i = 0; i < s->earlier.count; i++) sl_graph_destroy(s->earlier.graphs[i]);
  free(s->earlier.graphs);
  if (s->wake >= 0) close(s->wake);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->idle);
  pthread_mutex_destroy(&s->lock);
  sli_adapters_free(s);
  free(s->speculation.wanted);
  sli_fit_fini(&s->prices.fit);
  free(s->events.items);
  free(s->end.detail);
  free(s);
}

sl_status sl_session_destroy(sl_session *s) {
  if (!s) return SL_OK;
  stop_thread(s);
  sl_session_destroy(s->speculation.draft);
  s->speculation.draft = NULL;
  sl_status traced = keep_trace(s);
  char *detail = sli_strdup(traced ? sl_detail() : "");
  end_job(s);
  sl_status logged = free_ticks(s);
  free_all(s);
  if (traced) sl_fail(traced, "%s", detail);
  free(detail);
  return traced ? traced : logged;
}

sl_status sl_session_wait(sl_session *s) {
  if (s->thread.started) {
    pthread_join(s->thread.id, NULL);
    s->thread.started = false;
  }
  return sl_session_status(s);
}

sl_session_info sl_session_about(const sl_session *s) { return s->about; }
