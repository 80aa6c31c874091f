/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a JSON line as messages, or as two texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "io/chat_messages.h"
#include "io/chats/inner.h"

sl_status sli_chats_fail(const chats_line *line, sl_status status) {
  char *why = sli_strdup(sl_detail());
  sl_fail(status, "%s: %s", line->place, why);
  free(why);
  return status;
}

sli_values *sli_chats_room(const chats_line *line) {
  enum { LEAST = 64 << 20, TIMES = 64 };
  return sli_values_create(LEAST + TIMES * line->bytes, NULL);
}

static bool is_text(sli_value value, const char *text) {
  return value.kind == SLI_TEXT && value.text.bytes == strlen(text) &&
         !memcmp(value.text.at, text, value.text.bytes);
}

static bool is_there(sli_value value) {
  return value.kind != SLI_UNDEFINED && value.kind != SLI_NONE;
}

static const char *kind_word(sli_value value) {
  switch (value.kind) {
  case SLI_UNDEFINED: return "missing";
  case SLI_NONE: return "null";
  case SLI_BOOL: return "true or false";
  case SLI_INT:
  case SLI_REAL: return "a number";
  case SLI_TEXT: return "a text";
  case SLI_LIST: return "a list";
  default: return "an object";
  }
}

static sl_status wanted(const chats_line *line, const char *at, const char *what, sli_value found) {
  return sl_fail(SL_E_INPUT, "%s: %s: must be %s, but is %s", line->place, at, what,
                 kind_word(found));
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* Names of roles in messages, and their names in ShareGPT's data. */
static const struct {
  const char *name, *role;
} roles[] = {{"system", "system"},    {"developer", "system"},
             {"user", "user"},        {"assistant", "assistant"},
             {"tool", "tool"},        {"function", "tool"},
             {"ipython", "ipython"},  {"human", "user"},
             {"gpt", "assistant"},    {"chatgpt", "assistant"},
             {"model", "assistant"},  {"bot", "assistant"},
             {"observation", "tool"}, {"function_response", "tool"}};

static const char *role_of(sli_value name) {
  for (size_t i = 0; i < SLI_COUNT(roles); i++)
    if (is_text(name, roles[i].name)) return roles[i].role;
  return NULL;
}

bool sli_chats_is_answer(sli_values *v, sli_value message) {
  return is_text(sli_value_get(v, message, "role"), "assistant");
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A list in a line, with its key. */
typedef struct chats_list {
  const chats_line *line;
  const char *name;
} chats_list;

static sl_status fail_at(const chats_list *l, size_t i, const char *what) {
  return sl_fail(SL_E_INPUT, "%s: %s[%zu]: %s", l->line->place, l->name, i, what);
}

static sl_status check_role(const chats_list *l, size_t i, sli_value role) {
  char text[160];
  if (role.kind != SLI_TEXT)
    return fail_at(l, i, "it has no \"role\" (nor \"from\") that is a text");
  if (role_of(role)) return SL_OK;
  snprintf(text, sizeof text,
           "unknown role \"%.*s\"; known: system, developer, user, assistant, tool, human, gpt",
           (int)SLI_MIN(role.text.bytes, (size_t)40), role.text.at);
  return fail_at(l, i, text);
}

static sl_status check_parts(const chats_list *l, size_t i, sli_values *v, sli_value parts) {
  for (size_t k = 0; k < sli_value_count(parts); k++)
    if (sli_value_get(v, sli_value_item(parts, k), "text").kind != SLI_TEXT)
      return fail_at(l, i, "a part of its content is not text: only text can be learned");
  return SL_OK;
}

/* Checks a message in the form that templates get. */
static sl_status check_message(const chats_list *l, size_t i, sli_values *v, sli_value content,
                               sli_value message) {
  bool calls = sli_value_count(sli_value_get(v, message, "tool_calls")) > 0;
  if (content.kind == SLI_LIST) SLI_TRY(check_parts(l, i, v, content));
  else if (content.kind != SLI_TEXT && !calls)
    return fail_at(l, i, "it has no \"content\" (nor \"value\") that is a text");
  sli_value text = sli_value_get(v, message, "content");
  if (!sli_chats_is_answer(v, message) || calls || (text.kind == SLI_TEXT && text.text.bytes))
    return SL_OK;
  return fail_at(l, i, "the answer is empty: there is nothing to learn");
}

/* Copies a message, with ShareGPT's names replaced. */
static sli_value rename_members(sli_values *v, sli_value from) {
  sli_value out = sli_value_dict(v);
  for (size_t i = 0; i < sli_value_count(from); i++) {
    sli_value key = sli_value_key(from, i), value = sli_value_item(from, i);
    const char *name = is_text(key, "from")    ? "role"
                       : is_text(key, "value") ? "content"
                                               : key.text.at;
    const char *role = strcmp(name, "role") ? NULL : role_of(value);
    sli_value_set(v, out, name, role ? sli_value_text(v, role) : value);
  }
  return out;
}

static sl_status add_message(const chats_list *l, size_t i, sli_values *v, sli_value from,
                             sli_value all) {
  if (from.kind != SLI_DICT) return fail_at(l, i, "must be an object with role and content");
  from = rename_members(v, from);
  SLI_TRY(check_role(l, i, sli_value_get(v, from, "role")));
  sli_value message = sli_chat_message_value(v, from);
  SLI_TRY(check_message(l, i, v, sli_value_get(v, from, "content"), message));
  sli_value_add(v, all, message);
  return sli_values_status(v);
}

static sl_status add_messages(const chats_line *line, const char *name, sli_values *v,
                              sli_value from, sli_value all) {
  const chats_list l = {line, name};
  if (from.kind != SLI_LIST) return wanted(line, name, "a list of messages", from);
  if (!sli_value_count(from)) return sl_fail(SL_E_INPUT, "%s: %s: it is empty", line->place, name);
  for (size_t i = 0; i < sli_value_count(from); i++)
    SLI_TRY(add_message(&l, i, v, sli_value_item(from, i), all));
  return SL_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads a list, or a JSON text with one, as some data sets store tools. */
static sl_status read_tools(const chats_line *line, sli_values *v, sli_value tools,
                            sli_value *out) {
  if (!is_there(tools)) return SL_OK;
  if (tools.kind == SLI_TEXT) {
    char *name = sli_format("%s: tools", line->place);
    sl_status status = sli_json_scan(name, tools.text.at, tools.text.bytes, 0);
    free(name);
    if (status) return status;
    tools = sli_value_read(v, tools.text.at, tools.text.bytes);
  }
  if (tools.kind != SLI_LIST) return wanted(line, "tools", "a list", tools);
  if (sli_value_count(tools)) *out = tools;
  return SL_OK;
}

static sl_status read_more(const chats_line *line, sli_values *v, sli_value root,
                           chats_values *out) {
  sli_value more = sli_value_get(v, root, "chat_template_kwargs");
  SLI_TRY(read_tools(line, v, sli_value_get(v, root, "tools"), &out->of.tools));
  if (!is_there(more)) return SL_OK;
  if (more.kind != SLI_DICT) return wanted(line, "chat_template_kwargs", "an object", more);
  out->of.variables = more;
  return SL_OK;
}

static sl_status read_pair(const chats_line *line, sli_values *v, sli_value prompt,
                           sli_value completion, chats_values *out) {
  out->prompt = prompt, out->completion = completion;
  out->plain = prompt.kind == SLI_TEXT && completion.kind == SLI_TEXT;
  if (out->plain && !completion.text.bytes)
    return sl_fail(SL_E_INPUT, "%s: completion: it is empty: there is nothing to learn",
                   line->place);
  if (out->plain) return SL_OK;
  if (prompt.kind == SLI_TEXT || completion.kind == SLI_TEXT)
    return sl_fail(
        SL_E_INPUT,
        "%s: prompt is %s and completion %s: must be two strings, or two lists of messages",
        line->place, kind_word(prompt), kind_word(completion));
  SLI_TRY(add_messages(line, "prompt", v, prompt, out->of.messages));
  out->first = sli_value_count(out->of.messages);
  return add_messages(line, "completion", v, completion, out->of.messages);
}

static sl_status refuse_form(const chats_line *line, sli_value root) {
  char keys[160] = "";
  size_t at = 0;
  for (size_t i = 0; i < sli_value_count(root) && at + 48 < sizeof keys; i++) {
    sli_value key = sli_value_key(root, i);
    at += (size_t)snprintf(keys + at, sizeof keys - at, "%s\"%.*s\"", i ? ", " : "",
                           (int)SLI_MIN(key.text.bytes, (size_t)40), key.text.at);
  }
  return sl_fail(
      SL_E_INPUT,
      "%s: no chat: it has %s, and neither \"messages\" nor \"conversations\" nor \"prompt\" and "
      "\"completion\"",
      line->place, *keys ? keys : "nothing");
}

static sl_status read_form(const chats_line *line, sli_values *v, sli_value root,
                           chats_values *out) {
  static const char *const names[] = {"messages", "conversations"};
  sli_value completion = sli_value_get(v, root, "completion");
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_value list = sli_value_get(v, root, names[i]);
    if (is_there(list)) return add_messages(line, names[i], v, list, out->of.messages);
  }
  if (is_there(completion))
    return read_pair(line, v, sli_value_get(v, root, "prompt"), completion, out);
  return refuse_form(line, root);
}

sl_status sli_chats_line(const chats_line *line, sli_values *v, chats_values *out) {
  const sli_value none = {.kind = SLI_NONE};
  *out = (chats_values){.of = {sli_value_list(v), none, none}};
  sli_value root = sli_value_read(v, line->text, line->bytes);
  sl_status status = sli_values_status(v);
  if (status) return sli_chats_fail(line, status);
  if (root.kind != SLI_DICT)
    return sl_fail(SL_E_INPUT, "%s: no chat: each line must be an object, but this is %s",
                   line->place, kind_word(root));
  SLI_TRY(read_more(line, v, root, out));
  SLI_TRY(read_form(line, v, root, out));
  status = sli_values_status(v);
  return status ? sli_chats_fail(line, status) : SL_OK;
}
