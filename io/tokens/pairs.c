/* SPDX-License-Identifier: Apache-2.0 */
#include "io/tokens/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/json.h"
#include "io/tokenizer/tokenizer.h"

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
  const char *path;
  bool whole; /* the prompt gets the tokens that begin a text */
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

/* Adds prompt and answer. `end` is the text after an answer. */
static sl_status add_answer(pairs_reading *r, const sli_json *doc, const char *prompt,
                            const char *text, const char *end, answer *out) {
  sli_pairs *p = r->to;
  out->begin = p->tokens.count;
  sl_status status = add_text(r, prompt, r->whole);
  out->prompt = p->tokens.count - out->begin;
  char *ended = sli_format("%s%s", text, end ? end : "");
  if (!status) status = add_text(r, ended, false);
  free(ended);
  out->count = p->tokens.count - out->begin;
  if (status) {
    char *why = sli_strdup(sl_detail());
    status = sl_fail(status, "%s: %s", doc->name, why);
    free(why);
    return status;
  }
  if (!out->prompt)
    return sl_fail(SL_E_INPUT, "%s: the prompt has no tokens, and an answer needs one before it",
                   doc->name);
  if (out->count == out->prompt)
    return sl_fail(SL_E_INPUT, "%s: an answer has no tokens", doc->name);
  return check_tokens(doc, p, out->begin);
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Returns the text of an answer, given as a text or as one assistant message. */
static sl_status answer_text(const sli_json *doc, const cJSON *item, const char **out) {
  if (cJSON_IsString(item)) return *out = item->valuestring, SL_OK;
  const cJSON *message = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 1 ? item->child : NULL;
  const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role"),
              *content = cJSON_GetObjectItemCaseSensitive(message, "content");
  if (!cJSON_IsString(role) || strcmp(role->valuestring, "assistant") || !cJSON_IsString(content))
    return sli_json_fail(doc, item,
                         "wanted a text, or an array of one message of the assistant whose content "
                         "is a text");
  *out = content->valuestring;
  return SL_OK;
}

/* Returns the text of a prompt; the caller frees it. */
static sl_status prompt_text(pairs_reading *r, const sli_json *doc, const cJSON *item, char **out) {
  const sli_pairs_options *o = &r->to->options;
  r->whole = !cJSON_IsArray(item);
  if (cJSON_IsString(item)) return *out = sli_strdup(item->valuestring), SL_OK;
  if (!cJSON_IsArray(item))
    return sli_json_fail(doc, item, "wanted a text or an array of messages");
  if (!o->render)
    return sl_fail(
        SL_E_INPUT,
        "%s: the prompt is a list of messages, but there is no chat template to format it",
        doc->name);
  char *messages = cJSON_PrintUnformatted(item);
  sl_status status = o->render(o->ctx, messages, strlen(messages), out);
  cJSON_free(messages);
  if (!status) return SL_OK;
  char *why = sli_strdup(sl_detail());
  status = sl_fail(SL_E_INPUT, "%s: %s", doc->name, why);
  free(why);
  return status;
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

static sl_status read_pair(pairs_reading *r, const sli_json *doc) {
  const sli_pairs_options *o = &r->to->options;
  const cJSON *prompt = NULL, *answers[2] = {NULL};
  const sli_json_field fields[] = {
      {.key = "prompt", .kind = SLI_JSON_ANY, .out = &prompt, .needed = true},
      {.key = "chosen", .kind = SLI_JSON_ANY, .out = &answers[CHOSEN], .needed = true},
      {.key = "rejected", .kind = SLI_JSON_ANY, .out = &answers[REJECTED], .needed = true}};
  char *text = NULL;
  answer found[2];
  sl_status status = sli_json_pick(doc, doc->root, fields, SLI_COUNT(fields));
  if (!status) status = prompt_text(r, doc, prompt, &text);
  for (int a = 0; a < 2 && !status; a++) {
    const char *said = NULL;
    status = answer_text(doc, answers[a], &said);
    if (!status)
      status = add_answer(r, doc, text, said, r->whole ? o->end : o->chat_end, &found[a]);
  }
  free(text);
  return status ? status : take_pair(r, doc, found);
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
  if (!status) status = read_pair(r, &doc);
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
