/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokens/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/chats/chats.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"

/* Tokens of a prompt and an answer, within the tokens of all pairs. */
typedef struct answer {
  size_t begin, prompt, count; /* count: tokens of both */
} answer;

struct sli_pairs {
  sli_pairs_options options;
  size_t count, capacity;
  answer (*of)[2]; /* chosen, rejected */
  int64_t dropped;
  sli_token_row tokens;
};

/* State of reading. */
typedef struct pairs_reading {
  sli_pairs *to;
  sli_tokenizer *tokenizer;
  sli_chats *chats; /* opened at the first prompt of messages */
  const char *path;
} pairs_reading;

enum { CHOSEN, REJECTED };
static const char *const answer_names[] = {"chosen", "rejected"};

/* ---- tokens -------------------------------------------------------------------------------- */

static sl_status add_text(pairs_reading *r, const char *text, bool whole) {
  sli_token_row *to = &r->to->tokens;
  if (r->tokenizer) return sli_tokenizer_encode(r->tokenizer, text, strlen(text), whole, to);
  for (; *text; text++) sli_token_row_add(to, (unsigned char)*text);
  return SL_OK;
}

static sl_status check_tokens(const sli_json *doc, const sli_pairs *p, size_t from) {
  for (size_t i = from; i < p->tokens.count; i++)
    if (p->tokens.items[i] < 0 || p->tokens.items[i] >= p->options.vocab)
      return sl_fail(SL_E_INPUT, "%s: token %d is not in the vocabulary of %lld", doc->name,
                     p->tokens.items[i], (long long)p->options.vocab);
  return SL_OK;
}

/* Adds the place to an error. */
static sl_status name_place(const sli_json *doc, sl_status status) {
  return status ? sl_fail(status, "%s: %s", doc->name, sl_detail()) : SL_OK;
}

/* Adds the tokens of a prompt, then those of an answer and of the text that ends it. */
static sl_status add_texts(pairs_reading *r, const char *prompt, const char *text, answer *out) {
  const char *end = r->to->options.end;
  sl_status status = add_text(r, prompt, true);
  out->prompt = r->to->tokens.count - out->begin;
  char *ended = sli_format("%s%s", text, end ? end : "");
  if (!status) status = add_text(r, ended, false);
  free(ended);
  return status;
}

/* Notes the tokens that were added to a pair as one of its answers. */
static sl_status end_answer(const sli_pairs *p, const sli_json *doc, answer *out) {
  out->count = p->tokens.count - out->begin;
  if (!out->prompt)
    return sl_fail(SL_E_INPUT, "%s: the prompt has no tokens, and an answer needs one before it",
                   doc->name);
  if (out->count == out->prompt)
    return sl_fail(SL_E_INPUT, "%s: an answer has no tokens", doc->name);
  return check_tokens(doc, p, out->begin);
}

/* ---- lines --------------------------------------------------------------------------------- */

/* A line of a file, as text and as JSON. */
typedef struct pair_line {
  const char *text;
  const sli_json *doc;
  const cJSON *prompt, *answers[2];
} pair_line;

/* Adds a prompt and an answer that are texts. */
static sl_status take_texts(pairs_reading *r, const pair_line *line, int which, answer *out) {
  const cJSON *item = line->answers[which];
  if (!cJSON_IsString(item))
    return sli_json_fail(line->doc, item, "wanted a text, like the prompt");
  return name_place(line->doc, add_texts(r, line->prompt->valuestring, item->valuestring, out));
}

/* Opens the reader of chats, which checks tokens again: the largest vocabulary is no limit. */
static sl_status open_chats(pairs_reading *r, const pair_line *line) {
  const sli_pairs_options *o = &r->to->options;
  if (r->chats) return SL_OK;
  if (!o->tokenizer)
    return sl_fail(
        SL_E_INPUT,
        "%s: the prompt is a list of messages, but there is no chat template to format it",
        line->doc->name);
  return sli_chats_open(&(sli_chats_options){o->tokenizer, o->template, false, o->vocab},
                        &r->chats);
}

/* Adds a prompt and an answer as the chat template renders them. */
static sl_status take_messages(pairs_reading *r, const pair_line *line, int which, answer *out) {
  SLI_TRY(open_chats(r, line));
  return sli_chats_preference(r->chats, line->doc->name, line->text, answer_names[which],
                              &r->to->tokens, &out->prompt);
}

/* Adds a pair of both answers, or records that it is too long. */
static sl_status take_pair(pairs_reading *r, const sli_json *doc, const answer found[2]) {
  sli_pairs *p = r->to;
  size_t longest = SLI_MAX(found[0].count, found[1].count);
  if ((int64_t)longest <= p->options.context + 1) {
    SLI_GROW(p->of, p->count, p->capacity);
    memcpy(p->of[p->count++], found, sizeof *p->of);
    return SL_OK;
  }
  p->tokens.count = found[0].begin;
  p->dropped++;
  if (p->options.drop) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: prompt and %s answer are %zu tokens, of which a row with a context of %lld "
                 "has room for %lld",
                 doc->name, answer_names[found[REJECTED].count == longest], longest,
                 (long long)p->options.context, (long long)p->options.context + 1);
}

static sl_status read_pair(pairs_reading *r, const sli_json *doc, const char *text) {
  pair_line line = {.text = text, .doc = doc};
  const sli_json_field fields[] = {
      {.key = "prompt", .kind = SLI_JSON_ANY, .out = &line.prompt, .needed = true},
      {.key = "chosen", .kind = SLI_JSON_ANY, .out = &line.answers[CHOSEN], .needed = true},
      {.key = "rejected", .kind = SLI_JSON_ANY, .out = &line.answers[REJECTED], .needed = true}};
  answer found[2];
  SLI_TRY(sli_json_pick(doc, doc->root, fields, SLI_COUNT(fields)));
  bool texts = cJSON_IsString(line.prompt);
  if (!texts && !cJSON_IsArray(line.prompt))
    return sli_json_fail(doc, line.prompt, "wanted a text or an array of messages");
  for (int a = 0; a < 2; a++) {
    found[a].begin = r->to->tokens.count;
    SLI_TRY((texts ? take_texts : take_messages)(r, &line, a, &found[a]));
    SLI_TRY(end_answer(r->to, doc, &found[a]));
  }
  return take_pair(r, doc, found);
}

static bool is_blank(const char *text) { return !text[strspn(text, " \t\r")]; }

static sl_status read_line(void *ctx, int line, char *text, size_t length) {
  pairs_reading *r = ctx;
  if (is_blank(text) && strlen(text) == length) return SL_OK;
  char *name = sli_format("%s:%d", r->path, line);
  sli_json doc;
  sl_status status = sli_json_read(name, text, length, 0, &doc);
  free(name);
  if (status) return status;
  status = sli_json_is(&doc, doc.root, SLI_JSON_OBJECT);
  if (!status) status = read_pair(r, &doc, text);
  sli_json_fini(&doc);
  return status;
}

/* ---- files --------------------------------------------------------------------------------- */

static sl_status read_files(pairs_reading *r, const char *paths) {
  sl_status status = SL_OK;
  for (const char *at = paths; *at && !status; at += *at == '\n') {
    size_t n = strcspn(at, "\n");
    char *path = sli_format("%.*s", (int)n, at);
    r->path = path;
    status = sli_file_lines(path, read_line, r);
    free(path);
    at += n;
  }
  return status;
}

sl_status sli_pairs_open(const sli_pairs_options *options, sli_pairs **out) {
  sli_pairs *p = sli_calloc(1, sizeof *p);
  p->options = *options;
  pairs_reading r = {.to = p};
  sl_status status =
      options->tokenizer ? sli_tokenizer_open(options->tokenizer, &r.tokenizer) : SL_OK;
  if (!status) status = read_files(&r, options->paths);
  sli_tokenizer_close(r.tokenizer);
  sli_chats_close(r.chats);
  if (!status && !p->count)
    status = sl_fail(SL_E_INPUT, "%s: no pairs%s", options->paths,
                     p->dropped ? " that are short enough" : "");
  if (status) sli_pairs_close(p);
  else *out = p;
  return status;
}

void sli_pairs_close(sli_pairs *p) {
  if (!p) return;
  free(p->of);
  free(p->tokens.items);
  free(p);
}

int64_t sli_pairs_count(const sli_pairs *p, int64_t *dropped) {
  if (dropped) *dropped = p->dropped;
  return (int64_t)p->count;
}

/* Returns the first position whose target is an answer token. */
static int64_t first_of(const answer *a) { return a->prompt ? (int64_t)a->prompt - 1 : 0; }

int64_t sli_pairs_longest(const sli_pairs *p) {
  int64_t most = 0;
  for (size_t i = 0; i < p->count; i++)
    for (int k = 0; k < 2; k++) {
      const answer *a = &p->of[i][k];
      most = SLI_MAX(most, (int64_t)a->count - 1 - first_of(a));
    }
  return most;
}

/* Returns token i of a row. */
static int32_t pair_token(const sli_pairs *p, const answer *a, int64_t i) {
  return i < (int64_t)a->count ? p->tokens.items[(int64_t)a->begin + i] : 0;
}

void sli_pairs_row(const sli_pairs *p, int64_t pair, bool rejected, int32_t *tokens,
                   int32_t *targets) {
  const answer *a = &p->of[pair][rejected];
  for (int64_t i = 0; i < p->options.context; i++) {
    if (tokens) tokens[i] = pair_token(p, a, i);
    if (targets) targets[i] = pair_token(p, a, i + 1);
  }
}

void sli_pairs_answer(const sli_pairs *p, int64_t pair, bool rejected, int64_t count,
                      int32_t *positions, int32_t *targets, float *weights) {
  const answer *a = &p->of[pair][rejected];
  int64_t begin = SLI_MIN(first_of(a), p->options.context - count);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = begin + i;
    if (positions) positions[i] = (int32_t)at;
    if (targets) targets[i] = pair_token(p, a, at + 1);
    if (weights) weights[i] = at + 1 < (int64_t)a->count && at + 1 >= (int64_t)a->prompt ? 1 : 0;
  }
}
