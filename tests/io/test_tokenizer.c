/* Tokens are those that Hugging Face's library makes, for every kind of tokenizer that is known and
 * texts of all sorts, and so is what they are decoded to (tests/reference/tokenizers). Damaged files
 * are refused, or read, but never trip.
 * labels: random unthreaded */
#include <cjson/cJSON.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "io/tokenizer/tokenizer.h"
#include "tests/support/dice.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static const char *const names[] = {"gpt2", "roberta", "smollm", "llama3", "qwen2",
                                    "cuts", "llama2",  "mistral", "metaspace"};

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

/* ---- against Hugging Face's --------------------------------------------------------------------- */

/* A JSON text may hold U+0000, at which a C string would end. */
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
  for (char *at = out; (at = strchr(at, 6));) *at++ = 0; /* no text has U+0006 of its own */
  cJSON_Delete(item);
  free(shielded);
  return out;
}

static void check_tokens(const char *name, const char *text, const sli_token_row *row,
                         const char *json) {
  cJSON *want = cJSON_Parse(json), *item;
  size_t i = 0;
  cJSON_ArrayForEach(item, want) {
    CHECK(i < row->count && row->items[i] == item->valueint, "%s: %s: token %zu of %zu is %d, not %d",
          name, text, i, row->count, i < row->count ? row->items[i] : -1, item->valueint);
    i++;
  }
  CHECK(i == row->count, "%s: %s has %zu tokens, not %zu", name, text, row->count, i);
  cJSON_Delete(want);
}

static void check_decoded(const sli_tokenizer *t, const char *name, const sli_token_row *row,
                          bool special, const char *json) {
  size_t bytes, n;
  char *want = text_of(json, &bytes), *got = sli_tokenizer_decode(t, row->items, row->count, special, &n);
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

/* Twice, since what was met before is remembered. */
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

/* ---- texts that are none ---------------------------------------------------------------------------- */

static void check_bad_text(void) {
  static const struct {
    const char *text, *where;
  } bad[] = {{"ab\xff", "byte 2"},        {"\xc0\x80", "byte 0"},     {"x\xed\xa0\x80", "byte 1"},
             {"\xf4\x90\x80\x80", "byte 0"}, {"ok \xe4\xb8", "byte 3"}, {"\xc3", "byte 0"}};
  sli_tokenizer *t = open_reference("gpt2");
  sli_token_row row = {0};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    CHECK(sli_tokenizer_encode(t, bad[i].text, strlen(bad[i].text), true, &row) == SL_E_INPUT && !row.count,
          "text %zu is refused", i);
    CHECK(strstr(sl_detail(), bad[i].where), "text %zu: \"%s\" says %s", i, sl_detail(), bad[i].where);
  }
  sli_tokenizer_close(t);
}

/* Half a character at the end of what is decoded so far is U+FFFD, tokens that there are not are
 * left out. */
static void check_odd_tokens(void) {
  sli_tokenizer *t = open_reference("gpt2");
  sli_token_row row = {0};
  CHECK(!sli_tokenizer_encode(t, "\u0fd0", 3, false, &row) && row.count == 3, "a character of three tokens");
  size_t bytes;
  const int32_t odd[] = {-1, row.items[0], row.items[1], 1 << 20};
  char *text = sli_tokenizer_decode(t, odd, 4, true, &bytes);
  CHECK(!strcmp(text, "\ufffd") && bytes == 3, "two thirds of a character are \"%s\"", text);
  free(text);
  free(row.items);
  sli_tokenizer_close(t);
}

/* ---- texts that would take long ------------------------------------------------------------------- */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
  double begin = seconds();
  CHECK(!sli_tokenizer_encode(t, text, strlen(text), true, &row), "%s", sl_detail());
  double took = seconds() - begin;
  CHECK(took < 5, "%s: \"%s\" again and again takes %g s", name, unit, took);
  free(row.items);
  free(text);
}

static void check_nasty(void) {
  static const char *const units[] = {
      "a", "ab", "A", " ", "\t", "\n", "\r\n", " \n", "7", "\u0301", "\u0301\u0323", "a\u0301\u0323\u0300\u0327", "\u4e2d",
      "\ud55c", "\u1112\u1161\u11ab", "\U0001f469\u200d", "\u0f71\u0f72", "'", "<", "<|", "\u2581", "\u00e9", "\ufdfa",
      "\u1f82", "!?", "'s", " a", "\u00a0", "\u3000"};
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_tokenizer *t = open_reference(names[i]);
    for (size_t k = 0; k < SLI_COUNT(units); k++) check_quick(t, names[i], units[k]);
    sli_tokenizer_close(t);
  }
}

/* Marks in any order are the tokens of marks in their order, those of one class as they stand. */
static void check_marks(void) {
  enum { MARKS = 1000 };
  sli_tokenizer *t = open_reference("qwen2");
  char *mixed = repeated("\u0301\u0323\u0300", 6 * MARKS), *above = repeated("\u0301\u0300", 4 * MARKS);
  char *below = repeated("\u0323", 2 * MARKS), *whole = sli_format("x%sa", mixed);
  char *ordered = sli_format("x%s%sa", below, above);
  sli_token_row one = {0}, other = {0};
  CHECK(!sli_tokenizer_encode(t, whole, strlen(whole), true, &one), "%s", sl_detail());
  CHECK(!sli_tokenizer_encode(t, ordered, strlen(ordered), true, &other), "%s", sl_detail());
  CHECK(one.count == other.count && !memcmp(one.items, other.items, one.count * sizeof *one.items), "marks are in order");
  free(one.items), free(other.items);
  free(mixed), free(above), free(below), free(whole), free(ordered);
  sli_tokenizer_close(t);
}

static void check_stopped(void) {
  atomic_bool stop = true;
  sli_tokenizer *t = open_reference("qwen2");
  char *text = repeated("ab cd\u0301 ", 1 << 16);
  sli_token_row row = {0};
  CHECK(sli_tokenizer_encode_until(t, text, strlen(text), true, &stop, &row) == SL_E_STOPPED && row.count < 100,
        "an encoding stops");
  stop = false;
  row.count = 0;
  CHECK(!sli_tokenizer_encode_until(t, text, strlen(text), true, &stop, &row) && row.count > 1000, "%s", sl_detail());
  free(row.items);
  free(text);
  sli_tokenizer_close(t);
}

/* No text has more bytes than its tokens times the longest, unless marks take spaces along or they
 * are cut out. */
static void check_longest(void) {
  for (size_t i = 0; i < SLI_COUNT(names); i++) {
    sli_tokenizer *t = open_reference(names[i]);
    size_t most = sli_tokenizer_longest(t);
    bool none = !strcmp(names[i], "gpt2") || !strcmp(names[i], "roberta") || !strcmp(names[i], "cuts");
    CHECK(none ? !most : most >= 4 && most < 2048, "%s: %zu bytes are the longest token", names[i], most);
    char *text = repeated("the ", 4096);
    sli_token_row row = {0};
    CHECK(!sli_tokenizer_encode(t, text, strlen(text), true, &row), "%s", sl_detail());
    CHECK(!most || row.count * most >= strlen(text), "%s: %zu tokens", names[i], row.count);
    free(row.items);
    free(text);
    sli_tokenizer_close(t);
  }
}

/* ---- files that are none ---------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text, size_t bytes) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(text, 1, bytes, file) == bytes && !fclose(file), "%s is written", path);
}

static void check_refusals(const char *path) {
#define MODEL(more) "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" more "}}"
  static const struct {
    const char *text, *named;
  } bad[] = {
      {"", "no JSON"}, {"{\"model\":", "no JSON"}, {"{}", "no model"}, {"{\"model\":{}}", "vocab"},
      {"{\"model\":{\"type\":\"Unigram\"}}", "Unigram"},
      {"{\"model\":{\"vocab\":{\"a\":-1}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{\"a\":1e9}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{\"a\":0.5}}}", "\"a\""},
      {"{\"model\":{\"vocab\":{}}}", "merges"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a  b\"]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}", "unk_token"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}", "dropout"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
      {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}", "BertPreTokenizer"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
       "pattern"},
      {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Eaten\"}}", "Eaten"},
      {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}", "replacement"},
      {"{\"normalizer\":{\"type\":\"Lowercase\"},\"model\":{\"vocab\":{},\"merges\":[]}}", "Lowercase"},
      {"{\"decoder\":{\"type\":\"WordPiece\"},\"model\":{\"vocab\":{},\"merges\":[]}}", "WordPiece"},
      {"{\"post_processor\":{\"type\":\"BertProcessing\"},\"model\":{\"vocab\":{},\"merges\":[]}}",
       "BertProcessing"},
      {"{\"added_tokens\":[{\"content\":\"x\"}],\"model\":{\"vocab\":{},\"merges\":[]}}", "\"x\""}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sli_tokenizer *t;
    write_text(path, bad[i].text, strlen(bad[i].text));
    CHECK(sli_tokenizer_open(path, &t) == SL_E_INPUT, "file %zu is refused: %s", i, bad[i].text);
    CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), bad[i].named), "%s: \"%s\" names %s", bad[i].text,
          sl_detail(), bad[i].named);
  }
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

/* Bytes are changed, stretches left out, doubled or exchanged. */
static void damage(dice *d, char *text, size_t *bytes) {
  static const char likely[] = "0123456789{}[]\",:\\-enu";
  for (int times = roll(d, 4) + 1; times; times--) {
    size_t at = (size_t)roll(d, (uint32_t)*bytes), n = (size_t)roll(d, 40);
    n = SLI_MIN(n, *bytes - at);
    switch (roll(d, 3)) {
    case 0: text[at] = likely[roll(d, sizeof likely - 1)]; break;
    case 1: memmove(text + at, text + at + n, *bytes - at - n), *bytes -= n; break;
    case 2: memmove(text + at, text + (size_t)roll(d, (uint32_t)(*bytes - n)), n); break;
    }
  }
}

static void check_damage(uint64_t seed, const char *path) {
  dice d = {.key = seed};
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
  for (size_t i = 0; i < SLI_COUNT(names); i++) check_texts(names[i]);
  check_bad_text();
  check_odd_tokens();
  check_nasty();
  check_marks();
  check_stopped();
  check_longest();
  char path[] = "/tmp/sluice-tokenizer-XXXXXX";
  int fd = mkstemp(path);
  CHECK(fd >= 0, "a temporary file");
  close(fd);
  check_refusals(path);
  seeds s = seeds_of(argc, argv, 1, 3);
  for (uint64_t seed = s.first; seed < s.end; seed++) check_damage(seed, path);
  unlink(path);
  return 0;
}
