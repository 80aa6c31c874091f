/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch/archive.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "base/base.h"
#include "io/file.h"

struct sli_archive {
  char *path, *folder; /* the folder ends with a slash, unless it is empty */
  zip_t *zip;
  pthread_mutex_t reading;
};

static sl_status damaged(const sli_archive *a, const char *name, const char *why) {
  return sl_fail(SL_E_INPUT, "%s: %s: %s", a->path, name, why);
}

/* Finds the single folder that contains all entries. */
static sl_status find_folder(sli_archive *a) {
  zip_int64_t count = zip_get_num_entries(a->zip, 0);
  const char *first = count > 0 ? zip_get_name(a->zip, 0, ZIP_FL_ENC_GUESS) : NULL;
  if (!first) return sl_fail(SL_E_INPUT, "%s: the archive is empty", a->path);
  const char *slash = strchr(first, '/');
  size_t length = slash ? (size_t)(slash - first) + 1 : 0;
  a->folder = sli_format("%.*s", (int)length, first);
  if (sli_archive_has(a, "models/model.json", NULL)) return SL_OK;
  if (sli_archive_has(a, "data.pkl", NULL))
    return sl_fail(SL_E_INPUT,
                   "%s: pickled weights (torch.save), which are not read; save the program with "
                   "torch.export.save, or weights as safetensors",
                   a->path);
  if (sli_archive_has(a, "serialized_exported_program.json", NULL))
    return sl_fail(SL_E_INPUT,
                   "%s: written by PyTorch before 2.7, whose archives have another layout; export "
                   "it again with 2.8 or later",
                   a->path);
  return sl_fail(SL_E_INPUT, "%s: no exported program: the archive has no models/model.json",
                 a->path);
}

/* Entries of untrusted archives: a stored one has its size, a compressed one is at most MOST_RATIO
 * times as large as it is in the file. */
enum { MOST_RATIO = 100, FREE_BYTES = 1 << 20, HEADER_BYTES = 30 };

/* Returns what is wrong with an entry, or NULL. */
static const char *entry_fault(const sli_archive *a, zip_uint64_t i, const char *name,
                               const zip_stat_t *info) {
  enum {
    NEEDED = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_CRC | ZIP_STAT_COMP_METHOD |
             ZIP_STAT_ENCRYPTION_METHOD
  };
  if (!name || (info->valid & NEEDED) != NEEDED) return "damaged directory entry";
  if (info->encryption_method != ZIP_EM_NONE) return "encrypted";
  if (info->comp_method == ZIP_CM_STORE && info->size != info->comp_size)
    return "damaged directory entry: two sizes";
  if (info->comp_method != ZIP_CM_STORE && (info->comp_size > info->size + FREE_BYTES ||
                                            info->size > FREE_BYTES + MOST_RATIO * info->comp_size))
    return "compressed more than a program is";
  if (zip_name_locate(a->zip, name, ZIP_FL_ENC_GUESS) != (zip_int64_t)i) return "named twice";
  return NULL;
}

/* Checks the directory of an archive of `bytes` bytes before any entry is read. */
static sl_status check_directory(const sli_archive *a, size_t bytes) {
  zip_int64_t count = zip_get_num_entries(a->zip, 0);
  zip_uint64_t all = 0;
  for (zip_int64_t i = 0; i < count; i++) {
    zip_stat_t info;
    zip_stat_init(&info);
    const char *name = zip_get_name(a->zip, (zip_uint64_t)i, ZIP_FL_ENC_GUESS);
    if (zip_stat_index(a->zip, (zip_uint64_t)i, 0, &info)) name = NULL;
    const char *fault = entry_fault(a, (zip_uint64_t)i, name, &info);
    if (fault) return damaged(a, name ? name : "an entry", fault);
    if (__builtin_add_overflow(all, info.comp_size, &all) ||
        __builtin_add_overflow(all, HEADER_BYTES + strlen(name), &all) || all > bytes)
      return damaged(a, name, "the entries overlap: they are larger than the file");
  }
  return SL_OK;
}

/* Opens the zip file on a descriptor, which it then owns. */
static sl_status open_zip(sli_archive *a, int fd) {
  int code = 0;
  a->zip = zip_fdopen(fd, 0, &code);
  if (a->zip) return SL_OK;
  close(fd);
  bool system =
      code == ZIP_ER_OPEN || code == ZIP_ER_READ || code == ZIP_ER_MEMORY || code == ZIP_ER_SEEK;
  if (!system) return sl_fail(SL_E_INPUT, "%s: not an archive of torch.export.save", a->path);
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  sl_status status = sl_fail(SL_E_INPUT, "%s: %s", a->path, zip_error_strerror(&error));
  zip_error_fini(&error);
  return status;
}

sl_status sli_archive_open(const char *path, sli_archive **out) {
  sli_archive *a = sli_calloc(1, sizeof *a);
  a->path = sli_strdup(path);
  pthread_mutex_init(&a->reading, NULL);
  int fd;
  size_t bytes;
  sl_status status = sli_file_open(path, &fd, &bytes);
  if (!status) status = open_zip(a, fd);
  if (!status) status = check_directory(a, bytes);
  if (!status) status = find_folder(a);
  if (status) sli_archive_close(a);
  else *out = a;
  return status;
}

void sli_archive_close(sli_archive *a) {
  if (!a) return;
  if (a->zip) zip_discard(a->zip);
  pthread_mutex_destroy(&a->reading);
  free(a->folder);
  free(a->path);
  free(a);
}

const char *sli_archive_path(const sli_archive *a) { return a->path; }

/* Finds an entry's number and size. Returns false if it is absent or its size is unknown. */
static int entry_find(const sli_archive *a, const char *name, zip_stat_t *info) {
  char *full = sli_format("%s%s", a->folder, name);
  zip_stat_init(info);
  int found = !zip_stat(a->zip, full, 0, info) && info->valid & ZIP_STAT_SIZE &&
              info->valid & ZIP_STAT_INDEX;
  free(full);
  return found;
}

int sli_archive_has(const sli_archive *a, const char *name, size_t *bytes) {
  zip_stat_t info;
  int found = entry_find(a, name, &info);
  if (found && bytes) *bytes = info.size;
  return found;
}

sl_status sli_archive_read(sli_archive *a, const char *name, size_t most, char **out,
                           size_t *bytes) {
  zip_stat_t info;
  if (!entry_find(a, name, &info)) return damaged(a, name, "no such entry in the archive");
  if (info.size > most) return damaged(a, name, "the entry is larger than what it describes");
  char *text = malloc(info.size + 1);
  if (!text) return sl_fail(SL_E_MEMORY, "%s: %s: no memory for it", a->path, name);
  zip_file_t *file = zip_fopen_index(a->zip, info.index, 0);
  zip_int64_t got = file ? zip_fread(file, text, info.size) : -1;
  char none; /* reading past the end compares the checksum */
  if (got >= 0 && zip_fread(file, &none, 1)) got = -1;
  int failed = file ? zip_fclose(file) : 0;
  if (got < 0 || (zip_uint64_t)got != info.size || failed) {
    free(text);
    return damaged(a, name, "truncated or damaged");
  }
  text[info.size] = 0;
  *out = text, *bytes = info.size;
  return SL_OK;
}

/* Reads from an open entry, which is stored uncompressed, so seeking is cheap. */
static int read_part(zip_file_t *file, size_t first, size_t count, void *out) {
  return file && !zip_fseek(file, (zip_int64_t)first, SEEK_SET) &&
         zip_fread(file, out, count) == (zip_int64_t)count;
}

sl_status sli_archive_part(sli_archive *a, const char *name, size_t first, size_t count,
                           void *out) {
  zip_stat_t info;
  pthread_mutex_lock(&a->reading);
  int found = entry_find(a, name, &info);
  bool whole =
      found && info.comp_method == ZIP_CM_STORE && count <= info.size && first <= info.size - count;
  zip_file_t *file = whole ? zip_fopen_index(a->zip, info.index, 0) : NULL;
  int good = read_part(file, first, count, out);
  if (file) zip_fclose(file);
  pthread_mutex_unlock(&a->reading);
  if (!found) return damaged(a, name, "no such entry in the archive");
  return good ? SL_OK : damaged(a, name, "truncated or damaged");
}

sl_status sli_archive_verify(sli_archive *a, const char *name) {
  enum { AT_ONCE = 1 << 18 };
  zip_stat_t info;
  pthread_mutex_lock(&a->reading);
  int found = entry_find(a, name, &info);
  zip_file_t *file = found ? zip_fopen_index(a->zip, info.index, 0) : NULL;
  char *buffer = sli_calloc(1, AT_ONCE);
  zip_int64_t got = file ? 1 : -1;
  zip_uint64_t all = 0;
  while (got > 0) {
    got = zip_fread(file, buffer, AT_ONCE); /* at the end, compares the checksum */
    if (got > 0) all += (zip_uint64_t)got;
  }
  if (file) zip_fclose(file);
  free(buffer);
  pthread_mutex_unlock(&a->reading);
  return got || all != info.size ? damaged(a, name,
                                           "its numbers do not have the checksum that the "
                                           "archive states: damaged")
                                 : SL_OK;
}

unsigned sli_archive_checksum(const sli_archive *a, const char *name) {
  zip_stat_t info;
  return entry_find(a, name, &info) && info.valid & ZIP_STAT_CRC ? info.crc : 0;
}
