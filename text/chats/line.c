/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a JSON line as messages, or as two texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "text/chat_messages.h"
#include "text/chats/chats_inner.h"

sl_status sli_chats_fail(const chats_line *line, sl_status status) {
  return sl_fail(status, "%s: %s", line->place, sl_detail());
}

sli_values *sli_chats_room(const chats_line *line) {
  enum { LEAST = 64 << 20, TIMES = 64 };
  return sli_values_create(LEAST + TIMES * line->bytes, NULL);
}

static bool is_there(sli_value value) {
  return value.kind != SLI_UNDEFINED && value.kind != SLI_NONE;
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
  if (tools.kind != SLI_LIST) return sli_chats_wanted(line, "tools", "a list", tools);
  if (sli_value_count(tools)) *out = tools;
  return SL_OK;
}

/* Refuses keys beside the messages that change a chat, or how it is learned. Other keys are notes
 * of a data set. */
static sl_status check_notes(const chats_line *line, sli_values *v, sli_value root) {
  static const char *const changing[] = {
      "system", "functions", "function_call", "documents",   "images", "videos",
      "audios", "weight",    "weights",       "loss_weight", "train",  "trainable",
      "loss",   "loss_mask", "mask",          "labels",      "margin", "response_format"};
  for (size_t i = 0; i < SLI_COUNT(changing); i++) {
    sli_value value = sli_value_get(v, root, changing[i]);
    bool row = value.kind == SLI_LIST || value.kind == SLI_DICT;
    if (is_there(value) && !(row && !sli_value_count(value)) &&
        !(value.kind == SLI_TEXT && !value.text.bytes))
      return sl_fail(SL_E_INPUT,
                     "%s: the key \"%s\" is not understood here: messages, tools and "
                     "chat_template_kwargs are",
                     line->place, changing[i]);
  }
  return SL_OK;
}

static sl_status read_more(const chats_line *line, sli_values *v, sli_value root,
                           chats_values *out) {
  sli_value more = sli_value_get(v, root, "chat_template_kwargs");
  SLI_TRY(check_notes(line, v, root));
  SLI_TRY(read_tools(line, v, sli_value_get(v, root, "tools"), &out->values.tools));
  if (!is_there(more)) return SL_OK;
  if (more.kind != SLI_DICT)
    return sli_chats_wanted(line, "chat_template_kwargs", "an object", more);
  out->values.variables = more;
  return SL_OK;
}

/* Adds a prompt's messages and those of its answer. */
static sl_status read_messages(const chats_line *line, const char *key, sli_values *v,
                               chats_values *out) {
  const chats_list prompt = {line, "prompt", true}, answer = {line, key, false};
  SLI_TRY(sli_chats_messages(&prompt, v, out->prompt, out));
  out->first = sli_value_count(out->values.messages);
  return sli_chats_messages(&answer, v, out->completion, out);
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
        line->place, sli_chats_kind(prompt), sli_chats_kind(completion));
  return read_messages(line, "completion", v, out);
}

/* Makes a text one message of the assistant. */
static sli_value as_message(sli_values *v, sli_value text) {
  sli_value list = sli_value_list(v), message = sli_value_dict(v);
  if (text.kind != SLI_TEXT) return text;
  sli_value_set(v, message, "role", sli_value_text(v, "assistant"));
  sli_value_set(v, message, "content", text);
  sli_value_add(v, list, message);
  return list;
}

/* Reads one answer of a preference to messages. */
static sl_status read_preference(const chats_line *line, sli_values *v, sli_value root,
                                 chats_values *out) {
  out->prompt = sli_value_get(v, root, "prompt");
  out->completion = as_message(v, sli_value_get(v, root, line->answer));
  SLI_TRY(read_messages(line, line->answer, v, out));
  size_t count = sli_value_count(out->values.messages);
  sli_value last = sli_value_item(out->values.messages, count - 1);
  if (count == out->first + 1 && sli_chats_is_answer(v, last)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s: must be a text, or one message of the assistant", line->place,
                 line->answer);
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
  if (line->answer) return read_preference(line, v, root, out);
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_value list = sli_value_get(v, root, names[i]);
    const chats_list l = {line, names[i], false};
    if (is_there(list)) return sli_chats_messages(&l, v, list, out);
  }
  if (is_there(completion))
    return read_pair(line, v, sli_value_get(v, root, "prompt"), completion, out);
  return refuse_form(line, root);
}

sl_status sli_chats_line(const chats_line *line, sli_values *v, chats_values *out) {
  const sli_value none = {.kind = SLI_NONE};
  *out = (chats_values){.values = {sli_value_list(v), none, none}, .learned = sli_value_list(v)};
  sli_value root = sli_value_read(v, line->text, line->bytes);
  sl_status status = sli_values_status(v);
  if (status) return sli_chats_fail(line, status);
  if (root.kind != SLI_DICT)
    return sl_fail(SL_E_INPUT, "%s: no chat: each line must be an object, but this is %s",
                   line->place, sli_chats_kind(root));
  SLI_TRY(read_more(line, v, root, out));
  SLI_TRY(read_form(line, v, root, out));
  status = sli_values_status(v);
  return status ? sli_chats_fail(line, status) : SL_OK;
}
