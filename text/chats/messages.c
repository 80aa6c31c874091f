/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a line: their roles, their keys, and whether they are learned. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "text/chat_messages.h"
#include "text/chats/chats_inner.h"

static bool is_text(sli_value value, const char *text) {
  return value.kind == SLI_TEXT && value.text.bytes == strlen(text) &&
         !memcmp(value.text.at, text, value.text.bytes);
}

const char *sli_chats_kind(sli_value value) {
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

sl_status sli_chats_wanted(const chats_line *line, const char *at, const char *what,
                           sli_value found) {
  return sl_fail(SL_E_INPUT, "%s: %s: must be %s, but is %s", line->place, at, what,
                 sli_chats_kind(found));
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

/* ---- keys ------------------------------------------------------------------------------------ */

/* Keys that say whether a message is learned: 1 or true, 0 or false. */
static const char *const learning_keys[] = {"weight", "train", "trainable", "loss_mask", "loss"};

/* Keys of messages and of content parts that are understood. A template may read more. */
static const char *const message_keys[] = {
    "role", "from", "content", "value", "name", "tool_calls", "tool_call_id", "annotations", NULL};
static const char *const part_keys[] = {"type", "text", NULL};

static bool is_one_of(const char *const *names, size_t count, const char *key) {
  for (size_t i = 0; i < count && names[i]; i++)
    if (!strcmp(names[i], key)) return true;
  return false;
}

static bool is_learning(const char *key) {
  return is_one_of(learning_keys, SLI_COUNT(learning_keys), key);
}

static bool is_empty(sli_value value) {
  bool row = value.kind == SLI_LIST || value.kind == SLI_DICT;
  return value.kind == SLI_NONE || (value.kind == SLI_TEXT && !value.text.bytes) ||
         (row && !sli_value_count(value));
}

/* Returns whether a template's source has a word. */
static bool has_word(const char *source, const char *word) {
  size_t n = strlen(word);
  for (const char *at = source; at && n && (at = strstr(at, word)); at++)
    if ((at == source || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) &&
        !isalnum((unsigned char)at[n]) && at[n] != '_')
      return true;
  return false;
}

/* Refuses members that nobody reads, unless they are empty. */
static sl_status check_keys(const chats_list *l, size_t i, sli_value from,
                            const char *const *known) {
  for (size_t k = 0; k < sli_value_count(from); k++) {
    const char *key = sli_value_key(from, k).text.at;
    bool learning = known == message_keys && is_learning(key);
    if (learning || is_empty(sli_value_item(from, k)) || is_one_of(known, SIZE_MAX, key) ||
        has_word(l->line->template, key))
      continue;
    return sl_fail(SL_E_INPUT,
                   "%s: %s[%zu]: the key \"%.40s\" is not understood: neither Sluice nor the chat "
                   "template reads it; remove it from the data",
                   l->line->place, l->name, i, key);
  }
  return SL_OK;
}

/* Reads a value that says whether a message is learned. Returns -1 if it says neither. */
static int learning_value(sli_value value) {
  double number = value.kind == SLI_INT    ? (double)value.number
                  : value.kind == SLI_REAL ? value.real
                  : value.kind == SLI_BOOL ? value.truth
                                           : -1;
  return number == 0 ? 0 : number == 1 ? 1 : -1;
}

static sl_status check_learning(const chats_list *l, size_t i, const char *key, int value,
                                bool answer) {
  const char *why = NULL;
  if (value < 0) why = "must be 0 or 1 (or false or true): a message is learned or not";
  else if (!value && l->line->all) why = "is 0, but --learn all learns all tokens";
  else if (value && !answer && !l->line->all)
    why = "is 1, but only answers are learned (--learn all learns all tokens)";
  if (!why) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s: %s[%zu].%s: %s", l->line->place, l->name, i, key, why);
}

/* Reads the keys that say whether a message is learned. */
static sl_status read_learning(const chats_list *l, size_t i, sli_value from, bool answer,
                               bool *learned) {
  *learned = answer;
  for (size_t k = 0; k < sli_value_count(from); k++) {
    const char *key = sli_value_key(from, k).text.at;
    sli_value item = sli_value_item(from, k);
    if (!is_learning(key) || item.kind == SLI_NONE) continue;
    int value = learning_value(item);
    SLI_TRY(check_learning(l, i, key, value, answer));
    *learned &= value;
  }
  return SL_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

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
  for (size_t k = 0; k < sli_value_count(parts); k++) {
    sli_value part = sli_value_item(parts, k);
    if (sli_value_get(v, part, "text").kind != SLI_TEXT)
      return fail_at(l, i, "a part of its content is not text: only text can be learned");
    SLI_TRY(check_keys(l, i, part, part_keys));
  }
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

/* Copies a message, with ShareGPT's names replaced, and without keys for learning. */
static sli_value rename_members(sli_values *v, sli_value from) {
  sli_value out = sli_value_dict(v);
  for (size_t i = 0; i < sli_value_count(from); i++) {
    sli_value key = sli_value_key(from, i), value = sli_value_item(from, i);
    if (is_learning(key.text.at)) continue;
    const char *name = is_text(key, "from")    ? "role"
                       : is_text(key, "value") ? "content"
                                               : key.text.at;
    const char *role = strcmp(name, "role") ? NULL : role_of(value);
    sli_value_set(v, out, name, role ? sli_value_text(v, role) : value);
  }
  return out;
}

static sl_status add_message(const chats_list *l, size_t i, sli_values *v, sli_value from,
                             chats_values *out) {
  bool learned;
  if (from.kind != SLI_DICT) return fail_at(l, i, "must be an object with role and content");
  SLI_TRY(check_keys(l, i, from, message_keys));
  sli_value given = rename_members(v, from);
  SLI_TRY(check_role(l, i, sli_value_get(v, given, "role")));
  sli_value message = sli_chat_message_value(v, given);
  bool answer = !l->context && sli_chats_is_answer(v, message);
  SLI_TRY(check_message(l, i, v, sli_value_get(v, given, "content"), message));
  SLI_TRY(read_learning(l, i, from, answer, &learned));
  sli_value_add(v, out->values.messages, message);
  sli_value_add(v, out->learned, (sli_value){.kind = SLI_BOOL, .truth = learned});
  return sli_values_status(v);
}

sl_status sli_chats_messages(const chats_list *list, sli_values *v, sli_value from,
                             chats_values *out) {
  const chats_line *line = list->line;
  if (from.kind != SLI_LIST) return sli_chats_wanted(line, list->name, "a list of messages", from);
  if (!sli_value_count(from))
    return sl_fail(SL_E_INPUT, "%s: %s: it is empty", line->place, list->name);
  for (size_t i = 0; i < sli_value_count(from); i++)
    SLI_TRY(add_message(list, i, v, sli_value_item(from, i), out));
  return SL_OK;
}
