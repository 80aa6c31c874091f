/* SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/atomic.h"
#include "io/file.h"

enum { FORMAT_VERSION = 1, SEAL_CHARS = 16 };
static const char no_seal[SEAL_CHARS + 1] = "0000000000000000";

struct sli_checkpoints {
  char *dir;
  int fd; /* the directory, which is locked */
  int keep;
};

struct sli_checkpoint {
  char *path;
  int64_t step;
  cJSON *manifest;
  int nshards;
  sli_safetensors **files; /* [nshards] */
};

/* ---- directories -------------------------------------------------------------- */

static char *step_path(const sli_checkpoints *c, int64_t step, const char *suffix) {
  return sli_format("%s/step-%lld%s", c->dir, (long long)step, suffix);
}

static char *shard_name(int stage, int rank) {
  if (rank < 0) return sli_format("stage-%03d.safetensors", stage);
  return sli_format("stage-%03d.rank-%03d.safetensors", stage, rank);
}

/* Removes a directory of files. Files that cannot be removed stay. */
static void remove_folder(const char *path) {
  DIR *folder = opendir(path);
  for (struct dirent *e; folder && (e = readdir(folder));)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(folder), e->d_name, 0);
  if (folder) closedir(folder);
  rmdir(path);
}

/* Parses "step-200" to 200; -1 for other names. */
static int64_t step_of_name(const char *name) {
  if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
  char *end;
  errno = 0;
  long long step = strtoll(name + 5, &end, 10);
  return *end || errno ? -1 : step;
}

static int newer_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : -(x > y);
}

/* Lists the steps that have checkpoints, newest first. */
static int list_steps(const sli_checkpoints *c, int64_t **out) {
  int64_t *steps = NULL;
  size_t count = 0, capacity = 0;
  DIR *folder = opendir(c->dir);
  for (struct dirent *e; folder && (e = readdir(folder));) {
    int64_t step = step_of_name(e->d_name);
    if (step < 0) continue;
    SLI_GROW(steps, count, capacity);
    steps[count++] = step;
  }
  if (folder) closedir(folder);
  if (count) qsort(steps, count, sizeof *steps, newer_first);
  *out = steps;
  return (int)count;
}

static bool is_half_made(const char *name) {
  size_t n = strlen(name);
  return !strncmp(name, "step-", 5) && n > 4 && !strcmp(name + n - 4, ".tmp");
}

static void remove_half_made(const sli_checkpoints *c) {
  DIR *folder = opendir(c->dir);
  for (struct dirent *e; folder && (e = readdir(folder));) {
    bool latest = !strncmp(e->d_name, "latest.tmp.", 11);
    if (!latest && !is_half_made(e->d_name)) continue;
    char *path = sli_format("%s/%s", c->dir, e->d_name);
    if (latest) unlink(path);
    else remove_folder(path);
    free(path);
  }
  if (folder) closedir(folder);
}

sl_status sli_checkpoints_open(const char *dir, int keep, sli_checkpoints **out) {
  if (mkdir(dir, 0777) && errno != EEXIST)
    return sl_fail(SL_E_USAGE, "cannot make the directory %s: %s", dir, strerror(errno));
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || access(dir, W_OK | X_OK)) {
    sl_fail(SL_E_USAGE, "cannot write to the directory %s: %s", dir, strerror(errno));
    if (fd >= 0) close(fd);
    return SL_E_USAGE;
  }
  sl_status tried = sli_atomic_check_folder(dir);
  if (tried) return close(fd), tried;
  if (!sli_sync_folder_of(dir)) {
    close(fd);
    return sl_fail(SL_E_IO, "cannot write to the folder of %s: %s", dir, strerror(errno));
  }
  if (flock(fd, LOCK_EX | LOCK_NB)) {
    close(fd);
    return sl_fail(SL_E_USAGE, "another run writes to the directory %s", dir);
  }
  sli_checkpoints *c = sli_calloc(1, sizeof *c);
  *c = (sli_checkpoints){sli_strdup(dir), fd, SLI_MAX(keep, 1)};
  remove_half_made(c);
  *out = c;
  return SL_OK;
}

sl_status sli_checkpoints_share(const char *dir, sli_checkpoints **out) {
  if (mkdir(dir, 0777) && errno != EEXIST)
    return sl_fail(SL_E_USAGE, "cannot make the directory %s: %s", dir, strerror(errno));
  sli_checkpoints *c = sli_calloc(1, sizeof *c);
  *c = (sli_checkpoints){sli_strdup(dir), -1, 1};
  *out = c;
  return SL_OK;
}

void sli_checkpoints_close(sli_checkpoints *c) {
  if (!c) return;
  if (c->fd >= 0) remove_half_made(c);
  if (c->fd >= 0) close(c->fd); /* also releases the lock */
  free(c->dir);
  free(c);
}

int64_t sli_checkpoints_newest(const sli_checkpoints *c) {
  int64_t *steps;
  int n = list_steps(c, &steps);
  int64_t newest = n ? steps[0] : -1;
  free(steps);
  return newest;
}

/* ---- writing ------------------------------------------------------------------ */

sl_status sli_checkpoints_write(sli_checkpoints *c, int64_t step, int stage, int rank,
                                const sli_tensor_data *tensors, int count, sli_shard_file *out) {
  char *folder = step_path(c, step, ".tmp"), *name = shard_name(stage, rank);
  char *path = sli_format("%s/%s", folder, name);
  sli_written written;
  sl_status status = SL_OK;
  if (mkdir(folder, 0777) && errno != EEXIST)
    status = sl_fail(SL_E_IO, "cannot make the directory %s: %s", folder, strerror(errno));
  if (!status) status = sli_safetensors_write_known(path, tensors, count, &written);
  if (!status) *out = (sli_shard_file){step, stage, rank, count, written.bytes, written.hash};
  free(path);
  free(name);
  free(folder);
  return status;
}

static cJSON *shard_record(const sli_shard_file *s) {
  char text[32], *name = shard_name(s->stage, s->rank);
  snprintf(text, sizeof text, "%016llx", (unsigned long long)s->checksum);
  cJSON *record = cJSON_CreateObject();
  cJSON_AddStringToObject(record, "file", name);
  cJSON_AddNumberToObject(record, "stage", s->stage);
  if (s->rank >= 0) cJSON_AddNumberToObject(record, "rank", s->rank);
  cJSON_AddNumberToObject(record, "tensors", s->tensors);
  cJSON_AddNumberToObject(record, "bytes", (double)s->bytes);
  cJSON_AddStringToObject(record, "fnv1a64", text);
  free(name);
  return record;
}

/* Hashes a JSON value printed without whitespace: the hash is the same after reading the value
 * back. */
static void checksum_text(const cJSON *item, char out[32]) {
  char *text = cJSON_PrintUnformatted(item);
  SLI_CHECK(text, "no memory for a manifest");
  snprintf(out, 32, "%016llx", (unsigned long long)sli_hash(SLI_HASH_SEED, text, strlen(text)));
  free(text);
}

/* ---- seals ----------------------------------------------------------------------------------
 *
 * The last value in a manifest is its seal: a hash of all its bytes, with zeros in place of that
 * value. The body's hash covers the body's values, regardless of whitespace; the seal covers every
 * byte. The body says whether there is a seal, so it cannot be removed unnoticed. Manifests of
 * older releases have none. */

/* Returns the first character of the last string of a text, or NULL if it does not have the length
 * of a seal. */
static char *find_seal(char *text) {
  char *end = strrchr(text, '"');
  if (!end || end - text <= SEAL_CHARS || end[-SEAL_CHARS - 1] != '"') return NULL;
  return end - SEAL_CHARS;
}

static void make_seal(const char *text, char out[SEAL_CHARS + 1]) {
  snprintf(out, SEAL_CHARS + 1, "%016llx",
           (unsigned long long)sli_hash(SLI_HASH_SEED, text, strlen(text)));
}

static void seal_text(char *text) {
  char seal[SEAL_CHARS + 1], *at = find_seal(text);
  SLI_CHECK(at && !memcmp(at, no_seal, SEAL_CHARS), "a manifest has no place for its seal");
  make_seal(text, seal);
  memcpy(at, seal, SEAL_CHARS);
}

static sl_status check_seal(const char *path, char *text) {
  size_t bytes = strlen(text);
  char is[SEAL_CHARS + 1], seal[SEAL_CHARS + 1], *at = find_seal(text);
  if (!at || text[bytes - 1] != '\n')
    return sl_fail(SL_E_INPUT, "%s is damaged: it does not end with its seal", path);
  memcpy(is, at, SEAL_CHARS);
  is[SEAL_CHARS] = 0;
  memcpy(at, no_seal, SEAL_CHARS);
  text[bytes - 1] = 0; /* the final newline, written after the sealed text */
  make_seal(text, seal);
  return strcmp(is, seal)
             ? sl_fail(SL_E_INPUT, "%s is damaged: its seal is %s, not %s", path, seal, is)
             : SL_OK;
}

static char *manifest_text(int64_t step, const cJSON *about, int nshards,
                           const sli_shard_file *const *shards) {
  cJSON *root = cJSON_CreateObject(), *body = cJSON_AddObjectToObject(root, "checkpoint");
  cJSON_AddNumberToObject(body, "version", FORMAT_VERSION);
  cJSON_AddBoolToObject(body, "sealed", true);
  cJSON_AddNumberToObject(body, "step", (double)step);
  cJSON_AddItemToObject(body, "about", cJSON_Duplicate(about, true));
  cJSON *list = cJSON_AddArrayToObject(body, "shards");
  for (int i = 0; i < nshards; i++) cJSON_AddItemToArray(list, shard_record(shards[i]));
  char sum[32];
  checksum_text(body, sum);
  cJSON_AddStringToObject(root, "fnv1a64", sum);
  cJSON_AddStringToObject(root, "seal", no_seal);
  char *text = cJSON_Print(root);
  SLI_CHECK(text, "no memory for a manifest");
  seal_text(text);
  cJSON_Delete(root);
  return text;
}

/* Renames the finished checkpoint. An existing one of that name, left by an earlier run that came
 * this far, is removed once the new name is on disk. */
static sl_status give_name(const sli_checkpoints *c, const char *from, int64_t step) {
  char *to = step_path(c, step, ""), *old = step_path(c, step, ".old.tmp");
  bool there = rename(to, old) == 0;
  sl_status status = SL_OK;
  if (rename(from, to)) {
    status = sl_fail(SL_E_IO, "cannot rename %s: %s", from, strerror(errno));
    if (there) rename(old, to);
    remove_folder(from);
  } else if (!sli_sync_folder(c->fd))
    status = sl_fail(SL_E_IO, "writing the directory %s failed: %s", c->dir, strerror(errno));
  if (there && !status) remove_folder(old);
  free(old);
  free(to);
  return status;
}

static sl_status point_to(const sli_checkpoints *c, int64_t step) {
  char *path = sli_format("%s/latest", c->dir), *text = sli_format("step-%lld", (long long)step);
  sl_status status = sli_atomic_text(path, text);
  free(text);
  free(path);
  return status;
}

static void remove_old(const sli_checkpoints *c) {
  int64_t *steps;
  int n = list_steps(c, &steps);
  for (int i = c->keep; i < n; i++) {
    char *path = step_path(c, steps[i], ""), *old = step_path(c, steps[i], ".old.tmp");
    if (rename(path, old) == 0) remove_folder(old);
    free(old);
    free(path);
  }
  free(steps);
}

/* Checks that the shards of other processes exist and have the reported sizes. */
static sl_status check_shards(const char *folder, int nshards,
                              const sli_shard_file *const *shards) {
  sl_status status = SL_OK;
  for (int i = 0; i < nshards && !status; i++) {
    struct stat info;
    char *name = shard_name(shards[i]->stage, shards[i]->rank),
         *path = sli_format("%s/%s", folder, name);
    if (stat(path, &info))
      status = sl_fail(
          SL_E_IO,
          "%s is not where another process has written it (%s): all processes need a shared folder",
          path, strerror(errno));
    else if ((uint64_t)info.st_size != shards[i]->bytes)
      status = sl_fail(SL_E_IO, "%s has %lld bytes, not the %llu that were written", path,
                       (long long)info.st_size, (unsigned long long)shards[i]->bytes);
    free(path);
    free(name);
  }
  return status;
}

sl_status sli_checkpoints_commit(sli_checkpoints *c, int64_t step, const cJSON *about, int nshards,
                                 const sli_shard_file *const *shards) {
  char *folder = step_path(c, step, ".tmp"), *path = sli_format("%s/manifest.json", folder);
  char *text = manifest_text(step, about, nshards, shards);
  sl_status status = check_shards(folder, nshards, shards);
  if (!status) status = sli_atomic_text(path, text);
  if (status) remove_folder(folder);
  if (!status) status = give_name(c, folder, step);
  if (!status) status = point_to(c, step);
  if (!status) remove_old(c);
  free(text);
  free(path);
  free(folder);
  return status;
}

/* ---- reading ------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

static sl_status check_manifest(const char *path, const cJSON *root) {
  const cJSON *body = member(root, "checkpoint"), *sum = member(root, "fnv1a64");
  if (!cJSON_IsObject(body) || !cJSON_IsString(sum))
    return sl_fail(SL_E_INPUT, "%s is not a checkpoint manifest", path);
  char text[32];
  checksum_text(body, text);
  if (strcmp(text, sum->valuestring))
    return sl_fail(SL_E_INPUT, "%s is damaged: its checksum is %s, not %s", path, text,
                   sum->valuestring);
  const cJSON *version = member(body, "version");
  if (!cJSON_IsNumber(version) || version->valuedouble != FORMAT_VERSION)
    return sl_fail(SL_E_INPUT, "%s is of a version other than %d", path, FORMAT_VERSION);
  if (!cJSON_IsNumber(member(body, "step")) || !cJSON_IsArray(member(body, "shards")))
    return sl_fail(SL_E_INPUT, "%s lacks its step or its shards", path);
  return SL_OK;
}

static bool is_sealed(const cJSON *root) {
  return cJSON_IsTrue(member(member(root, "checkpoint"), "sealed"));
}

/* Rejects a manifest with a zero byte: the parser would ignore everything after it. */
static sl_status check_length(const char *path, const char *text) {
  struct stat info;
  if (stat(path, &info) || (size_t)info.st_size == strlen(text)) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s is damaged: byte %zu is 0", path, strlen(text));
}

static sl_status read_manifest(sli_checkpoint *c) {
  char *path = sli_format("%s/manifest.json", c->path), *text = NULL;
  sl_status status = sli_file_read(path, &text);
  if (!status) status = check_length(path, text);
  if (!status) {
    c->manifest = cJSON_Parse(text);
    status = c->manifest ? check_manifest(path, c->manifest)
                         : sl_fail(SL_E_INPUT, "%s is damaged: it is not JSON", path);
  }
  if (!status && is_sealed(c->manifest)) status = check_seal(path, text);
  if (!status) c->step = (int64_t)member(member(c->manifest, "checkpoint"), "step")->valuedouble;
  free(text);
  free(path);
  return status;
}

static sl_status hash_file(const char *path, double bytes, uint64_t *out) {
  void *map;
  size_t size;
  sl_status status = sli_file_map(path, &map, &size);
  if (status) return status;
  if ((double)size != bytes)
    status = sl_fail(SL_E_INPUT, "%s has %zu bytes, not %.0f", path, size, bytes);
  else *out = sli_hash(SLI_HASH_SEED, map, size);
  if (map) munmap(map, size);
  return status;
}

static sl_status open_shard(sli_checkpoint *c, const cJSON *record) {
  const cJSON *file = member(record, "file"), *bytes = member(record, "bytes");
  const cJSON *sum = member(record, "fnv1a64");
  if (!cJSON_IsString(file) || strchr(file->valuestring, '/') || !cJSON_IsNumber(bytes) ||
      !cJSON_IsString(sum))
    return sl_fail(SL_E_INPUT, "%s/manifest.json: shard %d is not described", c->path, c->nshards);
  char *path = sli_format("%s/%s", c->path, file->valuestring), text[32];
  uint64_t hash = 0;
  sl_status status = hash_file(path, bytes->valuedouble, &hash);
  if (!status) {
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    if (strcmp(text, sum->valuestring))
      status = sl_fail(SL_E_INPUT, "%s is damaged: its checksum is %s, not %s", path, text,
                       sum->valuestring);
  }
  if (!status) status = sli_safetensors_open(path, &c->files[c->nshards]);
  if (!status) c->nshards++;
  free(path);
  return status;
}

sl_status sli_checkpoint_open(const char *path, sli_checkpoint **out) {
  sli_checkpoint *c = sli_calloc(1, sizeof *c);
  c->path = sli_strdup(path);
  sl_status status = read_manifest(c);
  if (!status) {
    const cJSON *shards = member(member(c->manifest, "checkpoint"), "shards"), *record;
    c->files = sli_calloc((size_t)cJSON_GetArraySize(shards), sizeof *c->files);
    cJSON_ArrayForEach(record, shards) if (!status) status = open_shard(c, record);
  }
  if (status) {
    sli_checkpoint_close(c);
    return status;
  }
  *out = c;
  return SL_OK;
}

void sli_checkpoint_close(sli_checkpoint *c) {
  if (!c) return;
  for (int i = 0; i < c->nshards; i++) sli_safetensors_close(c->files[i]);
  free(c->files);
  cJSON_Delete(c->manifest);
  free(c->path);
  free(c);
}

/* Opens the checkpoint of a step. A directory whose content belongs to another step is damaged
 * too. */
static sl_status open_step(const sli_checkpoints *c, int64_t step, sli_checkpoint **out) {
  char *path = step_path(c, step, "");
  sli_checkpoint *found;
  sl_status status = sli_checkpoint_open(path, &found);
  if (!status && found->step != step) {
    status = sl_fail(SL_E_INPUT, "%s holds step %lld", path, (long long)found->step);
    sli_checkpoint_close(found);
  }
  if (!status) *out = found;
  free(path);
  return status;
}

static void set_aside(const sli_checkpoints *c, int64_t step) {
  char *path = step_path(c, step, ""), *aside = step_path(c, step, ".damaged");
  remove_folder(aside);
  rename(path, aside);
  free(aside);
  free(path);
}

sl_status sli_checkpoints_find(sli_checkpoints *c, sli_checkpoint **out) {
  int64_t *steps;
  int n = list_steps(c, &steps), tried = 0;
  sli_checkpoint *found = NULL;
  for (; tried < n && !found; tried++) {
    if (!open_step(c, steps[tried], &found)) continue;
    sli_log("checkpoint step-%lld is incomplete and is skipped: %s", (long long)steps[tried],
            sl_detail());
  }
  if (found && c->fd >= 0) {
    for (int i = 0; i < tried - 1; i++) set_aside(c, steps[i]);
    remove_old(c); /* a kill may have come between a commit and its cleanup */
  }
  free(steps);
  if (n && !found)
    return sl_fail(SL_E_INPUT, "none of the %d checkpoints in %s is complete", n, c->dir);
  *out = found;
  return SL_OK;
}

const char *sli_checkpoint_path(const sli_checkpoint *c) { return c->path; }
int64_t sli_checkpoint_step(const sli_checkpoint *c) { return c->step; }
int sli_checkpoint_shards(const sli_checkpoint *c) { return c->nshards; }

const sli_safetensors *sli_checkpoint_shard(const sli_checkpoint *c, int index) {
  return c->files[index];
}

const cJSON *sli_checkpoint_about(const sli_checkpoint *c) {
  return member(member(c->manifest, "checkpoint"), "about");
}

const sli_stored_tensor *sli_checkpoint_tensor(const sli_checkpoint *c, const char *name,
                                               const sli_safetensors **file) {
  for (int i = 0; i < c->nshards; i++) {
    const sli_stored_tensor *t = sli_safetensors_find(c->files[i], name);
    if (!t) continue;
    *file = c->files[i];
    return t;
  }
  return NULL;
}
