/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens match those of Hugging Face's library, for every supported kind of tokenizer and texts of
 * all sorts, and so do decoded texts (tests/reference/tokenizers). Damaged files are refused or
 * read, but never crash.
 * labels: random unthreaded
 * needs: pcre2 utf8proc */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "text/tokenizer/tokenizer_inner.h"
#include "tests/support/processor_time.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static const char *const names[] = {"gpt2",    "roberta",   "smollm",   "llama3", "qwen2",
                                    "qwen35",  "o200k",     "deepseek", "cuts",   "llama2",
                                    "mistral", "metaspace", "unigram",  "pieces", "bert"};

static char *reference(const char *name, const char *suffix) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/tests/reference/tokenizers/%s%s", source ? source : ".", name, suffix);
}

static sli_tokenizer *open_reference(const char *name) {
  char *path = reference(name, ".json");
  sli_tokenizer *t;
  CHECK(!sli_tokenizer_open(path, &t), "%s", sl_detail());
  free(path);
  return t;
}

/* ---- against Hugging Face -------------------------------------------------------------------- */

/* Decodes a JSON string that may contain U+0000, where a C string would end. */
static char *text_of(const char *json, size_t *bytes) {
  size_t n = strlen(json);
  char *shielded = sli_calloc(n, 2), *out;
  for (size_t i = 0, at = 0; i < n; at++) {
    bool zero = !strncmp(json + i, "\\u0000", 6);
    memcpy(shielded + at, zero ? "\\u0006" : json + i, zero ? 6 : 1);
    if (zero) at += 5;
    i += zero ? 6 : 1;
  }
  cJSON *item = cJSON_Parse(shielded);
  CHECK(cJSON_IsString(item), "%s is a text", json);
  out = sli_strdup(item->valuestring);
  *bytes = strlen(out);
  for (char *at = out; (at = strchr(at, 6));) *at++ = 0; /* the texts contain no U+0006 */
  cJSON_Delete(item);
  free(shielded);
  return out;
}

static void check_tokens(const char *name, const char *text, const sli_token_row *row,
                         const char *json) {
  cJSON *want = cJSON_Parse(json), *item;
  size_t i = 0;
  cJSON_ArrayForEach(item, want) {
    CHECK(i < row->count && row->items[i] == item->valueint,
          "%s: %s: token %zu of %zu is %d, not %d", name, text, i, row->count,
          i < row->count ? row->items[i] : -1, item->valueint);
    i++;
  }
  CHECK(i == row->count, "%s: %s has %zu tokens, not %zu", name, text, row->count, i);
  cJSON_Delete(want);
}

static void check_decoded(const sli_tokenizer *t, const char *name, const sli_token_row *row,
                          bool special, const char *json) {
  size_t bytes, n;
  char *want = text_of(json, &bytes),
       *got = sli_tokenizer_decode(t, row->items, row->count, special, &n);
  CHECK(n == bytes && !memcmp(want, got, n), "%s: %s is decoded to \"%s\"", name, json, got);
  free(want);
  free(got);
}

static void check_line(sli_tokenizer *t, const char *name, char *line) {
  char *parts[4];
  for (int i = 0; i < 4; i++) {
    parts[i] = strsep(&line, "\t\n");
    CHECK(parts[i] && *parts[i], "%s: a line has four parts", name);
  }
  size_t bytes;
  char *text = text_of(parts[0], &bytes);
  sli_token_row row = {0};
  CHECK(!sli_tokenizer_encode(t, text, bytes, true, &row), "%s: %s", name, sl_detail());
  check_tokens(name, parts[0], &row, parts[1]);
  check_decoded(t, name, &row, true, parts[2]);
  check_decoded(t, name, &row, false, parts[3]);
  free(row.items);
  free(text);
}

/* Encodes twice, since the tokenizer caches words. */
static void check_texts(const char *name) {
  sli_tokenizer *t = open_reference(name);
  char *path = reference(name, ".txt"), *all;
  int lines = 0;
  for (int round = 0; round < 2; round++) {
    CHECK(!sli_file_read(path, &all), "%s", sl_detail());
    char *rest = all, *line;
    while ((line = strsep(&rest, "\n")) && *line)
      if (*line != '#') check_line(t, name, line), lines++;
    free(all);
  }
  CHECK(lines > 400, "%s: all texts are there", name);
  free(path);
  sli_tokenizer_close(t);
}

/* ---- odd tokens ------------------------------------------------------------------------------ */

static void check_bad_text(void) {
  static const struct {
    const char *text, *where;
  } bad[] = {{"ab\xff", "byte 2"},           {"\xc0\x80", "byte 0"},    {"x\xed\xa0\x80", "byte 1"},
             {"\xf4\x90\x80\x80", "byte 0"}, {"ok \xe4\xb8", "byte 3"}, {"\xc3", "byte 0"}};
  sli_tokenizer *t = open_reference("gpt2");
  sli_token_row row = {0};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    CHECK(sli_tokenizer_encode(t, bad[i].text, strlen(bad[i].text), true, &row) == SL_E_INPUT &&
              !row.count,
          "text %zu is refused", i);
    CHECK(strstr(sl_detail(), bad[i].where), "text %zu: \"%s\" says %s", i, sl_detail(),
          bad[i].where);
  }
  sli_tokenizer_close(t);
}

/* An incomplete character at the end of the decoded text becomes U+FFFD, and tokens out of range
 * are skipped. */
static void check_odd_tokens(void) {
  sli_tokenizer *t = open_reference("gpt2");
  sli_token_row row = {0};
  CHECK(!sli_tokenizer_encode(t, "\u0fd0", 3, false, &row) && row.count == 3,
        "a character of three tokens");
  size_t bytes;
  const int32_t odd[] = {-1, row.items[0], row.items[1], 1 << 20};
  char *text = sli_tokenizer_decode(t, odd, 4, true, &bytes);
  CHECK(!strcmp(text, "\ufffd") && bytes == 3, "two thirds of a character are \"%s\"", text);
  free(text);
  free(row.items);
  sli_tokenizer_close(t);
}

/* ---- expensive texts ------------------------------------------------------------------------- */

static char *repeated(const char *unit, size_t bytes) {
  size_t n = strlen(unit);
  char *text = sli_calloc(1, bytes + n + 1);
  for (size_t i = 0; i < bytes; i += n) memcpy(text + i, unit, n);
  return text;
}

static void check_quick(sli_tokenizer *t, const char *name, const char *unit) {
  bool normalizes = !strcmp(name, "qwen2");
  char *text = repeated(unit, normalizes ? 1 << 17 : 1 << 15);
  sli_token_row row = {0};
  double begin = thread_seconds();
  CHECK(!sli_tokenizer_encode(t, text, strlen(text), true, &row), "%s", sl_detail());
  double took = thread_seconds() - begin;
  CHECK(took < 5, "%s: \"%s\" again and again takes %g s", name, unit, took);
  free(row.items);
  free(text);
}

static void check_nasty(void) {
  static const char *const units[] = {"a",
                                      "ab",
                                      "A",
                                      " ",
                                      "\t",
                                      "\n",
                                      "\r\n",
                                      " \n",
                                      "7",
                                      "\u0301",
                                      "\u0301\u0323",
                                      "a\u0301\u0323\u0300\u0327",
                                      "\u4e2d",
                                      "\ud55c",
                                      "\u1112\u1161\u11ab",
                                      "\U0001f469\u200d",
                                      "\u0f71\u0f72",
                                      "'",
                                      "<",
                                      "<|",
                                      "\u2581",
                                      "\u00e9",
                                      "\ufdfa",
                                      "\u1f82",
                                      "!?",
                                      "'s",
                                      " a",
                                      "\u00a0",
                                      "\u3000"};
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_tokenizer *t = open_reference(names[i]);
    for (size_t k = 0; k < SLI_COUNT(units); k++) check_quick(t, names[i], units[k]);
    sli_tokenizer_close(t);
  }
}

/* Combining marks in any order give the tokens of their canonical order; marks of one class keep
 * their order. */
static void check_marks(void) {
  enum { MARKS = 1000 };
  sli_tokenizer *t = open_reference("qwen2");
  char *mixed = repeated("\u0301\u0323\u0300", 6 * MARKS),
       *above = repeated("\u0301\u0300", 4 * MARKS);
  char *below = repeated("\u0323", 2 * MARKS), *whole = sli_format("x%sa", mixed);
  char *ordered = sli_format("x%s%sa", below, above);
  sli_token_row one = {0}, other = {0};
  CHECK(!sli_tokenizer_encode(t, whole, strlen(whole), true, &one), "%s", sl_detail());
  CHECK(!sli_tokenizer_encode(t, ordered, strlen(ordered), true, &other), "%s", sl_detail());
  CHECK(one.count == other.count && !memcmp(one.items, other.items, one.count * sizeof *one.items),
        "marks are in order");
  free(one.items), free(other.items);
  free(mixed), free(above), free(below), free(whole), free(ordered);
  sli_tokenizer_close(t);
}

static void check_stopped(void) {
  atomic_bool stop = true;
  sli_tokenizer *t = open_reference("qwen2");
  char *text = repeated("ab cd\u0301 ", 1 << 16);
  sli_token_row row = {0};
  CHECK(
      sli_tokenizer_encode_until(t, text, strlen(text), true, &stop, NULL, &row) == SL_E_STOPPED &&
          row.count < 100,
      "an encoding stops");
  stop = false;
  row.count = 0;
  CHECK(!sli_tokenizer_encode_until(t, text, strlen(text), true, &stop, NULL, &row) &&
            row.count > 1000,
        "%s", sl_detail());
  free(row.items);
  free(text);
  sli_tokenizer_close(t);
}

/* A memory allowance in bytes. */
typedef struct purse {
  size_t most, taken;
} purse;

static bool take(void *ctx, size_t bytes) {
  purse *p = ctx;
  bool good = bytes <= p->most - p->taken;
  if (good) p->taken += bytes;
  return good;
}

static void give(void *ctx, size_t bytes) {
  purse *p = ctx;
  CHECK(bytes <= p->taken, "%zu bytes are given back of %zu", bytes, p->taken);
  p->taken -= bytes;
}

/* Encodes within `bytes` of memory; returns the number of tokens, or 0 if the memory does not
 * suffice. Afterwards only the row may still hold memory. */
static size_t encode_within(sli_tokenizer *t, const char *text, size_t bytes) {
  purse p = {.most = bytes};
  const sli_allowance allowance = {take, give, &p};
  sli_token_row row = {.allowance = &allowance};
  sl_status status =
      sli_tokenizer_encode_until(t, text, strlen(text), true, NULL, &allowance, &row);
  CHECK(!status || status == SL_E_MEMORY, "%s", sl_detail());
  CHECK(p.taken == row.capacity * sizeof *row.items, "%zu bytes are left for %zu tokens", p.taken,
        row.capacity);
  size_t count = row.count;
  free(row.items);
  return status ? 0 : count;
}

/* Words, marks and runs that need much memory fail cleanly when it is missing; the next encoding is
 * complete again. */
static void check_bounded(void) {
  enum { COUNT = 1 << 17, LITTLE = 1 << 15, MUCH = 64 << 20 };
  static const char *const pieces[] = {"ab", "\u0301\u0323", "a b ", "\ufdfa", "<|im_end|>"};
  static const char *const files[] = {"qwen2", "llama3", "llama2", "pieces"};
  for (size_t f = 0; f < SLI_COUNT(files); f++) {
    sli_tokenizer *t = open_reference(files[f]);
    for (size_t i = 0; i < SLI_COUNT(pieces); i++) {
      char *text = repeated(pieces[i], COUNT);
      sli_token_row row = {0};
      CHECK(!encode_within(t, text, LITTLE), "%s: %s repeated takes less than it did", files[f],
            pieces[i]);
      CHECK(!sli_tokenizer_encode(t, text, strlen(text), true, &row), "%s", sl_detail());
      CHECK(encode_within(t, text, MUCH) == row.count, "%s: %s repeated has other tokens", files[f],
            pieces[i]);
      free(row.items);
      free(text);
    }
    sli_tokenizer_close(t);
  }
}

/* No text has more bytes than its tokens times the longest token, unless special tokens absorb
 * spaces or characters are dropped. */
static void check_longest(void) {
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_tokenizer *t = open_reference(names[i]);
    size_t most = sli_tokenizer_longest(t);
    bool none = !strcmp(names[i], "gpt2") || !strcmp(names[i], "roberta") ||
                !strcmp(names[i], "cuts") || !strcmp(names[i], "unigram") ||
                !strcmp(names[i], "bert");
    CHECK(none ? !most : most >= 4 && most < 2048, "%s: %zu bytes are the longest token", names[i],
          most);
    char *text = repeated("the ", 4096);
    sli_token_row row = {0};
    CHECK(!sli_tokenizer_encode(t, text, strlen(text), true, &row), "%s", sl_detail());
    CHECK(!most || row.count * most >= strlen(text), "%s: %zu tokens", names[i], row.count);
    free(row.items);
    free(text);
    sli_tokenizer_close(t);
  }
}

/* ---- patterns -------------------------------------------------------------------------------- */

static sli_tokenizer *open_pattern(const char *path, const char *pattern) {
  cJSON *text = cJSON_CreateString(pattern);
  char *quoted = cJSON_PrintUnformatted(text);
  char *file = sli_format(
      "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":%s},\"behavior\":\"Isolated\","
      "\"invert\":false},\"model\":{\"vocab\":{},\"merges\":[]}}",
      quoted);
  FILE *out = fopen(path, "wb");
  CHECK(out && fputs(file, out) >= 0 && !fclose(out), "%s is written", path);
  sli_tokenizer *t = NULL;
  sli_tokenizer_open(path, &t);
  cJSON_Delete(text);
  free(quoted), free(file);
  return t;
}

/* Appends a piece, with a bar between pieces. */
static void take_piece(void *ctx, span piece) {
  text_row *all = ctx;
  if (all->count) sli_text_add(all, "|", 1);
  sli_text_add(all, piece.at, piece.bytes);
}

static void check_pieces(const char *path, const char *pattern, const char *text,
                         const char *want) {
  sli_tokenizer *t = open_pattern(path, pattern);
  CHECK(t, "%s: %s", pattern, sl_detail());
  text_row all = {0};
  CHECK(!sli_splitter_run(t->splitter, (span){text, strlen(text)}, true, take_piece, &all),
        "%s: %s", pattern, sl_detail());
  sli_text_add(&all, "", 1);
  CHECK(!strcmp(all.items, want), "%s cuts \"%s\" into %s, not %s", pattern, text, all.items, want);
  free(all.items);
  sli_tokenizer_close(t);
}

/* Each line has a pattern, a text and its pieces according to the library. */
static void check_patterns(const char *path) {
  char *source = reference("patterns", ".txt"), *all, *line;
  int lines = 0;
  CHECK(!sli_file_read(source, &all), "%s", sl_detail());
  for (char *rest = all; (line = strsep(&rest, "\n")) && *line;) {
    if (*line == '#') continue;
    cJSON *row = cJSON_Parse(line);
    const cJSON *pattern = cJSON_GetArrayItem(row, 0), *text;
    CHECK(pattern, "%s is a row", line);
    for (text = pattern->next; text; text = text->next->next, lines++)
      check_pieces(path, pattern->valuestring, text->valuestring, text->next->valuestring);
    cJSON_Delete(row);
  }
  CHECK(lines > 300, "%d texts", lines);
  free(all);
  free(source);
}

/* Checks that untranslatable constructs are refused with their name and position. */
static void check_refused_patterns(const char *path) {
  static const char *const bad[][2] = {{"(?~abc)", "(?~"},
                                       {"a\\Kb", "\\K"},
                                       {"\\Ga", "\\G"},
                                       {"\\X", "\\X"},
                                       {"\\y", "\\y"},
                                       {"(?<x>a)\\g<x>", "\\g"},
                                       {"(a)\\1", "\\1"},
                                       {"(?<x>a)\\k<x>", "\\k"},
                                       {"(a)(?(1)b|c)", "(?("},
                                       {"(?<=a+)b", "lookbehind"},
                                       {"[]a]", "begins with ]"},
                                       {"[a-c-e]", "a - in"},
                                       {"\\pL", "braces"},
                                       {"\\p{Foo}", "{Foo}"},
                                       {"(?i)gro\u00dfe", "U+00DF"},
                                       {"(?i:ss)", "\"ss\""},
                                       {"(?i)[\\p{L}]", "a property"},
                                       {"(?i)[a&&b]", "&&"},
                                       {"(?W)\\w", "(?W"},
                                       {"\\Qa\\E", "\\Q"},
                                       {"\\cA", "\\c"},
                                       {"\\M-a", "\\M"},
                                       {"\\101", "\\1"},
                                       {"\\xe9", "\\x"},
                                       {"*a", "nothing to repeat"},
                                       {"(*FAIL)", "(*"},
                                       {"(?{x})", "(?{"},
                                       {"[[:graph:]]", "graph"},
                                       {"a{70000}", "65535"},
                                       {"a{3,2}", "{3,2}"},
                                       {"[a", "does not end"},
                                       {"(a", "does not end"},
                                       {"a)", ") too many"},
                                       {"[&&a]", "&&"},
                                       {"[^a[^b]]", "negated"},
                                       {"x(?i)\\p{Lu}", "byte 11"}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    CHECK(!open_pattern(path, bad[i][0]), "%s is refused", bad[i][0]);
    CHECK(strstr(sl_detail(), bad[i][1]) && strstr(sl_detail(), "pattern \""),
          "%s: \"%s\" names %s", bad[i][0], sl_detail(), bad[i][1]);
  }
}

static size_t encode_character(uint32_t c, char *out) {
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)(first[n] | c);
  return n;
}

/* Returns all characters as one text. */
static char *all_characters(size_t *bytes) {
  char *text = sli_calloc(4, 0x110000);
  *bytes = 0;
  for (uint32_t c = 0; c < 0x110000; c++)
    if (c < 0xd800 || c >= 0xe000) *bytes += encode_character(c, text + *bytes);
  return text;
}

typedef struct members {
  const char *begin; /* start of the last piece */
  bool member;
  uint64_t hash;
  size_t count;
} members;

static uint64_t hash_character(uint64_t hash, const char *at) {
  size_t n = sli_character(at);
  uint32_t c = (uint8_t)at[0] & (n == 1 ? 0x7f : 0x7f >> n);
  for (size_t i = 1; i < n; i++) c = c << 6 | ((uint8_t)at[i] & 0x3f);
  return sli_hash(hash, &c, sizeof c);
}

/* Pieces alternate between members of a class and other characters; `m` starts with the kind of the
 * first character. */
static void take_members(void *ctx, span piece) {
  members *m = ctx;
  if (m->begin) m->member = !m->member;
  m->begin = piece.at;
  if (!m->member) return;
  const char *last = piece.at + piece.bytes - 1;
  while ((*last & 0xc0) == 0x80) last--;
  const char *gap =
      memmem(piece.at, piece.bytes, "\ud7ff\ue000", 6); /* surrogates are in between */
  m->hash = hash_character(m->hash, piece.at);
  if (gap) m->hash = hash_character(hash_character(m->hash, gap), gap + 3);
  m->hash = hash_character(m->hash, last);
  for (size_t i = 0; i < piece.bytes; i++) m->count += (piece.at[i] & 0xc0) != 0x80;
}

static bool has_zero(const char *name) {
  static const char *const with[] = {"c", "cc", "other", "control", "any", "cntrl", "common"};
  bool found = false;
  for (size_t i = 0; i < SLI_COUNT(with); i++) found |= !strcmp(with[i], name);
  return found;
}

static void check_property(const char *path, const char *name, const char *text, size_t bytes,
                           size_t count, uint64_t hash) {
  bool posix = islower((unsigned char)*name) &&
               strstr(" alnum alpha blank digit lower punct space upper word xdigit cntrl ", name);
  const char *inner = *name == '[' ? name + 1 : name;
  char *pattern = *name == '\\' || *name == '['
                      ? sli_format(*name == '[' ? "[%s]+" : "%s+", inner)
                      : sli_format(posix ? "[[:%s:]]+" : "\\p{%s}+", name);
  sli_tokenizer *t = open_pattern(path, pattern);
  CHECK(t, "%s: %s", name, sl_detail());
  members m = {.hash = SLI_HASH_SEED, .member = has_zero(name)};
  CHECK(!sli_splitter_run(t->splitter, (span){text, bytes}, true, take_members, &m), "%s",
        sl_detail());
  CHECK(m.count == count && m.hash == hash, "%s has %zu characters, not %zu", name, m.count, count);
  free(pattern);
  sli_tokenizer_close(t);
}

/* Character classes match those of the library. */
static void check_properties(const char *path) {
  const char *root = getenv("SLUICE_SOURCE");
  char *source = sli_format("%s/tests/reference/properties.txt", root ? root : "."), *all, *line;
  CHECK(!sli_file_read(source, &all), "%s", sl_detail());
  size_t bytes, lines = 0;
  char *text = all_characters(&bytes);
  for (char *rest = all; (line = strsep(&rest, "\n")) && *line; lines++) {
    char name[40];
    size_t count;
    unsigned long long hash;
    if (*line == '#') continue;
    CHECK(sscanf(line, "%39s %zu %llx", name, &count, &hash) == 3, "%s", line);
    check_property(path, name, text, bytes, count, hash);
  }
  CHECK(lines > 130, "%zu classes", lines);
  free(text), free(all), free(source);
}

/* A word that needs more memory than the matcher's small stack is still split. */
static void check_long_words(const char *path) {
  char *word = repeated("ab", 1 << 20), *text = sli_format("%s cd ef", word),
       *want = sli_format("%s| |cd| |ef", word);
  check_pieces(path, "(?:\\p{L}\\p{M}*)+|\\s+", text, want);
  free(word), free(text), free(want);
}

/* A pattern that takes too many steps is an error, not a piece. */
static void check_failing_match(const char *path) {
  sli_tokenizer *t = open_pattern(path, "(?:(?:a|b|ab|ba)*)*[^ab]c");
  char *text = repeated("ab", 400);
  text[399] = 'c';
  sli_token_row row = {0};
  CHECK(t && sli_tokenizer_encode(t, text, strlen(text), false, &row) == SL_E_INPUT,
        "a match that takes too long ends");
  CHECK(strstr(sl_detail(), "(?:(?:a|b|ab|ba)*)*") && strstr(sl_detail(), "400 bytes"), "%s",
        sl_detail());
  free(text);
  free(row.items);
  sli_tokenizer_close(t);
}

/* ---- damaged files --------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text, size_t bytes) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(text, 1, bytes, file) == bytes && !fclose(file), "%s is written", path);
}

static void check_refusals(const char *path) {
#define MODEL(more) \
  "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" more "}}"
  static const struct {
    const char *text, *named;
  } bad[] = {
      {"", "not JSON"},
      {"{\"model\":", "not JSON"},
      {"{}", "no model"},
      {"{\"model\":{}}", "vocab"},
      {"{\"model\":{\"type\":\"WordLevel\"}}", "WordLevel"},
      {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "model.unk_token"},
      {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"b\"}}", "\"b\""},
      {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"},\"post_processor\":"
       "{\"type\":\"BertProcessing\",\"cls\":[\"a\",0]}}",
       "sep"},
      {"{\"model\":{\"type\":\"Unigram\"}}", "model.vocab is not an array"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}}", "model.unk_id"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}}", "model.unk_id"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\",\"c\"]],\"unk_id\":0}}",
       "token 1 of model.vocab"},
      {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],"
       "\"unk_id\":0}}",
       "ByteLevel"},
      {"{\"model\":{\"vocab\":{\"a\":-1}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{\"a\":1e9}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{\"a\":0.5}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{}}}", "merges"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a  b\"]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}", "unk_token"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}", "dropout"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}",
       "end_of_word_suffix"},
      {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "UnicodeScripts"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
       "pattern"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Eaten\"}}",
       "Eaten"},
      {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}", "replacement"},
      {"{\"normalizer\":{\"type\":\"Precompiled\"},\"model\":{\"vocab\":{},\"merges\":[]}}",
       "Precompiled"},
      {"{\"decoder\":{\"type\":\"CTC\"},\"model\":{\"vocab\":{},\"merges\":[]}}", "CTC"},
      {"{\"post_processor\":{\"type\":\"Pairs\"},\"model\":{\"vocab\":{},\"merges\":[]}}", "Pairs"},
      {"{\"added_tokens\":[{\"content\":\"x\"}],\"model\":{\"vocab\":{},\"merges\":[]}}", "\"x\""}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sli_tokenizer *t;
    write_text(path, bad[i].text, strlen(bad[i].text));
    CHECK(sli_tokenizer_open(path, &t) == SL_E_INPUT, "file %zu is refused: %s", i, bad[i].text);
    CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), bad[i].named), "%s: \"%s\" names %s",
          bad[i].text, sl_detail(), bad[i].named);
  }
}

/* A token of single words stands alone only between characters that are not of a word, as in
 * tokenizers 0.23: letters, marks, decimal digits, connectors and joiners are. */
static void check_words(const char *path) {
  static const struct {
    const char *text;
    bool alone;
  } rows[] = {{"ab", true},
              {"abc", false},
              {"ab1", false},
              {"ab_", false},
              {"ab-", true},
              {"ab\u00b2", true},
              {"ab\u2167", false},
              {"ab\u24d0", false},
              {"ab\u2460", true},
              {"ab\u0301", false},
              {"ab\u200d", false},
              {"\u200cab", false},
              {"\u00bd"
               "ab",
               true},
              {"\U0001f130"
               "ab",
               false},
              {"\U0001f600"
               "ab",
               true}};
  static const char json[] =
      "{\"added_tokens\":[{\"id\":1,\"content\":\"ab\",\"single_word\":true,\"special\":false,\"lstrip\":false,"
      "\"rstrip\":false,\"normalized\":false}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0},\"merges\":[]}}";
  write_text(path, json, sizeof json - 1);
  sli_tokenizer *t;
  CHECK(!sli_tokenizer_open(path, &t), "%s", sl_detail());
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    sli_token_row row = {0};
    bool found = false;
    CHECK(!sli_tokenizer_encode(t, rows[i].text, strlen(rows[i].text), false, &row), "%s",
          sl_detail());
    for (size_t k = 0; k < row.count; k++) found |= row.items[k] == 1;
    CHECK(found == rows[i].alone, "%s", rows[i].text);
    free(row.items);
  }
  sli_tokenizer_close(t);
}

static const char probe[] = " Hello \u4e2d 123 <mask>mark's  \U0001f600\n\n";

static void try_damaged(const char *path, const char *text, size_t bytes) {
  write_text(path, text, bytes);
  sli_tokenizer *t;
  if (sli_tokenizer_open(path, &t)) return;
  sli_token_row row = {0};
  CHECK(!sli_tokenizer_encode(t, probe, strlen(probe), true, &row), "%s", sl_detail());
  size_t n;
  free(sli_tokenizer_decode(t, row.items, row.count, false, &n));
  free(row.items);
  sli_tokenizer_close(t);
}

/* Changes bytes, and drops, doubles or swaps stretches. */
static void damage(rng *d, char *text, size_t *bytes) {
  static const char likely[] = "0123456789{}[]\",:\\-enu";
  for (int times = rng_below(d, 4) + 1; times; times--) {
    size_t at = (size_t)rng_below(d, (uint32_t)*bytes), n = (size_t)rng_below(d, 40);
    n = SLI_MIN(n, *bytes - at);
    switch (rng_below(d, 3)) {
    case 0: text[at] = likely[rng_below(d, sizeof likely - 1)]; break;
    case 1: memmove(text + at, text + at + n, *bytes - at - n), *bytes -= n; break;
    case 2: memmove(text + at, text + (size_t)rng_below(d, (uint32_t)(*bytes - n)), n); break;
    }
  }
}

static void check_damage(uint64_t seed, const char *path) {
  rng d = {.key = seed};
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    char *source = reference(names[i], ".json"), *text;
    CHECK(!sli_file_read(source, &text), "%s", sl_detail());
    size_t whole = strlen(text);
    char *copy = sli_calloc(1, whole + 1);
    for (int round = 0; round < 12; round++) {
      size_t bytes = whole;
      memcpy(copy, text, whole);
      damage(&d, copy, &bytes);
      try_damaged(path, copy, bytes);
    }
    free(copy);
    free(text);
    free(source);
  }
}

int main(int argc, char **argv) {
  for (size_t i = 0; i < SLI_COUNT(names); i++) RUN(check_texts, names[i]);
  RUN(check_bad_text);
  RUN(check_odd_tokens);
  RUN(check_nasty);
  RUN(check_marks);
  RUN(check_stopped);
  RUN(check_bounded);
  RUN(check_longest);
  char path[] = "/tmp/sluice-tokenizer-XXXXXX";
  int fd = mkstemp(path);
  CHECK(fd >= 0, "a temporary file");
  close(fd);
  RUN(check_refusals, path);
  RUN(check_words, path);
  RUN(check_patterns, path);
  RUN(check_refused_patterns, path);
  RUN(check_properties, path);
  RUN(check_long_words, path);
  RUN(check_failing_match, path);
  seeds s = seeds_of(argc, argv, 1, 3);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_damage, seed, path);
  unlink(path);
  return 0;
}
