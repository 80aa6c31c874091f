/* SPDX-License-Identifier: Apache-2.0 */
/* Translates bodies of /v1/messages to bodies of /v1/chat/completions, whose parser checks them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/json.h"
#include "tools/actorserve/messages.h"

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

static bool is(const char *text, const char *word) { return !strcmp(text, word); }

static void refuse(translation *t, const char *why) {
  if (!t->status) t->status = sl_fail(SL_E_USAGE, "%s %s", t->field, why);
}

static void add_copy(cJSON *to, const char *name, const cJSON *item) {
  if (item) cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

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

static cJSON *add_message(translation *t, const char *role) {
  cJSON *message = cJSON_CreateObject();
  cJSON_AddStringToObject(message, "role", role);
  cJSON_AddItemToArray(t->messages, message);
  return message;
}

static void add_text(translation *t, cJSON *parts, const cJSON *block) {
  static const char *const known[] = {"type", "text", "cache_control", "citations", NULL};
  cJSON *part = cJSON_CreateObject();
  check_members(t, block, known);
  if (!cJSON_IsString(member(block, "text"))) refuse(t, "has a text block without a text");
  cJSON_AddStringToObject(part, "type", "text");
  cJSON_AddStringToObject(part, "text", text_of(block, "text"));
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
    refuse(t, "must have a content that is a text, or an array of blocks");
  cJSON_ArrayForEach(each, content) {
    if (!is(text_of(each, "type"), "text"))
      refuse(t, "has a block that is not supported here: only texts can be read");
    else add_text(t, parts, each);
  }
}

/* Adds a call to the assistant's message. */
static void add_call(translation *t, cJSON *message, const cJSON *block) {
  static const char *const known[] = {"type",          "id",     "name", "input",
                                      "cache_control", "caller", NULL};
  cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
  const cJSON *input = member(block, "input");
  cJSON *call = cJSON_CreateObject(), *function;
  check_members(t, block, known);
  if (!cJSON_IsObject(input)) refuse(t, "has a tool_use whose input is not an object");
  if (!calls) calls = cJSON_AddArrayToObject(message, "tool_calls");
  add_copy(call, "id", member(block, "id"));
  cJSON_AddStringToObject(call, "type", "function");
  function = cJSON_AddObjectToObject(call, "function");
  add_copy(function, "name", member(block, "name"));
  char *text = cJSON_PrintUnformatted(input);
  cJSON_AddStringToObject(function, "arguments", text ? text : "{}");
  cJSON_free(text);
  cJSON_AddItemToArray(calls, call);
}

static void add_result(translation *t, const cJSON *block) {
  static const char *const known[] = {"type",     "tool_use_id",   "content",
                                      "is_error", "cache_control", NULL};
  cJSON *message = add_message(t, "tool");
  check_members(t, block, known);
  if (!*text_of(block, "tool_use_id")) refuse(t, "has a tool_result without a tool_use_id");
  add_copy(message, "tool_call_id", member(block, "tool_use_id"));
  set_texts(t, message, member(block, "content"));
}

/* Adds the blocks of a user. Results become messages of their own, with the texts after them in a
 * new message. */
static void add_user(translation *t, const cJSON *content) {
  const cJSON *each;
  cJSON *parts = NULL;
  cJSON_ArrayForEach(each, content) {
    const char *type = text_of(each, "type");
    if (is(type, "tool_result")) {
      add_result(t, each);
      parts = NULL;
    } else if (is(type, "text")) {
      if (!parts) parts = cJSON_AddArrayToObject(add_message(t, "user"), "content");
      add_text(t, parts, each);
    } else refuse(t, "has a block of a user that is neither text nor tool_result");
  }
}

static void add_thought(cJSON *message, const cJSON *block) {
  const char *before = text_of(message, "reasoning_content");
  char *all = sli_format("%s%s", before, text_of(block, "thinking"));
  cJSON_DeleteItemFromObjectCaseSensitive(message, "reasoning_content");
  cJSON_AddStringToObject(message, "reasoning_content", all);
  free(all);
}

static void add_assistant(translation *t, const cJSON *content) {
  const cJSON *each;
  cJSON *message = add_message(t, "assistant"), *parts = cJSON_CreateArray();
  cJSON_ArrayForEach(each, content) {
    const char *type = text_of(each, "type");
    if (is(type, "text")) add_text(t, parts, each);
    else if (is(type, "tool_use")) add_call(t, message, each);
    else if (is(type, "thinking")) add_thought(message, each);
    else if (!is(type, "redacted_thinking"))
      refuse(t, "has a block of the assistant that is neither text, tool_use nor thinking");
  }
  bool calls = member(message, "tool_calls");
  if (parts->child || !calls) cJSON_AddItemToObject(message, "content", parts);
  else cJSON_AddNullToObject(message, "content");
  if (!parts->child && calls) cJSON_Delete(parts);
}

static void read_messages(translation *t, const cJSON *item) {
  static const char *const known[] = {"role", "content", NULL};
  const cJSON *each, *last = NULL;
  if (!cJSON_IsArray(item)) refuse(t, "must be an array of messages");
  cJSON_ArrayForEach(each, item) {
    const cJSON *content = member(each, "content");
    const char *role = text_of(each, "role");
    bool assistant = is(role, "assistant");
    last = each;
    check_members(t, each, known);
    if (!assistant && !is(role, "user")) refuse(t, "has a role that is neither user nor assistant");
    else if (!cJSON_IsArray(content)) {
      if (!cJSON_IsString(content)) refuse(t, "has a content that is no text and no array");
      set_texts(t, add_message(t, role), content);
    } else (assistant ? add_assistant : add_user)(t, content);
  }
  if (last && is(text_of(last, "role"), "assistant"))
    refuse(t, "must end with a message of the user: an answer that has begun is not continued");
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
    const char *type = text_of(each, "type");
    if (*type && !is(type, "custom")) refuse(t, "has a tool whose type is not custom");
    check_members(t, each, known);
    if (!cJSON_IsObject(member(each, "input_schema")))
      refuse(t, "has a tool whose input_schema is not an object");
    cJSON_AddStringToObject(tool, "type", "function");
    function = cJSON_AddObjectToObject(tool, "function");
    add_copy(function, "name", member(each, "name"));
    add_copy(function, "description", member(each, "description"));
    add_copy(function, "parameters", member(each, "input_schema"));
    cJSON_AddItemToArray(tools, tool);
  }
}

static void read_choice(translation *t, const cJSON *item) {
  static const char *const known[] = {"type", "name", "disable_parallel_tool_use", NULL};
  static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
  const char *type = text_of(item, "type");
  bool found = false;
  check_members(t, item, known);
  for (size_t i = 0; i < SLI_COUNT(words) && !found; i++)
    if ((found = is(type, words[i][0])))
      cJSON_AddStringToObject(t->chat, "tool_choice", words[i][1]);
  if (is(type, "tool")) {
    cJSON *choice = cJSON_AddObjectToObject(t->chat, "tool_choice");
    cJSON_AddStringToObject(choice, "type", "function");
    add_copy(cJSON_AddObjectToObject(choice, "function"), "name", member(item, "name"));
  } else if (!found) refuse(t, "must have the type auto, any, tool or none");
  if (cJSON_IsTrue(member(item, "disable_parallel_tool_use")))
    cJSON_AddFalseToObject(t->chat, "parallel_tool_calls");
}

static void read_thinking(translation *t, const cJSON *item) {
  const char *type = text_of(item, "type");
  bool off = is(type, "disabled");
  if (!off && !is(type, "enabled") && !is(type, "adaptive"))
    refuse(t, "must have the type enabled, disabled or adaptive");
  cJSON *variables = cJSON_AddObjectToObject(t->chat, "chat_template_kwargs");
  cJSON_AddBoolToObject(variables, "enable_thinking", !off);
}

static void read_output(translation *t, const cJSON *item) {
  static const char *const known[] = {"effort", "format", NULL};
  const cJSON *format = member(item, "format");
  check_members(t, item, known);
  if (cJSON_IsString(member(item, "effort")))
    add_copy(t->chat, "reasoning_effort", member(item, "effort"));
  if (!cJSON_IsObject(format)) return;
  if (!is(text_of(format, "type"), "json_schema")) refuse(t, "has a format that is no json_schema");
  cJSON *out = cJSON_AddObjectToObject(t->chat, "response_format");
  cJSON_AddStringToObject(out, "type", "json_schema");
  add_copy(cJSON_AddObjectToObject(out, "json_schema"), "schema", member(format, "schema"));
}

static void read_most(translation *t, const cJSON *item) {
  add_copy(t->chat, "max_completion_tokens", item);
}

static void read_stops(translation *t, const cJSON *item) {
  if (!cJSON_IsArray(item)) refuse(t, "must be an array of texts");
  add_copy(t->chat, "stop", item);
}

static void ignore(translation *t, const cJSON *item) { (void)t, (void)item; }

static void refuse_field(translation *t, const cJSON *item) {
  bool empty = (cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child;
  if (!empty) refuse(t, "is not supported");
}

static const struct {
  const char *name;
  void (*read)(translation *t, const cJSON *item);
} fields[] = {{"messages", read_messages},
              {"system", read_system},
              {"max_tokens", read_most},
              {"stop_sequences", read_stops},
              {"tools", read_tools},
              {"tool_choice", read_choice},
              {"thinking", read_thinking},
              {"output_config", read_output},
              {"metadata", ignore},
              {"service_tier", ignore},
              {"inference_geo", ignore},
              {"cache_control", ignore},
              {"n", refuse_field},
              {"best_of", refuse_field},
              {"stop", refuse_field},
              {"mcp_servers", refuse_field},
              {"container", refuse_field},
              {"context_management", refuse_field},
              {"stream_options", refuse_field},
              {"logprobs", refuse_field},
              {"top_logprobs", refuse_field}};

/* Translates a field, or copies it for the parser of chat bodies. */
static void read_field(translation *t, const cJSON *item) {
  if (cJSON_IsNull(item)) return;
  for (size_t i = 0; i < SLI_COUNT(fields); i++)
    if (is(item->string, fields[i].name)) {
      if (!t->status) t->field = fields[i].name;
      fields[i].read(t, item);
      return;
    }
  add_copy(t->chat, item->string, item);
}

sl_status messages_translate(const char *body, size_t bytes, bool counts,
                             const sli_allowance *allowance, char **out, const char **param) {
  sli_bounded memory = {.allowance = allowance};
  cJSON *root;
  const cJSON *item;
  sl_status status = json_read(body, bytes, &memory, &root);
  if (!status && !cJSON_IsObject(root)) status = sl_fail(SL_E_INPUT, "the body is not an object");
  translation t = {.chat = cJSON_CreateObject(), .messages = cJSON_CreateArray()};
  if (!status) cJSON_ArrayForEach(item, root) read_field(&t, item);
  if (!status) status = t.status;
  if (!status && !counts && !member(root, "max_tokens")) {
    t.field = "max_tokens";
    status = sl_fail(SL_E_USAGE, "max_tokens is missing");
  }
  cJSON_AddItemToObject(t.chat, "messages", t.messages);
  if (!status) *out = cJSON_PrintUnformatted(t.chat);
  *param = t.field;
  cJSON_Delete(t.chat);
  sli_bounded_fini(&memory);
  return status;
}
