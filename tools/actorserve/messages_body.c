/* SPDX-License-Identifier: Apache-2.0 */
/* Translates bodies of /v1/messages to bodies of /v1/chat/completions, whose parser checks them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/messages.h"
#include "tools/actorserve/translate.h"

static bool is(const char *text, const char *word) { return !strcmp(text, word); }

/* Refuses members of an object that are neither in the list nor null. */
static void check_members(translation *t, const cJSON *object, const char *const *known) {
  const cJSON *each;
  cJSON_ArrayForEach(each, object) {
    const char *const *name = known;
    while (*name && !is(*name, each->string)) name++;
    if (!*name && !cJSON_IsNull(each) && !t->status)
      t->status = sl_fail(SL_E_USAGE, "%s: %.40s is not supported", t->field, each->string);
  }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void add_text(translation *t, cJSON *parts, const cJSON *block) {
  static const char *const known[] = {"type", "text", "cache_control", "citations", NULL};
  cJSON *part = cJSON_CreateObject();
  check_members(t, block, known);
  if (!cJSON_IsString(translate_member(block, "text")))
    translate_refuse(t, "has a text block without a text");
  cJSON_AddStringToObject(part, "type", "text");
  cJSON_AddStringToObject(part, "text", translate_text(block, "text"));
  cJSON_AddItemToArray(parts, part);
}

/* Sets a content of text blocks only: a text, or an array. */
static void set_texts(translation *t, cJSON *message, const cJSON *content) {
  const cJSON *each;
  if (!content || cJSON_IsString(content)) {
    cJSON_AddStringToObject(message, "content", content ? content->valuestring : "");
    return;
  }
  cJSON *parts = cJSON_AddArrayToObject(message, "content");
  if (!cJSON_IsArray(content))
    translate_refuse(t, "must have a content that is a text, or an array of blocks");
  cJSON_ArrayForEach(each, content) {
    if (!is(translate_text(each, "type"), "text"))
      translate_refuse(t, "has a block that is not supported here: only texts can be read");
    else add_text(t, parts, each);
  }
}

/* Adds a call to the assistant's message. */
static void add_call(translation *t, cJSON *message, const cJSON *block) {
  static const char *const known[] = {"type",          "id",     "name", "input",
                                      "cache_control", "caller", NULL};
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  const cJSON *input = translate_member(block, "input");
  cJSON *call = cJSON_CreateObject(), *function;
  check_members(t, block, known);
  if (!cJSON_IsObject(input)) translate_refuse(t, "has a tool_use whose input is not an object");
  if (!calls) calls = cJSON_AddArrayToObject(message, "tool_calls");
  translate_copy(call, "id", translate_member(block, "id"));
  cJSON_AddStringToObject(call, "type", "function");
  function = cJSON_AddObjectToObject(call, "function");
  translate_copy(function, "name", translate_member(block, "name"));
  char *text = cJSON_PrintUnformatted(input);
  cJSON_AddStringToObject(function, "arguments", text ? text : "{}");
  cJSON_free(text);
  cJSON_AddItemToArray(calls, call);
}

static void add_result(translation *t, const cJSON *block) {
  static const char *const known[] = {"type",     "tool_use_id",   "content",
                                      "is_error", "cache_control", NULL};
  cJSON *message = translate_message(t, "tool");
  check_members(t, block, known);
  if (!*translate_text(block, "tool_use_id"))
    translate_refuse(t, "has a tool_result without a tool_use_id");
  translate_copy(message, "tool_call_id", translate_member(block, "tool_use_id"));
  set_texts(t, message, translate_member(block, "content"));
}

/* Adds the blocks of a user. Results become messages of their own, with the texts after them in a
 * new message. */
static void add_user(translation *t, const cJSON *content) {
  const cJSON *each;
  cJSON *parts = NULL;
  cJSON_ArrayForEach(each, content) {
    const char *type = translate_text(each, "type");
    if (is(type, "tool_result")) {
      add_result(t, each);
      parts = NULL;
    } else if (is(type, "text")) {
      if (!parts) parts = cJSON_AddArrayToObject(translate_message(t, "user"), "content");
      add_text(t, parts, each);
    } else translate_refuse(t, "has a block of a user that is neither text nor tool_result");
  }
}

static void add_thought(cJSON *message, const cJSON *block) {
  const char *before = translate_text(message, "reasoning_content");
  char *all = sli_format("%s%s", before, translate_text(block, "thinking"));
  cJSON_DeleteItemFromObjectCaseSensitive(message, "reasoning_content");
  cJSON_AddStringToObject(message, "reasoning_content", all);
  free(all);
}

static void add_assistant(translation *t, const cJSON *content) {
  const cJSON *each;
  cJSON *message = translate_message(t, "assistant"), *parts = cJSON_CreateArray();
  cJSON_ArrayForEach(each, content) {
    const char *type = translate_text(each, "type");
    if (is(type, "text")) add_text(t, parts, each);
    else if (is(type, "tool_use")) add_call(t, message, each);
    else if (is(type, "thinking")) add_thought(message, each);
    else if (!is(type, "redacted_thinking"))
      translate_refuse(t,
                       "has a block of the assistant that is neither text, tool_use nor thinking");
  }
  bool calls = translate_member(message, "tool_calls");
  if (parts->child || !calls) cJSON_AddItemToObject(message, "content", parts);
  else cJSON_AddNullToObject(message, "content");
  if (!parts->child && calls) cJSON_Delete(parts);
}

static void read_messages(translation *t, const cJSON *item) {
  static const char *const known[] = {"role", "content", NULL};
  const cJSON *each, *last = NULL;
  if (!cJSON_IsArray(item)) translate_refuse(t, "must be an array of messages");
  cJSON_ArrayForEach(each, item) {
    const cJSON *content = translate_member(each, "content");
    const char *role = translate_text(each, "role");
    bool assistant = is(role, "assistant");
    last = each;
    check_members(t, each, known);
    if (!assistant && !is(role, "user"))
      translate_refuse(t, "has a role that is neither user nor assistant");
    else if (!cJSON_IsArray(content)) {
      if (!cJSON_IsString(content))
        translate_refuse(t, "has a content that is no text and no array");
      set_texts(t, translate_message(t, role), content);
    } else (assistant ? add_assistant : add_user)(t, content);
  }
  if (last && is(translate_text(last, "role"), "assistant"))
    translate_refuse(
        t, "must end with a message of the user: an answer that has begun is not continued");
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void read_system(translation *t, const cJSON *item) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", "system");
  set_texts(t, message, item);
  cJSON_InsertItemInArray(t->messages, 0, message);
}

static void read_tools(translation *t, const cJSON *item) {
  static const char *const known[] = {
      "type",          "name",           "description",           "strict", "input_schema",
      "cache_control", "input_examples", "eager_input_streaming", NULL};
  const cJSON *each;
  cJSON *tools = cJSON_AddArrayToObject(t->chat, "tools");
  cJSON_ArrayForEach(each, item) {
    cJSON *tool = cJSON_CreateObject(), *function;
    const char *type = translate_text(each, "type");
    if (*type && !is(type, "custom")) translate_refuse(t, "has a tool whose type is not custom");
    check_members(t, each, known);
    if (!cJSON_IsObject(translate_member(each, "input_schema")))
      translate_refuse(t, "has a tool whose input_schema is not an object");
    cJSON_AddStringToObject(tool, "type", "function");
    function = cJSON_AddObjectToObject(tool, "function");
    translate_copy(function, "name", translate_member(each, "name"));
    translate_copy(function, "description", translate_member(each, "description"));
    translate_copy(function, "parameters", translate_member(each, "input_schema"));
    cJSON_AddItemToArray(tools, tool);
  }
}

static void read_choice(translation *t, const cJSON *item) {
  static const char *const known[] = {"type", "name", "disable_parallel_tool_use", NULL};
  static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
  const char *type = translate_text(item, "type");
  bool found = false;
  check_members(t, item, known);
  for (size_t i = 0; i < SLI_COUNT(words) && !found; i++)
    if ((found = is(type, words[i][0])))
      cJSON_AddStringToObject(t->chat, "tool_choice", words[i][1]);
  if (is(type, "tool")) {
    cJSON *choice = cJSON_AddObjectToObject(t->chat, "tool_choice");
    cJSON_AddStringToObject(choice, "type", "function");
    translate_copy(cJSON_AddObjectToObject(choice, "function"), "name",
                   translate_member(item, "name"));
  } else if (!found) translate_refuse(t, "must have the type auto, any, tool or none");
  if (cJSON_IsTrue(translate_member(item, "disable_parallel_tool_use")))
    cJSON_AddFalseToObject(t->chat, "parallel_tool_calls");
}

static void read_thinking(translation *t, const cJSON *item) {
  const char *type = translate_text(item, "type");
  bool off = is(type, "disabled");
  if (!off && !is(type, "enabled") && !is(type, "adaptive"))
    translate_refuse(t, "must have the type enabled, disabled or adaptive");
  cJSON *variables = cJSON_AddObjectToObject(t->chat, "chat_template_kwargs");
  cJSON_AddBoolToObject(variables, "enable_thinking", !off);
}

static void read_output(translation *t, const cJSON *item) {
  static const char *const known[] = {"effort", "format", NULL};
  const cJSON *format = translate_member(item, "format");
  check_members(t, item, known);
  if (cJSON_IsString(translate_member(item, "effort")))
    translate_copy(t->chat, "reasoning_effort", translate_member(item, "effort"));
  if (!cJSON_IsObject(format)) return;
  if (!is(translate_text(format, "type"), "json_schema"))
    translate_refuse(t, "has a format that is no json_schema");
  cJSON *out = cJSON_AddObjectToObject(t->chat, "response_format");
  cJSON_AddStringToObject(out, "type", "json_schema");
  translate_copy(cJSON_AddObjectToObject(out, "json_schema"), "schema",
                 translate_member(format, "schema"));
}

static void read_stops(translation *t, const cJSON *item) {
  if (!cJSON_IsArray(item)) translate_refuse(t, "must be an array of texts");
  translate_copy(t->chat, "stop", item);
}

static void refuse_field(translation *t, const cJSON *item) {
  bool empty = (cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child;
  if (!empty) translate_refuse(t, "is not supported");
}

static const translated_field fields[] = {{"messages", read_messages},
                                          {"system", read_system},
                                          {"max_tokens", translate_most},
                                          {"stop_sequences", read_stops},
                                          {"tools", read_tools},
                                          {"tool_choice", read_choice},
                                          {"thinking", read_thinking},
                                          {"output_config", read_output},
                                          {"metadata", translate_ignore},
                                          {"service_tier", translate_ignore},
                                          {"inference_geo", translate_ignore},
                                          {"cache_control", translate_ignore},
                                          {"n", refuse_field},
                                          {"best_of", refuse_field},
                                          {"stop", refuse_field},
                                          {"mcp_servers", refuse_field},
                                          {"container", refuse_field},
                                          {"context_management", refuse_field},
                                          {"stream_options", refuse_field},
                                          {"logprobs", refuse_field},
                                          {"top_logprobs", refuse_field}};

sl_status messages_translate(const char *body, size_t bytes, bool counts,
                             const sli_allowance *allowance, char **out, const char **param) {
  return translate_body(body, bytes, fields, SLI_COUNT(fields), counts ? NULL : "max_tokens",
                        allowance, out, param);
}
