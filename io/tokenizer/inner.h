/* What the files of tokenizer/ share. */
#ifndef SLUICE_IO_TOKENIZER_INNER_H
#define SLUICE_IO_TOKENIZER_INNER_H

#include <cjson/cJSON.h>

#include "io/tokenizer/tokenizer.h"

/* Set: whoever asked for an encoding wants it no more. */
static inline bool sli_is_stopped(const atomic_bool *stop) {
  return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* A stretch of text. */
typedef struct span {
  const char *at;
  size_t bytes;
} span;

/* A growing text. */
typedef struct text_row {
  char *items;
  size_t count, capacity;
} text_row;
void sli_text_add(text_row *text, const void *bytes, size_t count);

/* ---- UTF-8 (utf8.c) ------------------------------------------------------------------------ */

/* The length of the character that a text of at least one byte begins with; *good is false if it
 * begins with none, and the length is that of what is to be passed over. */
size_t sli_utf8_next(span text, bool *good);
/* Bytes that are UTF-8 from the begin on. */
size_t sli_utf8_good(span text);
/* Adds the text with U+FFFD in place of what is no UTF-8. */
void sli_utf8_add(text_row *out, span text);

/* ---- vocabulary (vocab.c) ---------------------------------------------------------------- */

enum { SLI_MOST_TOKENS = 1 << 24, SLI_NO_TOKEN = -1 };

/* Tokens by number, and numbers by text. In a byte-level vocabulary texts are the bytes that its
 * characters stand for. */
typedef struct vocab {
  span *texts;      /* [count]; at NULL: no token has this number */
  int64_t count, room;
  int32_t *slots;   /* a hash table of numbers, SLI_NO_TOKEN where none is */
  size_t nslots;
} vocab;
void sli_vocab_create(vocab *v, size_t most);
void sli_vocab_fini(vocab *v);
/* Copies the text. `found`: sli_vocab_find finds it, unless a later token has the same text. */
void sli_vocab_add(vocab *v, span text, int32_t token, bool found);
int32_t sli_vocab_find(const vocab *v, span text);
size_t sli_vocab_longest(const vocab *v);

/* The bytes that the characters of a byte-level token stand for; false if one stands for none.
 * `out` has room for as many bytes as the text. */
bool sli_bytes_of_text(span text, char *out, size_t *bytes);
/* The character that stands for a byte, as UTF-8; its length. */
size_t sli_text_of_byte(uint8_t byte, char out[2]);

/* ---- merging (merge.c) --------------------------------------------------------------------- */

typedef struct merges merges; /* which pairs of tokens become one, and which go first */
merges *sli_merges_create(size_t most);
void sli_merges_destroy(merges *m);
void sli_merges_add(merges *m, int32_t left, int32_t right, int32_t token);

/* Room to merge one word; zeroed it is empty. */
typedef struct merging {
  int32_t *tokens, *next, *before;
  uint64_t *heap;
  size_t room, queued;
} merging;
void sli_merging_fini(merging *m);
/* Room for a word of so many tokens: m->tokens[count] is the caller's to fill. */
void sli_merging_begin(merging *m, size_t count);
/* Merges m->tokens[count], and adds what is left to the row: early, once *stop is set. */
void sli_merge(const merges *rules, merging *m, size_t count, const atomic_bool *stop, sli_token_row *out);

/* The merges that a SentencePiece model's tokens, their types and scores come to (pieces.c), as a
 * tokenizer.json has them; all tokens are texts. The caller's to cJSON_Delete(). */
cJSON *sli_pieces_merges(const cJSON *tokens, const cJSON *types, const cJSON *scores);

/* ---- words (words.c) ------------------------------------------------------------------------ */

typedef struct cached cached;

/* The BPE model: from a word to its tokens. */
typedef struct model {
  vocab vocab;
  merges *merges;
  bool byte_level;      /* a symbol is a byte; otherwise a character */
  bool byte_fallback;   /* characters that are no token become their bytes' tokens */
  bool whole_words;     /* a word that is a token is that token, whatever merges say */
  bool fuse_unknown;
  bool splits_at_marks; /* no token has the mark that stands for a space behind anything else */
  int32_t unknown;      /* or SLI_NO_TOKEN: left out */
  int32_t bytes[256];   /* the token of each byte, where there are such */
  merging room;
  cached *cache;        /* words met before */
  const atomic_bool *stop;
} model;
void sli_model_fini(model *m);
void sli_model_word(model *m, span word, sli_token_row *out);
/* The most bytes that a token of this model stands for; 0: there is no bound. */
size_t sli_model_longest(const model *m);

/* ---- cutting a text into words (split.c) ------------------------------------------------------ */

/* Where a piece goes that has come so far. `first`: it begins where the whole text does. */
typedef struct splitter splitter;
typedef void sli_take_piece(void *ctx, span piece);

splitter *sli_splitter_create(void);
void sli_splitter_destroy(splitter *s);
/* Adds the steps of a pre_tokenizer; *byte_level is set if one of them is ByteLevel. */
sl_status sli_splitter_read(splitter *s, const cJSON *step, bool *byte_level);
/* SL_E_INPUT: a pattern took more memory or steps than it may. Ends early, with SL_OK, once the flag
 * of sli_splitter_heed() is set. */
sl_status sli_splitter_run(splitter *s, span text, bool first, sli_take_piece *take, void *ctx);
void sli_splitter_heed(splitter *s, const atomic_bool *stop);
/* All of a text comes out, in one piece or another. */
bool sli_splitter_keeps(const splitter *s);

/* ---- normalizing (normalize.c) ----------------------------------------------------------------- */

typedef struct normalizer normalizer;
normalizer *sli_normalizer_create(void);
void sli_normalizer_destroy(normalizer *n);
sl_status sli_normalizer_read(normalizer *n, const cJSON *step);
/* The text as normalized: itself, or what lies in one of two rooms until the next call. */
span sli_normalize(normalizer *n, span text, const atomic_bool *stop);
/* How many times shorter a text may become at most; 0: there is no bound. */
size_t sli_normalizer_shortens(const normalizer *n);

/* ---- added tokens (added.c) ----------------------------------------------------------------------- */

typedef struct added added;
added *sli_added_create(void);
void sli_added_destroy(added *a);
sl_status sli_added_read(added *a, const cJSON *item, normalizer *n);
/* Once all are read. */
void sli_added_sort(added *a);
/* The most bytes of text that one is found in, `most` or more; 0: there is no bound. */
size_t sli_added_longest(const added *a, size_t most);
/* Tells the first added token in the text from `from` on: its place, and *token; false: there is
 * none. `normalized`: of those that are looked for in normalized text. */
bool sli_added_find(const added *a, bool normalized, span text, size_t from, span *found,
                    int32_t *token);
/* The text of an added token, or at NULL; *special: it is a mark. */
span sli_added_text(const added *a, int32_t token, bool *special);

/* ---- decoding (decode.c) ------------------------------------------------------------------------------ */

typedef struct decoder decoder;
/* Texts one behind the other; zeroed it is empty. */
typedef struct texts {
  text_row bytes;
  size_t *ends;
  size_t count, room;
  bool raw; /* bytes that are no UTF-8 stay as they are */
} texts;
/* What was added to t->bytes since the last one is a text. */
void sli_texts_end(texts *t);

decoder *sli_decoder_create(void);
void sli_decoder_destroy(decoder *d);
sl_status sli_decoder_read(decoder *d, const cJSON *step);
/* Joins what the steps make of the texts, which are used up. */
void sli_decoder_run(const decoder *d, texts *in, text_row *out);

/* ---- all together --------------------------------------------------------------------------------------- */

struct sli_tokenizer {
  char *path;
  model model;
  splitter *splitter;
  normalizer *normalizer;
  added *added;
  decoder *decoder;
  sli_token_row before, after; /* of a whole text */
};

/* JSON (json.c): the fields a step may have. NULL or a default where it is not there. */
const char *sli_json_text(const cJSON *item, const char *name);
bool sli_json_flag(const cJSON *item, const char *name, bool otherwise);
/* A text of exactly one character; at NULL if it is not. */
span sli_json_character(const cJSON *item, const char *name);
/* The length of the character that begins here; text is UTF-8. */
static inline size_t sli_character(const char *at) {
  unsigned char c = (unsigned char)*at;
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

#endif
