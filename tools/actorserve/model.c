/* SPDX-License-Identifier: Apache-2.0 */
/* The model: a session over the settings' devices, as an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/state.h>

#include "comm/job/job.h"
#include "placement/share.h"
#include "tools/actorserve/actorserve.h"
#include "tools/actorserve/advice.h"

static sl_status submit(void *self, const sl_request *request, uint64_t *id) {
  return sl_session_submit(self, request, id);
}

static void cancel(void *self, uint64_t id) { sl_session_cancel(self, id); }

static int poll_events(void *self, sl_session_event *out, int most) {
  return sl_session_poll(self, out, most);
}

static sl_session_stats stat_of(void *self) { return sl_session_stat(self); }

static sl_status status_of(void *self) { return sl_session_status(self); }

static sl_status load_adapter(void *self, const char *folder, int *adapter) {
  return sl_session_load_adapter(self, folder, adapter);
}

static sl_status unload_adapter(void *self, int adapter) {
  return sl_session_unload_adapter(self, adapter);
}

static sl_status model_load(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const settings *s = ctx;
  const pretrained p = settings_pretrained(s);
  sl_status status = SL_OK;
  if (!p.init) status = sl_params_init(lowered, rt, (uint64_t)sl_arg_int(s->run, "seed"));
  if (!status) status = pretrained_load(&p, NULL, lowered, rt);
  return status ? status : sl_params_copy_versions(lowered, rt);
}

/* Reads --prompt-blocks SHARE[,CHUNK]; the session checks the values. */
static sl_status read_prompt_blocks(const settings *s, sl_prompt_blocks *out) {
  enum { CHUNK = 1024 };
  const char *text = settings_text(s, "prompt-blocks");
  double share = 0;
  long long chunk = CHUNK;
  int one = -1, two = -1;
  if (!text) return SL_OK;
  sscanf(text, "%lf%n,%lld%n", &share, &one, &chunk, &two);
  bool whole = (one > 0 && !text[one]) || (two > 0 && !text[two]);
  *out = (sl_prompt_blocks){(float)share, chunk};
  if (whole && share > 0 && share < 1) return SL_OK;
  return sl_fail(SL_E_USAGE,
                 "--prompt-blocks %s: must be a fraction between 0 and 1, and perhaps a number of "
                 "positions, such as 0.1 or 0.1,2048",
                 text);
}

/* Returns session options. Sizes are 0 if the session is to choose them. */
static sl_session_options options_of(settings *s, served *served) {
  bool recompute = !strcmp(sl_arg_text(s->run, "admit"), "recompute");
  sl_session_options o = serving_options(s);
  o.rows = sl_arg_int(s->run, "rows");
  o.sequences = (int)sl_arg_int(s->run, "sequences");
  o.groups = (int)sl_arg_int(s->run, "groups");
  o.pages = homes_pages(s);
  o.experts = homes_experts(s);
  o.admit = recompute ? SL_ADMIT_RECOMPUTE : SL_ADMIT_RESERVE;
  o.states = (int)sl_arg_int(s->run, "prefix-states");
  o.state_every = sl_arg_int(s->run, "state-every");
  o.cost = settings_text(s, "tick") ? &served->cost : NULL;
  o.log = settings_text(s, "log");
  o.replay = settings_text(s, "replay");
  o.trace = settings_text(s, "trace");
  o.run = (sl_runtime_options){.bind = machine_bind, .bind_arg = &served->machine};
  o.job = s->lower.parallel.processes > 1 ? served->job : NULL;
  o.load = model_load;
  o.load_ctx = s;
  o.embeddings = strcmp(sl_arg_text(s->run, "pooling"), "none") != 0;
  homes_apply(s, &o.lower);
  return o;
}

/* Joins the job of the processes that the launcher started. */
static sl_status join(settings *s, served *served) {
  const sl_job_options options = {.lost_seconds = sl_arg_float(s->run, "heartbeat-timeout")};
  sl_status status = sl_job_open(&options, &served->job);
  if (status) return status;
  const sli_cluster *cluster = sli_job_cluster(served->job);
  s->process = cluster->process;
  s->lower.parallel.processes = cluster->nprocesses;
  settings_occupy(s);
  if (!getenv("SLUICE_BOUND")) sli_share_take_among(cluster->local, cluster->nlocal);
  return SL_OK;
}

/* Returns whether an option may differ between processes: where each runs, and what only the first
 * one does. */
static bool is_apart(const char *name) {
  static const char *const names[] = {"devices",
                                      "disk",
                                      "heartbeat-timeout",
                                      "quiet",
                                      "report",
                                      "log",
                                      "restarts",
                                      "processes",
                                      "rdzv-endpoint",
                                      "rdzv-id",
                                      "nnodes",
                                      "node-rank",
                                      "host",
                                      "port",
                                      "api-key",
                                      "api-key-file",
                                      "cors",
                                      "request-memory",
                                      "tool-parser",
                                      "access-log",
                                      "served-model-name",
                                      "reasoning-parser",
                                      "tokenizer",
                                      "chat-template",
                                      "stuck"};
  for (size_t i = 0; i < SLI_COUNT(names); i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* Creates the session. If there are other processes, fingerprints of files are computed first. */
static sl_status create(const settings *s, const sl_session_options *options, sl_session **out) {
  sl_session_options o = *options;
  fingerprint t = {0};
  sl_status status = o.job ? serving_fingerprint(s, is_apart, &t) : SL_OK;
  o.fingerprint = t.items;
  o.nfingerprint = (int)t.count;
  if (!status) status = sl_session_create(&o, out);
  fingerprint_fini(&t);
  return status;
}

static sl_status read_speculation(const settings *s, served *served, sl_speculation *out) {
  speculate x;
  sl_status status = speculate_read(s, &x);
  *out = x.how;
  if (status || !x.path) return status;
  status = draft_model_open(s, served, x.path, x.how.hidden);
  if (!status) out->draft = draft_model_options(served->draft);
  return status;
}

sl_status model_options(settings *s, served *served, sl_session_options *out) {
  bool given, whole;
  sl_status status = serving_cost(s, &served->cost, &given, &whole);
  if (!status && given && whole)
    served->cost = ticks_share(&served->cost, 1.0 / s->lower.parallel.stages);
  if (!status) *out = options_of(s, served);
  if (!status) status = prefixes_read(s, &out->prefixes, &out->kept);
  if (!status) status = read_prompt_blocks(s, &out->prompt_blocks);
  return status ? status : read_speculation(s, served, &out->speculation);
}

/* Gives the layers as many experts as fit the memory, if the user says how much there is but not
 * how many. Plans with the fewest and with all of them tell what one takes. */
static sl_status settle_experts(sl_session_options *o) {
  sl_session_info few, all;
  size_t budget = o->lower.devices.budget_bytes;
  if (!budget || o->experts.slots) return SL_OK;
  sl_session_options trial = *o;
  trial.lower.devices.budget_bytes = 0;
  trial.experts.slots = 1;
  if (sl_session_check(&trial, &few) || !few.experts.parts) return SL_OK; /* creation says why */
  trial.experts.slots = few.experts.parts;
  SLI_TRY(sl_session_check(&trial, &all));
  int32_t more = all.experts.held - few.experts.held;
  size_t each = more ? (all.device_bytes - few.device_bytes) / (size_t)more : 0;
  o->experts.slots = all.experts.held;
  if (budget < all.device_bytes && each) {
    size_t room = budget > few.device_bytes ? budget - few.device_bytes : 0;
    o->experts.slots = few.experts.held + (int32_t)(room / each);
  }
  return SL_OK;
}

/* Returns whether the model serves a shorter context with the same weights: a table of positions
 * has as many rows as the context. */
static bool has_context(const settings *s) {
  return sl_options_find(s->model->options, "context") &&
         (strcmp(s->model->name, "gpt") != 0 || sl_arg_given(s->model_args, "positions", 0));
}

sl_status model_open(settings *s, served *served) {
  sl_session_options options;
  sl_status status = join(s, served);
  if (!status) status = machine_place(s, &served->machine);
  if (!status) status = model_options(s, served, &options);
  options.constraints = true;
  if (!status) status = settle_experts(&options);
  if (!status) status = create(s, &options, &served->session);
  if (status == SL_E_BUDGET) advice_add_sizes(&options, has_context(s));
  if (status || settings_have_workload(s)) return status;
  sl_session_info about = sl_session_about(served->session);
  served->engine = (engine){.self = served->session,
                            .fd = sl_session_fd(served->session),
                            .vocabulary = about.vocabulary,
                            .context = about.context,
                            .submit = submit,
                            .cancel = cancel,
                            .poll = poll_events,
                            .stat = stat_of,
                            .status = status_of,
                            .load_adapter = load_adapter,
                            .unload_adapter = unload_adapter,
                            .width = about.width,
                            .last = !strcmp(sl_arg_text(s->run, "pooling"), "last")};
  status = chat_format_open(s, about.vocabulary, served);
  if (!status) status = draft_model_check(served);
  return status ? status : status_provider_open(served, s->model->name);
}

sl_status model_close(served *served) {
  status_provider_close(served);
  sl_status status = sl_session_destroy(served->session);
  sl_job_close(served->job);
  chat_format_close(served);
  draft_model_close(served->draft);
  machine_fini(&served->machine);
  return status;
}
