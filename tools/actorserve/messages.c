/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of /v1/messages: a message with blocks, or a stream of events about them. */
#include "tools/actorserve/messages.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json_text.h"
#include "base/json.h"
#include "tools/actorserve/items.h"
#include "tools/actorserve/reply.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
  int status;
  const char *type;
} error_types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                   {403, "permission_error"},      {404, "not_found_error"},
                   {405, "invalid_request_error"}, {413, "request_too_large"},
                   {429, "rate_limit_error"},      {503, "overloaded_error"}};

static const char *error_type(int status) {
  for (size_t i = 0; i < SLI_COUNT(error_types); i++)
    if (error_types[i].status == status) return error_types[i].type;
  return status < 500 ? "invalid_request_error" : "api_error";
}

char *messages_error(int status, const char *text) {
  char plain[1024];
  cJSON *root = cJSON_CreateObject(), *error;
  cJSON_AddStringToObject(root, "type", "error");
  error = cJSON_AddObjectToObject(root, "error");
  cJSON_AddStringToObject(error, "type", error_type(status));
  cJSON_AddStringToObject(error, "message", sli_escape(plain, sizeof plain, text));
  char *out = sli_json_mend(cJSON_PrintUnformatted(root));
  SLI_CHECK(out, "no memory for an answer");
  cJSON_Delete(root);
  return out;
}

bool messages_event_error(const char *text, struct evbuffer *out) {
  char *body = messages_error(500, text);
  bool good =
      reply_put(out, "event: error\ndata: ") && reply_put(out, body) && reply_put(out, "\n\n");
  free(body);
  return good;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Appends the arguments of a call as an object. Arguments that were cut off, and are none, are kept
 * as a text. */
static bool put_input(const char *text, size_t bytes, struct evbuffer *out) {
  size_t space = 0;
  while (space < bytes && strchr(" \n\r\t", text[space])) space++;
  bool object =
      space < bytes && text[space] == '{' && !sli_json_scan("input", text, bytes, SIZE_MAX);
  if (object) return !evbuffer_add(out, text, bytes);
  if (!bytes) return reply_put(out, "{}");
  return reply_put(out, "{\"incomplete_json\":") && reply_put_text(out, text, bytes) &&
         reply_put(out, "}");
}

/* Appends a block. If `open`, it has only begun, and is empty. */
static bool put_block(const choice *c, const response_item *x, bool open, struct evbuffer *out) {
  size_t bytes;
  const char *text = response_item_text(c, x, &bytes);
  if (open) bytes = 0;
  if (x->kind == ANSWER_CONTENT)
    return reply_put(out, "{\"type\":\"text\",\"text\":") && reply_put_text(out, text, bytes) &&
           reply_put(out, "}");
  if (x->kind == ANSWER_REASONING)
    return reply_put(out, "{\"type\":\"thinking\",\"thinking\":") &&
           reply_put_text(out, text, bytes) && reply_put(out, ",\"signature\":\"\"}");
  const kept_call *call = &c->calls[x->begin];
  return evbuffer_add_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", call->id) > 0 &&
         reply_put_text(out, call->name.text, call->name.bytes) && reply_put(out, ",\"input\":") &&
         put_input(text, bytes, out) && reply_put(out, "}");
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool put_usage(const request *r, bool open, struct evbuffer *out) {
  return evbuffer_add_printf(out,
                             "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
                             "\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
                             (long long)(r->used.prompt - r->used.cached),
                             (long long)r->used.cached, (long long)(open ? 0 : r->used.answer)) > 0;
}

static bool put_stop(const choice *c, bool open, struct evbuffer *out) {
  const char *stop = open ? NULL : c->streamed.stop;
  const char *reason = stop                               ? "\"stop_sequence\""
                       : open                             ? "null"
                       : !strcmp(c->finish, "length")     ? "\"max_tokens\""
                       : !strcmp(c->finish, "tool_calls") ? "\"tool_use\""
                                                          : "\"end_turn\"";
  return evbuffer_add_printf(out, "\"stop_reason\":%s,\"stop_sequence\":", reason) > 0 &&
         (stop ? reply_put_string(out, stop) : reply_put(out, "null"));
}

/* Appends the message in its current state. If `open`, it has only begun. */
static bool put_message(const choice *c, bool open, struct evbuffer *out) {
  const request *r = c->request;
  bool good =
      evbuffer_add_printf(
          out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", r->id) >
          0 &&
      reply_put_string(out, reply_model_name(r)) && reply_put(out, ",\"content\":[");
  for (size_t i = 0; i < c->response->count && !open && good; i++)
    good = (!i || reply_put(out, ",")) && put_block(c, &c->response->items[i], false, out);
  return good && reply_put(out, "],") && put_stop(c, open, out) && reply_put(out, ",") &&
         put_usage(r, open, out) && reply_put(out, "}");
}

bool messages_whole(request *r, struct evbuffer *out) {
  return put_message(&r->answers.items[0], false, out);
}

bool messages_count(const request *r, struct evbuffer *out) {
  return evbuffer_add_printf(out, "{\"input_tokens\":%zu}", r->prompts.items[0].out.count) > 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool begin_event(const char *type, struct evbuffer *out) {
  return evbuffer_add_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type) > 0;
}

static bool end_event(struct evbuffer *out) { return reply_put(out, "}\n\n"); }

/* Begins an event about block i. */
static bool begin_about(const char *type, size_t i, struct evbuffer *out) {
  return begin_event(type, out) && evbuffer_add_printf(out, ",\"index\":%zu", i) > 0;
}

static bool end_block(size_t i, struct evbuffer *out) {
  return begin_about("content_block_stop", i, out) && end_event(out);
}

bool messages_begin(choice *c, struct evbuffer *out) {
  return begin_event("message_start", out) && reply_put(out, ",\"message\":") &&
         put_message(c, true, out) && end_event(out);
}

/* Begins the last block, and ends the one before it. */
static bool begin_block(choice *c, struct evbuffer *out) {
  size_t i = c->response->count - 1;
  return (!i || end_block(i - 1, out)) && begin_about("content_block_start", i, out) &&
         reply_put(out, ",\"content_block\":") && put_block(c, &c->response->items[i], true, out) &&
         end_event(out);
}

bool messages_piece(choice *c, const answer_piece *piece, struct evbuffer *out) {
  static const char *const deltas[] = {
      [ANSWER_CONTENT] = "{\"type\":\"text_delta\",\"text\":",
      [ANSWER_REASONING] = "{\"type\":\"thinking_delta\",\"thinking\":",
      [ANSWER_ARGUMENTS] = "{\"type\":\"input_json_delta\",\"partial_json\":"};
  if (response_note(c, piece) && !begin_block(c, out)) return false;
  if (piece->kind == ANSWER_CALL) return true;
  return begin_about("content_block_delta", c->response->count - 1, out) &&
         reply_put(out, ",\"delta\":") && reply_put(out, deltas[piece->kind]) &&
         reply_put_text(out, piece->text, piece->bytes) && reply_put(out, "}") && end_event(out);
}

bool messages_end(choice *c, struct evbuffer *out) {
  size_t n = c->response->count;
  return (!n || end_block(n - 1, out)) && begin_event("message_delta", out) &&
         reply_put(out, ",\"delta\":{") && put_stop(c, false, out) && reply_put(out, "},") &&
         put_usage(c->request, false, out) && end_event(out) && begin_event("message_stop", out) &&
         end_event(out);
}
