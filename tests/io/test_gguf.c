/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: metadata of a model, tensors of each supported type, rows of q and k in Hugging
 * Face's order, tokenizers. Damage of any kind gives an error message.
 * labels: random unthreaded smoke
 * needs: pcre2 utf8proc */
#include "io/gguf/gguf.h"

#include <math.h>
#include <unistd.h>

#include "base/tempdir.h"
#include "io/file.h"
#include "text/tokenizer/tokenizer.h"
#include "tests/support/rng.h"
#include "tests/support/gguf_file.h"
#include "tests/support/seeds.h"

static sli_tempdir place;
static char *path;
static gguf_file made;

static sli_gguf *open_made(void) {
  sli_gguf *file;
  gguf_write(&made, path);
  CHECK(!sli_gguf_open(path, &file), "opening: %s", sl_detail());
  return file;
}

static void check_refused(const char *what, const char *word) {
  sli_gguf *file = NULL;
  gguf_write(&made, path);
  sl_status status = sli_gguf_open(path, &file);
  CHECK(status == SL_E_INPUT, "%s is refused, not %s", what, sl_status_text(status));
  CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), word),
        "%s: the text names the file and %s: %s", what, word, sl_detail());
}

static char *reference(const char *folder, const char *name, const char *suffix) {
  const char *source = getenv("SLUICE_SOURCE");
  return sli_format("%s/tests/reference/%s/%s%s", source ? source : ".", folder, name, suffix);
}

/* ---- contents -------------------------------------------------------------------------------- */

static double number_at(const cJSON *from, const char *key) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
  CHECK(cJSON_IsNumber(item), "%s is a number", key);
  return item->valuedouble;
}

static void keys_have_values(void) {
  gguf_begin(&made, 0, 7);
  gguf_key_text(&made, "general.name", "a \"name\"");
  gguf_key(&made, "eps", GGUF_F32);
  gguf_add(&made, &(float){1e-5f}, 4);
  gguf_key(&made, "wide", 10);
  gguf_u64(&made, UINT64_C(1) << 40);
  gguf_key(&made, "less", 1);
  gguf_add(&made, &(int8_t){-3}, 1);
  gguf_key(&made, "flag", GGUF_BOOL);
  gguf_add(&made, "\1", 1);
  gguf_key_array(&made, "texts", GGUF_TEXT, 2);
  gguf_text(&made, "one");
  gguf_text(&made, "");
  gguf_key_array(&made, "numbers", GGUF_I32, 2);
  gguf_u32(&made, 7);
  gguf_u32(&made, (uint32_t)-8);
  sli_gguf *file = open_made();
  const cJSON *keys = sli_gguf_metadata(file);
  CHECK(!strcmp(cJSON_GetObjectItem(keys, "general.name")->valuestring, "a \"name\""), "a text");
  CHECK(number_at(keys, "eps") == 1e-5, "f32 is the shortest number that it could be");
  CHECK(number_at(keys, "wide") == 0x1p40 && number_at(keys, "less") == -3, "integers");
  CHECK(cJSON_IsTrue(cJSON_GetObjectItem(keys, "flag")), "a flag");
  CHECK(!sli_gguf_array(file, "eps") && !sli_gguf_array(file, "none"), "no arrays");
  cJSON *texts = sli_gguf_array(file, "texts"), *numbers = sli_gguf_array(file, "numbers");
  CHECK(cJSON_GetArraySize(texts) == 2 && !strcmp(texts->child->valuestring, "one"),
        "an array of texts");
  CHECK(cJSON_GetArraySize(numbers) == 2 && numbers->child->next->valuedouble == -8,
        "one of numbers");
  cJSON_Delete(texts);
  cJSON_Delete(numbers);
  CHECK(!sli_gguf_count(file), "no tensors");
  sli_gguf_close(file);
}

static void half(gguf_file *f, uint16_t bits) { gguf_add(f, &bits, 2); }

/* Adds one block of each type; 0x3800 is 1/2 in f16, 0xc000 is -2. */
static void add_blocks(gguf_file *f) {
  unsigned char nibbles[16], bytes[32];
  for (int i = 0; i < 16; i++) nibbles[i] = (unsigned char)(i | (15 - i) << 4);
  for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(i - 16);
  for (int i = 0; i < 32; i++) gguf_add(f, &(float){(float)i}, 4);
  for (int i = 0; i < 32; i++) half(f, 0x3800);
  for (int i = 0; i < 32; i++) half(f, 0xc040);
  half(f, 0x3800), gguf_add(f, nibbles, 16), gguf_pad(f);
  half(f, 0x3800), half(f, 0xc000), gguf_add(f, nibbles, 16), gguf_pad(f);
  half(f, 0x3800), gguf_add(f, bytes, 32), gguf_pad(f);
}

static void types_are_unpacked(void) {
  static const struct {
    uint32_t type, offset;
  } all[] = {{0, 0}, {1, 128}, {30, 192}, {2, 256}, {3, 288}, {8, 320}};
  gguf_begin(&made, SLI_COUNT(all), 0);
  for (uint32_t i = 0; i < SLI_COUNT(all); i++)
    gguf_tensor(&made, (char[]){(char)('a' + i), 0}, 1, &(uint64_t){32}, all[i].type,
                all[i].offset);
  gguf_pad(&made);
  add_blocks(&made);
  sli_gguf *file = open_made();
  float out[6][32];
  for (int i = 0; i < 6; i++)
    CHECK(!sli_gguf_read(file, sli_gguf_at(file, i), out[i]), "tensor %d: %s", i, sl_detail());
  for (int i = 0; i < 32; i++) {
    int nibble = i < 16 ? i : 31 - i;
    CHECK(out[0][i] == (float)i && out[1][i] == 0.5f && out[2][i] == -3, "F32, F16, BF16");
    CHECK(out[3][i] == 0.5f * (float)(nibble - 8), "Q4_0: number %d is %g", i, (double)out[3][i]);
    CHECK(out[4][i] == 0.5f * (float)nibble - 2, "Q4_1: number %d is %g", i, (double)out[4][i]);
    CHECK(out[5][i] == 0.5f * (float)(i - 16), "Q8_0: number %d is %g", i, (double)out[5][i]);
  }
  sli_gguf_close(file);
}

static size_t bytes_of_hex(const char *hex, unsigned char *out) {
  size_t n = strlen(hex) / 2;
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1, "two digits");
    out[i] = (unsigned char)byte;
  }
  return n;
}

static void check_blocks(uint32_t type, const char *name, const unsigned char *bytes, size_t count,
                         const float *want) {
  float out[256];
  gguf_begin(&made, 1, 0);
  gguf_tensor(&made, "w", 1, &(uint64_t){256}, type, 0);
  gguf_pad(&made);
  gguf_add(&made, bytes, count);
  sli_gguf *file = open_made();
  const sli_stored_tensor *t = sli_gguf_at(file, 0);
  CHECK(!strcmp(t->dtype, name) && !sli_gguf_read(file, t, out), "%s: %s", name, sl_detail());
  for (int i = 0; i < 256; i++)
    CHECK(fabsf(out[i] - want[i]) <= 1e-6f * fabsf(want[i]), "%s: number %d is %.9g, not %.9g",
          name, i, (double)out[i], (double)want[i]);
  sli_gguf_close(file);
}

/* Blocks unpack as with ggml's own package (tests/reference/make_gguf.py). */
static void blocks_are_unpacked(void) {
  static const struct {
    const char *name;
    uint32_t type;
  } all[] = {{"F16", 1},     {"Q4_0", 2},    {"Q4_1", 3},     {"Q8_0", 8},   {"Q4_K", 12},
             {"Q5_K", 13},   {"Q6_K", 14},   {"Q5_0", 6},     {"Q5_1", 7},   {"Q2_K", 10},
             {"Q3_K", 11},   {"IQ4_NL", 20}, {"IQ4_XS", 23},  {"MXFP4", 39}, {"IQ2_XXS", 16},
             {"IQ2_XS", 17}, {"IQ2_S", 22},  {"IQ3_XXS", 18}, {"IQ3_S", 21}, {"IQ1_S", 19},
             {"IQ1_M", 29}};
  char *from = reference("gguf", "blocks", ".txt"), *text, *rest;
  CHECK(!sli_file_read(from, &text), "%s", sl_detail());
  rest = text;
  for (size_t i = 0; i < SLI_COUNT(all); i++) {
    unsigned char bytes[512];
    float want[256];
    const char *name = strsep(&rest, " "), *blocks = strsep(&rest, " "),
               *values = strsep(&rest, "\n");
    CHECK(values && !strcmp(name, all[i].name), "%s has a line", all[i].name);
    CHECK(bytes_of_hex(values, (unsigned char *)want) == sizeof want, "256 numbers");
    check_blocks(all[i].type, name, bytes, bytes_of_hex(blocks, bytes), want);
  }
  free(text);
  free(from);
}

/* Two heads of four rows each: ggml stores rows in the order 0 2 1 3. */
static void add_turned(uint32_t heads, uint64_t rows) {
  gguf_begin(&made, 1, 2);
  gguf_key_text(&made, "general.architecture", "llama");
  gguf_key_u32(&made, "llama.attention.head_count", heads);
  gguf_tensor(&made, "blk.7.attn_q.weight", 2, (uint64_t[]){2, rows}, 0, 0);
  gguf_pad(&made);
  for (uint64_t i = 0; i < 2 * rows; i++) gguf_add(&made, &(float){(float)i}, 4);
}

static void heads_are_turned_back(void) {
  static const float want[] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  float out[20];
  add_turned(2, 8);
  sli_gguf *file = open_made();
  const sli_stored_tensor *q = sli_gguf_find(file, "model.layers.7.self_attn.q_proj.weight");
  CHECK(q && q->ndim == 2 && q->dim[0] == 8 && q->dim[1] == 2,
        "the name and the shape are Hugging Face's");
  CHECK(!sli_gguf_read(file, q, out) && !memcmp(out, want, sizeof want), "so are the rows");
  sli_gguf_close(file);
  add_turned(3, 8);
  file = open_made();
  CHECK(
      sli_gguf_read(file, sli_gguf_at(file, 0), out) == SL_E_INPUT && strstr(sl_detail(), "q_proj"),
      "rows that heads cannot share: %s", sl_detail());
  sli_gguf_close(file);
}

static void other_types_are_refused_by_name(void) {
  gguf_begin(&made, 1, 0);
  gguf_tensor(&made, "w", 1, &(uint64_t){256}, 15, 0);
  gguf_pad(&made);
  for (int i = 0; i < 292; i++) gguf_add(&made, "", 1);
  sli_gguf *file = open_made();
  float out[256];
  CHECK(sli_gguf_read(file, sli_gguf_at(file, 0), out) == SL_E_INPUT &&
            strstr(sl_detail(), "w is Q8_K") && strstr(sl_detail(), "Q6_K"),
        "its name is said: %s", sl_detail());
  sli_gguf_close(file);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Makes a file with one tensor. */
static void make_one(const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                     uint64_t offset, size_t data) {
  gguf_begin(&made, 1, 0);
  gguf_tensor(&made, name, ndim, dims, type, offset);
  gguf_pad(&made);
  for (size_t i = 0; i < data; i++) gguf_add(&made, "x", 1);
}

static void tensors_that_cannot_be(void) {
  static const struct {
    const char *what;
    uint32_t ndim;
    uint64_t dims[5];
    uint32_t type;
    uint64_t offset;
    size_t data;
    const char *word;
  } cases[] = {{"a missing end", 1, {8}, 0, 0, 31, "truncated: tensor w"},
               {"an offset behind the end", 1, {8}, 0, 1 << 20, 32, "begins at data byte 1048576"},
               {"an offset that overflows", 1, {8}, 0, UINT64_MAX - 31, 32, "truncated: tensor w"},
               {"a crooked offset", 1, {8}, 0, 4, 64, "not a multiple of 32"},
               {"an unknown type", 1, {32}, 77, 0, 64, "type 77"},
               {"a type that was given up", 1, {32}, 4, 0, 64, "type 4"},
               {"a huge type", 1, {32}, UINT32_MAX, 0, 64, "type 4294967295"},
               {"no dimensions", 0, {0}, 0, 0, 32, "0 dimensions"},
               {"five dimensions", 5, {1, 1, 1, 1, 1}, 0, 0, 32, "5 dimensions"},
               {"an empty dimension", 2, {4, 0}, 0, 0, 32, "impossible shape"},
               {"a negative one", 1, {UINT64_MAX}, 0, 0, 32, "impossible shape"},
               {"a product that overflows",
                3,
                {1ull << 32, 1ull << 32, 1ull << 32},
                0,
                0,
                32,
                "impossible shape"},
               {"bytes that overflow", 1, {1ull << 62}, 0, 0, 32, "impossible shape"},
               {"a broken block", 2, {33, 2}, 8, 0, 128, "not a multiple of 32"},
               {"blocks that rows would share", 2, {16, 2}, 8, 0, 128, "rows of 16"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    make_one("w", cases[i].ndim, cases[i].dims, cases[i].type, cases[i].offset, cases[i].data);
    check_refused(cases[i].what, cases[i].word);
  }
}

static void two_tensors(const char *first, const char *second, uint64_t offset) {
  gguf_begin(&made, 2, 1);
  gguf_key_text(&made, "general.architecture", "llama");
  gguf_tensor(&made, first, 1, &(uint64_t){16}, 0, 0);
  gguf_tensor(&made, second, 1, &(uint64_t){16}, 0, offset);
  gguf_pad(&made);
  for (int i = 0; i < 128; i++) gguf_add(&made, "x", 1);
}

static void tensors_that_do_not_agree(void) {
  two_tensors("a", "b", 32);
  check_refused("an overlap", "a and b overlap");
  two_tensors("a", "a", 64);
  check_refused("a doubled name", "tensor a appears twice");
  two_tensors("output_norm.weight", "model.norm.weight", 64);
  check_refused("two names of one tensor", "model.norm.weight appears twice");
}

static void begin_key(uint32_t kind) {
  gguf_begin(&made, 0, 1);
  gguf_key(&made, "k.y", kind);
}

static void keys_that_cannot_be(void) {
  begin_key(GGUF_TEXT), gguf_u64(&made, UINT64_MAX);
  check_refused("a text longer than the file", "text of 18446744073709551615 bytes");
  begin_key(GGUF_TEXT), gguf_u64(&made, 3), gguf_add(&made, "a\0b", 3);
  check_refused("a zero in a text", "k.y has a text with a zero");
  begin_key(13);
  check_refused("an unknown kind", "k.y has type 13");
  begin_key(GGUF_U32), gguf_add(&made, "\1", 1);
  check_refused("half a number", "within k.y");
  begin_key(GGUF_F32), gguf_u32(&made, 0x7f800000);
  check_refused("an infinite number", "k.y is not finite");
  begin_key(GGUF_ARRAY), gguf_u32(&made, GGUF_ARRAY), gguf_u64(&made, 1);
  check_refused("an array of arrays", "k.y is an array of type 9");
  begin_key(GGUF_ARRAY), gguf_u32(&made, GGUF_U32), gguf_u64(&made, UINT64_MAX / 2);
  check_refused("an array whose bytes overflow", "k.y has 9223372036854775807 elements");
  begin_key(GGUF_ARRAY), gguf_u32(&made, GGUF_TEXT), gguf_u64(&made, UINT64_MAX);
  check_refused("an array of texts longer than the file", "within k.y");
  gguf_begin(&made, 0, 2), gguf_key_u32(&made, "k", 1), gguf_key_u32(&made, "k", 1);
  check_refused("a doubled key", "key k appears twice");
  gguf_begin(&made, 0, UINT64_MAX);
  check_refused("a lying count of keys", "18446744073709551615 keys");
  gguf_begin(&made, 0, 2), gguf_key_u32(&made, "k", 1);
  check_refused("a key that is not there", "within a key");
  gguf_begin(&made, UINT64_MAX, 0);
  check_refused("a lying count of tensors", "18446744073709551615 tensors");
  gguf_begin(&made, 0, 1), gguf_key_u32(&made, "general.alignment", 24);
  check_refused("a crooked alignment", "general.alignment is 24");
  gguf_begin(&made, 0, 1), gguf_key_u32(&made, "general.alignment", 0);
  check_refused("no alignment", "general.alignment is 0");
}

static void files_that_are_none(void) {
  gguf_begin(&made, 0, 0);
  made.bytes[4] = 1;
  check_refused("version 1", "version 1");
  memcpy(made.bytes + 4, "\0\0\0\3", 4);
  check_refused("the other order of bytes", "big-endian");
  made.count = 20;
  check_refused("half a header", "24 bytes");
  made.count = 3;
  check_refused("three bytes", "not a GGUF file");
  made.count = 0;
  check_refused("an empty file", "not a GGUF file");
  CHECK(!sli_gguf_is(path) && !sli_gguf_is(place.folder) && !sli_gguf_is("/no/such"),
        "that is none either");
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static cJSON *read_json(const char *from) {
  char *text;
  CHECK(!sli_file_read(from, &text), "%s", sl_detail());
  cJSON *root = cJSON_Parse(text);
  free(text);
  return root;
}

/* Lists tokens by number; *types tells which are special. */
static int list_tokens(const cJSON *root, const char **texts, int32_t *types, int most) {
  const cJSON *vocab = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "model"), "vocab"), *item;
  int n = 0;
  for (int i = 0; i < most; i++) texts[i] = "unused", types[i] = 5;
  cJSON_ArrayForEach(item, vocab) {
    texts[item->valueint] = item->string, types[item->valueint] = 1;
    n = SLI_MAX(n, item->valueint + 1);
  }
  cJSON_ArrayForEach(item, cJSON_GetObjectItem(root, "added_tokens")) {
    int id = cJSON_GetObjectItem(item, "id")->valueint;
    texts[id] = cJSON_GetObjectItem(item, "content")->valuestring, types[id] = 3;
    n = SLI_MAX(n, id + 1);
  }
  return n;
}

static void make_tokenizer(const cJSON *root, const char *pre) {
  enum { MOST = 4096 };
  static const char *texts[MOST];
  static int32_t types[MOST];
  int n = list_tokens(root, texts, types, MOST);
  const cJSON *merges = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "model"), "merges"), *item;
  gguf_begin(&made, 0, 7);
  gguf_key_text(&made, "tokenizer.ggml.model", "gpt2");
  gguf_key_text(&made, "tokenizer.ggml.pre", pre);
  gguf_key_array(&made, "tokenizer.ggml.tokens", GGUF_TEXT, (uint64_t)n);
  for (int i = 0; i < n; i++) gguf_text(&made, texts[i]);
  gguf_key_array(&made, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n);
  gguf_add(&made, types, (size_t)n * 4);
  gguf_key_array(&made, "tokenizer.ggml.merges", GGUF_TEXT, (uint64_t)cJSON_GetArraySize(merges));
  cJSON_ArrayForEach(item, merges) {
    char *pair = sli_format("%s %s", item->child->valuestring, item->child->next->valuestring);
    gguf_text(&made, pair);
    free(pair);
  }
  gguf_key_u32(&made, "tokenizer.ggml.bos_token_id", 1);
  gguf_key_u32(&made, "tokenizer.ggml.eos_token_id", 2);
}

static void check_same(sli_tokenizer *a, sli_tokenizer *b, const char *name, const char *text) {
  sli_token_row x = {0}, y = {0};
  CHECK(!sli_tokenizer_encode(a, text, strlen(text), false, &x) &&
            !sli_tokenizer_encode(b, text, strlen(text), false, &y),
        "%s", sl_detail());
  CHECK(x.count == y.count && (!x.count || !memcmp(x.items, y.items, 4 * x.count)),
        "%s: %s becomes the same tokens", name, text);
  free(x.items);
  free(y.items);
}

static void check_texts(sli_tokenizer *a, sli_tokenizer *b, const char *name) {
  char *from = reference("tokenizers", name, ".txt"), *all, *line;
  CHECK(!sli_file_read(from, &all), "%s", sl_detail());
  int lines = 0;
  for (char *rest = all; (line = strsep(&rest, "\n")) && *line; lines++) {
    if (*line == '#') continue;
    line[strcspn(line, "\t")] = 0;
    cJSON *text = cJSON_Parse(line);
    check_same(a, b, name, text->valuestring);
    cJSON_Delete(text);
  }
  CHECK(lines > 200, "%s: all texts are there", name);
  free(all);
  free(from);
}

/* Compares with the tokens of a tokenizer.json, which test_io_tokenizer checks against Hugging
 * Face. */
static void tokens_are_the_same(const char *name, const char *pre) {
  char *from = reference("tokenizers", name, ".json");
  cJSON *root = read_json(from);
  sli_tokenizer *a, *b;
  make_tokenizer(root, pre);
  gguf_write(&made, path);
  CHECK(!sli_tokenizer_open(from, &a) && !sli_tokenizer_open(path, &b), "%s", sl_detail());
  check_texts(a, b, name);
  sli_tokenizer_close(a);
  sli_tokenizer_close(b);
  cJSON_Delete(root);
  free(from);
}

static void check_line(sli_tokenizer *t, char *line) {
  char *text_part = strsep(&line, "\t");
  cJSON *text = cJSON_Parse(text_part), *want = cJSON_Parse(line), *item;
  sli_token_row row = {0};
  size_t n, i = 0;
  CHECK(text && want &&
            !sli_tokenizer_encode(t, text->valuestring, strlen(text->valuestring), true, &row),
        "%s: %s", text_part, sl_detail());
  cJSON_ArrayForEach(item, want) {
    CHECK(i < row.count && row.items[i] == item->valueint, "%s: token %zu of %zu is %d, not %d",
          text_part, i, row.count, i < row.count ? row.items[i] : -1, item->valueint);
    i++;
  }
  CHECK(i == row.count, "%s has %zu tokens, not %zu", text_part, row.count, i);
  char *back = sli_tokenizer_decode(t, row.items, row.count, false, &n);
  bool marks =
      strstr(text->valuestring, "\u2581"); /* they are decoded as the spaces they represent */
  CHECK(marks || !strcmp(back, text->valuestring), "%s comes back as \"%s\"", text_part, back);
  free(back);
  free(row.items);
  cJSON_Delete(text);
  cJSON_Delete(want);
}

/* Reads the file that tests/reference/make_gguf.py writes. */
static void pieces_are_sentencepieces(void) {
  char *from = reference("gguf", "pieces", ".gguf"), *texts = reference("gguf", "pieces", ".txt"),
       *all, *line;
  sli_tokenizer *t;
  int lines = 0;
  CHECK(!sli_tokenizer_open(from, &t) && !sli_file_read(texts, &all), "%s", sl_detail());
  for (char *rest = all; (line = strsep(&rest, "\n")) && *line; lines++) check_line(t, line);
  CHECK(lines > 200, "all texts are there");
  sli_tokenizer_close(t);
  free(all);
  free(texts);
  free(from);
}

static void make_small(const char *pre, int begins, uint32_t bos) {
  gguf_begin(&made, 0, begins < 0 ? 6 : 7);
  gguf_key_text(&made, "tokenizer.ggml.model", "gpt2");
  if (pre) gguf_key_text(&made, "tokenizer.ggml.pre", pre);
  else gguf_key_u32(&made, "tokenizer.ggml.pre", 7);
  gguf_key_array(&made, "tokenizer.ggml.tokens", GGUF_TEXT, 4);
  for (int i = 0; i < 4; i++) gguf_text(&made, &"a\0\0b\0\0ab\0<s>"[3 * i]);
  gguf_key_array(&made, "tokenizer.ggml.merges", GGUF_TEXT, 1);
  gguf_text(&made, "a b");
  gguf_key_array(&made, "tokenizer.ggml.token_type", GGUF_I32, 4);
  gguf_add(&made, (int32_t[]){1, 1, 1, 3}, 16);
  gguf_key_u32(&made, "tokenizer.ggml.bos_token_id", bos);
  if (begins < 0) return;
  gguf_key(&made, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
  gguf_add(&made, (char[]){(char)begins}, 1);
}

static void check_small(const char *what, size_t count, int32_t first) {
  sli_tokenizer *t;
  sli_token_row row = {0};
  gguf_write(&made, path);
  CHECK(!sli_tokenizer_open(path, &t), "%s: %s", what, sl_detail());
  CHECK(!sli_tokenizer_encode(t, "ab<s>", 5, true, &row), "%s", sl_detail());
  CHECK(row.count == count && row.items[0] == first && row.items[count - 1] == 3, "%s", what);
  free(row.items);
  sli_tokenizer_close(t);
}

static void check_no_tokenizer(const char *what, const char *word) {
  sli_tokenizer *t;
  gguf_write(&made, path);
  CHECK(sli_tokenizer_open(path, &t) == SL_E_INPUT, "%s is refused", what);
  CHECK(strstr(sl_detail(), path) && strstr(sl_detail(), word), "%s: %s names %s", what,
        sl_detail(), word);
}

static void marks_are_the_files(void) {
  make_small("gpt-2", -1, 3);
  check_small("no mark before a text", 2, 2);
  make_small("gpt-2", 1, 3);
  check_small("a mark, if the file says so", 3, 3);
  make_small("llama-bpe", -1, 3);
  check_small("LLaMA 3's, unless the file says otherwise", 3, 3);
  make_small("llama-bpe", 0, 3);
  check_small("which it may", 2, 2);
  make_small("gpt-2", 1, 4);
  check_no_tokenizer("a mark that is no token", "tokenizer.ggml.bos_token_id");
  make_small("bert-bge", -1, 3);
  check_no_tokenizer("an unknown way to cut", "bert-bge");
  make_small(NULL, -1, 3);
  check_no_tokenizer("none", "tokenizer.ggml.pre");
  gguf_begin(&made, 0, 1), gguf_key_text(&made, "tokenizer.ggml.model", "bert");
  check_no_tokenizer("an unknown model", "\"bert\" is not known");
  gguf_begin(&made, 0, 2), gguf_key_text(&made, "tokenizer.ggml.model", "llama");
  gguf_key_array(&made, "tokenizer.ggml.tokens", GGUF_TEXT, 0);
  check_no_tokenizer("pieces without types", "tokenizer.ggml.token_type");
  gguf_begin(&made, 0, 2), gguf_key_text(&made, "tokenizer.ggml.model", "gpt2");
  gguf_key_text(&made, "tokenizer.ggml.pre", "gpt-2");
  check_no_tokenizer("no tokens", "tokenizer.ggml.tokens");
}

/* ---- random damage --------------------------------------------------------------------------- */

static void try_file(void) {
  sli_gguf *file;
  sli_tokenizer *t;
  if (!sli_gguf_open(path, &file)) {
    for (int i = 0; i < sli_gguf_count(file); i++) {
      const sli_stored_tensor *s = sli_gguf_at(file, i);
      float *out = sli_calloc(s->elements, sizeof *out);
      if (sli_gguf_read(file, s, out)) CHECK(strstr(sl_detail(), path), "a refusal names the file");
      free(out);
    }
    sli_gguf_close(file);
  } else {
    CHECK(strstr(sl_detail(), path), "a refusal names the file: %s", sl_detail());
  }
  if (!sli_tokenizer_open(path, &t)) {
    sli_token_row row = {0};
    CHECK(!sli_tokenizer_encode(t, "Hello 12 ab<s>", 14, true, &row), "%s", sl_detail());
    free(row.items);
    sli_tokenizer_close(t);
  }
}

/* Changes bytes, sets counts to extreme values, drops or doubles stretches, or truncates. */
static void damage(rng *d, gguf_file *f) {
  static const uint64_t likely[] = {
      0, 1, 2, 3, 8, 31, 255, 1 << 16, 0x7fffffff, 0xffffffff, UINT64_MAX / 2, UINT64_MAX};
  for (int times = (int)rng_below(d, 4) + 1; times && f->count > 64; times--) {
    size_t at = rng_below(d, (uint32_t)(f->count - 40)), n = rng_below(d, 40);
    const uint64_t *word = &likely[rng_below(d, SLI_COUNT(likely))];
    switch (rng_below(d, 6)) {
    case 0: f->bytes[at] = (unsigned char)rng_below(d, 256); break;
    case 1: memcpy(f->bytes + at, word, 8); break;
    case 2: memcpy(f->bytes + at, word, 4); break;
    case 3: memmove(f->bytes + at, f->bytes + at + n, f->count - at - n), f->count -= n; break;
    case 4: memmove(f->bytes + at, f->bytes + rng_below(d, (uint32_t)(f->count - 40)), n); break;
    default:
      if (!rng_below(d, 4)) f->count = at;
    }
  }
}

enum { MOST_BYTES = 1 << 16 };

static size_t read_whole(const char *name, unsigned char *out) {
  char *from = reference("gguf", name, ".gguf");
  FILE *file = fopen(from, "rb");
  size_t bytes = file ? fread(out, 1, MOST_BYTES, file) : 0;
  CHECK(bytes > 1 << 13 && !fclose(file), "%s was read", from);
  free(from);
  return bytes;
}

/* Damages a model or a tokenizer, more often in the header. */
static void check_damage(uint64_t seed, const unsigned char *whole, size_t bytes) {
  rng d = {.key = seed};
  if (whole) {
    made.count = 0;
    gguf_add(&made, whole, bytes);
  } else {
    make_small("llama-bpe", 1, 3);
  }
  size_t rest = made.count, head = whole ? SLI_MIN(rest, (size_t)2600) : rest;
  made.count = head;
  damage(&d, &made);
  if (made.count == head) made.count = rest;
  gguf_write(&made, path);
  try_file();
}

static void damage_does_no_harm(int argc, char **argv) {
  static unsigned char model[MOST_BYTES], pieces[MOST_BYTES];
  size_t bytes = read_whole("tiny", model), others = read_whole("pieces", pieces);
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 1000 : 3000);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    check_damage(seed, seed % 3 == 1 ? NULL : seed % 3 ? model : pieces, seed % 3 ? bytes : others);
}

int main(int argc, char **argv) {
  CHECK(!sli_tempdir_open(access("/dev/shm", W_OK) ? NULL : "/dev/shm", &place), "%s", sl_detail());
  path = sli_tempdir_path(&place, "made.gguf");
  RUN(keys_have_values);
  RUN(types_are_unpacked);
  RUN(blocks_are_unpacked);
  RUN(heads_are_turned_back);
  RUN(other_types_are_refused_by_name);
  RUN(tensors_that_cannot_be);
  RUN(tensors_that_do_not_agree);
  RUN(keys_that_cannot_be);
  RUN(files_that_are_none);
  RUN(tokens_are_the_same, "smollm", "smollm");
  RUN(tokens_are_the_same, "llama3", "llama-bpe");
  RUN(tokens_are_the_same, "llama3", "smaug-bpe");
  RUN(tokens_are_the_same, "qwen2", "qwen2");
  RUN(tokens_are_the_same, "qwen35", "qwen35");
  RUN(tokens_are_the_same, "o200k", "gpt-4o");
  RUN(tokens_are_the_same, "o200k", "minimax-m2");
  RUN(tokens_are_the_same, "deepseek", "deepseek-v3");
  RUN(tokens_are_the_same, "smollm", "refact");
  RUN(pieces_are_sentencepieces);
  RUN(marks_are_the_files);
  RUN(damage_does_no_harm, argc, argv);
  free(path);
  free(made.bytes);
  sli_tempdir_close(&place);
  return 0;
}
