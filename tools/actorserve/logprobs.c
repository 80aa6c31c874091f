/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/logprobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tools/actorserve/json.h"

/* ---- a token --------------------------------------------------------------------------------- */

/* Returns -9999 for an infinite log probability, as OpenAI does. */
static double told_logprob(float logprob) { return isfinite(logprob) ? (double)logprob : -9999; }

static void print_bytes(FILE *out, const char *bytes, size_t count) {
  putc('[', out);
  for (size_t i = 0; i < count; i++) fprintf(out, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
  putc(']', out);
}

static void put_file(void *to, const char *text, size_t bytes) { fwrite(text, 1, bytes, to); }

static void print_text(FILE *out, const char *text, size_t bytes) {
  sli_json_string(text, bytes, false, put_file, out);
}

/* Prints the fields of a chat's token. */
static void print_fields(FILE *out, const stream_text *behind, int32_t token, float logprob) {
  size_t count, length;
  char *bytes = stream_text_bytes_of(behind, token, &count);
  char *text = codec_good(bytes, count, &length);
  fputs("{\"token\":", out);
  print_text(out, text, length);
  fprintf(out, ",\"logprob\":%.9g,\"bytes\":", told_logprob(logprob));
  print_bytes(out, bytes, count);
  free(text);
  free(bytes);
}

/* Name of a completion's token; the text may have zero bytes. */
typedef struct token_name {
  char *text;
  size_t bytes;
} token_name;

/* Returns a token's text, or a unique escape if its bytes are not UTF-8. */
static token_name name_of(const stream_text *behind, int32_t token) {
  size_t count;
  token_name name;
  char *bytes = stream_text_bytes_of(behind, token, &count);
  if (sli_utf8_good(bytes, count) == count) return (token_name){bytes, count};
  FILE *out = sli_memory_stream(&name.text, &name.bytes);
  fputs("bytes:", out);
  for (size_t i = 0; i < count; i++) fprintf(out, "\\x%02x", (unsigned char)bytes[i]);
  fclose(out);
  free(bytes);
  return name;
}

/* ---- the likeliest tokens, and the sampled one ----------------------------------------------- */

typedef struct likeliest {
  int count;
  sl_choice choices[SL_SESSION_TOP + 1];
} likeliest;

static likeliest list(const sl_session_event *e) {
  likeliest all = {.count = e->ntop};
  bool stream_text = false;
  for (int i = 0; i < e->ntop; i++) {
    all.choices[i] = e->top[i];
    stream_text |= e->top[i].token == e->token;
  }
  if (!stream_text) all.choices[all.count++] = (sl_choice){e->token, e->logprob};
  return all;
}

static void print_object(FILE *out, const logprobs *logprobs, const stream_text *behind,
                         const sl_session_event *e) {
  likeliest all = list(e);
  print_fields(out, behind, e->token, e->logprob);
  fputs(",\"top_logprobs\":[", out);
  for (int i = 0; i < all.count && logprobs->top; i++) {
    if (i) putc(',', out);
    print_fields(out, behind, all.choices[i].token, all.choices[i].logprob);
    putc('}', out);
  }
  fputs("]}", out);
}

static bool is_among(const token_name *names, int count, token_name name) {
  for (int i = 0; i < count; i++)
    if (names[i].bytes == name.bytes && !memcmp(names[i].text, name.text, name.bytes)) return true;
  return false;
}

/* Prints {" the":-0.5, ...} with each name once. */
static void print_map(FILE *out, const stream_text *behind, const sl_session_event *e) {
  token_name names[SL_SESSION_TOP + 1];
  likeliest all = list(e);
  putc('{', out);
  for (int i = 0; i < all.count; i++) {
    names[i] = name_of(behind, all.choices[i].token);
    if (is_among(names, i, names[i])) continue;
    if (i) putc(',', out);
    print_text(out, names[i].text, names[i].bytes);
    fprintf(out, ":%.9g", told_logprob(all.choices[i].logprob));
  }
  for (int i = 0; i < all.count; i++) free(names[i].text);
  putc('}', out);
}

/* ---- all tokens ------------------------------------------------------------------------------ */

static void print_part(FILE *out, const logprobs *logprobs, int part, const stream_text *behind,
                       const sl_session_event *e) {
  if (logprobs->chat) {
    print_object(out, logprobs, behind, e);
  } else if (!part) {
    token_name name = name_of(behind, e->token);
    print_text(out, name.text, name.bytes);
    free(name.text);
  } else if (part == 1) {
    fprintf(out, "%.9g", told_logprob(e->logprob));
  } else print_map(out, behind, e);
}

/* Returns how much memory the allocator uses for a text. */
static size_t memory_of(size_t bytes) {
  enum { LEAST = 32, HEAD = 8, UNIT = 16 };
  return SLI_MAX((bytes + 1 + HEAD + UNIT - 1) / UNIT * UNIT, (size_t)LEAST);
}

/* Memory of a token besides its texts: the array doubles as it grows. */
enum { WORD_BYTES = 2 * sizeof(struct logprob_word) };

/* Adds a word at the end of a text. */
static struct logprob_word *add_word(logprobs *logprobs, const stream_text *behind) {
  SLI_GROW(logprobs->items, logprobs->count, logprobs->capacity);
  struct logprob_word *x = &logprobs->items[logprobs->count++];
  *x = (struct logprob_word){.place = logprobs->base + stream_text_offset(behind),
                             .character = logprobs->characters + behind->characters};
  return x;
}

void logprobs_add(logprobs *logprobs, const stream_text *behind, const sl_session_event *e,
                  size_t *bytes) {
  struct logprob_word *x = add_word(logprobs, behind);
  *bytes = WORD_BYTES;
  for (int i = 0; i < (logprobs->chat ? 1 : LOGPROB_TEXTS); i++) {
    size_t size;
    FILE *out = sli_memory_stream(&x->text[i], &size);
    print_part(out, logprobs, i, behind, e);
    fclose(out);
    *bytes += memory_of(size);
  }
}

void logprobs_add_first(logprobs *logprobs, const stream_text *behind, int32_t token,
                        size_t *bytes) {
  struct logprob_word *x = add_word(logprobs, behind);
  size_t size;
  FILE *out = sli_memory_stream(&x->text[0], &size);
  print_part(out, logprobs, 0, behind, &(sl_session_event){.token = token});
  fclose(out);
  for (int i = 1; i < LOGPROB_TEXTS; i++) x->text[i] = sli_strdup("null");
  *bytes = WORD_BYTES + memory_of(size) + 2 * memory_of(strlen("null"));
}

static size_t free_text(char **text) {
  size_t bytes = *text ? memory_of(strlen(*text)) : 0;
  free(*text);
  *text = NULL;
  return bytes;
}

/* Prints an array of one field for the first `count` tokens. */
static bool print_row(logprobs *logprobs, const char *name, int part, size_t count,
                      struct evbuffer *out, size_t *bytes) {
  bool good = evbuffer_add_printf(out, "\"%s\":[", name) >= 0;
  for (size_t i = 0; i < count; i++) {
    if (i) good &= !evbuffer_add(out, ",", 1);
    good &=
        !evbuffer_add(out, logprobs->items[i].text[part], strlen(logprobs->items[i].text[part]));
    *bytes += free_text(&logprobs->items[i].text[part]);
  }
  return good && !evbuffer_add(out, "]", 1);
}

static bool print_places(const logprobs *logprobs, size_t count, struct evbuffer *out) {
  bool good = evbuffer_add_printf(out, "\"text_offset\":[") >= 0;
  for (size_t i = 0; i < count; i++)
    good &= evbuffer_add_printf(out, "%s%zu", i ? "," : "", logprobs->items[i].character) >= 0;
  return good && !evbuffer_add(out, "]", 1);
}

static bool print_first(logprobs *logprobs, size_t count, struct evbuffer *out, size_t *bytes) {
  static const char *const names[LOGPROB_TEXTS] = {"tokens", "token_logprobs", "top_logprobs"};
  bool good = !evbuffer_add(out, "{", 1);
  if (logprobs->chat) good &= print_row(logprobs, "content", 0, count, out, bytes);
  for (int i = 0; i < LOGPROB_TEXTS && !logprobs->chat; i++)
    good &= print_row(logprobs, names[i], i, count, out, bytes) && !evbuffer_add(out, ",", 1);
  if (!logprobs->chat) good &= print_places(logprobs, count, out);
  return good && !evbuffer_add(out, "}", 1);
}

bool logprobs_print(logprobs *logprobs, size_t end, struct evbuffer *out, size_t *bytes) {
  size_t count = 0;
  while (count < logprobs->count && logprobs->items[count].place < end) count++;
  *bytes = count * WORD_BYTES;
  if (!count) return !evbuffer_add(out, "null", 4);
  bool good = print_first(logprobs, count, out, bytes);
  logprobs->count -= count;
  memmove(logprobs->items, logprobs->items + count, logprobs->count * sizeof *logprobs->items);
  return good;
}

void logprobs_fini(logprobs *logprobs) {
  for (size_t i = 0; i < logprobs->count; i++)
    for (int k = 0; k < LOGPROB_TEXTS; k++) free_text(&logprobs->items[i].text[k]);
  free(logprobs->items);
}
