/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as <function=NAME><parameter=KEY>VALUE</parameter></function>. The function's schema
 * decides whether a value is text or JSON. */
#include <stdlib.h>

#include "base/json.h"
#include "base/json_text.h"
#include "tools/actorserve/answer/answer_inner.h"

static const char function_begin[] = "<function=", function_end[] = "</function>",
                  parameter_begin[] = "<parameter=", parameter_end[] = "</parameter>";

answer_step answer_step_function(answer_parser *p, answer_piece *out) {
  size_t begin = p->at + sizeof function_begin - 1, end = begin;
  while (end < p->bytes && !strchr("<>\n", p->text[end])) end++;
  if (end == p->bytes && !p->ended) return STEP_WAITS;
  if (end == p->bytes || p->text[end] != '>' || end == begin) {
    p->at = end;
    return answer_refuse(p, out);
  }
  p->made_bytes = 0;
  answer_make(p, p->text + begin, end - begin);
  p->from = p->at = end + 1;
  p->state = IN_PARAMETERS;
  return answer_call(p, out);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Returns the kind of a valid JSON text without white space around it, or 0. */
static unsigned kind_of_json(const char *text) {
  enum { MOST_VALUES = 1 << 16 };
  size_t bytes = strlen(text);
  if (!bytes || sli_json_scan("a value", text, bytes, MOST_VALUES)) return 0;
  switch (*text) {
  case '"': return ANSWER_IS_TEXT;
  case '{': return ANSWER_IS_OBJECT;
  case '[': return ANSWER_IS_LIST;
  case 't':
  case 'f': return ANSWER_IS_TRUTH;
  case 'n': return ANSWER_IS_NULL;
  default: return strpbrk(text, ".eE") ? ANSWER_IS_FRACTION : ANSWER_IS_INTEGER;
  }
}

/* Appends a value as JSON: as it is if the parameter takes that kind, otherwise as a string. */
static void make_value(answer_parser *p, const answer_parameter *parameter, const char *text,
                       size_t bytes) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  if (parameter && parameter->takes == ANSWER_IS_TEXT)
    return sli_json_string(text, bytes, false, answer_make, p);
  const char *word = text, *end = text + bytes;
  while (word < end && answer_is_space(*word)) word++;
  while (end > word && answer_is_space(end[-1])) end--;
  char *given = sli_format("%.*s", (int)(end - word), word), *json = sli_strdup(given);
  for (size_t i = 0; i < SLI_COUNT(words); i++)
    if (!strcmp(json, words[i][0])) strcpy(json, words[i][1]);
  unsigned kind = kind_of_json(json);
  if (kind == ANSWER_IS_TEXT && parameter && parameter->takes & ANSWER_IS_TEXT) kind = 0;
  if (answer_parameter_is_text(parameter, given, kind))
    sli_json_string(text, bytes, false, answer_make, p);
  else answer_make(p, json, strlen(json));
  free(given);
  free(json);
}

/* Makes the next part of the arguments from "KEY>VALUE". */
static void make_parameter(answer_parser *p, const char *text, size_t bytes) {
  const char *behind = memchr(text, '>', bytes);
  size_t key = behind ? (size_t)(behind - text) : bytes;
  p->made_bytes = 0;
  answer_make(p, p->given ? ", " : "{", p->given ? 2 : 1);
  p->given = true;
  sli_json_string(text, key, false, answer_make, p);
  answer_make(p, ": ", 2);
  const char *value = text + SLI_MIN(key + 1, bytes);
  size_t n = (size_t)(text + bytes - value);
  if (n && *value == '\n') value++, n--;
  if (n && value[n - 1] == '\n') n--;
  make_value(p, answer_function_parameter(p->function, text, key), value, n);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static answer_step arguments_over(answer_parser *p, answer_piece *out) {
  bool given = p->given;
  answer_call_over(p, IN_CALLS);
  return answer_give(out, ANSWER_ARGUMENTS, p, given ? "}" : "{}", given ? 1 : 2);
}

/* Returns whether a text follows after white space: 1, 0, or -1 if that is not known yet. NULL is
 * the end of the answer. */
static int follows(const answer_parser *p, size_t at, const char *text) {
  enum { MOST_SPACE = 64 };
  size_t end = SLI_MIN(p->bytes, at + MOST_SPACE);
  while (at < end && answer_is_space(p->text[at])) at++;
  if (at == p->bytes) return p->ended ? !text : -1;
  return text ? answer_match(p, at, text) : 0;
}

/* Returns whether one of several texts follows. */
static int follows_any(const answer_parser *p, size_t at, const char *const *texts, size_t count) {
  int found = 0;
  for (size_t i = 0; i < count && found <= 0; i++) {
    int match = follows(p, at, texts[i]);
    if (match) found = match;
  }
  return found;
}

/* Returns whether another parameter begins: a known one, or of an unknown function on a new line.
 */
static int begins_parameter(const answer_parser *p, size_t at) {
  size_t name = at + sizeof parameter_begin - 1, end = name;
  int match = answer_match(p, at, parameter_begin);
  if (match <= 0) return match;
  while (end < p->bytes && !strchr("<>\n", p->text[end])) end++;
  if (end == p->bytes) return p->ended ? 0 : -1;
  if (p->text[end] != '>' || end == name) return 0;
  return p->function ? answer_function_parameter(p->function, p->text + name, end - name) != NULL
                     : p->text[at - 1] == '\n';
}

/* Returns whether a value without a closing tag ends at an offset, because something follows that
 * is no part of a value: 1, 0, or -1 if that is not known yet. */
static int ends_unclosed(const answer_parser *p, size_t at) {
  const char *close = p->how.format->close;
  const char *const behind_function[] = {close, function_begin, NULL};
  const char *const behind_call[] = {"<tool_call>", NULL};
  int parameter = begins_parameter(p, at), function = answer_match(p, at, function_end),
      call = answer_match(p, at, close);
  if (function > 0)
    function =
        follows_any(p, at + sizeof function_end - 1, behind_function, SLI_COUNT(behind_function));
  if (call > 0) call = follows_any(p, at + strlen(close), behind_call, SLI_COUNT(behind_call));
  if (parameter > 0 || function > 0 || call > 0) return 1;
  return parameter || function || call ? -1 : 0;
}

/* Reads a parameter, whose first byte is at `from`, and moves `at` to its end. */
static answer_step step_parameter(answer_parser *p, answer_piece *out) {
  int closed = 0, unclosed = 0;
  for (; p->at < p->bytes; p->at++) {
    closed = answer_match(p, p->at, parameter_end);
    unclosed = closed || p->text[p->at] != '<' ? 0 : ends_unclosed(p, p->at);
    if (closed || unclosed) break;
  }
  if (closed <= 0 && unclosed <= 0) return STEP_WAITS;
  size_t begin = p->from + sizeof parameter_begin - 1;
  make_parameter(p, p->text + begin, p->at - begin);
  if (closed > 0) p->at += sizeof parameter_end - 1;
  p->from = p->at;
  return answer_give(out, ANSWER_ARGUMENTS, p, p->made, p->made_bytes);
}

/* Looks for the next parameter, or for the end of the function. Other text is dropped. */
answer_step answer_step_parameters(answer_parser *p, answer_piece *out) {
  while (p->from < p->bytes) {
    int parameter = answer_match(p, p->from, parameter_begin),
        end = answer_match(p, p->from, function_end),
        close = answer_match(p, p->from, p->how.format->close);
    p->at = SLI_MAX(p->at, p->from);
    if (parameter > 0) {
      p->at = SLI_MAX(p->at, p->from + sizeof parameter_begin - 1);
      return step_parameter(p, out);
    }
    if (end > 0) p->at = p->from + sizeof function_end - 1;
    if (end > 0 || close > 0) return arguments_over(p, out);
    if (parameter || end || close) return STEP_WAITS;
    p->from++;
  }
  p->at = p->from;
  return STEP_WAITS;
}
