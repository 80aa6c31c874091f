/* SPDX-License-Identifier: Apache-2.0 */
/* Chats as tokens, with a bit that marks learned tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "text/chats/chats_inner.h"
#include "io/file.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* Chooses the template. Without one, data of plain texts can still be read. */
static sl_status choose(sli_chats *c) {
  const sli_chats_options *o = &c->options;
  sl_status status = sli_chat_find(o->tokenizer, &c->found);
  if (status) return status;
  status = sli_chat_choose(&c->found, o->tokenizer, o->template, &c->chat);
  if (!status || o->template) return status;
  c->why = sli_strdup(sl_detail());
  c->chat = NULL;
  return SL_OK;
}

sl_status sli_chats_open(const sli_chats_options *options, sli_chats **out) {
  sli_chats *c = sli_calloc(1, sizeof *c);
  c->options = *options;
  sl_status status = sli_tokenizer_open(options->tokenizer, &c->tokenizer);
  if (!status) status = choose(c);
  if (status) sli_chats_close(c);
  else *out = c;
  return status;
}

void sli_chats_close(sli_chats *c) {
  if (!c) return;
  sli_tokenizer_close(c->tokenizer);
  sli_chat_free(c->chat);
  sli_chat_found_fini(&c->found);
  free(c->why);
  free(c);
}

static uint64_t hash_text(uint64_t hash, const char *text) {
  size_t bytes = text ? strlen(text) : 0;
  return sli_hash_word(sli_hash_word(hash, bytes), bytes ? sli_hash_samples(text, bytes) : 0);
}

uint64_t sli_chats_hash(const sli_chats *c) {
  const sli_chat_marks *m = &c->found.marks;
  const char *const texts[] = {m->begin,     m->end,        m->unknown, m->pad,
                               m->separator, m->classifier, m->mask};
  uint64_t hash = sli_hash_word(c->options.all, (uint64_t)c->options.vocab);
  hash = sli_hash_word(hash, c->chat ? sli_chat_hash(c->chat) : 0);
  for (size_t i = 0; i < SLI_COUNT(texts); i++) hash = hash_text(hash, texts[i]);
  return hash;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static sl_status check_tokens(const sli_chats *c, const chats_line *line,
                              const sli_token_row *row) {
  for (size_t i = 0; i < row->count; i++)
    if (row->items[i] >= c->options.vocab)
      return sl_fail(SL_E_INPUT, "%s: token %d, and the vocabulary has %lld tokens", line->place,
                     row->items[i], (long long)c->options.vocab);
  return SL_OK;
}

static sl_status add_chat(const sli_chats *c, const chats_line *line, const chats_tokens *t,
                          sli_token_row *out) {
  bool all = c->options.all, learned = false;
  const sli_token_row *tokens = &t->tokens;
  SLI_TRY(check_tokens(c, line, tokens));
  for (size_t i = 1; i < tokens->count; i++) learned |= all || t->marks.items[i];
  if (!learned)
    return sl_fail(
        SL_E_INPUT, "%s: nothing to learn: %s", line->place,
        all ? "it has no two tokens" : "none of its messages is an answer that is learned");
  sli_token_row_add(out, (int32_t)tokens->count);
  for (size_t i = 0; i < tokens->count; i++) {
    bool learn = all || t->marks.items[i];
    sli_token_row_add(out, learn ? tokens->items[i] | SLI_CHATS_LEARNED : tokens->items[i]);
  }
  return SL_OK;
}

/* Returns a line, with what its reading depends on. */
static chats_line line_at(const sli_chats *c, const char *place, const char *text, size_t bytes) {
  return (chats_line){.place = place,
                      .text = text,
                      .bytes = bytes,
                      .template = c->chat ? sli_chat_text(c->chat) : NULL,
                      .all = c->options.all};
}

static sl_status encode_line(sli_chats *c, const chats_line *line, sli_token_row *out) {
  chats_tokens t;
  SLI_TRY(sli_json_scan(line->place, line->text, line->bytes, 0));
  SLI_TRY(sli_chats_tokens(c, line, &t));
  sl_status status = add_chat(c, line, &t, out);
  sli_chats_tokens_fini(&t);
  return status;
}

sl_status sli_chats_preference(sli_chats *c, const char *place, const char *text,
                               const char *answer, sli_token_row *out, size_t *prompt) {
  chats_line line = line_at(c, place, text, strlen(text));
  sli_token_row row = {0};
  line.answer = answer;
  sl_status status = encode_line(c, &line, &row);
  size_t count = status ? 0 : (size_t)row.items[0], begin = 1;
  while (begin <= count && row.items[begin] >= 0) begin++;
  for (size_t i = 1; i <= count; i++) sli_token_row_add(out, row.items[i] & ~SLI_CHATS_LEARNED);
  *prompt = begin - 1;
  free(row.items);
  return status;
}

static bool is_blank(const char *text, size_t bytes) {
  while (bytes && strchr(" \t\r", *text)) text++, bytes--;
  return !bytes;
}

sl_status sli_chats_encode(sli_chats *c, const char *path, const char *text, size_t bytes,
                           sli_token_row *out) {
  sl_status status = SL_OK;
  size_t at = 0;
  for (int number = 1; at < bytes && !status; number++) {
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t n = end ? (size_t)(end - text) - at : bytes - at;
    char *place = sli_format("%s:%d", path, number);
    const chats_line line = line_at(c, place, text + at, n);
    if (!is_blank(line.text, n)) status = encode_line(c, &line, out);
    free(place);
    at += n + 1;
  }
  if (!status && !out->count) return sl_fail(SL_E_INPUT, "%s has no chats", path);
  return status;
}
