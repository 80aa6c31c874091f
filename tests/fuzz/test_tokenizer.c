/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted tokenizer.json is read or refused. It encodes and decodes the texts that follow it
 * in the input behind a zero byte, or a built-in text.
 * labels: random unthreaded
 * needs: pcre2 utf8proc */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"\"type\":",
                                  "\"ByteLevel\"",
                                  "\"Split\"",
                                  "\"Regex\":",
                                  "\"String\":",
                                  "\"pattern\":",
                                  "\"behavior\":",
                                  "\"Isolated\"",
                                  "\"Removed\"",
                                  "\"MergedWithPrevious\"",
                                  "\"MergedWithNext\"",
                                  "\"Contiguous\"",
                                  "\"invert\":true",
                                  "\"Sequence\"",
                                  "\"NFC\"",
                                  "\"NFKD\"",
                                  "\"Replace\"",
                                  "\"Prepend\"",
                                  "\"Metaspace\"",
                                  "\"Strip\"",
                                  "\"ByteFallback\"",
                                  "\"Fuse\"",
                                  "\"normalized\":true",
                                  "\"lstrip\":true",
                                  "\"rstrip\":true",
                                  "\"single_word\":true",
                                  "\"<0x0A>\"",
                                  "<0xZZ>",
                                  "\\u2581",
                                  "\"fuse_unk\":true",
                                  "\"ignore_merges\":true",
                                  "\\\\p{L}+",
                                  "[^\\\\s&&[\\\\p{N}]]",
                                  "(?i:",
                                  "*+",
                                  "{1,3}",
                                  "|",
                                  "",
                                  NULL};

/* Writes the input to a file that only this process uses. */
static void write_input(const char *path, const uint8_t *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, count, file) != count || fclose(file)) abort();
}

static void try_text(sli_tokenizer *t, const char *text, size_t bytes) {
  sli_token_row row = {0};
  size_t n;
  if (!sli_tokenizer_encode(t, text, bytes, true, &row)) {
    size_t longest = sli_tokenizer_longest(t);
    if (longest && row.count * longest < bytes) abort();
    free(sli_tokenizer_decode(t, row.items, row.count, false, &n));
  }
  free(row.items);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const char probe[] = " Hello \u4e2d 123 <mask>mark's  \U0001f600\n\nA\u0301\u0323\u2581x";
  static char path[64];
  if (!*path) snprintf(path, sizeof path, "/tmp/sluice-fuzz-%d.json", getpid());
  const uint8_t *zero = count ? memchr(bytes, 0, count) : NULL;
  size_t json = zero ? (size_t)(zero - bytes) : count;
  write_input(path, bytes, json);
  sli_tokenizer *t;
  sl_status status = sli_tokenizer_open(path, &t);
  unlink(path);
  if (status) return 0;
  try_text(t, probe, strlen(probe));
  if (zero) try_text(t, (const char *)zero + 1, count - json - 1);
  sli_tokenizer_close(t);
  return 0;
}
