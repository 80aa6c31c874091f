/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted folder is read or refused: its one file is an index of weights, or the manifest of a
 * checkpoint with correct checksums.
 * labels: random unthreaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/tempdir.h"
#include "io/checkpoint.h"
#include "io/shards/shards.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"\"weight_map\":",
                                  "\"metadata\":",
                                  "\"a\":\"one.safetensors\"",
                                  "\"../one\"",
                                  "\"version\":1",
                                  "\"step\":",
                                  "\"shards\":",
                                  "\"file\":\"stage-000.safetensors\"",
                                  "\"bytes\":",
                                  "\"fnv1a64\":\"0000000000000000\"",
                                  "\"about\":",
                                  "\"sealed\":true",
                                  "\"stage\":",
                                  "\"rank\":",
                                  "{}",
                                  "[]",
                                  "1e300",
                                  "-1",
                                  NULL};

static sli_tempdir place;

static void write_text(const char *name, const char *text, size_t bytes) {
  char *path = sli_tempdir_path(&place, name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(text, 1, bytes, file) != bytes || fclose(file)) abort();
  free(path);
}

static void read_index(const uint8_t *bytes, size_t count) {
  sli_shards *s;
  write_text("model.safetensors.index.json", (const char *)bytes, count);
  sl_status status = sli_shards_open(place.folder, &s);
  if (status && !strstr(sl_detail(), place.folder)) abort();
  if (!status) sli_shards_close(s);
}

/* Uses the input as the manifest's body and computes the checksum. */
static void read_manifest(const uint8_t *bytes, size_t count) {
  sli_json body;
  sli_checkpoint *c;
  if (sli_json_read("body", (const char *)bytes, count, 0, &body)) return;
  char *text = cJSON_PrintUnformatted(body.root);
  char *whole = sli_format("{\"checkpoint\": %s, \"fnv1a64\": \"%016llx\"}", text,
                           (unsigned long long)sli_hash(SLI_HASH_SEED, text, strlen(text)));
  write_text("manifest.json", whole, strlen(whole));
  sl_status status = sli_checkpoint_open(place.folder, &c);
  if (status && !strstr(sl_detail(), place.folder)) abort();
  if (!status) sli_checkpoint_close(c);
  free(whole);
  free(text);
  sli_json_fini(&body);
}

static void tidy(void) { sli_tempdir_close(&place); }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  if (!place.folder) {
    if (sli_tempdir_open(NULL, &place)) abort();
    atexit(tidy);
  }
  read_index(bytes, count);
  read_manifest(bytes, count);
  return 0;
}
