/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: added tokens are matched first; the text between them is normalized and split into
 * words, and each word is merged. Decoding is the reverse. */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_inner.h"

/* ---- encoding -------------------------------------------------------------------------------- */

/* Working memory of an encoding. */
typedef struct scratch {
  const sli_allowance *from;
  size_t taken;
  bool refused;
} scratch;

typedef struct encoding {
  sli_tokenizer *t;
  sli_token_row *out;
  const atomic_bool *stop;
  scratch scratch;
  marking *marking; /* NULL if marks are not wanted */
  sl_status status;
} encoding;

static bool is_over(const encoding *e) {
  return e->status || e->scratch.refused || e->out->refused || sli_is_stopped(e->stop);
}

static void take_word(void *ctx, span word) {
  encoding *e = ctx;
  size_t before = e->out->count;
  sli_model_word(&e->t->model, word, e->out);
  if (e->marking)
    sli_marking_word(e->marking, &e->t->model, word, e->out->items + before,
                     e->out->count - before);
}

/* Passes on the text between added tokens, and appends the added tokens. */
static void between(encoding *e, bool normalized, span text, bool first,
                    void (*hand_on)(encoding *e, span text, bool first)) {
  size_t done = 0;
  span found;
  int32_t token;
  while (!is_over(e) && sli_added_find(e->t->added, normalized, text, done, &found, &token)) {
    size_t at = (size_t)(found.at - text.at);
    if (at > done) hand_on(e, (span){text.at + done, at - done}, first && !done);
    sli_token_row_add(e->out, token);
    if (e->marking) sli_marking_added(e->marking, found, normalized);
    done = at + found.bytes;
  }
  if (done < text.bytes && !is_over(e))
    hand_on(e, (span){text.at + done, text.bytes - done}, first && !done);
}

static void encode_normalized(encoding *e, span text, bool first) {
  e->status = sli_splitter_run(e->t->splitter, text, first, take_word, e);
}

static void encode_piece(encoding *e, span text, bool first) {
  span normal = sli_normalize(e->t->normalizer, text, e->stop);
  if (e->marking) normal = sli_marking_piece(e->marking, e->t->normalizer, text, normal);
  between(e, true, normal, first, encode_normalized);
}

static void add_row(sli_token_row *out, const sli_token_row *row) {
  for (size_t i = 0; i < row->count; i++) sli_token_row_add(out, row->items[i]);
}

static void heed(sli_tokenizer *t, const atomic_bool *stop, const sli_allowance *allowance) {
  t->model.stop = stop;
  t->model.room.allowance = allowance;
  sli_splitter_heed(t->splitter, stop, allowance);
  sli_normalizer_heed(t->normalizer, allowance);
}

/* Takes memory by which an array grows. The array is copied, to twice its size. */
static bool take_scratch(void *ctx, size_t bytes) {
  scratch *s = ctx;
  bool good = sli_memory_has(2 * bytes) && sli_take(s->from, bytes);
  if (good) s->taken += bytes;
  s->refused |= !good;
  return good;
}

static void give_scratch(void *ctx, size_t bytes) {
  scratch *s = ctx;
  bytes = SLI_MIN(bytes, s->taken); /* earlier encodings may have left some */
  s->taken -= bytes;
  sli_give(s->from, bytes);
}

static sl_status status_of(const encoding *e) {
  if (e->scratch.refused || e->out->refused)
    return sl_fail(SL_E_MEMORY, "there is no memory to encode a text");
  if (e->status) return e->status;
  if (!sli_is_stopped(e->stop)) return sli_memory_check();
  return sl_fail(SL_E_STOPPED, "an encoding was stopped");
}

static sl_status encode(sli_tokenizer *t, span all, bool whole, const atomic_bool *stop,
                        const sli_allowance *allowance, marking *marking, sli_token_row *out) {
  const char *text = all.at;
  size_t bytes = all.bytes;
  size_t good = sli_utf8_good(text, bytes);
  if (good < bytes)
    return sl_fail(SL_E_INPUT, "byte %zu is not UTF-8, and tokens are made of characters", good);
  encoding e = {.t = t, .out = out, .stop = stop, .scratch.from = allowance, .marking = marking};
  const sli_allowance within = {take_scratch, give_scratch, &e.scratch};
  heed(t, stop, &within);
  if (whole) add_row(out, &t->before);
  between(&e, false, all, true, encode_piece);
  if (whole) add_row(out, &t->after);
  heed(t, NULL, NULL);
  sli_give(allowance, e.scratch.taken);
  return status_of(&e);
}

sl_status sli_tokenizer_encode_until(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                                     const atomic_bool *stop, const sli_allowance *allowance,
                                     sli_token_row *out) {
  return encode(t, (span){text, bytes}, whole, stop, allowance, NULL, out);
}

sl_status sli_tokenizer_encode_marked(sli_tokenizer *t, const char *text, size_t bytes,
                                      const sli_text_spans *spans, sli_token_row *out,
                                      sli_token_row *marks) {
  span all = {text, bytes};
  marking m = {.spans = spans, .text = all, .marks = marks};
  sl_status status = encode(t, all, false, NULL, NULL, &m, out);
  sli_marking_fini(&m);
  return status;
}

sl_status sli_tokenizer_encode(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                               sli_token_row *out) {
  return sli_tokenizer_encode_until(t, text, bytes, whole, NULL, NULL, out);
}

size_t sli_tokenizer_longest(const sli_tokenizer *t) {
  size_t longest = sli_model_longest(&t->model), times = sli_normalizer_shortens(t->normalizer);
  if (!longest || !times || !sli_splitter_keeps(t->splitter)) return 0;
  return sli_added_longest(t->added, longest) * times;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Converts bytes to the characters that decoders expect, because the vocabulary stores bytes. */
static void add_characters(text_row *out, span bytes) {
  for (size_t i = 0; i < bytes.bytes; i++) {
    char character[2];
    size_t n = sli_text_of_byte((uint8_t)bytes.at[i], character);
    sli_text_add(out, character, n);
  }
}

static void add_text(const sli_tokenizer *t, int32_t token, bool special, texts *out) {
  bool mark;
  span text = sli_added_text(t->added, token, &mark);
  if (mark && !special) return;
  if (text.at) {
    sli_text_add(&out->bytes, text.at, text.bytes);
  } else {
    const vocab *v = &t->model.vocab;
    if (token < 0 || token >= v->count || !v->texts[token].at) return;
    text = v->texts[token];
    if (t->model.byte_level && sli_vocab_find(v, text) == token) add_characters(&out->bytes, text);
    else sli_text_add(&out->bytes, text.at, text.bytes);
  }
  sli_texts_end(out);
}

static char *decode(const sli_tokenizer *t, const int32_t *tokens, size_t count, bool special,
                    bool raw, size_t *bytes) {
  texts row = {.raw = raw};
  for (size_t i = 0; i < count; i++) add_text(t, tokens[i], special, &row);
  text_row out = {0};
  sli_decoder_run(t->decoder, &row, &out);
  *bytes = out.count;
  sli_text_add(&out, "", 1);
  return out.items;
}

char *sli_tokenizer_decode(const sli_tokenizer *t, const int32_t *tokens, size_t count,
                           bool special, size_t *bytes) {
  return decode(t, tokens, count, special, false, bytes);
}

char *sli_tokenizer_decode_raw(const sli_tokenizer *t, const int32_t *tokens, size_t count,
                               size_t *bytes) {
  return decode(t, tokens, count, true, true, bytes);
}

char *sli_tokenizer_piece(const sli_tokenizer *t, int32_t token, size_t *bytes) {
  bool special;
  span added = sli_added_text(t->added, token, &special);
  const vocab *v = &t->model.vocab;
  bool known = token >= 0 && token < v->count && v->texts[token].at;
  if (special || !(added.at || known)) return NULL;
  /* decoders treat the first token of a text differently */
  int32_t pair[] = {sli_vocab_find(v, (span){"a", 1}), token};
  size_t before = 0;
  if (pair[0] == SLI_NO_TOKEN) return decode(t, pair + 1, 1, true, true, bytes);
  free(decode(t, pair, 1, true, true, &before));
  char *text = decode(t, pair, 2, true, true, bytes);
  *bytes -= SLI_MIN(before, *bytes);
  memmove(text, text + before, *bytes);
  return text;
}
