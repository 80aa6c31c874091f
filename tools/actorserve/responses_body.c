/* SPDX-License-Identifier: Apache-2.0 */
/* Translates bodies of /v1/responses to bodies of /v1/chat/completions, whose parser checks
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/json.h"
#include "tools/actorserve/responses.h"

typedef struct translation {
  cJSON *chat, *messages;
  sl_status status;
  const char *field; /* the field being read */
} translation;

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_of(const cJSON *object, const char *name) {
  const cJSON *item = member(object, name);
  return cJSON_IsString(item) ? item->valuestring : "";
}

static void refuse(translation *t, const char *why) {
  if (!t->status) t->status = sl_fail(SL_E_USAGE, "%s %s", t->field, why);
}

static void add_copy(cJSON *to, const char *name, const cJSON *item) {
  if (item) cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

/* ---- input ----------------------------------------------------------------------------------- */

/* Copies a content: a text, or an array of text parts. */
static void add_content(translation *t, cJSON *to, const cJSON *content) {
  const cJSON *each;
  if (!cJSON_IsArray(content)) {
    add_copy(to, "content", content);
    return;
  }
  cJSON *parts = cJSON_AddArrayToObject(to, "content");
  cJSON_ArrayForEach(each, content) {
    const char *type = text_of(each, "type");
    bool text =
        !strcmp(type, "input_text") || !strcmp(type, "output_text") || !strcmp(type, "text");
    if (!text) refuse(t, "has a content whose type is not input_text or output_text");
    cJSON *part = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "type", "text");
    add_copy(part, "text", member(each, "text"));
    cJSON_AddItemToArray(parts, part);
  }
}

static cJSON *add_message(translation *t, const char *role) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", role);
  cJSON_AddItemToArray(t->messages, message);
  return message;
}

/* Adds a call to the assistant message that came last, or to a new one. */
static void add_call(translation *t, const cJSON *item) {
  cJSON *last = t->messages->child ? t->messages->child->prev : NULL; /* that of the first: last */
  if (strcmp(text_of(last, "role"), "assistant") != 0) {
    last = add_message(t, "assistant");
    cJSON_AddNullToObject(last, "content");
  }
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(last, "tool_calls");
  if (!calls) calls = cJSON_AddArrayToObject(last, "tool_calls");
  cJSON *call = cJSON_CreateObject(), *function;
  add_copy(call, "id", member(item, "call_id"));
  cJSON_AddStringToObject(call, "type", "function");
  function = cJSON_AddObjectToObject(call, "function");
  add_copy(function, "name", member(item, "name"));
  add_copy(function, "arguments", member(item, "arguments"));
  cJSON_AddItemToArray(calls, call);
}

static void add_output(translation *t, const cJSON *item) {
  cJSON *message = add_message(t, "tool");
  add_copy(message, "tool_call_id", member(item, "call_id"));
  add_content(t, message, member(item, "output"));
}

static void add_item(translation *t, const cJSON *item) {
  const char *type = text_of(item, "type");
  if (!strcmp(type, "function_call")) add_call(t, item);
  else if (!strcmp(type, "function_call_output")) add_output(t, item);
  else if (!*type || !strcmp(type, "message"))
    add_content(t, add_message(t, text_of(item, "role")), member(item, "content"));
  else if (strcmp(type, "reasoning") != 0)
    refuse(t, "has an item that is no message, function_call or function_call_output");
}

static void read_input(translation *t, const cJSON *item) {
  const cJSON *each;
  if (cJSON_IsArray(item)) cJSON_ArrayForEach(each, item) add_item(t, each);
  else if (cJSON_IsString(item)) add_content(t, add_message(t, "user"), item);
  else refuse(t, "must be a text, or an array of items");
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void read_instructions(translation *t, const cJSON *item) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", "system");
  add_copy(message, "content", item);
  cJSON_InsertItemInArray(t->messages, 0, message);
}

static void read_tools(translation *t, const cJSON *item) {
  const cJSON *each, *part;
  cJSON *tools = cJSON_AddArrayToObject(t->chat, "tools");
  if (!cJSON_IsArray(item)) refuse(t, "must be an array");
  cJSON_ArrayForEach(each, item) {
    if (!cJSON_IsObject(each)) {
      refuse(t, "has a tool that is not an object");
      return;
    }
    cJSON *tool = cJSON_CreateObject(), *function;
    if (strcmp(text_of(each, "type"), "function") != 0)
      refuse(t, "has a tool whose type is not function");
    cJSON_AddStringToObject(tool, "type", "function");
    function = cJSON_AddObjectToObject(tool, "function");
    cJSON_ArrayForEach(part, each) if (strcmp(part->string, "type") != 0)
        add_copy(function, part->string, part);
    cJSON_AddItemToArray(tools, tool);
  }
}

static void read_choice(translation *t, const cJSON *item) {
  if (!cJSON_IsObject(item)) {
    add_copy(t->chat, "tool_choice", item);
    return;
  }
  cJSON *choice = cJSON_AddObjectToObject(t->chat, "tool_choice"), *function;
  add_copy(choice, "type", member(item, "type"));
  function = cJSON_AddObjectToObject(choice, "function");
  add_copy(function, "name", member(item, "name"));
}

static void read_text(translation *t, const cJSON *item) {
  const cJSON *format = member(item, "format"), *part;
  if (!cJSON_IsObject(format)) return;
  cJSON *out = cJSON_AddObjectToObject(t->chat, "response_format"), *schema = NULL;
  add_copy(out, "type", member(format, "type"));
  if (strcmp(text_of(format, "type"), "json_schema") != 0) return;
  schema = cJSON_AddObjectToObject(out, "json_schema");
  cJSON_ArrayForEach(part, format) if (strcmp(part->string, "type") != 0)
      add_copy(schema, part->string, part);
}

static void read_reasoning(translation *t, const cJSON *item) {
  const cJSON *effort = member(item, "effort");
  if (cJSON_IsString(effort)) add_copy(t->chat, "reasoning_effort", effort);
}

static void read_most(translation *t, const cJSON *item) {
  add_copy(t->chat, "max_completion_tokens", item);
}

static void refuse_stored(translation *t, const cJSON *item) {
  (void)item;
  refuse(t, "is not supported: responses are not stored, send all of the input");
}

static void refuse_background(translation *t, const cJSON *item) {
  if (!cJSON_IsFalse(item)) refuse(t, "is not supported: it may be false");
}

static void ignore(translation *t, const cJSON *item) { (void)t, (void)item; }

static const struct {
  const char *name;
  void (*read)(translation *t, const cJSON *item);
} fields[] = {{"input", read_input},
              {"instructions", read_instructions},
              {"tools", read_tools},
              {"tool_choice", read_choice},
              {"text", read_text},
              {"reasoning", read_reasoning},
              {"max_output_tokens", read_most},
              {"previous_response_id", refuse_stored},
              {"conversation", refuse_stored},
              {"prompt", refuse_stored},
              {"background", refuse_background},
              {"include", ignore},
              {"truncation", ignore},
              {"max_tool_calls", ignore},
              {"top_logprobs", ignore}};

/* Translates a field, or copies it for the parser of chat bodies. */
static void read_field(translation *t, const cJSON *item) {
  if (cJSON_IsNull(item)) return;
  for (size_t i = 0; i < SLI_COUNT(fields); i++)
    if (!strcmp(item->string, fields[i].name)) {
      if (!t->status) t->field = fields[i].name;
      fields[i].read(t, item);
      return;
    }
  add_copy(t->chat, item->string, item);
}

sl_status responses_translate(const char *body, size_t bytes, const sli_allowance *allowance,
                              char **out, const char **param) {
  sli_bounded memory = {.allowance = allowance};
  cJSON *root;
  const cJSON *item;
  sl_status status = json_read(body, bytes, &memory, &root);
  if (!status && !cJSON_IsObject(root)) status = sl_fail(SL_E_INPUT, "the body is not an object");
  translation t = {.chat = cJSON_CreateObject(), .messages = cJSON_CreateArray()};
  if (!status) cJSON_ArrayForEach(item, root) read_field(&t, item);
  if (!status) status = t.status;
  cJSON_AddItemToObject(t.chat, "messages", t.messages);
  if (!status) *out = cJSON_PrintUnformatted(t.chat);
  *param = t.field;
  cJSON_Delete(t.chat);
  sli_bounded_fini(&memory);
  return status;
}
