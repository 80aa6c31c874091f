/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat_messages.h"

#include <string.h>

#include "base/base.h"
#include "base/json.h"

static bool is_text(sli_value value, const char *text) {
  return value.kind == SLI_TEXT && value.text.bytes == strlen(text) &&
         !memcmp(value.text.at, text, value.text.bytes);
}

/* Copies a dict without one member. */
static sli_value copy_without(sli_values *v, sli_value from, const char *key) {
  sli_value out = sli_value_dict(v);
  for (size_t i = 0; i < sli_value_count(from); i++)
    if (!is_text(sli_value_key(from, i), key))
      sli_value_set(v, out, sli_value_key(from, i).text.at, sli_value_item(from, i));
  return out;
}

/* Joins the texts of content parts. */
static sli_value join_parts(sli_values *v, sli_value parts) {
  size_t bytes = 0;
  for (size_t i = 0; i < sli_value_count(parts); i++) {
    sli_value text = sli_value_get(v, sli_value_item(parts, i), "text");
    if (text.kind == SLI_TEXT) bytes += text.text.bytes;
  }
  char *all = sli_values_room(v, bytes + 1), *to = all;
  if (!all) return (sli_value){.kind = SLI_NONE};
  for (size_t i = 0; i < sli_value_count(parts); i++) {
    sli_value text = sli_value_get(v, sli_value_item(parts, i), "text");
    if (text.kind == SLI_TEXT) to = mempcpy(to, text.text.at, text.text.bytes);
  }
  return (sli_value){.kind = SLI_TEXT, .text = {all, bytes}};
}

/* Returns arguments as a dict if they are one in JSON. Arguments without text become an empty
 * dict. */
static sli_value read_arguments(sli_values *v, sli_value arguments) {
  if (arguments.kind != SLI_TEXT) return arguments;
  if (!arguments.text.bytes) return sli_value_dict(v);
  const char *at = arguments.text.at + strspn(arguments.text.at, " \t\r\n");
  size_t bytes = arguments.text.bytes - (size_t)(at - arguments.text.at);
  bool object = *at == '{' && !sli_json_scan("arguments", at, bytes, 0);
  return object ? sli_value_read(v, at, bytes) : arguments;
}

static sli_value read_call(sli_values *v, sli_value call) {
  sli_value function = sli_value_get(v, call, "function"), out;
  if (function.kind != SLI_DICT) return call;
  sli_value arguments = sli_value_get(v, function, "arguments");
  if (arguments.kind == SLI_UNDEFINED) return call;
  out = copy_without(v, function, "arguments");
  sli_value_set(v, out, "arguments", read_arguments(v, arguments));
  function = out;
  out = copy_without(v, call, "function");
  sli_value_set(v, out, "function", function);
  return out;
}

static sli_value read_calls(sli_values *v, sli_value calls) {
  sli_value out = sli_value_list(v);
  for (size_t i = 0; i < sli_value_count(calls); i++)
    sli_value_add(v, out, read_call(v, sli_value_item(calls, i)));
  return out;
}

/* Returns whether a template should not see a member, because it carries no information. */
static bool is_left_out(sli_value key, sli_value value) {
  static const char *const unused[] = {"refusal", "annotations", "audio", "function_call"};
  if (is_text(key, "role") || is_text(key, "content")) return false;
  for (size_t i = 0; i < SLI_COUNT(unused); i++)
    if (is_text(key, unused[i])) return true;
  bool row = value.kind == SLI_LIST || value.kind == SLI_DICT;
  return value.kind == SLI_NONE || (value.kind == SLI_TEXT && !value.text.bytes) ||
         (row && !sli_value_count(value));
}

static sli_value read_member(sli_values *v, sli_value key, sli_value value) {
  if (is_text(key, "role") && is_text(value, "developer")) return sli_value_text(v, "system");
  if (is_text(key, "content") && value.kind == SLI_LIST) return join_parts(v, value);
  return is_text(key, "tool_calls") ? read_calls(v, value) : value;
}

sli_value sli_chat_message_value(sli_values *v, sli_value from) {
  sli_value out = sli_value_dict(v);
  for (size_t i = 0; i < sli_value_count(from); i++) {
    sli_value key = sli_value_key(from, i), value = sli_value_item(from, i);
    if (!is_left_out(key, value)) sli_value_set(v, out, key.text.at, read_member(v, key, value));
  }
  if (sli_value_get(v, out, "content").kind == SLI_UNDEFINED)
    sli_value_set(v, out, "content", (sli_value){.kind = SLI_NONE});
  return out;
}

sli_value sli_chat_messages(sli_values *v, const char *json, size_t bytes) {
  sli_value from = sli_value_read(v, json, bytes), out = sli_value_list(v);
  for (size_t i = 0; i < sli_value_count(from) && !sli_values_status(v); i++)
    sli_value_add(v, out, sli_chat_message_value(v, sli_value_item(from, i)));
  return out;
}
