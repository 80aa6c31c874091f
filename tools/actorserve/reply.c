/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json_text.h"
#include "tools/actorserve/json.h"

static char *print(cJSON *root) {
  char *text = sli_json_mend(cJSON_PrintUnformatted(root));
  SLI_CHECK(text, "no memory for an answer");
  cJSON_Delete(root);
  return text;
}

bool reply_put(struct evbuffer *out, const char *text) {
  return !evbuffer_add(out, text, strlen(text));
}

/* Appends a JSON value. Takes ownership of it. */
static bool put_json(struct evbuffer *out, cJSON *root) {
  char *text = sli_json_mend(cJSON_PrintUnformatted(root));
  bool good = text && reply_put(out, text);
  cJSON_free(text);
  cJSON_Delete(root);
  return good;
}

typedef struct reply_target {
  struct evbuffer *out;
  bool good;
} reply_target;

static void put_bytes(void *to, const char *text, size_t bytes) {
  reply_target *t = to;
  t->good = t->good && !evbuffer_add(t->out, text, bytes);
}

/* Appends a string that may contain zero bytes, at which cJSON's strings end. */
bool reply_put_text(struct evbuffer *out, const char *text, size_t bytes) {
  reply_target to = {out, true};
  sli_json_string(text, bytes, false, put_bytes, &to);
  return to.good;
}

bool reply_put_string(struct evbuffer *out, const char *text) {
  return reply_put_text(out, text, strlen(text));
}

/* Appends an object without its closing bracket. */
static bool put_open(struct evbuffer *out, cJSON *root) {
  char *text = sli_json_mend(cJSON_PrintUnformatted(root));
  bool good = text && !evbuffer_add(out, text, strlen(text) - 1);
  cJSON_free(text);
  cJSON_Delete(root);
  return good;
}

static void add_text_or_null(cJSON *to, const char *name, const char *text) {
  cJSON_AddItemToObject(to, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

/* ---- errors, models -------------------------------------------------------------------------- */

static cJSON *error_json(int status, const char *param, const char *code, const char *text) {
  cJSON *root = cJSON_CreateObject(), *error = cJSON_AddObjectToObject(root, "error");
  char plain[1024];
  cJSON_AddStringToObject(error, "message", sli_escape(plain, sizeof plain, text));
  cJSON_AddStringToObject(error, "type", status < 500 ? "invalid_request_error" : "server_error");
  add_text_or_null(error, "param", param);
  add_text_or_null(error, "code", code);
  return root;
}

char *reply_error(int status, const char *param, const char *code, const char *text) {
  return print(error_json(status, param, code, text));
}

bool reply_event_error(const char *text, struct evbuffer *out) {
  return reply_put(out, "data: ") && put_json(out, error_json(500, NULL, NULL, text)) &&
         reply_put(out, "\n\n");
}

static cJSON *model_json(const serving *s, const char *model) {
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "id", model);
  cJSON_AddStringToObject(root, "object", "model");
  cJSON_AddNumberToObject(root, "created", 0);
  cJSON_AddStringToObject(root, "owned_by", "sluice");
  cJSON_AddNumberToObject(root, "max_model_len", (double)s->engine->context);
  if (!chat_format_is(s->chat_format, model))
    cJSON_AddStringToObject(root, "parent", s->chat_format->name);
  return root;
}

char *reply_models(const serving *s, const char *model) {
  const chat_format *v = s->chat_format;
  char name[ADAPTER_NAME];
  if (model) return print(model_json(s, model));
  cJSON *root = cJSON_CreateObject(), *all;
  cJSON_AddStringToObject(root, "object", "list");
  all = cJSON_AddArrayToObject(root, "data");
  cJSON_AddItemToArray(all, model_json(s, v->name));
  for (int i = 0; i < v->naliases; i++) cJSON_AddItemToArray(all, model_json(s, v->aliases[i]));
  for (int i = 0; adapters_name(s->adapters, i, name); i++)
    cJSON_AddItemToArray(all, model_json(s, name));
  return print(root);
}

/* ---- answers --------------------------------------------------------------------------------- */

const char *reply_model_name(const request *r) {
  return *r->adapter.name ? r->adapter.name : r->serving->chat_format->name;
}

static cJSON *head_json(const request *r, bool piece) {
  cJSON *root = cJSON_CreateObject();
  const char *object = !r->params.chat ? "text_completion"
                       : piece         ? "chat.completion.chunk"
                                       : "chat.completion";
  cJSON_AddStringToObject(root, "id", r->id);
  cJSON_AddStringToObject(root, "object", object);
  cJSON_AddNumberToObject(root, "created", (double)r->times.created);
  cJSON_AddStringToObject(root, "model", reply_model_name(r));
  return root;
}

static bool put_usage(struct evbuffer *out, const request *r) {
  cJSON *usage = cJSON_CreateObject();
  cJSON_AddNumberToObject(usage, "prompt_tokens", (double)r->used.prompt);
  cJSON_AddNumberToObject(usage, "completion_tokens", (double)r->used.answer);
  cJSON_AddNumberToObject(usage, "total_tokens", (double)(r->used.prompt + r->used.answer));
  cJSON *details = cJSON_AddObjectToObject(usage, "prompt_tokens_details");
  cJSON_AddNumberToObject(details, "cached_tokens", (double)r->used.cached);
  return reply_put(out, ",\"usage\":") && put_json(out, usage);
}

/* Appends tokens that begin before `end` in the text. The last piece also includes tokens without
 * text, but not those after a stop. */
static bool put_words(struct evbuffer *out, choice *c, size_t end, bool last) {
  size_t bytes = 0;
  if (!reply_put(out, ",\"logprobs\":")) return false;
  if (c->words) end += c->words->base;
  if (last && !c->streamed.stopped) end = SIZE_MAX;
  bool good = c->words ? logprobs_print(c->words, end, out, &bytes) : reply_put(out, "null");
  c->request->memory.freed += bytes;
  return good;
}

static bool put_finish(struct evbuffer *out, const char *finish) {
  return finish ? evbuffer_add_printf(out, ",\"finish_reason\":\"%s\"}", finish) > 0
                : reply_put(out, ",\"finish_reason\":null}");
}

/* ---- calls of tools -------------------------------------------------------------------------- */

void reply_call_id(const choice *c, int call, char *out) {
  static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const request *r = c->request;
  int count = r->serving->chat_format->answers->id_letters;
  char *at = count == ANSWER_ID_SHORT ? out : stpcpy(out, "call_");
  uint64_t hash = sli_hash_word(r->serving->secret, r->number);
  hash = sli_hash_word(hash, (uint64_t)c->index << 32 | (unsigned)call);
  for (; count; count--) {
    hash = sli_hash_word(hash, (uint64_t)count);
    *at++ = letters[hash % (sizeof letters - 1)];
  }
  *at = 0;
}

static bool put_call_head(struct evbuffer *out, int index, const char *id) {
  return (index < 0 || evbuffer_add_printf(out, "\"index\":%d,", index) > 0) &&
         evbuffer_add_printf(out,
                             "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", id) > 0;
}

static bool put_call(struct evbuffer *out, const kept_call *call) {
  return reply_put(out, "{") && put_call_head(out, -1, call->id) &&
         reply_put_text(out, call->name.text, call->name.bytes) &&
         reply_put(out, ",\"arguments\":") &&
         reply_put_text(out, call->arguments.text, call->arguments.bytes) && reply_put(out, "}}");
}

static bool put_calls(struct evbuffer *out, const choice *c) {
  if (!c->ncalls) return true;
  bool good = reply_put(out, ",\"tool_calls\":[");
  for (size_t i = 0; i < c->ncalls && good; i++)
    good = (!i || reply_put(out, ",")) && put_call(out, &c->calls[i]);
  return good && reply_put(out, "]");
}

/* Appends what a piece adds to the message. */
static bool put_delta(struct evbuffer *out, const choice *c, const answer_piece *piece) {
  char id[CALL_ID];
  if (!piece) return reply_put(out, "{}");
  bool text = piece->kind == ANSWER_CONTENT || piece->kind == ANSWER_REASONING;
  if (text)
    return reply_put(out,
                     piece->kind == ANSWER_CONTENT ? "{\"content\":" : "{\"reasoning_content\":") &&
           reply_put_text(out, piece->text, piece->bytes) && reply_put(out, "}");
  if (!reply_put(out, "{\"tool_calls\":[{")) return false;
  if (piece->kind == ANSWER_ARGUMENTS)
    return evbuffer_add_printf(out, "\"index\":%d,\"function\":{\"arguments\":", piece->call) > 0 &&
           reply_put_text(out, piece->text, piece->bytes) && reply_put(out, "}}]}");
  reply_call_id(c, piece->call, id);
  return put_call_head(out, piece->call, id) && reply_put_text(out, piece->text, piece->bytes) &&
         reply_put(out, ",\"arguments\":\"\"}}]}");
}

/* ---- whole answers --------------------------------------------------------------------------- */

static bool put_message(struct evbuffer *out, const choice *c) {
  bool null = c->ncalls && !c->content.bytes;
  return reply_put(out, "{\"role\":\"assistant\",\"content\":") &&
         (null ? reply_put(out, "null") : reply_put_text(out, c->content.text, c->content.bytes)) &&
         (!c->reasoning.bytes || (reply_put(out, ",\"reasoning_content\":") &&
                                  reply_put_text(out, c->reasoning.text, c->reasoning.bytes))) &&
         put_calls(out, c) && reply_put(out, "}");
}

static bool whole_choice(choice *c, struct evbuffer *out) {
  bool chat = c->request->params.chat;
  return evbuffer_add_printf(out, "{\"index\":%d,\"%s\":", c->index, chat ? "message" : "text") >
             0 &&
         (chat ? put_message(out, c) : reply_put_text(out, c->content.text, c->content.bytes)) &&
         put_words(out, c, c->ready, true) && put_finish(out, c->finish);
}

/* Returns the answer that the client receives with number `index`. */
static choice *choice_of(request *r, int index) {
  choice *c = r->answers.items;
  while (c->index != index) c++;
  return c;
}

bool reply_whole(request *r, struct evbuffer *out) {
  bool good = put_open(out, head_json(r, false)) && reply_put(out, ",\"choices\":[");
  for (int i = 0; i < r->answers.shown && good; i++)
    good = (!i || reply_put(out, ",")) && whole_choice(choice_of(r, i), out);
  return good && reply_put(out, "]") && put_usage(out, r) && reply_put(out, "}");
}

/* Begins an event of one choice. */
static bool begin_piece(const choice *c, struct evbuffer *out) {
  return reply_put(out, "data: ") && put_open(out, head_json(c->request, true)) &&
         evbuffer_add_printf(out, ",\"choices\":[{\"index\":%d,", c->index) > 0;
}

static bool end_piece(struct evbuffer *out) { return reply_put(out, "]}\n\n"); }

bool reply_piece(choice *c, const answer_piece *piece, const char *finish, struct evbuffer *out) {
  bool good = begin_piece(c, out);
  if (c->request->params.chat)
    good = good && reply_put(out, "\"delta\":") && put_delta(out, c, piece);
  else
    good = good && reply_put(out, "\"text\":") &&
           reply_put_text(out, piece ? piece->text : NULL, piece ? piece->bytes : 0);
  return good && put_words(out, c, c->ready, finish) && put_finish(out, finish) && end_piece(out);
}

bool reply_role(const choice *c, struct evbuffer *out) {
  return begin_piece(c, out) &&
         reply_put(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null") &&
         put_finish(out, NULL) && end_piece(out);
}

bool reply_usage(const request *r, struct evbuffer *out) {
  return reply_put(out, "data: ") && put_open(out, head_json(r, true)) &&
         reply_put(out, ",\"choices\":[]") && put_usage(out, r) && reply_put(out, "}\n\n");
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool put_token_text(struct evbuffer *out, const codec *c, int32_t token) {
  size_t bytes, good;
  char *raw = codec_decode_raw(c, &token, 1, &bytes), *text = codec_good(raw, bytes, &good);
  bool done = reply_put_text(out, text, good);
  free(text);
  free(raw);
  return done;
}

static bool put_token_texts(struct evbuffer *out, const encoding *x) {
  bool done = reply_put(out, "[");
  for (size_t i = 0; i < x->out.count && done; i++)
    done = (!i || reply_put(out, ",")) && put_token_text(out, x->codec, x->out.items[i]);
  return done && reply_put(out, "]");
}

bool reply_tokens(const request *r, struct evbuffer *out) {
  const encoding *x = r->prompts.items;
  bool good = evbuffer_add_printf(out, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[",
                                  x->out.count, (long long)r->serving->engine->context) > 0;
  for (size_t i = 0; i < x->out.count && good; i++)
    good = evbuffer_add_printf(out, i ? ",%d" : "%d", x->out.items[i]) > 0;
  if (good && r->params.tokenize.wants_texts)
    good = reply_put(out, "],\"token_strs\":") && put_token_texts(out, x) && reply_put(out, "}");
  else good = good && reply_put(out, "],\"token_strs\":null}");
  return good;
}

bool reply_text(const request *r, struct evbuffer *out) {
  const encoding *x = r->prompts.items;
  size_t bytes;
  char *text = codec_decode(x->codec, x->out.items, x->out.count, true, &bytes);
  bool good =
      reply_put(out, "{\"prompt\":") && reply_put_text(out, text, bytes) && reply_put(out, "}");
  free(text);
  return good;
}

bool reply_done(const request *r, struct evbuffer *out) {
  return reply_put(out, r->params.kind == PARAMS_LOAD ? "{\"status\":\"loaded\"}\n"
                                                      : "{\"status\":\"unloaded\"}\n");
}
