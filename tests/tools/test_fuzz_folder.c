/* SPDX-License-Identifier: Apache-2.0 */
/* A damaged Hugging Face folder does no harm. Whatever its config.json, its index and the headers
 * of its weights contain, the folder is accepted, or rejected with a message. The message names the
 * file, or the option that the file would set, and contains no control characters for a terminal.
 *
 *   test_tools_fuzz_folder [SEED [COUNT]]
 * labels: unthreaded random */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "io/shards/shards.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"
#include "tools/serving/session.h"

enum { MOST_TEXT = 4096, DATA_BYTES = 32 };

static sli_tempdir place;
static int taken, refused;

/* ---- the folder --------------------------------------------------------------------------- */

static const char *const configs[] = {
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 32, \"vocab_size\": 256, "
    "\"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": false, \"intermediate_size\": 88, \"hidden_act\": \"silu\", "
    "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"linear\", \"factor\": 2.0}}",
    "{\"model_type\": \"mistral\", \"num_hidden_layers\": 1, \"hidden_size\": 16, \"num_attention_heads\": 2, "
    "\"max_position_embeddings\": 64, \"vocab_size\": 97, \"sliding_window\": 32, \"intermediate_size\": 24, "
    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}, \"rope_theta\": 1e6, \"attention_bias\": false}",
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 2, \"n_positions\": 64, \"n_inner\": 128, "
    "\"vocab_size\": 256, \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05}",
    "{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 1, \"hidden_size\": 16, \"num_attention_heads\": 2, "
    "\"max_position_embeddings\": 64, \"vocab_size\": 97, \"moe_intermediate_size\": 8, \"num_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"shared_expert_intermediate_size\": 16, \"mlp_only_layers\": [], \"hidden_act\": \"silu\"}"};

static const char *const lists[] = {
    "{\"metadata\": {\"total_size\": 64}, \"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}"};

static const char *const headers[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}",
    "{\"a\":{\"dtype\":\"BF16\",\"shape\":[16],\"data_offsets\":[0,32]},\"__metadata__\":{\"format\":\"pt\"}}",
    "{\"a\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[16,32]},\"c\":{\"dtype\":\"U8\",\"shape\":[4,4],\"data_offsets\":[0,16]}}"};

/* ---- damage --------------------------------------------------------------------------------- */

typedef struct text {
  size_t count;
  char bytes[MOST_TEXT];
} text;

static void set(text *t, const char *good) {
  t->count = strlen(good);
  CHECK(t->count < MOST_TEXT / 2, "%s is short", good);
  memcpy(t->bytes, good, t->count);
}

static void replace(text *t, size_t at, size_t count, const char *with) {
  size_t bytes = strlen(with);
  if (t->count - count + bytes > MOST_TEXT) return;
  memmove(t->bytes + at + bytes, t->bytes + at + count, t->count - at - count);
  memcpy(t->bytes + at, with, bytes);
  t->count += bytes - count;
}

/* Returns the length of the number or name at `at`, or 1 for any other byte. */
static size_t word_at(const text *t, size_t at) {
  size_t n = 0;
  while (at + n < t->count &&
         (isalnum((unsigned char)t->bytes[at + n]) || strchr("._-+", t->bytes[at + n])))
    n++;
  return n;
}

/* Usually replaces a value with one of another type or size. */
static void damage(text *t, rng *d) {
  static const char *const values[] = {"0",
                                       "-1",
                                       "1",
                                       "3",
                                       "1e308",
                                       "1e999",
                                       "-1e999",
                                       "2147483648",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "9007199254740993",
                                       "1.5",
                                       "null",
                                       "true",
                                       "false",
                                       "{}",
                                       "[]",
                                       "[1, 2]",
                                       "{\"a\": 1}",
                                       "\"\"",
                                       "\"x\"",
                                       "\"\\u001b[2J\"",
                                       "\"../a\"",
                                       "\"\\ud800\""};
  static const char *const pieces[] = {"\"", "{",       "}",       "[",        "]",  ":", ",",
                                       "\\", "\\u0000", "\033[2J", "\302\233", "\n", "%s"};
  char head[MOST_TEXT + 1];
  memcpy(head, t->bytes, t->count);
  head[t->count] = 0;
  size_t at = rng_below(d, (uint32_t)t->count + 1), span = rng_below(d, 40);
  const char *colon = strchr(head + at, ':');
  switch (rng_below(d, 8)) {
  case 0: replace(t, at, at < t->count, pieces[rng_below(d, SLI_COUNT(pieces))]); return;
  case 1: replace(t, at, 0, pieces[rng_below(d, SLI_COUNT(pieces))]); return;
  case 2: replace(t, at, SLI_MIN(t->count - at, span), ""); return;
  case 3: t->count = at; return;
  case 4: replace(t, at, word_at(t, at), values[rng_below(d, SLI_COUNT(values))]); return;
  default: break;
  }
  if (!colon) return;
  at = (size_t)(colon - head) + 1;
  while (at < t->count && t->bytes[at] == ' ') at++;
  size_t n = word_at(t, at);
  if (at < t->count && t->bytes[at] == '"') n = strcspn(head + at + 1, "\"") + 2;
  replace(t, at, SLI_MIN(n, t->count - at), values[rng_below(d, SLI_COUNT(values))]);
}

static void write_file(const char *name, const void *bytes, size_t count) {
  char *path = sli_tempdir_path(&place, name);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, count, file) == count && !fclose(file), "%s: %m", path);
  free(path);
}

static void write_text(const char *name, const char *const *good, int count, bool damaged, rng *d) {
  text t;
  set(&t, good[rng_below(d, (uint32_t)count)]);
  for (uint32_t n = damaged ? 1 + rng_below(d, 3) : 0; n; n--) damage(&t, d);
  write_file(name, t.bytes, t.count);
}

/* Writes a weight file whose header length may be wrong and whose end may be missing. */
static void write_weights(const char *name, char tensor, bool damaged, rng *d) {
  static const uint64_t lies[] = {
      0,         1, 7, 63, 64, 1000, 100000000, 100000001, UINT64_C(1) << 31, UINT64_C(1) << 63,
      UINT64_MAX};
  text t;
  set(&t, headers[rng_below(d, damaged ? SLI_COUNT(headers) : 1)]);
  t.bytes[2] = tensor;
  for (uint32_t n = damaged ? rng_below(d, 3) : 0; n; n--) damage(&t, d);
  uint64_t length = t.count;
  if (damaged && !rng_below(d, 4)) length = lies[rng_below(d, SLI_COUNT(lies))];
  unsigned char bytes[8 + MOST_TEXT + DATA_BYTES] = {0};
  memcpy(bytes, &length, sizeof length);
  memcpy(bytes + 8, t.bytes, t.count);
  size_t count = 8 + t.count + DATA_BYTES;
  write_file(name, bytes, damaged && !rng_below(d, 4) ? rng_below(d, (uint32_t)count) : count);
}

static void write_folder(rng *d) {
  uint32_t which = rng_below(d, 4);
  write_text("config.json", configs, SLI_COUNT(configs), which <= 1, d);
  write_text("model.safetensors.index.json", lists, SLI_COUNT(lists), which == 2, d);
  write_weights("one.safetensors", 'a', which == 3, d);
  write_weights("two.safetensors", 'b', false, d);
}

/* ---- loading --------------------------------------------------------------------------------- */

static const tool_option options[] = {
    SERVING_OPTIONS, {"tokenizer", SL_OPTION_TEXT, "", "", 0, 0, GROUP_DATA}, {0}};
static const tool reader = {
    .name = "test", .purpose = "", .options = options, .takes_weights = true, .read = serving_read};

static void check_refusal(uint64_t seed) {
  const char *detail = sl_detail();
  refused++;
  CHECK(strstr(detail, place.folder), "seed %d: it names the folder: %s", (int)seed, detail);
  for (const char *at = detail; *at; at++)
    CHECK(*at == '\n' || *at == '\t' || !iscntrl((unsigned char)*at), "seed %d: %s", (int)seed,
          detail);
}

static sl_status read_tensors(const sli_shards *s) {
  sl_status status = SL_OK;
  for (int f = 0; f < sli_shards_count(s) && !status; f++) {
    const sli_stored_tensor *t = NULL;
    for (int i = 0, n = sli_shards_tensors(s, f, &t); i < n && !status; i++) {
      CHECK(t[i].elements <= DATA_BYTES, "a tensor has no more than the file");
      float *values = sli_calloc(t[i].elements, sizeof *values);
      status = sli_shards_read(s, f, &t[i], values);
      free(values);
    }
  }
  return status;
}

static sl_status read_weights(void) {
  sli_shards *s;
  sl_status status = sli_shards_open(place.folder, &s);
  if (status) return status;
  status = read_tensors(s);
  sli_shards_close(s);
  return status;
}

static void check_folder(uint64_t seed) {
  rng d = {.key = seed};
  settings s;
  char *words[] = {"test", place.folder};
  write_folder(&d);
  sl_status status = settings_read(&reader, SLI_COUNT(words), words, &s);
  settings_fini(&s);
  if (!status) status = read_weights();
  if (status) check_refusal(seed);
  else taken++;
}

int main(int argc, char **argv) {
  CHECK(!sli_tempdir_open(access("/dev/shm", W_OK) ? NULL : "/dev/shm", &place), "%s", sl_detail());
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 1000 : 3000);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_folder, seed);
  sli_tempdir_close(&place);
  printf("%d taken, %d refused\n", taken, refused);
  CHECK(seeds_count(s) < 1000 ||
            (taken > (int)seeds_count(s) / 80 && refused > (int)seeds_count(s) / 80),
        "some are good, some are not");
  return 0;
}
