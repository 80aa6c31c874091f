/* SPDX-License-Identifier: Apache-2.0 */
/* Translates bodies of /v1/responses to bodies of /v1/chat/completions, whose parser checks
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/responses.h"
#include "tools/actorserve/translate.h"

/* ---- input ----------------------------------------------------------------------------------- */

/* Copies a content: a text, or an array of text parts. */
static void add_content(translation *t, cJSON *to, const cJSON *content) {
  const cJSON *each;
  if (!cJSON_IsArray(content)) {
    translate_copy(to, "content", content);
    return;
  }
  cJSON *parts = cJSON_AddArrayToObject(to, "content");
  cJSON_ArrayForEach(each, content) {
    const char *type = translate_text(each, "type");
    bool text =
        !strcmp(type, "input_text") || !strcmp(type, "output_text") || !strcmp(type, "text");
    if (!text) translate_refuse(t, "has a content whose type is not input_text or output_text");
    cJSON *part = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "type", "text");
    translate_copy(part, "text", translate_member(each, "text"));
    cJSON_AddItemToArray(parts, part);
  }
}

/* Adds a call to the assistant message that came last, or to a new one. */
static void add_call(translation *t, const cJSON *item) {
  cJSON *last = t->messages->child ? t->messages->child->prev : NULL; /* that of the first: last */
  if (strcmp(translate_text(last, "role"), "assistant") != 0) {
    last = translate_message(t, "assistant");
    cJSON_AddNullToObject(last, "content");
  }
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(last, "tool_calls");
  if (!calls) calls = cJSON_AddArrayToObject(last, "tool_calls");
  cJSON *call = cJSON_CreateObject(), *function;
  translate_copy(call, "id", translate_member(item, "call_id"));
  cJSON_AddStringToObject(call, "type", "function");
  function = cJSON_AddObjectToObject(call, "function");
  translate_copy(function, "name", translate_member(item, "name"));
  translate_copy(function, "arguments", translate_member(item, "arguments"));
  cJSON_AddItemToArray(calls, call);
}

static void add_output(translation *t, const cJSON *item) {
  cJSON *message = translate_message(t, "tool");
  translate_copy(message, "tool_call_id", translate_member(item, "call_id"));
  add_content(t, message, translate_member(item, "output"));
}

static void add_item(translation *t, const cJSON *item) {
  const char *type = translate_text(item, "type");
  if (!strcmp(type, "function_call")) add_call(t, item);
  else if (!strcmp(type, "function_call_output")) add_output(t, item);
  else if (!*type || !strcmp(type, "message"))
    add_content(t, translate_message(t, translate_text(item, "role")),
                translate_member(item, "content"));
  else if (strcmp(type, "reasoning") != 0)
    translate_refuse(t, "has an item that is no message, function_call or function_call_output");
}

static void read_input(translation *t, const cJSON *item) {
  const cJSON *each;
  if (cJSON_IsArray(item)) cJSON_ArrayForEach(each, item) add_item(t, each);
  else if (cJSON_IsString(item)) add_content(t, translate_message(t, "user"), item);
  else translate_refuse(t, "must be a text, or an array of items");
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void read_instructions(translation *t, const cJSON *item) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", "system");
  translate_copy(message, "content", item);
  cJSON_InsertItemInArray(t->messages, 0, message);
}

static void read_tools(translation *t, const cJSON *item) {
  const cJSON *each, *part;
  cJSON *tools = cJSON_AddArrayToObject(t->chat, "tools");
  if (!cJSON_IsArray(item)) translate_refuse(t, "must be an array");
  cJSON_ArrayForEach(each, item) {
    if (!cJSON_IsObject(each)) {
      translate_refuse(t, "has a tool that is not an object");
      return;
    }
    cJSON *tool = cJSON_CreateObject(), *function;
    if (strcmp(translate_text(each, "type"), "function") != 0)
      translate_refuse(t, "has a tool whose type is not function");
    cJSON_AddStringToObject(tool, "type", "function");
    function = cJSON_AddObjectToObject(tool, "function");
    cJSON_ArrayForEach(part, each) if (strcmp(part->string, "type") != 0)
        translate_copy(function, part->string, part);
    cJSON_AddItemToArray(tools, tool);
  }
}

static void read_choice(translation *t, const cJSON *item) {
  if (!cJSON_IsObject(item)) {
    translate_copy(t->chat, "tool_choice", item);
    return;
  }
  cJSON *choice = cJSON_AddObjectToObject(t->chat, "tool_choice"), *function;
  translate_copy(choice, "type", translate_member(item, "type"));
  function = cJSON_AddObjectToObject(choice, "function");
  translate_copy(function, "name", translate_member(item, "name"));
}

static void read_text(translation *t, const cJSON *item) {
  const cJSON *format = translate_member(item, "format"), *part;
  if (!cJSON_IsObject(format)) return;
  cJSON *out = cJSON_AddObjectToObject(t->chat, "response_format"), *schema = NULL;
  translate_copy(out, "type", translate_member(format, "type"));
  if (strcmp(translate_text(format, "type"), "json_schema") != 0) return;
  schema = cJSON_AddObjectToObject(out, "json_schema");
  cJSON_ArrayForEach(part, format) if (strcmp(part->string, "type") != 0)
      translate_copy(schema, part->string, part);
}

static void read_reasoning(translation *t, const cJSON *item) {
  const cJSON *effort = translate_member(item, "effort");
  if (cJSON_IsString(effort)) translate_copy(t->chat, "reasoning_effort", effort);
}

static void refuse_stored(translation *t, const cJSON *item) {
  (void)item;
  translate_refuse(t, "is not supported: responses are not stored, send all of the input");
}

static void refuse_background(translation *t, const cJSON *item) {
  if (!cJSON_IsFalse(item)) translate_refuse(t, "is not supported: it may be false");
}

static const translated_field fields[] = {{"input", read_input},
                                          {"instructions", read_instructions},
                                          {"tools", read_tools},
                                          {"tool_choice", read_choice},
                                          {"text", read_text},
                                          {"reasoning", read_reasoning},
                                          {"max_output_tokens", translate_most},
                                          {"previous_response_id", refuse_stored},
                                          {"conversation", refuse_stored},
                                          {"prompt", refuse_stored},
                                          {"background", refuse_background},
                                          {"include", translate_ignore},
                                          {"truncation", translate_ignore},
                                          {"max_tool_calls", translate_ignore},
                                          {"top_logprobs", translate_ignore}};

sl_status responses_translate(const char *body, size_t bytes, const sli_allowance *allowance,
                              char **out, const char **param) {
  return translate_body(body, bytes, fields, SLI_COUNT(fields), NULL, allowance, out, param);
}
