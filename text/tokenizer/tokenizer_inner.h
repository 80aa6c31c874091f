/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared by the files of tokenizer/. */
#ifndef SLUICE_TEXT_TOKENIZER_TOKENIZER_INNER_H
#define SLUICE_TEXT_TOKENIZER_TOKENIZER_INNER_H

#include <cjson/cJSON.h>

#include "text/tokenizer/tokenizer.h"

/* Returns whether the caller of an encoding has cancelled it. */
static inline bool sli_is_stopped(const atomic_bool *stop) {
  return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* A piece of text, by address and length. */
typedef struct span {
  const char *at;
  size_t bytes;
} span;

/* A growing text, whose memory is charged to the allowance. If that does not suffice, the text
 * records it and stays unchanged. */
typedef struct text_row {
  char *items;
  size_t count, capacity;
  const sli_allowance *allowance;
} text_row;
void sli_text_add(text_row *text, const void *bytes, size_t count);
/* Sets the allowance of a text that is kept between encodings. NULL means none for now, and frees a
 * large text. */
void sli_text_keep(text_row *text, const sli_allowance *allowance);

/* ---- vocabulary (vocab.c) ---------------------------------------------------------------- */

enum { SLI_MOST_TOKENS = 1 << 24, SLI_NO_TOKEN = -1 };

/* Tokens by number, and numbers by text. In a byte-level vocabulary, texts are the bytes that the
 * characters of tokens represent. */
typedef struct vocab {
  span *texts; /* [count]; `at` is NULL if no token has the number */
  int64_t count, room;
  int32_t *slots; /* hash table of token numbers; SLI_NO_TOKEN if free */
  size_t nslots;
} vocab;
void sli_vocab_create(vocab *v, size_t most);
void sli_vocab_fini(vocab *v);
/* Adds a copy of the text. With `found`, sli_vocab_find finds it, unless a later token has the same
 * text. */
void sli_vocab_add(vocab *v, span text, int32_t token, bool found);
int32_t sli_vocab_find(const vocab *v, span text);
size_t sli_vocab_longest(const vocab *v);

/* Decodes a byte-level token's characters to bytes. Returns false if a character represents none.
 * `out` has room for as many bytes as the text. */
bool sli_bytes_of_text(span text, char *out, size_t *bytes);
/* Writes the character that represents a byte, as UTF-8. Returns its length. */
size_t sli_text_of_byte(uint8_t byte, char out[2]);

/* ---- merging (merge.c) --------------------------------------------------------------------- */

typedef struct merges merges; /* merge rules: pairs of tokens that become one, with their rank */
merges *sli_merges_create(size_t most);
void sli_merges_destroy(merges *m);
void sli_merges_add(merges *m, int32_t left, int32_t right, int32_t token);

/* Scratch space for merging one word; zeroed it is empty. */
typedef struct merging {
  int32_t *tokens, *next, *before;
  uint64_t *heap;
  size_t room, queued;
  const sli_allowance *allowance;
} merging;
void sli_merging_fini(merging *m);
/* Makes room for a word of `count` tokens. The caller fills m->tokens[count]. Returns false if
 * memory ran out. */
bool sli_merging_begin(merging *m, size_t count);
/* Merges m->tokens[count] and appends the result to the row. Returns early once *stop is set. */
void sli_merge(const merges *rules, merging *m, size_t count, const atomic_bool *stop,
               sli_token_row *out);

/* Converts a SentencePiece model's tokens, types and scores to merges as in a tokenizer.json
 * (pieces.c). All tokens are texts. The caller deletes the result with cJSON_Delete(). */
cJSON *sli_pieces_merges(const cJSON *tokens, const cJSON *types, const cJSON *scores);

/* ---- words (words.c) ------------------------------------------------------------------------ */

typedef struct cached cached;
typedef struct unigram unigram;
typedef struct wordpiece wordpiece;

/* The model: converts a word to tokens, by merges (BPE), by scores (Unigram), or by the longest
 * tokens (WordPiece). */
typedef struct model {
  vocab vocab;
  merges *merges;
  unigram *unigram;     /* NULL for other models */
  wordpiece *wordpiece; /* NULL for other models */
  bool byte_level;      /* symbols are bytes; otherwise characters */
  bool byte_fallback;   /* a character that is not a token becomes the tokens of its bytes */
  bool whole_words;     /* a word that is a token is not split or merged */
  bool fuse_unknown;
  bool splits_at_marks; /* no token has the space mark after another character */
  int32_t unknown;      /* SLI_NO_TOKEN if unknown characters are dropped */
  int32_t bytes[256];   /* token of each byte, if there is one */
  merging room;
  cached *cache; /* cache of recent words */
  const atomic_bool *stop;
} model;
void sli_model_fini(model *m);
void sli_model_word(model *m, span word, sli_token_row *out);
/* Returns the most bytes that a token of this model represents, or 0 if unbounded. */
size_t sli_model_longest(const model *m);

/* ---- Unigram (unigram.c) ------------------------------------------------------------------- */

/* Reads the vocabulary with its scores. */
sl_status sli_unigram_read(model *m, const cJSON *from);
void sli_unigram_destroy(unigram *u);
/* Appends the tokens of a word, or none once *stop is set or memory has run out. */
void sli_unigram_word(model *m, span word, sli_token_row *out);

/* ---- WordPiece (wordpiece.c) --------------------------------------------------------------- */

/* Reads the fields of a WordPiece model other than its vocabulary. */
sl_status sli_wordpiece_read(model *m, const cJSON *from);
void sli_wordpiece_destroy(wordpiece *w);
void sli_wordpiece_word(model *m, span word, sli_token_row *out);

/* ---- patterns (match.c; no_pcre2.c) ---------------------------------------------------------- */

typedef struct matcher matcher;
/* Compiles an Oniguruma pattern, or a literal text. */
sl_status sli_matcher_create(const char *pattern, bool literal, matcher **out);
void sli_matcher_destroy(matcher *m);
/* Finds the next match from `from` on. Returns false if there is none, or *stop was set meanwhile.
 * SL_E_INPUT in *status: the match exceeded its memory or steps. */
bool sli_matcher_next(const matcher *m, span text, size_t from, const atomic_bool *stop,
                      const sli_allowance *allowance, size_t *begin, size_t *end,
                      sl_status *status);

/* ---- Unicode (unicode.c; no_utf8proc.c) ------------------------------------------------------ */

/* Return whether a character is part of a word, or white space. 0, which is no character, is
 * neither. */
bool sli_character_is_of_word(int32_t character);
bool sli_character_is_space(int32_t character);
/* Return whether a character is a mark without width, or has no shape at all (a control, format or
 * private-use character). */
bool sli_character_is_mark(int32_t character);
bool sli_character_is_other(int32_t character);
int32_t sli_character_lower(int32_t character);
/* Writes a character as UTF-8. Returns its length. */
size_t sli_character_write(int32_t character, char out[4]);
/* Fails if the build has no character classes. */
sl_status sli_characters_check(const char *what);

/* Finds a normal form by name (NFC, NFD, NFKC, NFKD). *form is not 0 for these, and 0 for any other
 * name. */
sl_status sli_form_find(const char *name, int *form);
/* Converts a text to the form. The result is the text itself or in `room`. */
span sli_form_apply(int form, span text, const atomic_bool *stop, text_row *room);

/* ---- pre-tokenization (split.c) -------------------------------------------------------------- */

/* Receives the pieces of a text in order. */
typedef struct splitter splitter;
typedef void sli_take_piece(void *ctx, span piece);

splitter *sli_splitter_create(void);
void sli_splitter_destroy(splitter *s);
/* Adds the steps of a pre_tokenizer; sets *byte_level if one of them is ByteLevel. */
sl_status sli_splitter_read(splitter *s, const cJSON *step, bool *byte_level);
/* Splits a text. `first` says that it is the beginning of the whole text. SL_E_INPUT: a pattern
 * exceeded its memory or steps. Ends early, with SL_OK, once the flag of sli_splitter_heed() is
 * set. */
sl_status sli_splitter_run(splitter *s, span text, bool first, sli_take_piece *take, void *ctx);
void sli_splitter_heed(splitter *s, const atomic_bool *stop, const sli_allowance *allowance);
/* Returns whether every byte of a text ends up in a piece. */
bool sli_splitter_keeps(const splitter *s);

/* ---- normalization (normalize.c) ------------------------------------------------------------- */

typedef struct normalizer normalizer;
normalizer *sli_normalizer_create(void);
void sli_normalizer_destroy(normalizer *n);
sl_status sli_normalizer_read(normalizer *n, const cJSON *step);
/* Returns the normalized text: the text itself, or one of two buffers, valid until the next
 * call. */
span sli_normalize(normalizer *n, span text, const atomic_bool *stop);
/* Sets the allowance of later calls. NULL means none, and frees large buffers. */
void sli_normalizer_heed(normalizer *n, const sli_allowance *allowance);
/* Returns the largest factor by which normalization shortens a text, or 0 if unbounded. */
size_t sli_normalizer_shortens(const normalizer *n);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

typedef struct added added;
added *sli_added_create(void);
void sli_added_destroy(added *a);
sl_status sli_added_read(added *a, const cJSON *item, normalizer *n);
/* Sorts the tokens once all are read. */
void sli_added_sort(added *a);
/* Returns the most bytes of text that an added token matches, at least `most`, or 0 if
 * unbounded. */
size_t sli_added_longest(const added *a, size_t most);
/* Finds the first added token in the text from `from` on, and returns its location and *token.
 * Returns false if there is none. `normalized` selects the tokens that match normalized text. */
bool sli_added_find(const added *a, bool normalized, span text, size_t from, span *found,
                    int32_t *token);
/* Returns the text of an added token, with `at` NULL if there is none. *special is set for a
 * special token. */
span sli_added_text(const added *a, int32_t token, bool *special);

/* ---- token marks (marking.c) ----------------------------------------------------------------- */

/* Marks tokens that represent parts of a text. A piece of text is normalized, and offsets count
 * from the beginning of the normalized piece. */
typedef struct marking {
  const sli_text_spans *spans; /* in the whole text */
  span text, normal;           /* the whole text; the current piece, normalized */
  text_row kept;               /* a copy of the normalized piece */
  sli_text_spans here;         /* the spans that fall in the piece */
  size_t *map, room;           /* map: offset of each byte of a word */
  size_t at;                   /* lowest offset at which the next word can begin */
  sli_token_row *marks;
} marking;
void sli_marking_fini(marking *m);
/* Marks an added token that was found in the whole text, or in the normalized piece. */
void sli_marking_added(marking *m, span found, bool normalized);
/* Begins a piece of the text. Returns the normalized piece. */
span sli_marking_piece(marking *m, normalizer *n, span piece, span normal);
/* Marks the tokens of a word. */
void sli_marking_word(marking *m, const model *of, span word, const int32_t *tokens, size_t count);

/* ---- decoding (decode.c) --------------------------------------------------------------------- */

typedef struct decoder decoder;
/* A list of texts, stored one after another; zeroed it is empty. */
typedef struct texts {
  text_row bytes;
  size_t *ends;
  size_t count, room;
  bool raw; /* malformed UTF-8 is kept */
} texts;
/* Ends a text, which consists of the bytes added to t->bytes since the previous end. */
void sli_texts_end(texts *t);

decoder *sli_decoder_create(void);
void sli_decoder_destroy(decoder *d);
sl_status sli_decoder_read(decoder *d, const cJSON *step);
/* Runs the steps on the texts, which are consumed, and joins the results. */
void sli_decoder_run(const decoder *d, texts *in, text_row *out);

/* ---- tokenizer ------------------------------------------------------------------------------- */

struct sli_tokenizer {
  char *path;
  model model;
  splitter *splitter;
  normalizer *normalizer;
  added *added;
  decoder *decoder;
  sli_token_row before, after; /* tokens before and after a whole text */
};

/* Read a field of a step (json.c). Return NULL or the default if it is absent. */
const char *sli_json_text(const cJSON *item, const char *name);
bool sli_json_flag(const cJSON *item, const char *name, bool otherwise);
/* Reads a text of exactly one character. `at` is NULL for any other value. */
span sli_json_character(const cJSON *item, const char *name);
/* Returns the length of the character at `at`. The text must be valid UTF-8. */
static inline size_t sli_character(const char *at) {
  unsigned char c = (unsigned char)*at;
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

#endif
