/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as JSON: objects with a name and arguments, alone or in an array, or a name before the
 * arguments. The parser only tracks brackets and quotes of the arguments: a client receives them as
 * the model wrote them. */
#include <cjson/cJSON.h>
#include <stdlib.h>

#include "tools/actorserve/answer/answer_inner.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Role of a byte. TAKES: it belongs to the value. LAST: it ends the value. BEHIND: the value ended
 * before it. WRONG: it is not allowed here. */
typedef enum taken { TAKES, LAST, BEHIND, WRONG } taken;

static taken take_quoted(answer_value *v, char c) {
  if (v->escaped) v->escaped = false;
  else if (c == '\\') v->escaped = true;
  else if (c == '"') v->quoted = false;
  return v->quoted || v->depth ? TAKES : LAST;
}

static taken take_plain(answer_value *v, char c) {
  bool plain = isalnum((unsigned char)c) || (c && strchr("+-.", c));
  if (!plain) return v->plain && (answer_is_space(c) || strchr(",}]", c)) ? BEHIND : WRONG;
  v->plain = true;
  return TAKES;
}

static taken take(answer_value *v, char c) {
  bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
  if (v->quoted) return take_quoted(v, c);
  if (v->plain) return take_plain(v, c);
  if (c == '"') v->quoted = true;
  else if (opens) v->depth++;
  else if (closes && v->depth) return --v->depth ? TAKES : LAST;
  else if (!v->depth) return take_plain(v, c);
  return TAKES;
}

/* Decodes a JSON string, including its quotes, into `made`. Returns false if it is not a string. */
static bool make_text(answer_parser *p, size_t begin, size_t end) {
  cJSON *item = cJSON_ParseWithLength(p->text + begin, end - begin);
  p->made_bytes = 0;
  bool good = cJSON_IsString(item);
  if (good) answer_make(p, item->valuestring, strlen(item->valuestring));
  cJSON_Delete(item);
  return good;
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool is_word(const answer_parser *p, size_t begin, size_t end, const char *word) {
  return end - begin == strlen(word) && !memcmp(p->text + begin, word, end - begin);
}

/* Handles a key between `begin` and `end`, including its quotes. Returns false if no call has such
 * a key. */
static bool note_key(answer_parser *p, size_t begin, size_t end) {
  answer_object *o = &p->object;
  o->expects = OBJECT_COLON;
  o->member = MEMBER_OTHER;
  if (o->called) return true; /* the text was dropped already */
  begin++, end--;
  bool arguments = is_word(p, begin, end, "arguments") || is_word(p, begin, end, "parameters");
  o->member = is_word(p, begin, end, "name") ? MEMBER_NAME
              : arguments                    ? MEMBER_ARGUMENTS
                                             : MEMBER_OTHER;
  return o->member != MEMBER_OTHER || !p->how.format->bare || is_word(p, begin, end, "type") ||
         is_word(p, begin, end, "id");
}

/* Handles a value that ends at `end`. Returns false if it cannot be the call's name. */
static bool note_value(answer_parser *p, size_t end) {
  answer_object *o = &p->object;
  o->expects = OBJECT_COMMA;
  if (o->called || o->member == MEMBER_OTHER) return true;
  if (o->member == MEMBER_ARGUMENTS) {
    o->arguments = o->begin;
    o->until = end;
    return true;
  }
  o->named = make_text(p, o->begin, end) && p->made_bytes;
  return o->named &&
         (!p->how.format->bare || answer_functions_find(p->how.functions, p->made, p->made_bytes));
}

/* Handles the first byte of a value. */
static taken begin_value(answer_parser *p, char c) {
  answer_object *o = &p->object;
  if (answer_is_space(c)) return TAKES;
  o->begin = p->at;
  o->expects = OBJECT_IN_VALUE;
  p->value = (answer_value){0};
  taken t = take(&p->value, c);
  return t == TAKES ? TAKES : WRONG;
}

static taken take_value(answer_parser *p, char c) {
  taken t = take(&p->value, c);
  if (t == WRONG || t == TAKES) return t;
  if (!note_value(p, p->at + (t == LAST))) return WRONG;
  return t == LAST ? TAKES : BEHIND;
}

static taken take_key(answer_parser *p, char c) {
  taken t = take(&p->value, c);
  return t == LAST ? note_key(p, p->object.begin, p->at + 1) ? TAKES : WRONG : t;
}

/* Handles the next byte of an object. LAST: the object ends. BEHIND: the byte must be examined
 * again. */
static taken take_member(answer_parser *p, char c) {
  answer_object *o = &p->object;
  switch (o->expects) {
  case OBJECT_IN_KEY: return take_key(p, c);
  case OBJECT_VALUE: return begin_value(p, c);
  case OBJECT_IN_VALUE: return take_value(p, c);
  default: break;
  }
  if (answer_is_space(c)) return TAKES;
  if (c == '}' && o->expects != OBJECT_COLON) return LAST;
  bool good = o->expects == OBJECT_KEY ? c == '"' : c == (o->expects == OBJECT_COLON ? ':' : ',');
  p->value = (answer_value){.quoted = o->expects == OBJECT_KEY};
  o->begin = p->at;
  o->expects = o->expects == OBJECT_KEY     ? OBJECT_IN_KEY
               : o->expects == OBJECT_COLON ? OBJECT_VALUE
                                            : OBJECT_KEY;
  return good ? TAKES : WRONG;
}

/* Returns whether the arguments begin at this byte and can be streamed. */
static bool streams(const answer_parser *p) {
  const answer_object *o = &p->object;
  char c = p->text[p->at];
  return o->expects == OBJECT_VALUE && o->member == MEMBER_ARGUMENTS && o->named && !o->called &&
         o->until == o->arguments && (c == '{' || c == '[');
}

static answer_step begin_arguments(answer_parser *p, answer_piece *out, bool value_only) {
  p->from = p->at;
  p->object.called = true;
  p->value = (answer_value){0};
  p->value_only = value_only;
  p->state = IN_ARGUMENTS;
  return answer_call(p, out);
}

/* Ends an object. */
static answer_step object_over(answer_parser *p, answer_piece *out) {
  if (p->object.called) return answer_call_over(p, IN_CALLS);
  if (!p->object.named) return answer_refuse(p, out);
  p->state = IN_RECORDED;
  return answer_call(p, out);
}

/* Handles an object that is incomplete at the end of the text, or invalid. */
static answer_step break_off(answer_parser *p, answer_piece *out) {
  return p->object.called ? answer_call_over(p, IN_CALLS) : answer_refuse(p, out);
}

answer_step answer_step_object(answer_parser *p, answer_piece *out) {
  while (p->at < p->bytes) {
    if (streams(p)) return begin_arguments(p, out, false);
    taken t = take_member(p, p->text[p->at]);
    if (t == WRONG) return break_off(p, out);
    p->at += t != BEHIND;
    if (t == LAST) return object_over(p, out);
    if (p->object.called) p->from = p->at;
  }
  return p->ended ? break_off(p, out) : STEP_WAITS;
}

/* Passes on arguments that came before the name, or in the form of a string. */
answer_step answer_step_recorded(answer_parser *p, answer_piece *out) {
  const answer_object *o = &p->object;
  const char *text = p->text + o->arguments;
  size_t bytes = o->until - o->arguments;
  answer_call_over(p, IN_CALLS);
  if (bytes && *text == '"' && make_text(p, o->arguments, o->until)) {
    text = p->made;
    bytes = p->made_bytes;
  }
  bool none = !bytes || (bytes == 4 && !memcmp(text, "null", 4));
  return answer_give(out, ANSWER_ARGUMENTS, p, none ? "{}" : text, none ? 2 : bytes);
}

/* ---- arguments ------------------------------------------------------------------------------- */

answer_step answer_step_arguments(answer_parser *p, answer_piece *out) {
  const char *text = p->text + p->from;
  taken t = TAKES;
  while (p->at < p->bytes && t == TAKES) {
    t = take(&p->value, p->text[p->at]);
    p->at += t == TAKES || t == LAST;
  }
  size_t bytes = p->at - p->from;
  bool over = t != TAKES || p->ended;
  p->from = p->at;
  if (over && p->value_only) answer_call_over(p, IN_CALLS);
  else if (over) {
    p->state = IN_OBJECT;
    p->object.expects = OBJECT_COMMA;
  }
  if (bytes) return answer_give(out, ANSWER_ARGUMENTS, p, text, bytes);
  return over ? STEP_GOES : STEP_WAITS;
}

/* ---- a name before arguments ----------------------------------------------------------------- */

static bool is_letter(char c) { return isalnum((unsigned char)c) || (c && strchr("_-.", c)); }

/* Returns whether the byte at `at` may precede the arguments. */
static bool may_lead(const answer_parser *p) {
  char c = p->text[p->at];
  bool apart = p->at > p->object.begin && answer_is_space(p->text[p->at - 1]);
  return is_letter(c) ? !apart : answer_is_space(c) || c == '[' || c == ']';
}

/* Reads "NAME", and perhaps "[CALL_ID]ID" and "[ARGS]", up to the arguments. */
answer_step answer_step_name(answer_parser *p, answer_piece *out) {
  size_t begin = p->object.begin;
  for (; p->at < p->bytes && p->text[p->at] != '{'; p->at++)
    if (!may_lead(p)) return answer_refuse(p, out);
  if (p->at == p->bytes) return p->ended ? answer_refuse(p, out) : STEP_WAITS;
  size_t end = begin;
  while (is_letter(p->text[end])) end++;
  p->made_bytes = 0;
  answer_make(p, p->text + begin, end - begin);
  return begin_arguments(p, out, true);
}

/* ---- before a call --------------------------------------------------------------------------- */

static answer_step begin_object(answer_parser *p) {
  p->object = (answer_object){0};
  p->at++;
  p->state = IN_OBJECT;
  return STEP_GOES;
}

/* Ends the calls: no further call follows. */
static answer_step calls_over(answer_parser *p, answer_piece *out) {
  return p->listed ? answer_to_text(p) : answer_refuse(p, out);
}

/* Examines text other than an object. Returns 1 if the state has changed, -1 if more text is
 * needed, or 0. */
static int begin_otherwise(answer_parser *p) {
  const answer_format *f = p->how.format;
  int closes = f->close && p->listed ? answer_match(p, p->at, f->close) : 0;
  if (closes > 0) {
    p->at += strlen(f->close);
    answer_to_text(p);
  }
  if (closes || p->listed) return closes;
  int function = f->close ? answer_match(p, p->at, "<function=") : 0;
  bool named = f->named && is_letter(p->text[p->at]);
  if (function > 0) p->state = IN_FUNCTION;
  if (!named) return function;
  p->object = (answer_object){.begin = p->at};
  p->state = IN_NAME;
  return 1;
}

static bool skips(const answer_parser *p, char c) {
  return answer_is_space(c) || (p->listed && (c == ',' || c == ';')) ||
         (c == '[' && !p->in_array && !p->listed) || (c == ']' && p->in_array);
}

answer_step answer_step_calls(answer_parser *p, answer_piece *out) {
  for (; p->at < p->bytes && skips(p, p->text[p->at]); p->at++) {
    if (p->text[p->at] == '[') p->in_array = true;
    if (p->text[p->at] == ']') p->in_array = false;
  }
  if (p->at == p->bytes) return p->ended ? calls_over(p, out) : STEP_WAITS;
  if (p->text[p->at] == '{') return begin_object(p);
  int goes = begin_otherwise(p);
  if (goes) return goes > 0 ? STEP_GOES : STEP_WAITS;
  return calls_over(p, out);
}
