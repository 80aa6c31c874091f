/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of an answer with headers, such as
 *   <|channel|>analysis<|message|>...<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
 *   <|start|>assistant to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>{...}
 * The channel analysis is reasoning, a message to a function is a call, and others are content. */
#include "tools/actorserve/answer/answer_inner.h"

static const char message[] = "<|message|>", channel[] = "<|channel|>",
                  functions[] = "to=functions.";
enum { LONGEST_HEADER = 512 };

/* Returns the offset after a word of the header, or 0 if the header does not have it. */
static size_t behind(const answer_parser *p, const char *word) {
  for (size_t i = p->from; i < p->at; i++)
    if (answer_match(p, i, word) > 0 && i + strlen(word) <= p->at) return i + strlen(word);
  return 0;
}

static bool is_analysis(const answer_parser *p) {
  size_t at = behind(p, channel);
  return at && answer_match(p, at, "analysis") > 0;
}

/* Handles the header between `from` and `at`. */
static answer_step take_header(answer_parser *p, answer_piece *out) {
  size_t name = behind(p, functions), end = name;
  bool thought = is_analysis(p);
  while (name && end < p->at && !answer_is_space(p->text[end]) && p->text[end] != '<') end++;
  p->made_bytes = 0;
  answer_make(p, p->text + name, end - name);
  p->at += sizeof message - 1;
  answer_to_text(p);
  if (end > name) {
    p->state = IN_RAW;
    return answer_call(p, out);
  }
  if (thought) p->state = IN_THOUGHT;
  return STEP_GOES;
}

/* Ends a header without a message: a mark at the answer's end is dropped, other text is content. */
static answer_step refuse_header(answer_parser *p, answer_piece *out) {
  bool mark = p->from < p->bytes && p->text[p->from] == '<';
  if (p->at < p->bytes || !mark) return answer_refuse(p, out);
  p->from = p->at;
  p->state = IN_TEXT;
  return STEP_GOES;
}

answer_step answer_step_header(answer_parser *p, answer_piece *out) {
  for (; p->at < p->bytes; p->at++) {
    bool inside = ((unsigned char)p->text[p->at] & 0xc0) == 0x80; /* inside a character */
    int match = answer_match(p, p->at, message);
    if (match) return match > 0 ? take_header(p, out) : STEP_WAITS;
    if (p->at - p->from > LONGEST_HEADER && !inside) return answer_refuse(p, out);
  }
  return p->ended ? refuse_header(p, out) : STEP_WAITS;
}
