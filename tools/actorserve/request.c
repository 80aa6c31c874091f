/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/request.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/base.h"
#include "tools/actorserve/embeddings.h"
#include "tools/actorserve/items.h"
#include "tools/actorserve/messages.h"
#include "tools/actorserve/prepare.h"
#include "tools/actorserve/reply.h"
#include "tools/actorserve/responses.h"

/* ---- formats of answers ---------------------------------------------------------------------- */

/* An answer that is made of items. */
typedef struct item_format {
  bool (*whole)(request *r, struct evbuffer *out);
  bool (*begin)(choice *c, struct evbuffer *out);
  bool (*piece)(choice *c, const answer_piece *piece, struct evbuffer *out);
  bool (*end)(choice *c, struct evbuffer *out);
} item_format;

/* Returns the format of a request's answers, or NULL if they are not made of items. */
static const item_format *format_of(const request *r) {
  static const item_format responses = {responses_whole, responses_begin, responses_piece,
                                        responses_end},
                           messages = {messages_whole, messages_begin, messages_piece,
                                       messages_end};
  return r->params.kind == PARAMS_RESPONSES  ? &responses
         : r->params.kind == PARAMS_MESSAGES ? &messages
                                             : NULL;
}

static bool is_message(const request *r) {
  return r->params.kind == PARAMS_MESSAGES || r->params.kind == PARAMS_COUNT;
}

/* ---- ending a request ------------------------------------------------------------------------ */

static void fini_choice(choice *c) {
  sli_guide_destroy(c->guide);
  stream_text_fini(&c->streamed);
  stream_text_fini(&c->prompt);
  if (c->words) logprobs_fini(c->words);
  free(c->words);
  answer_parser_destroy(c->parser);
  for (size_t i = 0; i < c->ncalls; i++) {
    free(c->calls[i].name.text);
    free(c->calls[i].arguments.text);
  }
  free(c->calls);
  free(c->content.text);
  free(c->reasoning.text);
  free(c->embedding);
  response_destroy(c->response);
}

static void let_go(request *r, size_t bytes) { account_give(&r->memory.account, bytes); }

/* Reserves memory for a request. Returns false if there is not enough. */
static bool hold(request *r, size_t bytes) { return account_take(&r->memory.account, bytes); }

static void free_text(encoding *x) {
  if (x->text) let_go(x->work.user, x->work.bytes + 1);
  free(x->text);
  x->text = NULL;
}

void request_destroy(request *r) {
  for (int i = 0; i < r->answers.count; i++) fini_choice(&r->answers.items[i]);
  for (int i = 0; i < r->prompts.count; i++) {
    free(r->prompts.items[i].text);
    free(r->prompts.items[i].out.items);
    free(r->prompts.items[i].failure);
  }
  sli_grammar_destroy(r->limits.grammar);
  stops_fini(&r->limits.stops);
  free(r->reading.body);
  free(r->reading.failure);
  request_params_fini(&r->params);
  sli_bounded_fini(&r->memory.lasting);
  account_give_all(&r->memory.account);
  free(r->answers.items);
  free(r->prompts.items);
  *r->link = r->next;
  if (r->next) r->next->link = r->link;
  free(r);
}

/* Frees a request once client, reader, encoder and engine no longer use it. */
static void end_if_over(request *r) {
  if (!r->x && !r->reading.busy && !r->prompts.encoding && !r->answers.running) request_destroy(r);
}

static void cancel(choice *c) {
  const engine *e = c->request->serving->engine;
  if (c->under_way) e->cancel(e->self, c->id);
}

/* Detaches the client: nobody reads further output. */
static void request_leave(request *r) {
  r->x = NULL;
  for (int i = 0; i < r->prompts.count && r->prompts.encoding; i++)
    if (r->prompts.items[i].text) worker_stop(r->serving->encoder, &r->prompts.items[i].work);
  if (r->reading.busy) worker_stop(r->serving->reader, &r->reading.work);
  for (int i = 0; i < r->answers.count; i++) cancel(&r->answers.items[i]);
  end_if_over(r);
}

void request_gone(request *r) {
  r->serving->metrics.hung_up++;
  request_leave(r);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void request_refuse(request *r, int status, const char *param, const char *code,
                           const char *text) {
  char *body =
      is_message(r) ? messages_error(status, text) : reply_error(status, param, code, text);
  http_exchange *x = r->x;
  r->serving->metrics.answers[status / 100]++;
  if (status == 503) http_add_field(x, "Retry-After", "1");
  request_leave(r);
  http_answer(x, status, "application/json", body, strlen(body));
  free(body);
}

/* Refuses a request that takes more memory than one may have, or than is available. */
static void refuse_memory(request *r, const char *param) {
  char most[32], text[160];
  snprintf(
      text, sizeof text,
      "the request takes more memory than the %s that one request may have (--request-memory): make it shorter",
      sli_format_bytes(most, (double)r->memory.account.most));
  if (r->memory.account.over) request_refuse(r, 413, param, "too_large", text);
  else
    request_refuse(r, 503, param, "busy",
                   "there is no memory for this request beside the others: try again later");
}

/* Refuses a request, with the HTTP status that corresponds to a session's or parser's status. */
static void refuse_status(request *r, sl_status status, const char *param) {
  bool busy = status == SL_E_BUSY || status == SL_E_MEMORY;
  int answer = busy ? 503 : status == SL_E_USAGE || status == SL_E_INPUT ? 400 : 500;
  if (status == SL_E_MEMORY) {
    refuse_memory(r, param);
    return;
  }
  char *text = sli_strdup(sl_detail());
  request_refuse(r, answer, param, busy ? "busy" : NULL, text);
  free(text);
}

/* Returns how many answers are generated for each prompt. */
static int candidates(const request *r) {
  return (int)SLI_MAX(r->params.answers.n, r->params.answers.best_of);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Sends `out`, which is complete if `good`. Returns false if the client reads too slowly or memory
 * ran out; the request is then over. */
static bool send_event(request *r, struct evbuffer *out, bool good) {
  size_t bytes = evbuffer_get_length(out);
  const char *text = good ? (const char *)evbuffer_pullup(out, -1) : NULL;
  bool sent = text && http_send(r->x, text, bytes);
  if (good && !text) good = false;
  evbuffer_drain(out, bytes);
  let_go(r, r->memory.freed);
  r->memory.freed = 0;
  if (sent) return true;
  http_exchange *x = good ? NULL : r->x; /* otherwise the exchange no longer exists */
  r->serving->metrics.cut_off++;
  request_leave(r);
  if (x) http_break_off(x);
  return false;
}

static void finish_stream(request *r) {
  struct evbuffer *out = r->serving->out;
  if (format_of(r)) {
    http_end(r->x);
    request_leave(r);
    return;
  }
  if (r->params.answers.usage && !send_event(r, out, reply_usage(r, out))) return;
  if (!send_event(r, out, !evbuffer_add(out, "data: [DONE]\n\n", 14))) return;
  http_end(r->x);
  request_leave(r);
}

/* Returns the mean log probability of an answer's tokens. */
static double mean_logprob(const choice *c) { return c->logprob / (double)SLI_MAX(c->tokens, 1); }

/* Numbers the n best answers to each prompt, which the client receives. Other answers get -1. */
static void choose_best(request *r) {
  int all = candidates(r), n = (int)r->params.answers.n;
  for (int i = 0; i < r->answers.count; i++) {
    choice *c = &r->answers.items[i], *first = &r->answers.items[i / all * all];
    int better = 0;
    for (const choice *other = first; other < first + all; other++) {
      double more = mean_logprob(other) - mean_logprob(c);
      better += more > 0 || (more >= 0 && other < c);
    }
    c->index = better < n ? i / all * n + better : -1;
  }
}

static bool write_whole(request *r, struct evbuffer *out) {
  if (format_of(r)) return format_of(r)->whole(r, out);
  return params_embeds(r->params.kind) ? embeddings_reply(r, out) : reply_whole(r, out);
}

static void finish_whole(request *r) {
  http_exchange *x = r->x;
  struct evbuffer *out = evbuffer_new();
  if (candidates(r) > r->params.answers.n) choose_best(r);
  bool good = out && write_whole(r, out);
  account_give_all(&r->memory.account);
  request_leave(r);
  if (good) http_answer_buffer(x, 200, "application/json", out);
  else http_break_off(x);
  if (out) evbuffer_free(out);
}

/* Ends the request after all its answers have ended. */
static void finish(request *r) {
  metrics *m = &r->serving->metrics;
  m->answers[2]++;
  m->answer_tokens += (uint64_t)r->used.answer;
  histogram_add(&m->whole, (double)(sli_now_ns() - r->times.start_ns) * 1e-9);
  r->params.answers.stream ? finish_stream(r) : finish_whole(r);
}

/* Fails a request whose answer cannot be completed. */
static void fail(request *r, int status, const char *text) {
  http_exchange *x = r->x;
  struct evbuffer *out = r->serving->out;
  if (!r->params.answers.stream) {
    request_refuse(r, status, NULL, NULL, text);
    return;
  }
  bool good = is_message(r) ? messages_event_error(text, out) : reply_event_error(text, out);
  if (!send_event(r, out, good)) return;
  r->serving->metrics.answers[5]++;
  request_leave(r);
  http_end(x);
}

static void fail_for_memory(request *r) {
  fail(
      r, 503,
      "the answers take more memory than one request may have: ask for fewer or shorter ones, or stream");
}

/* Appends to a text of an unstreamed answer. Returns false if memory ran out. */
static bool keep_text(choice *c, kept_text *to, const char *from, size_t bytes) {
  size_t room = SLI_MAX(to->bytes + bytes, 2 * to->room);
  if (to->bytes + bytes > to->room) {
    char *text = hold(c->request, room - to->room) ? realloc(to->text, room) : NULL;
    if (!text) return false;
    to->text = text;
    to->room = room;
  }
  if (bytes) memcpy(to->text + to->bytes, from, bytes);
  to->bytes += bytes;
  return true;
}

static bool keep_call(choice *c, const answer_piece *piece) {
  if (!hold(c->request, 2 * sizeof *c->calls)) return false;
  SLI_GROW(c->calls, c->ncalls, c->calls_room);
  kept_call *call = &c->calls[c->ncalls++];
  *call = (kept_call){0};
  reply_call_id(c, piece->call, call->id);
  return keep_text(c, &call->name, piece->text, piece->bytes);
}

static bool keep_piece(choice *c, const answer_piece *piece) {
  if (piece->kind == ANSWER_CALL) return keep_call(c, piece);
  kept_text *to = piece->kind == ANSWER_CONTENT     ? &c->content
                  : piece->kind == ANSWER_REASONING ? &c->reasoning
                                                    : &c->calls[c->ncalls - 1].arguments;
  return keep_text(c, to, piece->text, piece->bytes);
}

/* Sends or keeps a piece. Returns false if the request is over. */
static bool deliver(choice *c, const answer_piece *piece) {
  request *r = c->request;
  struct evbuffer *out = r->serving->out;
  if (r->params.answers.stream && !c->response)
    return send_event(r, out, reply_piece(c, piece, NULL, out));
  if (!keep_piece(c, piece)) {
    fail_for_memory(r);
    return false;
  }
  if (r->params.answers.stream) return send_event(r, out, format_of(r)->piece(c, piece, out));
  if (c->response) response_note(c, piece);
  return true;
}

/* Sends the last events of an answer. Returns false if the request is over. */
static bool end_stream(choice *c) {
  struct evbuffer *out = c->request->serving->out;
  return send_event(
      c->request, out,
      c->response ? format_of(c->request)->end(c, out) : reply_piece(c, NULL, c->finish, out));
}

/* Delivers text through the parser. Returns false if the request is over. */
static bool parse(choice *c, const char *text, size_t bytes) {
  answer_piece piece;
  answer_parser_add(c->parser, text, bytes);
  if (c->finish) answer_parser_end(c->parser);
  size_t now = answer_parser_bytes(c->parser);
  if (now > c->parsed && !hold(c->request, now - c->parsed)) {
    fail_for_memory(c->request);
    return false;
  }
  c->parsed = SLI_MAX(now, c->parsed);
  while (answer_parser_next(c->parser, &piece))
    if (!deliver(c, &piece)) return false;
  return true;
}

/* Delivers the text that is ready. Returns false if the request is over. */
static bool give(choice *c) {
  size_t bytes = stream_text_ready(&c->streamed, c->finish);
  const answer_piece all = {ANSWER_CONTENT, 0, c->streamed.text, bytes};
  c->ready = c->streamed.before + bytes;
  if (c->parser ? !parse(c, all.text, bytes) : bytes && !deliver(c, &all)) return false;
  stream_text_take(&c->streamed, bytes);
  return true;
}

static void end_choice(choice *c, const char *why) {
  request *r = c->request;
  c->finish = why;
  if (c->embedding) {
    if (!--r->answers.open) finish(r);
    return;
  }
  if (!give(c)) return;
  if (c->parser && answer_parser_calls(c->parser) && !strcmp(why, "stop")) c->finish = "tool_calls";
  if (r->params.answers.stream && !end_stream(c)) return;
  if (!--r->answers.open) finish(r);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void note_time(request *r) {
  uint64_t now = sli_now_ns();
  histogram *h = r->times.token_ns ? &r->serving->metrics.next : &r->serving->metrics.first;
  histogram_add(h,
                (double)(now - (r->times.token_ns ? r->times.token_ns : r->times.start_ns)) * 1e-9);
  r->times.token_ns = now;
}

/* Memory estimates. TOKEN_BYTES: a token in the engine's array, which doubles as it grows.
 * ANSWER_BYTES: an answer's state, here and in the engine. EDIT_BYTES: a token in the engine's
 * table of logit edits. */
enum { TOKEN_BYTES = 2 * sizeof(int32_t), ANSWER_BYTES = 2048, EDIT_BYTES = 64 };

/* Adds a token's log probabilities. Returns false if memory ran out, which fails the request. */
static bool add_word(choice *c, const sl_session_event *event) {
  size_t bytes;
  logprobs_add(c->words, &c->streamed, event, &bytes);
  if (hold(c->request, bytes)) return true;
  fail_for_memory(c->request);
  return false;
}

/* Returns the prompt of an answer. */
static const encoding *prompt_of(const choice *c) {
  return &c->request->prompts.items[(c - c->request->answers.items) / candidates(c->request)];
}

/* Begins an answer with its prompt. Returns false if the request is over. */
static bool echo(choice *c) {
  const encoding *prompt = prompt_of(c);
  size_t bytes = prompt->work.bytes;
  char *decoded = prompt->text ? NULL
                               : codec_decode(prompt->codec, prompt->out.items, prompt->out.count,
                                              false, &bytes);
  const char *text = decoded ? decoded : prompt->text;
  if (c->words) {
    c->words->base = bytes;
    for (size_t i = 0; i < bytes; i++)
      c->words->characters += ((unsigned char)text[i] & 0xc0) != 0x80;
  }
  bool good = !bytes || deliver(c, &(answer_piece){.text = text, .bytes = bytes});
  free(decoded);
  return good;
}

/* Moves behind a token of a scored prompt. Its text is not kept, only its length. */
static void pass_token(stream_text *t, int32_t token) {
  stream_text_add(t, token);
  stream_text_take(t, stream_text_ready(t, false));
}

/* Adds the first token of a scored prompt. Returns false if memory ran out. */
static bool begin_prompt(choice *c) {
  size_t bytes;
  int32_t token = prompt_of(c)->out.items[0];
  logprobs_add_first(c->words, &c->prompt, token, &bytes);
  pass_token(&c->prompt, token);
  if (hold(c->request, bytes)) return true;
  fail_for_memory(c->request);
  return false;
}

/* Adds a token of a scored prompt. */
static void take_prompt(choice *c, const sl_session_event *event) {
  size_t bytes;
  if (event->place == 1 && !begin_prompt(c)) return;
  logprobs_add(c->words, &c->prompt, event, &bytes);
  pass_token(&c->prompt, event->token);
  if (!hold(c->request, bytes)) fail_for_memory(c->request);
}

/* Echoes the prompt once all of it is scored. Returns false if the request is over. */
static bool end_prompt(choice *c) {
  if (!c->waits) return true;
  c->waits = false;
  if (prompt_of(c)->out.count == 1 && !begin_prompt(c)) return false;
  return echo(c);
}

static bool ends(const choice *c, int32_t token) {
  for (int i = 0; i < c->request->limits.nends; i++)
    if (c->request->limits.ends[i] == token) return true;
  return false;
}

/* Records cached prompt tokens. Of several answers to a prompt only the first one counts. */
static void note_cached(const choice *c, const sl_session_event *event) {
  if (!event->place && c->index % candidates(c->request) == 0)
    c->request->used.cached += event->cached;
}

static void take_token(choice *c, const sl_session_event *event) {
  request *r = c->request;
  note_time(r);
  note_cached(c, event);
  if (!end_prompt(c) || r->params.answers.none) return;
  r->used.answer++;
  c->tokens++;
  c->logprob += (double)event->logprob;
  if (ends(c, event->token) && c->prompt.codec && !add_word(c, event)) return;
  if (ends(c, event->token)) return; /* an END event follows */
  if (!hold(r, TOKEN_BYTES)) {
    fail_for_memory(r);
    return;
  }
  if (c->words && !add_word(c, event)) return;
  stream_text_add(&c->streamed, event->token);
  stream_text_ready(&c->streamed, false);
  if (c->streamed.stopped) {
    cancel(c);
    end_choice(c, "stop");
  } else if (give(c) && c->parser && answer_parser_is_full(c->parser)) {
    cancel(c);
    end_choice(c, "stop");
  }
}

/* Hangs up, as the client did in the recording that is being replayed. */
static void hang_up(request *r) {
  http_exchange *x = r->x;
  r->serving->metrics.hung_up++;
  request_leave(r);
  http_break_off(x);
}

static void note_nonfinite(serving *s) {
  const uint64_t pause = UINT64_C(60000000000);
  uint64_t now = sli_now_ns();
  if (s->nonfinite_ns && now - s->nonfinite_ns < pause) return;
  s->nonfinite_ns = now;
  sli_log(
      "a request failed: the model's logits are not finite (NaN or infinity): its weights are damaged, or overflow with this prompt");
}

/* Fails a request after a failure of the model. Either the whole session failed, with a reason, or
 * this answer cannot continue. */
static void fail_model(const choice *c) {
  request *r = c->request;
  const engine *e = r->serving->engine;
  if (e->status(e->self)) {
    fail(r, 500, "the model has failed");
    return;
  }
  if (c->guide && sli_guide_is_stuck(c->guide)) {
    fail(r, 500, "the answer's grammar takes too much time or memory: simplify it");
    return;
  }
  note_nonfinite(r->serving);
  fail(
      r, 500,
      "the model's logits are not finite (NaN or infinity): its weights are damaged, or overflow with this prompt");
}

static void take_end(choice *c, const sl_session_event *event) {
  request *r = c->request;
  c->under_way = false;
  r->answers.running--;
  bool known = event->end == SL_END_STOP || event->end == SL_END_LENGTH;
  if (!r->x) end_if_over(r);
  else if (!c->finish && known)
    end_choice(c, r->params.answers.none ? "length" : sl_end_name(event->end));
  else if (!c->finish && event->end == SL_END_CANCELLED) hang_up(r);
  else if (!c->finish) fail_model(c);
}

void request_event(const sl_session_event *event) {
  choice *c = event->user;
  if (event->kind == SL_EVENT_END) take_end(c, event);
  else if (!c->request->x || c->finish || c->embedding) return;
  else if (event->kind == SL_EVENT_PROMPT) take_prompt(c, event);
  else take_token(c, event);
}

/* Returns whether the engine still uses any guides. `stop` cancels the answers that have them. */
static bool are_guided(serving *s, bool stop) {
  bool any = false;
  for (request *r = s->first; r; r = r->next)
    for (int i = 0; i < r->answers.count && r->limits.grammar; i++) {
      if (stop) cancel(&r->answers.items[i]);
      any |= r->answers.items[i].under_way;
    }
  return any;
}

void request_end_guided(serving *s) {
  struct pollfd wait = {.fd = s->engine->fd, .events = POLLIN};
  for (bool any = are_guided(s, true); any; any = are_guided(s, false)) {
    sl_session_event event;
    poll(&wait, 1, -1);
    while (s->engine->poll(s->engine->self, &event, 1))
      if (event.kind == SL_EVENT_END) ((choice *)event.user)->under_way = false;
  }
}

/* ---- submission to the engine ---------------------------------------------------------------- */

static uint64_t first_seed(const request_params *params) {
  uint64_t seed = 0;
  if (isfinite(params->sampling.seed)) return (uint64_t)(int64_t)params->sampling.seed;
  if (getrandom(&seed, sizeof seed, 0) < 0) seed = sli_now_ns();
  return seed;
}

static sl_status check_room(const request *r, const encoding *prompt) {
  int64_t context = r->serving->engine->context, most = r->params.end.max_tokens,
          tokens = (int64_t)prompt->out.count;
  if (!tokens) return sl_fail(SL_E_USAGE, "the prompt has no tokens");
  if (params_embeds(r->params.kind)) return SL_OK;
  if (tokens >= context + r->params.answers.none)
    return sl_fail(
        SL_E_USAGE,
        "the prompt has %lld tokens, which leave no room for an answer in the context of %lld",
        (long long)tokens, (long long)context);
  if (tokens + most > context)
    return sl_fail(
        SL_E_USAGE,
        "the prompt's %lld tokens and the %lld of max_tokens are more than the context of %lld",
        (long long)tokens, (long long)most, (long long)context);
  return SL_OK;
}

enum { USUAL_TOKENS = 16 }; /* OpenAI's default for completions */

static bool allow_tokens(void *guide, int n, const int32_t *drafted, uint32_t *allowed) {
  return sli_guide_allow_behind(guide, n, drafted, allowed);
}

static bool take_guided(void *guide, int32_t token) { return sli_guide_take(guide, token); }

/* Returns the constraint that an answer's grammar imposes. */
static sl_constraint constraint_of(const choice *c) {
  return c->guide ? (sl_constraint){allow_tokens, take_guided, c->guide} : (sl_constraint){0};
}

static sl_status submit(choice *c, const encoding *prompt, uint64_t seed) {
  request *r = c->request;
  const request_params *a = &r->params;
  const engine *e = r->serving->engine;
  int64_t room = e->context - (int64_t)prompt->out.count,
          usual = a->chat ? room : SLI_MIN(SLI_MAX(USUAL_TOKENS, a->end.min_tokens), room);
  const sl_request wanted = {.prompt = prompt->out.items,
                             .nprompt = (int64_t)prompt->out.count,
                             .max_tokens = c->embedding || a->answers.none ? 1
                                           : a->end.max_tokens             ? a->end.max_tokens
                                                                           : usual,
                             .adapter = r->adapter.number,
                             .embedding = c->embedding,
                             .last = e->last,
                             .temperature = (float)a->sampling.temperature,
                             .top_p = (float)a->sampling.top_p,
                             .top_k = a->sampling.top_p > 0 ? (int)a->sampling.top_k : 1,
                             .seed = seed,
                             .min_p = (float)a->sampling.min_p,
                             .bias = r->limits.bias,
                             .nbias = r->limits.nbias,
                             .repetition_penalty = (float)a->sampling.repetition_penalty,
                             .presence_penalty = (float)a->sampling.presence_penalty,
                             .frequency_penalty = (float)a->sampling.frequency_penalty,
                             .min_tokens = a->end.min_tokens,
                             .stop = r->limits.ends,
                             .nstop = r->limits.nends,
                             .logprobs = a->answers.wants_logprobs ? (int)a->answers.top_logprobs
                                         : candidates(r) > a->answers.n ? 0
                                                                        : -1,
                             .scored = c->prompt.codec,
                             .salt = r->salt,
                             .constraint = constraint_of(c),
                             .user = c,
                             .client = r->client};
  sl_status status = e->submit(e->self, &wanted, &c->id);
  c->under_way = !status;
  r->answers.running += !status;
  return status;
}

static answer_parser *make_parser(const request *r) {
  const chat_format *v = r->serving->chat_format;
  if (!r->parts.calls && !(r->params.chat && v->thinks)) return NULL;
  return answer_parser_create(&(answer_settings){.format = r->parts.calls ? v->answers : NULL,
                                                 .functions = &r->parts.functions,
                                                 .thinks = v->thinks,
                                                 .within = r->parts.within,
                                                 .most_calls = r->params.tools.one_call});
}

static void init_choice(request *r, int index) {
  choice *c = &r->answers.items[index];
  *c = (choice){.request = r,
                .index = index,
                .parser = make_parser(r),
                .streamed = {.codec = &r->serving->chat_format->codec, .stops = &r->limits.stops}};
  c->streamed.special = c->parser;
  c->waits = r->params.answers.echo && r->params.answers.wants_logprobs;
  if (c->waits) c->prompt.codec = c->streamed.codec;
  if (format_of(r)) c->response = response_create();
  if (params_embeds(r->params.kind))
    c->embedding = sli_calloc((size_t)r->serving->engine->width, sizeof *c->embedding);
  if (r->limits.grammar)
    c->guide = sli_guide_create(r->limits.grammar, r->limits.ends, r->limits.nends);
  if (!r->params.answers.wants_logprobs) return;
  c->words = sli_calloc(1, sizeof *c->words);
  *c->words = (logprobs){.chat = r->params.chat, .top = r->params.answers.top_logprobs};
}

/* Returns whether the engine keeps a table of logit edits for an answer. */
static bool has_edits(const request *r) {
  const request_params *a = &r->params;
  return r->limits.nbias || a->end.min_tokens || a->sampling.presence_penalty != 0 ||
         a->sampling.frequency_penalty != 0 || a->sampling.repetition_penalty != 1;
}

/* Reserves memory for answers. Each has its prompt's tokens, a list of all pages that it may use,
 * and its state. */
static sl_status hold_answers(request *r) {
  size_t context = (size_t)r->serving->engine->context, bytes = 0;
  for (int i = 0; i < r->prompts.count; i++) {
    size_t prompt = r->prompts.items[i].out.count,
           answer = r->params.end.max_tokens ? (size_t)r->params.end.max_tokens : context - prompt;
    if (params_embeds(r->params.kind))
      answer = 1, bytes += (size_t)r->serving->engine->width * (sizeof(float) + sizeof(double));
    if (has_edits(r)) bytes += (prompt + answer) * EDIT_BYTES;
    bytes +=
        prompt * sizeof(int32_t) + (prompt + answer) / SL_PAGE * sizeof(int32_t) + ANSWER_BYTES;
  }
  return hold(r, bytes * (size_t)candidates(r))
             ? SL_OK
             : sl_fail(SL_E_MEMORY, "there is no memory for the answers");
}

static sl_status submit_all(request *r) {
  uint64_t seed = first_seed(&r->params);
  int n = candidates(r);
  sl_status status = SL_OK;
  for (int i = 0; i < r->prompts.count && !status; i++)
    status = check_room(r, &r->prompts.items[i]);
  if (!status) status = hold_answers(r);
  for (int i = 0; i < r->answers.count && !status; i++)
    status = submit(&r->answers.items[i], &r->prompts.items[i / n], seed + (uint64_t)(i % n));
  return status;
}

/* Begins the stream. Returns false if the request is over. */
static bool begin_stream(request *r) {
  struct evbuffer *out = r->serving->out;
  http_begin(r->x, 200, "text/event-stream", ":\n\n");
  for (int i = 0; i < r->answers.count && r->params.chat; i++) {
    choice *c = &r->answers.items[i];
    if (!send_event(r, out, c->response ? format_of(r)->begin(c, out) : reply_role(c, out)))
      return false;
  }
  return true;
}

/* Answers /tokenize and /detokenize. */
static void answer_tokens(request *r) {
  http_exchange *x = r->x;
  struct evbuffer *out = evbuffer_new();
  static bool (*const replies[])(const request *r, struct evbuffer *out) = {
      [PARAMS_TOKENIZE] = reply_tokens,
      [PARAMS_DETOKENIZE] = reply_text,
      [PARAMS_COUNT] = messages_count,
      [PARAMS_LOAD] = reply_done,
      [PARAMS_UNLOAD] = reply_done};
  bool good = out && replies[r->params.kind](r, out);
  r->serving->metrics.answers[2]++;
  request_leave(r);
  if (good) http_answer_buffer(x, 200, "application/json", out);
  else http_break_off(x);
  if (out) evbuffer_free(out);
}

/* Submits the prompts to the engine, once all are tokenized. */
static void answer(request *r) {
  if (r->params.kind >= PARAMS_TOKENIZE) {
    answer_tokens(r);
    return;
  }
  r->answers.open = r->answers.count = r->prompts.count * candidates(r);
  r->answers.shown = r->prompts.count * (int)r->params.answers.n;
  r->answers.items = sli_calloc((size_t)r->answers.count, sizeof *r->answers.items);
  for (int i = 0; i < r->answers.count; i++) init_choice(r, i);
  sl_status status = submit_all(r);
  if (status) {
    refuse_status(r, status, status == SL_E_USAGE ? "prompt" : NULL);
    return;
  }
  for (int i = 0; i < r->prompts.count; i++)
    r->used.prompt += (int64_t)r->prompts.items[i].out.count;
  r->serving->metrics.prompt_tokens += (uint64_t)r->used.prompt;
  if (r->params.answers.stream && !begin_stream(r)) return;
  for (int i = 0; i < r->answers.count && r->params.answers.echo && !params_embeds(r->params.kind);
       i++)
    if (!r->answers.items[i].waits && !echo(&r->answers.items[i])) return;
}

static void refuse_encoding(request *r, const encoding *x) {
  sl_fail(x->status, "%s", x->failure ? x->failure : "");
  refuse_status(r, x->status, r->params.chat ? "messages" : "prompt");
}

void request_encoded(work *w) {
  encoding *x = (encoding *)w;
  request *r = w->user;
  r->prompts.encoding--;
  if (!r->params.answers.echo) free_text(x);
  if (!r->x) end_if_over(r);
  else if (x->status) refuse_encoding(r, x);
  else if (!r->prompts.encoding) answer(r);
}

/* ---- beginning a request --------------------------------------------------------------------- */

static void encode(request *r) {
  for (int i = 0; i < r->prompts.count; i++)
    r->prompts.encoding += r->prompts.items[i].text != NULL;
  for (int i = 0; i < r->prompts.count; i++)
    if (r->prompts.items[i].text) worker_put(r->serving->encoder, &r->prompts.items[i].work);
  if (!r->prompts.encoding) answer(r);
}

static request *create(serving *s, http_exchange *x, params_kind kind) {
  enum { PARTS = 4 }; /* a request may use 1 / PARTS of the memory */
  request *r = sli_calloc(1, sizeof *r);
  *r = (request){.serving = s,
                 .x = x,
                 .client = http_client(x),
                 .times.created = time(NULL),
                 .times.start_ns = sli_now_ns(),
                 .number = ++s->requests,
                 .next = s->first,
                 .link = &s->first};
  if (s->first) s->first->link = &r->next;
  s->first = r;
  r->memory.account = (account){.budget = s->budget, .most = budget_most(s->budget) / PARTS};
  r->memory.allowance = account_allowance(&r->memory.account);
  static const char *const prefixes[] = {
      [PARAMS_TEXTS] = "cmpl",   [PARAMS_CHAT] = "chatcmpl", [PARAMS_RESPONSES] = "resp",
      [PARAMS_MESSAGES] = "msg", [PARAMS_EMBED] = "embd",    [PARAMS_RERANK] = "rerank",
      [PARAMS_SCORE] = "score"};
  bool has = kind < SLI_COUNT(prefixes);
  snprintf(r->id, sizeof r->id, "%s-%llx%08llx", has ? prefixes[kind] : "cmpl",
           (unsigned long long)r->times.created, (unsigned long long)r->number);
  http_set_user(x, r);
  return r;
}

/* Continues once the body is read. */
static void request_continue(request *r, sl_status status) {
  if (!status) encode(r);
  else if (r->reading.unknown_model)
    request_refuse(r, 404, r->reading.param, "model_not_found", sl_detail());
  else refuse_status(r, status, r->reading.param);
}

static void read_body(work *w) {
  request *r = w->user;
  r->reading.status = request_prepare(r, r->reading.body, w->bytes);
  if (r->reading.status) r->reading.failure = sli_strdup(sl_detail());
}

void request_read(request *r) {
  r->reading.busy = false;
  let_go(r, r->reading.work.bytes + 1);
  free(r->reading.body);
  r->reading.body = NULL;
  if (!r->x) {
    end_if_over(r);
    return;
  }
  if (r->reading.status) sl_fail(r->reading.status, "%s", r->reading.failure);
  request_continue(r, r->reading.status);
}

/* Passes a long body, or one with a chat to render, to the reader's thread, so that other requests
 * need not wait. */
static void read_apart(request *r, const http_request *from) {
  r->reading.body = hold(r, from->bytes + 1) ? malloc(from->bytes + 1) : NULL;
  if (!r->reading.body) {
    refuse_memory(r, NULL);
    return;
  }
  memcpy(r->reading.body, from->body, from->bytes + 1);
  r->reading.work = (work){.run = read_body, .user = r, .bytes = from->bytes};
  r->reading.busy = true;
  worker_put(r->serving->reader, &r->reading.work);
}

/* Returns whether a body may ask for a grammar, which takes long to build. With an escape, a
 * field's name may be written in another way. */
static bool may_be_guided(const http_request *from) {
  static const char *const fields[] = {"\"guided_", "\"response_format\"", "\"tool_choice\"",
                                       "\\u"};
  bool found = false;
  for (size_t i = 0; i < SLI_COUNT(fields); i++) found |= strstr(from->body, fields[i]) != NULL;
  return found;
}

void request_begin(serving *s, http_exchange *x, const http_request *from, params_kind kind) {
  enum { LONG = 8192 };
  request *r = create(s, x, kind);
  r->params.kind = kind;
  if (from->bytes > LONG || kind != PARAMS_TEXTS || may_be_guided(from)) read_apart(r, from);
  else request_continue(r, request_prepare(r, from->body, from->bytes));
}
