/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint is used whole or not at all. If any byte is wrong or any file is missing, the
 * previous checkpoint is used. Unfinished checkpoints are removed, and the newest K are kept.
 * labels: smoke */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/checkpoint.h"
#include "tests/support/test.h"

static char dir[64];

/* ---- writing ----------------------------------------------------------------------- */

static float values[2][6];

static sli_shard_file write_shard(sli_checkpoints *c, int64_t step, int stage) {
  static const int64_t shape[] = {2, 3};
  const char *names[] = {stage ? "b" : "a", stage ? "b:m" : "a:m"};
  sli_tensor_data tensors[2];
  for (int t = 0; t < 2; t++) {
    for (int i = 0; i < 6; i++) values[t][i] = (float)(step * 100 + stage * 10 + t * 3 + i);
    tensors[t] = (sli_tensor_data){names[t], 2, shape, values[t], NULL};
  }
  sli_shard_file shard;
  CHECK(!sli_checkpoints_write(c, step, stage, -1, tensors, 2, &shard), "%s", sl_detail());
  return shard;
}

static void write_step(sli_checkpoints *c, int64_t step) {
  sli_shard_file shards[2];
  for (int s = 0; s < 2; s++) shards[s] = write_shard(c, step, s);
  cJSON *about = cJSON_CreateObject();
  cJSON_AddNumberToObject(about, "lr", 0.1);
  cJSON_AddStringToObject(about, "model", "test");
  const sli_shard_file *list[] = {&shards[0], &shards[1]};
  CHECK(!sli_checkpoints_commit(c, step, about, 2, list), "%s", sl_detail());
  cJSON_Delete(about);
}

static sli_checkpoints *open_directory(int keep) {
  sli_checkpoints *c;
  CHECK(!sli_checkpoints_open(dir, keep, &c), "%s", sl_detail());
  return c;
}

/* Checks that a reader gets what was written. */
static void check_contents(const sli_checkpoint *c, int64_t step) {
  static const char *const names[] = {"a", "a:m", "b", "b:m"};
  CHECK(sli_checkpoint_step(c) == step && sli_checkpoint_shards(c) == 2, "step and shards");
  for (int n = 0; n < 4; n++) {
    const sli_safetensors *file;
    float out[6];
    const sli_stored_tensor *t = sli_checkpoint_tensor(c, names[n], &file);
    CHECK(t && t->elements == 6 && !sli_safetensors_read(file, t, out), "tensor %s", names[n]);
    for (int i = 0; i < 6; i++)
      CHECK(out[i] == (float)(step * 100 + n / 2 * 10 + n % 2 * 3 + i), "value %d of %s", i,
            names[n]);
  }
  const cJSON *lr = cJSON_GetObjectItem(sli_checkpoint_about(c), "lr");
  CHECK(lr && lr->valuedouble == 0.1, "what it is about");
}

/* ---- damage -------------------------------------------------------------------------- */

static char *path_of(const char *name) { return sli_format("%s/%s", dir, name); }

static size_t read_bytes(const char *path, char **out) {
  FILE *f = fopen(path, "rb");
  CHECK(f, "%s", path);
  *out = sli_calloc(1 << 16, 1);
  size_t n = fread(*out, 1, 1 << 16, f);
  fclose(f);
  return n;
}

/* Writes in place: a new file would wait for the disk each time. */
static void write_byte(const char *path, size_t at, char byte) {
  int fd = open(path, O_WRONLY);
  CHECK(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1 && !close(fd), "%s", path);
}

static void write_bytes(const char *path, const char *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f), "%s", path);
}

/* Opens a checkpoint that may be damaged: expects an error, or the written contents. */
static bool opens(int64_t step) {
  char *path = sli_format("%s/step-%lld", dir, (long long)step);
  sli_checkpoint *c;
  sl_status status = sli_checkpoint_open(path, &c);
  free(path);
  if (status) {
    CHECK(status == SL_E_INPUT && strstr(sl_detail(), dir), "the text names it: %s", sl_detail());
    return false;
  }
  check_contents(c, step);
  sli_checkpoint_close(c);
  return true;
}

static void a_wrong_byte_is_found(const char *name) {
  char *path = path_of(name), *bytes;
  size_t n = read_bytes(path, &bytes), passed = 0;
  for (size_t i = 0; i < n; i++)
    for (int bit = 0; bit < 8; bit++) {
      write_byte(path, i, (char)(bytes[i] ^ 1 << bit));
      passed += opens(2);
      write_byte(path, i, bytes[i]);
    }
  CHECK(!passed, "%zu wrong bits in %s passed", passed, name);
  for (int more = 0; more < 256; more++) {
    write_byte(path, n, (char)more);
    CHECK(!opens(2), "%s passed with byte %d behind it", name, more);
  }
  for (size_t cut = n - 2; cut < n; cut -= 7) {
    CHECK(!truncate(path, (off_t)cut), "%s", path);
    CHECK(!opens(2), "%s cut to %zu bytes passed", name, cut);
  }
  write_bytes(path, bytes, n);
  CHECK(opens(2), "and mended: %s", sl_detail());
  free(bytes);
  free(path);
}

static int count_entries(const char *end) {
  int count = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name), m = strlen(end);
    count += n >= m && !strcmp(e->d_name + n - m, end);
  }
  closedir(d);
  return count;
}

static void harm(const char *name) {
  char *path = path_of(name);
  write_bytes(path, "{}", 2);
  free(path);
}

/* ---- claims ------------------------------------------------------------------------- */

static void the_newest_stay(void) {
  sli_checkpoints *c = open_directory(2);
  CHECK(sli_checkpoints_newest(c) == -1, "nothing yet");
  sli_checkpoint *found = (void *)1;
  CHECK(!sli_checkpoints_find(c, &found) && !found, "which is no error");
  for (int64_t step = 1; step <= 4; step++) write_step(c, step);
  CHECK(sli_checkpoints_newest(c) == 4 && count_entries("step-3") && count_entries("step-4") &&
            !count_entries("step-1") && !count_entries("step-2"),
        "the newest two stay");
  write_step(c, 4); /* a second time */
  CHECK(!sli_checkpoints_find(c, &found), "%s", sl_detail());
  check_contents(found, 4);
  sli_checkpoint_close(found);
  char *path = path_of("latest"), *text;
  read_bytes(path, &text);
  CHECK(!strcmp(text, "step-4\n"), "latest names it");
  free(text);
  free(path);
  sli_checkpoints_close(c);
}

static void half_made_ones_are_not_seen_and_go(void) {
  sli_checkpoints *c = open_directory(2);
  write_shard(c, 9, 0);
  CHECK(count_entries("step-9.tmp") && sli_checkpoints_newest(c) == 4, "not seen");
  sli_checkpoints *other;
  CHECK(sli_checkpoints_open(dir, 2, &other) == SL_E_USAGE, "one writer at a time");
  CHECK(count_entries("step-9.tmp"), "who may not write removes nothing");
  sli_checkpoints_close(c);
  CHECK(!count_entries(".tmp"), "gone");
}

static void damaged_ones_are_passed_over(void) {
  sli_checkpoints *c = open_directory(9);
  for (int64_t step = 5; step <= 8; step++) write_step(c, step);
  harm("step-8/manifest.json");
  char *path = path_of("step-7/stage-001.safetensors");
  unlink(path);
  free(path);
  harm("step-6/stage-000.safetensors");
  sli_checkpoint *found;
  CHECK(!sli_checkpoints_find(c, &found), "%s", sl_detail());
  check_contents(found, 5);
  sli_checkpoint_close(found);
  CHECK(count_entries(".damaged") == 3 && sli_checkpoints_newest(c) == 5, "and set aside");
  for (int64_t step = 3; step <= 5; step++) {
    char *name = sli_format("step-%lld/manifest.json", (long long)step);
    harm(name);
    free(name);
  }
  CHECK(sli_checkpoints_find(c, &found) == SL_E_INPUT && strstr(sl_detail(), "none of the 3"),
        "no whole one is an error: %s", sl_detail());
  CHECK(sli_checkpoints_newest(c) == 5, "which touches nothing");
  sli_checkpoints_close(c);
}

static void remove_all(void) {
  char *command = sli_format("rm -rf '%s'", dir);
  CHECK(!system(command), "%s", command);
  free(command);
}

static void every_byte_counts(void) {
  sli_checkpoints *c = open_directory(1);
  write_step(c, 2);
  a_wrong_byte_is_found("step-2/stage-000.safetensors");
  a_wrong_byte_is_found("step-2/stage-001.safetensors");
  a_wrong_byte_is_found("step-2/manifest.json");
  sli_checkpoints_close(c);
}

/* Refuses a checkpoint whose shards of other processes are missing or differ; older ones stay. */
static void what_is_not_there_is_not_committed(void) {
  sli_checkpoints *c = open_directory(1);
  write_step(c, 1);
  for (int broken = 0; broken < 2; broken++) {
    sli_shard_file shards[2];
    for (int s = 0; s < 2; s++) shards[s] = write_shard(c, 2, s);
    char *path = path_of("step-2.tmp/stage-001.safetensors");
    CHECK(!(broken ? truncate(path, 40) : unlink(path)), "%s", path);
    free(path);
    cJSON *about = cJSON_CreateObject();
    const sli_shard_file *list[] = {&shards[0], &shards[1]};
    CHECK(sli_checkpoints_commit(c, 2, about, 2, list) == SL_E_IO, "it is committed");
    CHECK(strstr(sl_detail(), "step-2.tmp/stage-001.safetensors") &&
              strstr(sl_detail(), broken ? "bytes, not the" : "share"),
          "%s", sl_detail());
    cJSON_Delete(about);
    CHECK(sli_checkpoints_newest(c) == 1, "the one before stays");
  }
  sli_checkpoints_close(c);
}

int main(void) {
  const char *tmp = getenv("TMPDIR");
  snprintf(dir, sizeof dir, "%s/checkpoints-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
  CHECK(mkdtemp(dir), "%s", dir);
  RUN(the_newest_stay);
  RUN(half_made_ones_are_not_seen_and_go);
  RUN(damaged_ones_are_passed_over);
  remove_all();
  RUN(what_is_not_there_is_not_committed);
  remove_all();
  RUN(every_byte_counts);
  remove_all();
  return 0;
}
