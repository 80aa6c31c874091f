/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of /v1/responses: an object with items, or a stream of events about them. */
#include "tools/actorserve/responses.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/items.h"
#include "tools/actorserve/reply.h"

static const char *const prefixes[] = {
    [ANSWER_CONTENT] = "msg", [ANSWER_REASONING] = "rs", [ANSWER_CALL] = "fc"};

static bool put_id(const choice *c, size_t i, struct evbuffer *out) {
  return evbuffer_add_printf(out, "\"%s_%s_%zu\"", prefixes[c->response->items[i].kind],
                             c->request->id + strlen("resp-"), i) > 0;
}

/* Appends the text of an item. */
static bool put_item_text(const choice *c, const response_item *x, struct evbuffer *out) {
  size_t bytes;
  const char *text = response_item_text(c, x, &bytes);
  return reply_put_text(out, text, bytes);
}

/* Appends the part of a message or of reasoning that holds its text; if `open`, the text is
 * empty. */
static bool put_part(const choice *c, const response_item *x, bool open, struct evbuffer *out) {
  bool message = x->kind == ANSWER_CONTENT;
  return reply_put(
             out, message ? "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":"
                          : "{\"type\":\"reasoning_text\",\"text\":") &&
         (open ? reply_put(out, "\"\"") : put_item_text(c, x, out)) && reply_put(out, "}");
}

static bool put_call(const choice *c, const response_item *x, bool open, struct evbuffer *out) {
  const kept_call *call = &c->calls[x->begin];
  return evbuffer_add_printf(
             out, ",\"type\":\"function_call\",\"call_id\":\"%s\",\"name\":", call->id) > 0 &&
         reply_put_text(out, call->name.text, call->name.bytes) &&
         reply_put(out, ",\"arguments\":") &&
         (open ? reply_put(out, "\"\"") : put_item_text(c, x, out));
}

static bool put_texts(const choice *c, const response_item *x, bool open, struct evbuffer *out) {
  bool message = x->kind == ANSWER_CONTENT;
  return reply_put(out, message ? ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                                : ",\"type\":\"reasoning\",\"summary\":[],\"content\":[") &&
         (open || put_part(c, x, false, out)) && reply_put(out, "]");
}

/* Appends item i. If `open`, it has only begun. */
static bool put_item(const choice *c, size_t i, bool open, struct evbuffer *out) {
  const response_item *x = &c->response->items[i];
  return reply_put(out, "{\"id\":") && put_id(c, i, out) &&
         evbuffer_add_printf(out, ",\"status\":\"%s\"", open ? "in_progress" : "completed") > 0 &&
         (x->kind == ANSWER_CALL ? put_call(c, x, open, out) : put_texts(c, x, open, out)) &&
         reply_put(out, "}");
}

/* ---- responses ------------------------------------------------------------------------------- */

static bool put_usage(const request *r, struct evbuffer *out) {
  return evbuffer_add_printf(
             out,
             ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},"
             "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":0},"
             "\"total_tokens\":%lld}",
             (long long)r->used.prompt, (long long)r->used.cached, (long long)r->used.answer,
             (long long)(r->used.prompt + r->used.answer)) > 0;
}

static bool put_settings(const request *r, struct evbuffer *out) {
  const request_params *a = &r->params;
  return evbuffer_add_printf(
             out,
             ",\"error\":null,\"instructions\":null,\"metadata\":{},\"parallel_tool_calls\":%s,"
             "\"temperature\":%.9g,\"top_p\":%.9g,\"tool_choice\":\"%s\",\"tools\":[],"
             "\"previous_response_id\":null,\"store\":false,\"truncation\":\"disabled\","
             "\"text\":{\"format\":{\"type\":\"text\"}}",
             a->tools.one_call ? "false" : "true", a->sampling.temperature, a->sampling.top_p,
             a->tools.none        ? "none"
             : a->tools.must_call ? "required"
                                  : "auto") > 0;
}

/* Appends the response in its current state. If `open`, it has only begun. */
static bool put_response(const choice *c, bool open, struct evbuffer *out) {
  const request *r = c->request;
  bool cut = !open && !strcmp(c->finish, "length");
  bool good = evbuffer_add_printf(
                  out,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
                  "\"incomplete_details\":%s,\"model\":",
                  r->id, (long long)r->times.created,
                  open  ? "in_progress"
                  : cut ? "incomplete"
                        : "completed",
                  cut ? "{\"reason\":\"max_output_tokens\"}" : "null") > 0 &&
              reply_put_string(out, reply_model_name(r)) && put_settings(r, out) &&
              reply_put(out, ",\"output\":[");
  for (size_t i = 0; i < c->response->count && !open && good; i++)
    good = (!i || reply_put(out, ",")) && put_item(c, i, false, out);
  return good && reply_put(out, "]") &&
         (open ? reply_put(out, ",\"usage\":null") : put_usage(r, out)) && reply_put(out, "}");
}

bool responses_whole(request *r, struct evbuffer *out) {
  return put_response(&r->answers.items[0], false, out);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool begin_event(choice *c, const char *type, struct evbuffer *out) {
  return evbuffer_add_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", type,
                             type, c->response->events++) > 0;
}

static bool end_event(struct evbuffer *out) { return reply_put(out, "}\n\n"); }

static bool put_event(choice *c, const char *type, bool open, struct evbuffer *out) {
  return begin_event(c, type, out) && reply_put(out, ",\"response\":") &&
         put_response(c, open, out) && end_event(out);
}

/* Begins an event about item i. */
static bool begin_about(choice *c, const char *type, size_t i, struct evbuffer *out) {
  return begin_event(c, type, out) && reply_put(out, ",\"item_id\":") && put_id(c, i, out) &&
         evbuffer_add_printf(out, ",\"output_index\":%zu", i) > 0 &&
         (c->response->items[i].kind == ANSWER_CALL || reply_put(out, ",\"content_index\":0"));
}

static bool put_item_event(choice *c, const char *type, size_t i, bool open, struct evbuffer *out) {
  return begin_event(c, type, out) && evbuffer_add_printf(out, ",\"output_index\":%zu", i) > 0 &&
         reply_put(out, ",\"item\":") && put_item(c, i, open, out) && end_event(out);
}

static bool put_part_event(choice *c, const char *type, size_t i, bool open, struct evbuffer *out) {
  const response_item *x = &c->response->items[i];
  return x->kind == ANSWER_CALL || (begin_about(c, type, i, out) && reply_put(out, ",\"part\":") &&
                                    put_part(c, x, open, out) && end_event(out));
}

/* Names of the events of an item's text. */
static const char *const deltas[] = {[ANSWER_CONTENT] = "response.output_text.delta",
                                     [ANSWER_REASONING] = "response.reasoning_text.delta",
                                     [ANSWER_CALL] = "response.function_call_arguments.delta"},
                         *const dones[] = {[ANSWER_CONTENT] = "response.output_text.done",
                                           [ANSWER_REASONING] = "response.reasoning_text.done",
                                           [ANSWER_CALL] = "response.function_call_arguments.done"};

/* Ends item i. */
static bool end_item(choice *c, size_t i, struct evbuffer *out) {
  const response_item *x = &c->response->items[i];
  bool call = x->kind == ANSWER_CALL;
  return begin_about(c, dones[x->kind], i, out) &&
         reply_put(out, call ? ",\"arguments\":" : ",\"logprobs\":[],\"text\":") &&
         put_item_text(c, x, out) && end_event(out) &&
         put_part_event(c, "response.content_part.done", i, false, out) &&
         put_item_event(c, "response.output_item.done", i, false, out);
}

bool responses_begin(choice *c, struct evbuffer *out) {
  return put_event(c, "response.created", true, out) &&
         put_event(c, "response.in_progress", true, out);
}

bool responses_piece(choice *c, const answer_piece *piece, struct evbuffer *out) {
  response *x = c->response;
  if (response_note(c, piece)) {
    size_t i = x->count - 1;
    if (i && !end_item(c, i - 1, out)) return false;
    if (!put_item_event(c, "response.output_item.added", i, true, out) ||
        !put_part_event(c, "response.content_part.added", i, true, out))
      return false;
  }
  if (piece->kind == ANSWER_CALL) return true;
  size_t i = x->count - 1;
  bool message = piece->kind == ANSWER_CONTENT;
  return begin_about(c, deltas[x->items[i].kind], i, out) &&
         reply_put(out, message ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":") &&
         reply_put_text(out, piece->text, piece->bytes) && end_event(out);
}

bool responses_end(choice *c, struct evbuffer *out) {
  size_t n = c->response->count;
  const char *type =
      strcmp(c->finish, "length") != 0 ? "response.completed" : "response.incomplete";
  return (!n || end_item(c, n - 1, out)) && put_event(c, type, false, out);
}
