/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as <function=NAME><parameter=KEY>VALUE</parameter></function>. The function's schema
 * decides whether a value is text or JSON. */
#include <stdlib.h>

#include "base/json.h"
#include "base/json_text.h"
#include "tools/actorserve/answer/inner.h"

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

/* Appends a value as JSON. A value that is not valid JSON becomes a string. */
static void make_json(answer_parser *p, const char *text, size_t bytes) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  enum { MOST_VALUES = 1 << 16 };
  const char *word = text, *end = text + bytes;
  while (word < end && answer_is_space(*word)) word++;
  while (end > word && answer_is_space(end[-1])) end--;
  char *copy = sli_format("%.*s", (int)(end - word), word);
  for (size_t i = 0; i < SLI_COUNT(words); i++)
    if (!strcmp(copy, words[i][0])) strcpy(copy, words[i][1]);
  if (sli_json_scan("a value", copy, strlen(copy), MOST_VALUES))
    sli_json_string(text, bytes, false, answer_make, p);
  else answer_make(p, copy, strlen(copy));
  free(copy);
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
  if (answer_function_takes_text(p->function, text, key))
    sli_json_string(value, n, false, answer_make, p);
  else make_json(p, value, n);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static answer_step arguments_over(answer_parser *p, answer_piece *out) {
  bool given = p->given;
  answer_call_over(p, IN_CALLS);
  return answer_give(out, ANSWER_ARGUMENTS, p, given ? "}" : "{}", given ? 1 : 2);
}

/* Reads a parameter, whose first byte is at `from`, and moves `at` to its end. */
static answer_step step_parameter(answer_parser *p, answer_piece *out) {
  int match = 0;
  while (p->at < p->bytes && !(match = answer_match(p, p->at, parameter_end))) p->at++;
  if (match <= 0) return STEP_WAITS;
  size_t begin = p->from + sizeof parameter_begin - 1;
  make_parameter(p, p->text + begin, p->at - begin);
  p->from = p->at += sizeof parameter_end - 1;
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
