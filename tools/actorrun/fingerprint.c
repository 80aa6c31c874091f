/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorrun/fingerprint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/state.h>

#include "base/base.h"
#include "graph/compile/compile.h"
#include "graph/state/state.h"
#include "io/file.h"
#include "io/shards/shards.h"

/* Options that affect results, besides the model and its options. */
static const char *const of_results[] = {"microbatches", "pieces",  "cut",   "dtype",
                                         "seed",         "shuffle", "learn", "long-chats"};

/* Training options that affect results and override the model's. All given texts are compared. */
static const char *const of_training[] = {
    "optimizer", "lr-schedule", "group", "freeze",  "lora",    "adapter", "rl",
    "reward",    "stop",        "dpo",   "teacher", "distill", "frozen",  "rollout-ahead"};

/* Options that may differ between processes: where each runs, and what it prints or writes. All
 * other options shape the plan or connect processes. The launcher's options are listed too. */
static const char *const apart[] = {
    "devices",   "disk",          "workers", "jitter", "watchdog", "heartbeat-timeout",
    "quiet",     "log",           "answers", "report", "plan",     "restarts",
    "processes", "rdzv-endpoint", "rdzv-id", "nnodes", "node-rank"};

static bool is_listed(const char *const *list, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(list[i], name)) return true;
  return false;
}

static bool is_of_results(const char *name) {
  return is_listed(of_results, SLI_COUNT(of_results), name);
}

/* Returns whether an option is not compared as given. See add_results, add_training and
 * add_paths. */
static bool is_apart(const char *name) {
  return is_of_results(name) || is_listed(of_training, SLI_COUNT(of_training), name) ||
         !strcmp(name, "paths") || !strcmp(name, "prompts") ||
         is_listed(apart, SLI_COUNT(apart), name);
}

static void add_results(fingerprint *fingerprint, const settings *s) {
  for (size_t i = 0; i < SLI_COUNT(of_results); i++) {
    const sl_option *o = sl_options_find(s->options, of_results[i]);
    SLI_CHECK(o, "there is no option --%s", of_results[i]);
    fingerprint_add_option(fingerprint, "--", o, s->run);
  }
}

/* Adds the model's options. Names that are also options of actorrun get a prefix. */
static void add_model(fingerprint *fingerprint, const settings *s) {
  for (const sl_option *o = s->model->options; o && o->name; o++)
    fingerprint_add_option(fingerprint, is_of_results(o->name) ? "the model's --" : "--", o,
                           s->model_args);
}

static void add_training(fingerprint *fingerprint, const settings *s) {
  for (size_t i = 0; i < SLI_COUNT(of_training); i++) {
    bool given = sl_arg_given(s->run, of_training[i], 0);
    fingerprint_add(fingerprint, sli_format("--%s", of_training[i]),
                    given ? fingerprint_given(s->run, of_training[i]) : sli_strdup("none"),
                    sli_strdup("none"));
  }
}

/* Adds input files by content, not by path. An unreadable file prevents the plan. */
static void add_paths(fingerprint *fingerprint, const settings *s) {
  static const char *const files[] = {"paths", "prompts"};
  uint64_t bytes, hash;
  for (size_t i = 0; i < SLI_COUNT(files); i++) {
    const char *file = settings_text(s, files[i]);
    char *text = file && !sli_file_fingerprint(file, &bytes, &hash)
                     ? sli_format("%" PRIu64 " bytes, hash %016" PRIx64, bytes, hash)
                     : sli_strdup("none");
    fingerprint_add(fingerprint, sli_format("--%s", files[i]), text, sli_strdup("none"));
  }
}

/* Adds the files of frozen weights in stored format, which checkpoints do not contain. */
static void add_base(fingerprint *fingerprint, const settings *s) {
  uint64_t bytes, hash;
  for (int i = 0; s->frozen && i < sli_shards_count(s->frozen); i++)
    if (!sli_file_fingerprint(sli_shards_path(s->frozen, i), &bytes, &hash))
      fingerprint_add(fingerprint, sli_format("file %d of the frozen weights", i),
                      sli_format("%" PRIu64 " bytes, hash %016" PRIx64, bytes, hash), NULL);
}

/* Adds options that affect only the results of rollouts. */
static void add_rollouts(fingerprint *fingerprint, const settings *s) {
  static const char *const of_rollouts[] = {"max-tokens", "temperature"};
  for (size_t i = 0; i < SLI_COUNT(of_rollouts) && settings_text(s, "rl"); i++)
    fingerprint_add_option(fingerprint, "--", sl_options_find(s->options, of_rollouts[i]), s->run);
}

void fingerprint_init(fingerprint *t, const settings *s) {
  *t = (fingerprint){0};
  fingerprint_add(t, sli_strdup("the model"), sli_strdup(s->model->name), NULL);
  add_results(t, s);
  add_model(t, s);
  add_training(t, s);
  add_paths(t, s);
  add_rollouts(t, s);
  add_base(t, s);
  t->nresults = t->count;
  fingerprint_add_options(t, s->options, s->run, is_apart);
}

static void add_data(fingerprint *fingerprint, const sl_graph *g) {
  int n = sl_graph_files(g, 0, NULL);
  sl_graph_file *files = sli_calloc((size_t)n, sizeof *files);
  sl_graph_files(g, n, files);
  for (int i = 0; i < n; i++)
    fingerprint_add(
        fingerprint, sli_strdup(files[i].path),
        sli_format("with %" PRIu64 " bytes, hash %016" PRIx64, files[i].bytes, files[i].hash),
        NULL);
  free(files);
}

sl_status fingerprint_add_files(fingerprint *fingerprint, const settings *s) {
  const char *init = settings_text(s, "init"), *adapter = s->adapter;
  sl_status status = init ? fingerprint_add_weights(fingerprint, init) : SL_OK;
  const char *teacher = settings_text(s, "teacher");
  if (!status && adapter) status = fingerprint_add_adapter(fingerprint, adapter);
  if (!status && teacher) status = fingerprint_add_weights(fingerprint, teacher);
  return !status && s->data.tokenizer ? fingerprint_add_file(fingerprint, s->data.tokenizer)
                                      : status;
}

sl_status fingerprint_add_plan(fingerprint *fingerprint, const settings *s, const sl_graph *g,
                               const sl_lowered *lowered) {
  const sl_fingerprint_item *more;
  int n = sl_lowered_fingerprint(lowered, &more);
  for (int i = 0; i < n; i++)
    fingerprint_add(fingerprint, sli_strdup(more[i].name), sli_strdup(more[i].value), NULL);
  add_data(fingerprint, g);
  sl_status status = fingerprint_add_files(fingerprint, s);
  if (!status && sli_lowered_own_code(lowered))
    status = fingerprint_add_file(fingerprint, s->model_word);
  return status;
}
