/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted weight file, safetensors or GGUF, is read or refused: header, metadata, and all
 * tensors.
 * labels: random unthreaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "io/gguf/gguf.h"
#include "io/shards/shards.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"\"dtype\":\"F32\"",
                                  "\"dtype\":\"BF16\"",
                                  "\"dtype\":\"U8\"",
                                  "\"shape\":[2,4]",
                                  "\"shape\":[]",
                                  "\"shape\":[0]",
                                  "\"data_offsets\":[0,32]",
                                  "\"__metadata__\":{\"format\":\"pt\"}",
                                  "[9007199254740993]",
                                  "[4294967296,4294967296]",
                                  "GGUF",
                                  "general.architecture",
                                  "llama",
                                  "general.alignment",
                                  "tokenizer.ggml.tokens",
                                  "blk.0.attn_q.weight",
                                  "token_embd.weight",
                                  "\x08",
                                  "\x09",
                                  NULL};

enum { MOST_ELEMENTS = 1 << 22 };

static void read_all(sli_shards *s) {
  for (int f = 0; f < sli_shards_count(s); f++) {
    const sli_stored_tensor *t = NULL;
    for (int i = 0, n = sli_shards_tensors(s, f, &t); i < n; i++) {
      char shown[256];
      sli_stored_format(shown, &t[i]);
      if (t[i].elements > MOST_ELEMENTS) continue; /* quantized: few bytes for many elements */
      float *values = sli_calloc(t[i].elements, sizeof *values);
      (void)!sli_shards_read(s, f, &t[i], values);
      free(values);
    }
  }
}

static void read_keys(const char *path) {
  sli_gguf *file;
  if (!sli_gguf_is(path) || sli_gguf_open(path, &file)) return;
  cJSON *tokens = sli_gguf_array(file, "tokenizer.ggml.tokens");
  if (!sli_gguf_metadata(file)) abort();
  cJSON_Delete(tokens);
  sli_gguf_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static char path[64];
  if (!*path)
    snprintf(path, sizeof path, "%s/sluice-fuzz-%d.weights",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", getpid());
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, count, file) != count || fclose(file)) abort();
  sli_shards *s;
  sl_status status = sli_shards_open(path, &s);
  if (status && !strstr(sl_detail(), path)) abort(); /* the error names the file */
  if (!status) read_all(s);
  if (!status) sli_shards_close(s);
  read_keys(path);
  unlink(path);
  return 0;
}
