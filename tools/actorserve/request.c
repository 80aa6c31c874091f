#include "tools/actorserve/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/base.h"
#include "tools/actorserve/reply.h"

/* ---- its end ------------------------------------------------------------------------------------------ */

static void fini_choice(choice *c) {
  told_fini(&c->told);
  cJSON_Delete(c->words);
  free(c->text);
}

void request_destroy(request *r) {
  for (int i = 0; i < r->nchoices; i++) fini_choice(&r->choices[i]);
  for (int i = 0; i < r->nprompts; i++) {
    free(r->prompts[i].out.items);
    free(r->prompts[i].failure);
  }
  asked_fini(&r->asked);
  free(r->choices);
  free(r->prompts);
  free(r->rendered);
  *r->link = r->next;
  if (r->next) r->next->link = r->link;
  free(r);
}

/* When nobody has a part of it any more: client, encoder, engine. */
static void end_if_over(request *r) {
  if (!r->x && !r->encoding && !r->under_way) request_destroy(r);
}

static void cancel(choice *c) {
  const engine *e = c->of->serving->engine;
  if (c->under_way) e->cancel(e->self, c->id);
}

/* Nobody will read what is still to come. */
static void leave(request *r) {
  r->x = NULL;
  for (int i = 0; i < r->nchoices; i++) cancel(&r->choices[i]);
  end_if_over(r);
}

void request_gone(request *r) {
  r->serving->metrics.hung_up++;
  leave(r);
}

/* ---- refusals ---------------------------------------------------------------------------------------------- */

static void refuse(request *r, int status, const char *param, const char *code, const char *text) {
  char *body = reply_error(status, param, code, text);
  http_exchange *x = r->x;
  r->serving->metrics.answers[status / 100]++;
  if (status == 503) http_add_field(x, "Retry-After", "1");
  leave(r);
  http_answer(x, status, "application/json", body, strlen(body));
  free(body);
}

/* Statuses of a session and of what reads requests, as HTTP's. */
static void refuse_status(request *r, sl_status status, const char *param) {
  char *text = sli_strdup(sl_detail());
  int answer = status == SL_E_BUSY ? 503 : status == SL_E_USAGE || status == SL_E_INPUT ? 400 : 500;
  refuse(r, answer, param, status == SL_E_BUSY ? "busy" : NULL, text);
  free(text);
}

/* ---- answers ------------------------------------------------------------------------------------------------ */

/* False: the client reads too slowly, and the request is over. Takes the text over. */
static bool send_event(request *r, char *text) {
  bool sent = http_send(r->x, text, strlen(text));
  free(text);
  if (sent) return true;
  r->serving->metrics.cut_off++;
  leave(r);
  return false;
}

static void finish_stream(request *r) {
  if (r->asked.usage && !send_event(r, reply_usage(r))) return;
  if (!send_event(r, sli_strdup("data: [DONE]\n\n"))) return;
  http_end(r->x);
  leave(r);
}

static void finish_whole(request *r) {
  char *text = reply_whole(r);
  http_answer(r->x, 200, "application/json", text, strlen(text));
  free(text);
  leave(r);
}

/* All answers have ended. */
static void finish(request *r) {
  metrics *m = &r->serving->metrics;
  m->answers[2]++;
  m->answer_tokens += (uint64_t)r->answer_tokens;
  histogram_add(&m->whole, (double)(sli_now_ns() - r->start_ns) * 1e-9);
  r->asked.stream ? finish_stream(r) : finish_whole(r);
}

static void keep_text(choice *c, size_t bytes) {
  if (c->bytes + bytes > c->room) {
    c->room = SLI_MAX(c->bytes + bytes, 2 * c->room);
    c->text = sli_realloc(c->text, c->room, 1);
  }
  memcpy(c->text + c->bytes, c->told.text, bytes);
  c->bytes += bytes;
}

/* Gives the client what is ready of the text; false: there is no client any more. */
static bool give(choice *c) {
  size_t bytes = told_ready(&c->told, c->finish);
  bool sent = true;
  if (!bytes) return true;
  if (c->of->asked.stream) sent = send_event(c->of, reply_piece(c, c->told.text, bytes, NULL));
  else keep_text(c, bytes);
  if (sent) told_take(&c->told, bytes);
  return sent;
}

static void end_choice(choice *c, const char *why) {
  request *r = c->of;
  c->finish = why;
  if (!give(c)) return;
  if (r->asked.stream && !send_event(r, reply_piece(c, NULL, 0, why))) return;
  if (!--r->open) finish(r);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void note_time(request *r) {
  uint64_t now = sli_now_ns();
  histogram *h = r->token_ns ? &r->serving->metrics.next : &r->serving->metrics.first;
  histogram_add(h, (double)(now - (r->token_ns ? r->token_ns : r->start_ns)) * 1e-9);
  r->token_ns = now;
}

/* The bytes of a text; null: half characters are in it. */
static cJSON *bytes_json(const char *text, size_t bytes) {
  if (memmem(text, bytes, "\ufffd", 3)) return cJSON_CreateNull();
  cJSON *array = cJSON_CreateArray();
  for (size_t i = 0; i < bytes; i++) cJSON_AddItemToArray(array, cJSON_CreateNumber((unsigned char)text[i]));
  return array;
}

static cJSON *word_json(const choice *c, int32_t token, float logprob) {
  size_t bytes;
  cJSON *word = cJSON_CreateObject();
  char *text = told_text_of(&c->told, token, &bytes);
  cJSON_AddStringToObject(word, "token", text);
  cJSON_AddNumberToObject(word, "logprob", (double)logprob);
  cJSON_AddItemToObject(word, "bytes", bytes_json(text, bytes));
  free(text);
  return word;
}

static void add_word(choice *c, const sl_session_event *event) {
  cJSON *word = word_json(c, event->token, event->logprob);
  cJSON *top = cJSON_AddArrayToObject(word, "top_logprobs");
  for (int i = 0; i < event->ntop; i++)
    cJSON_AddItemToArray(top, word_json(c, event->top[i].token, event->top[i].logprob));
  cJSON_AddNumberToObject(word, "place", (double)told_place(&c->told));
  cJSON_AddItemToArray(c->words, word);
}

static bool ends(const choice *c, int32_t token) {
  const voice *v = c->of->serving->voice;
  for (int i = 0; i < v->nends; i++)
    if (v->ends[i] == token) return true;
  return false;
}

/* Of several answers to a prompt the first one's counts. */
static void note_cached(const choice *c, const sl_session_event *event) {
  if (!event->place && c->index % (int)c->of->asked.n == 0) c->of->cached_tokens += event->cached;
}

static void take_token(choice *c, const sl_session_event *event) {
  request *r = c->of;
  note_time(r);
  note_cached(c, event);
  r->answer_tokens++;
  if (ends(c, event->token)) return; /* END comes next */
  if (c->words) add_word(c, event);
  told_token(&c->told, event->token);
  told_ready(&c->told, false);
  if (c->told.stopped) {
    cancel(c);
    end_choice(c, "stop");
  } else
    give(c);
}

/* What it has so far cannot be gone on with. */
static void fail(request *r, const char *text) {
  http_exchange *x = r->x;
  if (!r->asked.stream) {
    refuse(r, 500, NULL, NULL, text);
    return;
  }
  if (!send_event(r, reply_event_error(text))) return;
  r->serving->metrics.answers[5]++;
  leave(r);
  http_end(x);
}

/* As the client did of a run that is replayed. */
static void hang_up(request *r) {
  http_exchange *x = r->x;
  r->serving->metrics.hung_up++;
  leave(r);
  http_break_off(x);
}

static void take_end(choice *c, const sl_session_event *event) {
  request *r = c->of;
  c->under_way = false;
  r->under_way--;
  bool known = event->end == SL_END_STOP || event->end == SL_END_LENGTH;
  if (!r->x) end_if_over(r);
  else if (!c->finish && known) end_choice(c, sl_end_name(event->end));
  else if (!c->finish) event->end == SL_END_CANCELLED ? hang_up(r) : fail(r, "the model has failed");
}

void request_event(const sl_session_event *event) {
  choice *c = event->user;
  if (event->kind == SL_EVENT_END) take_end(c, event);
  else if (c->of->x && !c->finish) take_token(c, event);
}

/* ---- to the engine ---------------------------------------------------------------------------------------------- */

static uint64_t first_seed(const asked *a) {
  uint64_t seed = 0;
  if (isfinite(a->seed)) return (uint64_t)(int64_t)a->seed;
  if (getrandom(&seed, sizeof seed, 0) < 0) seed = sli_now_ns();
  return seed;
}

static sl_status check_room(const request *r, const encoding *prompt) {
  int64_t context = r->serving->engine->context, most = r->asked.max_tokens, tokens = (int64_t)prompt->out.count;
  if (!tokens) return sl_fail(SL_E_USAGE, "the prompt has no tokens");
  if (tokens >= context)
    return sl_fail(SL_E_USAGE, "the prompt has %lld tokens, which leave no room for an answer in the context of %lld",
                   (long long)tokens, (long long)context);
  if (tokens + most > context)
    return sl_fail(SL_E_USAGE, "the prompt's %lld tokens and the %lld of max_tokens are more than the context of %lld",
                   (long long)tokens, (long long)most, (long long)context);
  return SL_OK;
}

enum { USUAL_TOKENS = 16 }; /* of a completion, as OpenAI has it */

static sl_status submit(choice *c, const encoding *prompt, uint64_t seed) {
  request *r = c->of;
  const asked *a = &r->asked;
  const engine *e = r->serving->engine;
  int64_t room = e->context - (int64_t)prompt->out.count, usual = a->chat ? room : SLI_MIN(USUAL_TOKENS, room);
  const sl_request wanted = {.prompt = prompt->out.items, .nprompt = (int64_t)prompt->out.count, .max_tokens = a->max_tokens ? a->max_tokens : usual,
                             .temperature = (float)a->temperature, .top_p = (float)a->top_p,
                             .top_k = a->top_p > 0 ? (int)a->top_k : 1, .seed = seed,
                             .stop = r->serving->voice->ends, .nstop = r->serving->voice->nends,
                             .logprobs = a->wants_logprobs ? (int)a->top_logprobs : -1, .user = c};
  sl_status status = e->submit(e->self, &wanted, &c->id);
  c->under_way = !status;
  r->under_way += !status;
  return status;
}

static void init_choice(request *r, int index) {
  choice *c = &r->choices[index];
  *c = (choice){.of = r, .index = index,
                .told = {.codec = &r->serving->voice->codec, .stop = r->asked.stop, .nstop = r->asked.nstop}};
  if (r->asked.wants_logprobs) c->words = cJSON_CreateArray();
}

static sl_status submit_all(request *r) {
  uint64_t seed = first_seed(&r->asked);
  int n = (int)r->asked.n;
  sl_status status = SL_OK;
  for (int i = 0; i < r->nprompts && !status; i++) status = check_room(r, &r->prompts[i]);
  for (int i = 0; i < r->nchoices && !status; i++)
    status = submit(&r->choices[i], &r->prompts[i / n], seed + (uint64_t)(i % n));
  return status;
}

static void begin_stream(request *r) {
  http_begin(r->x, 200, "text/event-stream");
  for (int i = 0; i < r->nchoices && r->asked.chat; i++)
    if (!send_event(r, reply_role(&r->choices[i]))) return;
}

/* All prompts are tokens. */
static void answer(request *r) {
  r->open = r->nchoices = r->nprompts * (int)r->asked.n;
  r->choices = sli_calloc((size_t)r->nchoices, sizeof *r->choices);
  for (int i = 0; i < r->nchoices; i++) init_choice(r, i);
  sl_status status = submit_all(r);
  if (status) {
    refuse_status(r, status, status == SL_E_USAGE ? "prompt" : NULL);
    return;
  }
  for (int i = 0; i < r->nprompts; i++) r->prompt_tokens += (int64_t)r->prompts[i].out.count;
  r->serving->metrics.prompt_tokens += (uint64_t)r->prompt_tokens;
  if (r->asked.stream) begin_stream(r);
}

static void refuse_encoding(request *r, const encoding *x) {
  sl_fail(x->status, "%s", x->failure);
  refuse_status(r, x->status, r->asked.chat ? "messages" : "prompt");
}

void request_encoded(encoding *x) {
  request *r = x->user;
  r->encoding--;
  if (!r->x) end_if_over(r);
  else if (x->status) refuse_encoding(r, x);
  else if (!r->encoding) answer(r);
}

/* ---- its beginning -------------------------------------------------------------------------------------------------- */

static sl_status check_model(const request *r, const char **param) {
  const char *name = r->serving->voice->name;
  *param = "model";
  if (!r->asked.model || !strcmp(r->asked.model, name)) return SL_OK;
  return sl_fail(SL_E_USAGE, "the model %.80s does not exist: it is %s", r->asked.model, name);
}

static sl_status take_tokens(const request *r, const asked_prompt *from, encoding *to) {
  int64_t vocabulary = r->serving->engine->vocabulary;
  for (size_t i = 0; i < from->count; i++) {
    if (from->tokens[i] >= vocabulary)
      return sl_fail(SL_E_USAGE, "token %d of the prompt is outside the vocabulary of %lld", from->tokens[i],
                     (long long)vocabulary);
    SLI_GROW(to->out.items, to->out.count, to->out.capacity);
    to->out.items[to->out.count++] = from->tokens[i];
  }
  return SL_OK;
}

static sl_status render(request *r) {
  const voice *v = r->serving->voice;
  if (!v->chat) return sl_fail(SL_E_USAGE, "%s", v->no_chat);
  sl_status status = sli_chat_render(v->chat, &v->marks, r->asked.messages, r->asked.nmessages, &r->rendered);
  if (!status) r->prompts[0].text = r->rendered;
  return status;
}

static sl_status list_prompts(request *r, const char **param) {
  bool chat = r->asked.chat;
  sl_status status = SL_OK;
  *param = chat ? "messages" : "prompt";
  r->nprompts = chat ? 1 : r->asked.nprompts;
  r->prompts = sli_calloc((size_t)r->nprompts, sizeof *r->prompts);
  for (int i = 0; i < r->nprompts && !status; i++) {
    r->prompts[i] = (encoding){.user = r, .whole = !chat};
    if (chat) status = render(r);
    else if (r->asked.prompts[i].text) r->prompts[i].text = r->asked.prompts[i].text;
    else status = take_tokens(r, &r->asked.prompts[i], &r->prompts[i]);
  }
  return status;
}

static void encode(request *r) {
  for (int i = 0; i < r->nprompts; i++) r->encoding += r->prompts[i].text != NULL;
  for (int i = 0; i < r->nprompts; i++)
    if (r->prompts[i].text) encoder_put(r->serving->encoder, &r->prompts[i]);
  if (!r->encoding) answer(r);
}

static request *create(serving *s, http_exchange *x, bool chat) {
  request *r = sli_calloc(1, sizeof *r);
  *r = (request){.serving = s, .x = x, .created = time(NULL), .start_ns = sli_now_ns(), .next = s->first,
                 .link = &s->first};
  if (s->first) s->first->link = &r->next;
  s->first = r;
  snprintf(r->id, sizeof r->id, "%s-%llx%08llx", chat ? "chatcmpl" : "cmpl", (unsigned long long)r->created,
           (unsigned long long)++s->requests);
  http_set_user(x, r);
  return r;
}

void request_begin(serving *s, http_exchange *x, const http_request *from, bool chat) {
  request *r = create(s, x, chat);
  const char *param;
  sl_status status = asked_read(from->body, from->bytes, chat, &r->asked, &param);
  if (status) {
    refuse_status(r, status, param);
    return;
  }
  status = check_model(r, &param);
  if (status) refuse(r, 404, param, "model_not_found", sl_detail());
  else if ((status = list_prompts(r, &param))) refuse_status(r, status, param);
  else encode(r);
}
