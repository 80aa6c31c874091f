/* SPDX-License-Identifier: Apache-2.0 */
/* --generate: a session of the model that continues a text. */
#include "tools/actorrun/actorrun.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/session.h>

#include "text/tokenizer/tokenizer.h"
#include "tools/actorrun/chat.h"

typedef struct writer {
  size_t count, capacity;
  int32_t *tokens; /* the prompt, then the generated tokens */
  int64_t vocab, context;
  bool bytes;               /* tokens are bytes of text */
  sli_tokenizer *tokenizer; /* or NULL */
  size_t shown;             /* bytes of the text printed so far */
  int32_t end;              /* token that ends the text; -1 if none */
} writer;

static void add_token(writer *w, int32_t token) {
  SLI_GROW(w->tokens, w->count, w->capacity);
  w->tokens[w->count++] = token;
}

/* ---- the prompt ------------------------------------------------------------------------ */

static sl_status read_numbers(writer *w, const char *text) {
  for (const char *at = text + strspn(text, " ,\n"); *at; at += strspn(at, " ,\n")) {
    char *end;
    long long v = strtoll(at, &end, 10);
    if (end == at || v < 0 || v >= w->vocab)
      return sl_fail(
          SL_E_USAGE,
          "--prompt: with a vocabulary of %lld it must be a list of smaller numbers, not \"%.20s\"",
          (long long)w->vocab, at);
    add_token(w, (int32_t)v);
    at = end;
  }
  if (!w->count) add_token(w, 0);
  return SL_OK;
}

static sl_status read_text(writer *w, const char *text, bool whole) {
  sli_token_row row = {0};
  sl_status status = sli_tokenizer_encode(w->tokenizer, text, strlen(text), whole, &row);
  if (!status && !row.count) status = sli_tokenizer_encode(w->tokenizer, "\n", 1, true, &row);
  for (size_t i = 0; i < row.count && !status; i++) {
    if (row.items[i] >= w->vocab)
      status = sl_fail(SL_E_USAGE, "--prompt: token %d is outside the vocabulary of %lld",
                       row.items[i], (long long)w->vocab);
    add_token(w, row.items[i]);
  }
  free(row.items);
  return status;
}

/* Returns the number of a special token, or -1 if there is none. */
static int32_t token_of(const writer *w, const char *mark) {
  sli_token_row row = {0};
  sl_status status =
      mark ? sli_tokenizer_encode(w->tokenizer, mark, strlen(mark), false, &row) : SL_OK;
  int32_t token = !status && row.count == 1 ? row.items[0] : -1;
  free(row.items);
  return token;
}

/* Reads the chat's messages as the prompt. Only the answer is printed. */
static sl_status read_chat(writer *w, const settings *s) {
  char *prompt = NULL, *end = NULL;
  sl_status status = chat_prompt(s, &prompt, &end);
  if (!status) status = read_text(w, prompt, false);
  if (!status && (int64_t)w->count >= w->context)
    status =
        sl_fail(SL_E_USAGE, "--chat: %zu tokens leave no room for an answer in a context of %lld",
                w->count, (long long)w->context);
  if (!status) {
    w->end = token_of(w, end);
    free(sli_tokenizer_decode(w->tokenizer, w->tokens, w->count, false, &w->shown));
  }
  free(prompt);
  free(end);
  return status;
}

static sl_status read_prompt(writer *w, const settings *s) {
  const char *text = sl_arg_text(s->run, "prompt");
  if (sl_arg_given(s->run, "chat", 0)) return read_chat(w, s);
  if (w->tokenizer) return read_text(w, text, true);
  if (!w->bytes) return read_numbers(w, text);
  if (!*text) text = "\n";
  for (const char *at = text; *at; at++) {
    unsigned char byte = (unsigned char)*at;
    if (byte >= w->vocab)
      return sl_fail(SL_E_USAGE, "--prompt: byte %d is outside the vocabulary of %lld", byte,
                     (long long)w->vocab);
    add_token(w, byte);
  }
  return SL_OK;
}

/* Prints the text so far, except an incomplete character at its end. */
static void print_text(writer *w) {
  size_t bytes;
  char *text = sli_tokenizer_decode(w->tokenizer, w->tokens, w->count, false, &bytes);
  while (bytes >= 3 && !memcmp(text + bytes - 3, "\ufffd", 3)) bytes -= 3;
  if (bytes > w->shown) fwrite(text + w->shown, 1, bytes - w->shown, stdout);
  w->shown = SLI_MAX(w->shown, bytes);
  free(text);
}

static void print_token(writer *w, int32_t token) {
  if (w->tokenizer) print_text(w);
  else if (w->bytes) putchar(token);
  else printf("%d ", token);
  fflush(stdout);
}

/* ---- generation ----------------------------------------------------------------------------- */

static sl_session_event next_event(sl_session *session) {
  sl_session_event e;
  struct pollfd fd = {.fd = sl_session_fd(session), .events = POLLIN};
  while (!sl_session_poll(session, &e, 1)) poll(&fd, 1, -1);
  return e;
}

static sl_status fail(const sl_session *session) {
  sl_status status = sl_session_status(session);
  return status ? status : sl_fail(SL_E_NUMERIC, "--generate: the model's logits are not finite");
}

/* Continues the tokens, up to `most`, the end of the context, or the end token. If the context
 * is full, continues from the newest tokens that fill half of it. `part` counts earlier calls. */
static sl_status write_part(writer *w, sl_session *session, const settings *s, int64_t most,
                            uint64_t part, bool *ended) {
  size_t context = (size_t)w->context, seen = w->count < context ? w->count : (context + 1) / 2;
  const sl_request request = {.prompt = w->tokens + w->count - seen,
                              .nprompt = (int64_t)seen,
                              .max_tokens = most,
                              .temperature = (float)sl_arg_float(s->run, "temperature"),
                              .seed = (uint64_t)sl_arg_int(s->run, "seed") + part,
                              .stop = &w->end,
                              .nstop = w->end >= 0,
                              .logprobs = -1};
  uint64_t id;
  sl_session_event e;
  sl_status status = sl_session_submit(session, &request, &id);
  if (status) return status;
  while ((e = next_event(session)).kind == SL_EVENT_TOKEN) {
    if (e.token == w->end) continue;
    add_token(w, e.token);
    print_token(w, e.token);
  }
  *ended = e.end == SL_END_STOP;
  return *ended || e.end == SL_END_LENGTH ? SL_OK : fail(session);
}

static sl_status write_tokens(writer *w, sl_session *session, const settings *s) {
  size_t most = w->count + (size_t)sl_arg_int(s->run, "generate");
  sl_status status = SL_OK;
  bool ended = false;
  for (size_t i = 0; i < w->count && !w->tokenizer; i++) print_token(w, w->tokens[i]);
  for (uint64_t part = 0; w->count < most && !ended && !status; part++)
    status = write_part(w, session, s, (int64_t)(most - w->count), part, &ended);
  printf("\n");
  return status;
}

/* ---- the session ----------------------------------------------------------------------------- */

static sl_status load_first(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  return job_initial_values(ctx, lowered, rt);
}

static sl_status load_learned(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  const job *j = ctx;
  return sl_weights_copy(j->lowered, j->rt, lowered, rt);
}

static sl_status load_saved(void *ctx, const sl_lowered *lowered, sl_runtime *rt) {
  return sl_weights_load(settings_text(ctx, "save"), lowered, rt);
}

static sl_session_options options_of(const settings *s) {
  return (sl_session_options){.model = s->model,
                              .args = s->model_args,
                              .training = &s->training,
                              .sequences = 1,
                              .lower = {.parallel.stages = 1,
                                        .schedule.chunks = 1,
                                        .numbers.exact = s->lower.numbers.exact,
                                        .devices = {.kind = "cpu", .count = 1}}};
}

/* True if the session that does not train uses the plan's devices: GPUs, or those of processes. */
static bool uses_plan(const settings *s) {
  return s->lower.parallel.processes > 1 || strcmp(s->lower.devices.kind, "cpu") != 0;
}

/* Distributes the session over the devices in the same way as the plan. */
static void place_on_all(sl_session_options *o, const settings *s) {
  o->lower.parallel.stages = s->lower.parallel.stages;
  o->lower.parallel.data = s->lower.parallel.data;
  o->lower.parallel.sequence = s->lower.parallel.sequence;
  o->lower.parallel.tensor = s->lower.parallel.tensor;
  o->lower.parallel.processes = s->lower.parallel.processes;
  o->lower.devices = s->lower.devices;
}

/* Returns session options for the initial values, if the run does not train. */
static sl_session_options options_of_first(const settings *s) {
  const char *init = settings_text(s, "init");
  sl_session_options o = options_of(s);
  if (uses_plan(s)) place_on_all(&o, s);
  o.lower.devices.budget_bytes = s->lower.devices.budget_bytes;
  o.stored = s->training.nlora ? NULL : init;
  o.load = load_first;
  o.load_ctx = (void *)s;
  return o;
}

/* Returns session options for the trained values. In a job of several processes, process 0 loads
 * the saved values of all of them, with adapters merged. */
static sl_session_options options_of_learned(const job *j) {
  sl_session_options o = options_of(j->settings);
  bool alone = sl_job_processes(j->processes) == 1;
  if (!alone) o.training = NULL;
  o.load = alone ? load_learned : load_saved;
  o.load_ctx = alone ? (void *)j : (void *)j->settings;
  return o;
}

/* Places the session on one CPU device. It has the threads of all training devices, or all cores if
 * those are not CPUs. */
static sl_status generate_place(const job *j, sl_session_options *o, sl_placement **out) {
  const settings *s = j->settings;
  sl_device_options *d = &o->lower.devices;
  d->threads = s->lower.devices.threads ? s->lower.devices.threads * s->lower.devices.count
                                        : sl_placement_default(j->machine.machine, 1);
  o->run.bind = sl_placement_bind;
  sl_status status = sl_placement_create(j->machine.machine, 1, d->threads, out);
  o->run.bind_arg = *out;
  return status;
}

/* Opens the writer and checks the model's size and inputs before anything is computed. */
static sl_status open_writer(writer *w, const settings *s, const sl_session_options *o) {
  sl_session_info about;
  *w = (writer){.end = -1};
  model_being_built = s->model->name;
  sl_status status = sl_session_check(o, &about);
  model_being_built = NULL;
  if (status) return sl_fail(status, "--generate: %s", sl_detail());
  w->vocab = about.vocabulary;
  w->context = about.context;
  w->bytes = w->vocab <= 256;
  if (s->data.tokenizer) status = sli_tokenizer_open(s->data.tokenizer, &w->tokenizer);
  return status ? status : read_prompt(w, s);
}

static void close_writer(writer *w) {
  sli_tokenizer_close(w->tokenizer);
  free(w->tokens);
}

static sl_status write_with(const sl_session_options *o, const settings *s) {
  writer w;
  sl_session *session = NULL;
  sl_status status = open_writer(&w, s, o);
  if (!status) status = sl_session_create(o, &session);
  if (!status) status = s->process ? sl_session_wait(session) : write_tokens(&w, session, s);
  sl_session_destroy(session);
  close_writer(&w);
  return status;
}

/* ---- interface ------------------------------------------------------------------------------- */

bool generates_only(const settings *s) {
  static const char *const others[] = {"save",   "save-adapter", "checkpoint",
                                       "report", "trace",        "plan"};
  bool only = s->use == USE_INFERENCE;
  for (size_t i = 0; i < SLI_COUNT(others); i++) only = only && !settings_text(s, others[i]);
  return only;
}

sl_status generate_check(const settings *s) {
  writer w;
  if (!sl_arg_int(s->run, "generate")) return SL_OK;
  if (s->lower.parallel.processes > 1 && !generates_only(s) && !settings_text(s, "save"))
    return sl_fail(SL_E_USAGE, "--generate: with %d processes, it also needs --save FILE",
                   s->lower.parallel.processes);
  const sl_session_options o = generates_only(s) ? options_of_first(s) : options_of(s);
  sl_status status = open_writer(&w, s, &o);
  close_writer(&w);
  return status;
}

sl_status generate_first(job *j) {
  const settings *s = j->settings;
  sl_session_options o = options_of_first(s);
  sl_placement *placement = NULL;
  sl_status status = SL_OK;
  if (uses_plan(s)) {
    status = fingerprint_add_files(&j->fingerprint, s);
    o.fingerprint = j->fingerprint.items;
    o.nfingerprint = (int)j->fingerprint.count;
    o.job = j->processes;
    o.run.bind = machine_bind;
    o.run.bind_arg = (void *)&j->machine;
  } else status = generate_place(j, &o, &placement);
  if (!status) status = write_with(&o, s);
  sl_placement_destroy(placement);
  return status;
}

sl_status generate(const job *j) {
  sl_session_options o = options_of_learned(j);
  sl_placement *placement = NULL;
  sl_status status = generate_place(j, &o, &placement);
  if (!status) status = write_with(&o, j->settings);
  sl_placement_destroy(placement);
  return status;
}
