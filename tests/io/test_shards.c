/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a folder are those of all its files. An index that does not match the files is
 * refused with an error that names the culprit.
 * labels: unthreaded */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "io/shards/shards.h"
#include "tests/support/test.h"

static sli_tempdir place;

static void write_weights(const char *name, const char *tensor, float value) {
  char *path = sli_tempdir_path(&place, name);
  const int64_t dim[] = {3};
  const float data[] = {value, value, value};
  CHECK(!sli_safetensors_write(path, &(sli_tensor_data){tensor, 1, dim, data, NULL}, 1), "%s",
        sl_detail());
  free(path);
}

static void write_index(const char *text) {
  char *path = sli_tempdir_path(&place, "model.safetensors.index.json");
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && !fclose(file), "%s is written", path);
  free(path);
}

static void check_refused(const char *index, const char *named) {
  sli_shards *s;
  write_index(index);
  CHECK(sli_shards_open(place.folder, &s) == SL_E_INPUT, "%s is refused", index);
  CHECK(strstr(sl_detail(), named), "%s: \"%s\" names %s", index, sl_detail(), named);
}

static void check_found(const sli_shards *s, const char *name, float want) {
  int file;
  float values[3];
  const sli_stored_tensor *t = sli_shards_find(s, name, &file);
  CHECK(t, "%s is found", name);
  CHECK(!sli_shards_read(s, file, t, values) && values[2] == want, "%s is %g", name,
        (double)values[2]);
}

int main(void) {
  CHECK(!sli_tempdir_open(NULL, &place), "%s", sl_detail());
  sli_shards *s;
  CHECK(sli_shards_open(place.folder, &s) == SL_E_INPUT && strstr(sl_detail(), "neither"),
        "an empty folder");
  write_weights("one.safetensors", "a", 1);
  write_weights("two.safetensors", "b", 2);
  write_index("{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}");
  CHECK(!sli_shards_open(place.folder, &s) && sli_shards_count(s) == 2, "two files: %s",
        sl_detail());
  RUN(check_found, s, "a", 1);
  RUN(check_found, s, "b", 2);
  int file;
  CHECK(!sli_shards_find(s, "c", &file), "there is no c");
  sli_shards_close(s);
  RUN(check_refused, "{\"weight_map\":{\"a\":\"two.safetensors\"}}", "tensor a");
  RUN(check_refused, "{\"weight_map\":{\"a\":\"three.safetensors\"}}", "three.safetensors");
  RUN(check_refused, "{\"weight_map\":{\"a\":\"../one.safetensors\"}}", "../one");
  RUN(check_refused, "{\"weight_map\":{\"a\":7}}", "weight_map.a: expected a string, found 7");
  RUN(check_refused, "{\"weight_map\":{}}", "weight_map");
  RUN(check_refused, "{\"weight_map\":[1]}", "weight_map: expected an object, found an array");
  RUN(check_refused, "[]", "expected an object, found an array");
  RUN(check_refused, "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}",
      "duplicate key");
  RUN(check_refused, "{", "not JSON at line 1, column 2");
  write_weights("model.safetensors", "c", 3); /* the file takes precedence over an index */
  CHECK(!sli_shards_open(place.folder, &s) && sli_shards_count(s) == 1, "one file: %s",
        sl_detail());
  RUN(check_found, s, "c", 3);
  sli_shards_close(s);
  sli_tempdir_close(&place);
  return 0;
}
