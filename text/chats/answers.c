/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes a chat with the model's template, and finds which tokens belong to answers. A template
 * may mark answers itself. Otherwise the chat is rendered up to each answer, and including it. The
 * text before an answer must be a prefix of the whole text. The answer's tokens begin where the two
 * differ. They end where the tokens of the text including it end, or where these continue with text
 * that only ends a chat. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/chats/chats_inner.h"

void sli_chats_tokens_fini(chats_tokens *t) {
  free(t->tokens.items);
  free(t->marks.items);
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* A chat being tokenized. */
typedef struct chats_job {
  sli_chats *c;
  const chats_line *line;
  size_t count, first; /* messages; those before `first` are a prompt */
  bool *answers;       /* [count] is an answer */
  bool *learned;       /* [count] is learned */
  bool plain, tools;
  char *prompt, *text; /* prompt: the first of two texts; text: the whole text */
  chats_tokens *out;
} chats_job;

/* Renders the first messages. */
static sl_status render(const chats_job *j, size_t count, bool answered, sli_text_spans *answers,
                        char **out) {
  sli_values *v = sli_chats_room(j->line);
  chats_values values;
  sl_status status = sli_chats_line(j->line, v, &values);
  sli_value some = sli_value_list(v);
  for (size_t i = 0; i < count && !status; i++)
    sli_value_add(v, some, sli_value_item(values.values.messages, i));
  values.values.messages = some;
  if (!status) {
    status = sli_chat_render_values(j->c->chat, &j->c->found.marks, v, &values.values, answered,
                                    answers, out);
    if (status) status = sli_chats_fail(j->line, SL_E_INPUT);
  }
  sli_values_destroy(v);
  return status;
}

static sl_status encode(const chats_job *j, const char *text, sli_token_row *out) {
  sl_status status = sli_tokenizer_encode(j->c->tokenizer, text, strlen(text), j->plain, out);
  return status ? sli_chats_fail(j->line, status) : SL_OK;
}

/* Counts the leading tokens that a text shares with the whole text. `ends` is set if the text's
 * remaining tokens are also the end of the whole text. */
static sl_status compare(const chats_job *j, const char *text, size_t *same, bool *ends) {
  const sli_token_row *all = &j->out->tokens;
  sli_token_row row = {0};
  sl_status status = encode(j, text, &row);
  size_t n = 0;
  while (n < row.count && n < all->count && row.items[n] == all->items[n]) n++;
  size_t left = row.count - n;
  *ends = left <= all->count - n && (!left || !memcmp(row.items + n, all->items + all->count - left,
                                                      left * sizeof *row.items));
  *same = n;
  free(row.items);
  return status;
}

static bool begins_with(const char *text, const char *begin) {
  return !strncmp(text, begin, strlen(begin));
}

static void set_marks(const chats_job *j, size_t begin, size_t end, int32_t mark) {
  sli_token_row *marks = &j->out->marks;
  while (marks->count < j->out->tokens.count) sli_token_row_add(marks, 0);
  for (size_t i = begin; i < SLI_MIN(end, marks->count); i++) marks->items[i] = mark;
}

/* ---- answers, for templates without marks ---------------------------------------------------- */

static sl_status not_found(const chats_job *j, size_t answer, const char *what) {
  return sl_fail(
      SL_E_INPUT,
      "%s: the answer in message %zu cannot be found: with the chat template %s, %s is not how the "
      "whole chat begins. A template with generation marks (--chat-template FILE) says where "
      "answers are",
      j->line->place, answer, sli_chat_name(j->c->chat), what);
}

/* Finds the first token of an answer. */
static sl_status find_begin(const chats_job *j, size_t answer, size_t *begin) {
  char *text = NULL;
  bool ends;
  SLI_TRY(render(j, answer, false, NULL, &text));
  sl_status status = begins_with(j->text, text) ? compare(j, text, begin, &ends)
                                                : not_found(j, answer, "what stands before it");
  free(text);
  return status;
}

/* Finds the token after an answer. */
static sl_status find_end(const chats_job *j, size_t answer, size_t *end) {
  char *text = NULL;
  bool ends = true;
  if (answer + 1 == j->count) return *end = j->out->tokens.count, SL_OK;
  SLI_TRY(render(j, answer + 1, true, NULL, &text));
  sl_status status = compare(j, text, end, &ends);
  if (!status && !ends && !begins_with(j->text, text))
    status = not_found(j, answer, "what ends with it");
  free(text);
  return status;
}

static sl_status find_answers(const chats_job *j) {
  SLI_TRY(encode(j, j->text, &j->out->tokens));
  set_marks(j, 0, 0, 0);
  for (size_t i = j->first; i < j->count; i++) {
    size_t begin = 0, end = 0;
    if (!j->learned[i]) continue;
    SLI_TRY(find_begin(j, i, &begin));
    SLI_TRY(find_end(j, i, &end));
    set_marks(j, begin, end, 1);
  }
  return SL_OK;
}

/* ---- marked answers -------------------------------------------------------------------------- */

/* Returns whether a completion consists of learned answers only. */
static bool only_answers(const chats_job *j) {
  size_t i = j->first;
  while (i < j->count && j->learned[i]) i++;
  return j->first && i == j->count;
}

/* Leaves out answers in the prompt. A completion that consists of answers is learned including
 * everything that the template puts around them. */
static sl_status keep_completion(const chats_job *j) {
  size_t begin = 0;
  if (!j->first) return SL_OK;
  SLI_TRY(find_begin(j, j->first, &begin));
  set_marks(j, 0, begin, 0);
  if (only_answers(j)) set_marks(j, begin, SIZE_MAX, 1);
  return SL_OK;
}

static bool same_span(const char *a, sli_text_span in_a, const char *b, sli_text_span in_b) {
  size_t bytes = in_a.end - in_a.begin;
  return in_b.end - in_b.begin == bytes && !memcmp(a + in_a.begin, b + in_b.begin, bytes);
}

/* Counts the marked answers of the first messages, which must be those of the whole chat. */
static sl_status count_spans(const chats_job *j, size_t messages, const sli_text_spans *all,
                             size_t *count) {
  sli_text_spans some = {0};
  char *text = NULL;
  *count = 0;
  if (!messages) return SL_OK;
  sl_status status = render(j, messages, true, &some, &text);
  bool same = some.count <= all->count;
  for (size_t i = 0; i < some.count && same && !status; i++)
    same = same_span(text, some.items[i], j->text, all->items[i]);
  if (!status && !same)
    status = sl_fail(SL_E_INPUT,
                     "%s: message %zu is not learned, but the chat template %s renders it in "
                     "another way within the chat, so it cannot be left out",
                     j->line->place, messages - 1, sli_chat_name(j->c->chat));
  *count = some.count;
  free(some.items);
  free(text);
  return status;
}

/* Removes the marked parts of answers that are not learned. */
static sl_status drop_unlearned(const chats_job *j, sli_text_spans *all) {
  for (size_t i = j->count; i-- > 0;) {
    size_t begin, end;
    if (!j->answers[i] || j->learned[i] || i < j->first) continue;
    SLI_TRY(count_spans(j, i, all, &begin));
    SLI_TRY(count_spans(j, i + 1, all, &end));
    memmove(all->items + begin, all->items + end, (all->count - end) * sizeof *all->items);
    all->count -= end - begin;
  }
  return SL_OK;
}

static sl_status take_marks(chats_job *j) {
  sli_text_spans answers = {0};
  sl_status status = render(j, j->count, true, &answers, &j->text);
  if (!status) status = drop_unlearned(j, &answers);
  if (!status) {
    status = sli_tokenizer_encode_marked(j->c->tokenizer, j->text, strlen(j->text), &answers,
                                         &j->out->tokens, &j->out->marks);
    if (status) sli_chats_fail(j->line, status);
  }
  free(answers.items);
  return status ? status : keep_completion(j);
}

/* ---- chats ----------------------------------------------------------------------------------- */

/* Joins prompt, completion, and the token that ends a text. */
static void join_texts(chats_job *j, const chats_values *values) {
  const char *end = j->c->found.marks.end ? j->c->found.marks.end : "";
  sli_value a = values->prompt, b = values->completion;
  size_t n = strlen(end);
  bool ended = b.text.bytes >= n && !memcmp(b.text.at + b.text.bytes - n, end, n);
  j->prompt = sli_format("%.*s", (int)a.text.bytes, a.text.at);
  j->text = sli_format("%s%.*s%s", j->prompt, (int)b.text.bytes, b.text.at, ended ? "" : end);
}

/* Reads the contents of the line, once. */
static sl_status begin(chats_job *j) {
  sli_values *v = sli_chats_room(j->line);
  chats_values values;
  sl_status status = sli_chats_line(j->line, v, &values);
  if (!status) {
    j->count = sli_value_count(values.values.messages);
    j->first = values.first;
    j->plain = values.plain;
    j->tools = values.values.tools.kind != SLI_NONE;
    j->answers = sli_calloc(j->count + 1, sizeof *j->answers);
    j->learned = sli_calloc(j->count + 1, sizeof *j->learned);
    for (size_t i = 0; i < j->count; i++) {
      j->answers[i] = sli_chats_is_answer(v, sli_value_item(values.values.messages, i));
      j->learned[i] = sli_value_item(values.learned, i).truth;
    }
    if (values.plain) join_texts(j, &values);
  }
  sli_values_destroy(v);
  return status;
}

static sl_status complete(const chats_job *j) {
  size_t same = 0;
  bool ends;
  SLI_TRY(encode(j, j->text, &j->out->tokens));
  SLI_TRY(compare(j, j->prompt, &same, &ends));
  set_marks(j, same, SIZE_MAX, 1);
  return SL_OK;
}

static sl_status make_tokens(chats_job *j) {
  if (j->plain) return complete(j);
  if (!j->c->chat) return sl_fail(SL_E_USAGE, "%s: %s", j->line->place, j->c->why);
  if (!j->c->options.all && sli_chat_marks_answers(j->c->chat, j->tools)) return take_marks(j);
  SLI_TRY(render(j, j->count, true, NULL, &j->text));
  return j->c->options.all ? encode(j, j->text, &j->out->tokens) : find_answers(j);
}

sl_status sli_chats_tokens(sli_chats *c, const chats_line *line, chats_tokens *out) {
  chats_job j = {.c = c, .line = line, .out = out};
  *out = (chats_tokens){{0}, {0}};
  sl_status status = begin(&j);
  if (!status) status = make_tokens(&j);
  free(j.answers);
  free(j.learned);
  free(j.prompt);
  free(j.text);
  if (status) sli_chats_tokens_fini(out);
  return status;
}
