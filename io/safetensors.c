/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format (github.com/huggingface/safetensors):
 *
 *     u64 n, little-endian | n bytes of JSON | data
 *
 * The JSON object maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, with
 * offsets from the start of the data; the key __metadata__ maps strings to strings. Tensors
 * cover the data part exactly: no holes, no overlaps. Every value is checked before it is used,
 * so a damaged or hostile file gives an error message and never a read out of bounds. */
#include "io/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "io/atomic.h"
#include "io/file.h"
#include "io/half.h"
#include "io/small.h"

enum { HEADER_LIMIT = 100000000 }; /* limit in the format's reference library */

struct sli_safetensors {
  char *path;
  cJSON *header; /* owns the names */
  void *map;
  size_t map_bytes;
  const unsigned char *data;
  size_t data_bytes;
  int count;
  sli_stored_tensor *tensors; /* sorted by name */
};

/* Returns the bytes per element, or 0 for an unknown type. */
static size_t element_bytes(const char *dtype) {
  static const struct {
    const char *name;
    size_t bytes;
  } table[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
               {"U64", 8}, {"I32", 4}, {"U32", 4},  {"I16", 2},     {"U16", 2},
               {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (size_t i = 0; i < SLI_COUNT(table); i++)
    if (!strcmp(table[i].name, dtype)) return table[i].bytes;
  return 0;
}

/* ---- opening ---------------------------------------------------------------- */

static sl_status map_file(sli_safetensors *file) {
  sl_status status = sli_file_map(file->path, &file->map, &file->map_bytes);
  if (status || file->map_bytes >= 8) return status;
  return sl_fail(SL_E_INPUT, "%s is not a safetensors file: it has only %zu bytes", file->path,
                 file->map_bytes);
}

static sl_status parse_header(sli_safetensors *file) {
  const unsigned char *bytes = file->map;
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
  if (length > HEADER_LIMIT)
    return sl_fail(SL_E_INPUT,
                   "%s is not a safetensors file: its first 8 bytes give a header of %llu bytes",
                   file->path, (unsigned long long)length);
  if (length > file->map_bytes - 8)
    return sl_fail(SL_E_INPUT, "%s is truncated: its header has %llu bytes, the file only %zu",
                   file->path, (unsigned long long)length, file->map_bytes);
  const char *text = (const char *)bytes + 8, *end = NULL;
  file->header = cJSON_ParseWithLengthOpts(text, length, &end, false);
  if (!file->header) SLI_TRY(sli_memory_for_json(length, file->path));
  if (!file->header || !cJSON_IsObject(file->header))
    return sl_fail(SL_E_INPUT, "%s: the header is not a JSON object (near byte %lld)", file->path,
                   (long long)(8 + (end ? end - text : 0)));
  for (; end < text + length; end++)
    if (*end != ' ' && *end != 0)
      return sl_fail(SL_E_INPUT, "%s: the header goes on after its JSON object (byte %lld)",
                     file->path, (long long)(8 + (end - text)));
  file->data = bytes + 8 + length;
  file->data_bytes = file->map_bytes - 8 - length;
  return SL_OK;
}

/* Reads a JSON number that is an exact count. */
static bool read_count(const cJSON *item, uint64_t *out) {
  if (!cJSON_IsNumber(item)) return false;
  double v = item->valuedouble;
  if (!(v >= 0 && v <= 9007199254740992.0) || v != (double)(uint64_t)v) return false;
  *out = (uint64_t)v;
  return true;
}

static sl_status read_shape(const char *path, const cJSON *shape, sli_stored_tensor *t) {
  if (!cJSON_IsArray(shape))
    return sl_fail(SL_E_INPUT, "%s: tensor %s has no shape", path, t->name);
  t->elements = 1;
  const cJSON *item;
  cJSON_ArrayForEach(item, shape) {
    uint64_t n;
    if (t->ndim == SLI_STORED_DIMS)
      return sl_fail(SL_E_INPUT, "%s: tensor %s has more than %d dimensions", path, t->name,
                     SLI_STORED_DIMS);
    if (!read_count(item, &n) || __builtin_mul_overflow(t->elements, n, &t->elements))
      return sl_fail(SL_E_INPUT, "%s: tensor %s has an impossible shape", path, t->name);
    t->dim[t->ndim++] = (int64_t)n;
  }
  return SL_OK;
}

static sl_status read_tensor(const sli_safetensors *file, const cJSON *item, sli_stored_tensor *t) {
  const char *path = file->path;
  *t = (sli_stored_tensor){.name = item->string};
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
  if (!cJSON_IsString(dtype))
    return sl_fail(SL_E_INPUT, "%s: tensor %s has no dtype", path, t->name);
  t->dtype = dtype->valuestring;
  sl_status status = read_shape(path, cJSON_GetObjectItemCaseSensitive(item, "shape"), t);
  if (status) return status;
  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
  uint64_t begin, end;
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
      !read_count(offsets->child, &begin) || !read_count(offsets->child->next, &end) || begin > end)
    return sl_fail(SL_E_INPUT, "%s: tensor %s has impossible data_offsets", path, t->name);
  if (end > file->data_bytes)
    return sl_fail(SL_E_INPUT, "%s is truncated: tensor %s ends at data byte %llu of %zu", path,
                   t->name, (unsigned long long)end, file->data_bytes);
  t->offset = begin;
  t->bytes = end - begin;
  size_t each = element_bytes(t->dtype), wanted;
  if (each && (__builtin_mul_overflow(each, t->elements, &wanted) || wanted != t->bytes)) {
    char text[256];
    return sl_fail(SL_E_INPUT, "%s: tensor %s is %s but has %zu bytes", path, t->name,
                   sli_stored_format(text, t), t->bytes);
  }
  return SL_OK;
}

static int by_name(const void *a, const void *b) {
  const sli_stored_tensor *x = a, *y = b;
  return strcmp(x->name, y->name);
}

sl_status sli_stored_sort(const char *path, sli_stored_tensor *tensors, int count) {
  qsort(tensors, (size_t)count, sizeof *tensors, by_name);
  for (int i = 1; i < count; i++)
    if (!strcmp(tensors[i - 1].name, tensors[i].name))
      return sl_fail(SL_E_INPUT, "%s: tensor %s appears twice", path, tensors[i].name);
  return SL_OK;
}

const sli_stored_tensor *sli_stored_find(const sli_stored_tensor *tensors, int count,
                                         const char *name) {
  sli_stored_tensor key = {.name = name};
  return bsearch(&key, tensors, (size_t)count, sizeof key, by_name);
}

static int by_offset(const void *a, const void *b) {
  const sli_stored_tensor *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the tensors are contiguous and fill the data part. */
static sl_status check_cover(const sli_safetensors *file) {
  size_t at = 0;
  for (int i = 0; i < file->count; i++) {
    const sli_stored_tensor *t = &file->tensors[i];
    if (t->offset < at)
      return sl_fail(SL_E_INPUT, "%s: tensors %s and %s overlap", file->path,
                     file->tensors[i - 1].name, t->name);
    if (t->offset > at)
      return sl_fail(SL_E_INPUT, "%s: %zu bytes before tensor %s belong to none", file->path,
                     t->offset - at, t->name);
    at = t->offset + t->bytes;
  }
  if (at != file->data_bytes)
    return sl_fail(SL_E_INPUT, "%s: %zu bytes at the end belong to no tensor", file->path,
                   file->data_bytes - at);
  return SL_OK;
}

static sl_status read_tensors(sli_safetensors *file) {
  file->tensors = sli_calloc((size_t)cJSON_GetArraySize(file->header), sizeof *file->tensors);
  const cJSON *item;
  cJSON_ArrayForEach(item, file->header) {
    if (!strcmp(item->string, "__metadata__")) continue;
    if (!cJSON_IsObject(item))
      return sl_fail(SL_E_INPUT, "%s: the entry of tensor %s is not an object", file->path,
                     item->string);
    sl_status status = read_tensor(file, item, &file->tensors[file->count]);
    if (status) return status;
    file->count++;
  }
  qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_offset);
  sl_status status = check_cover(file);
  return status ? status : sli_stored_sort(file->path, file->tensors, file->count);
}

sl_status sli_safetensors_open(const char *path, sli_safetensors **out) {
  sli_safetensors *file = sli_calloc(1, sizeof *file);
  file->path = sli_strdup(path);
  sl_status status = map_file(file);
  if (!status) status = parse_header(file);
  if (!status) status = read_tensors(file);
  if (status) {
    sli_safetensors_close(file);
    return status;
  }
  *out = file;
  return SL_OK;
}

void sli_safetensors_close(sli_safetensors *file) {
  if (!file) return;
  if (file->map) munmap(file->map, file->map_bytes);
  cJSON_Delete(file->header);
  free(file->tensors);
  free(file->path);
  free(file);
}

/* ---- reading ---------------------------------------------------------------- */

int sli_safetensors_count(const sli_safetensors *file) { return file->count; }

const sli_stored_tensor *sli_safetensors_at(const sli_safetensors *file, int index) {
  SLI_CHECK(index >= 0 && index < file->count, "tensor %d of %d", index, file->count);
  return &file->tensors[index];
}

const sli_stored_tensor *sli_safetensors_find(const sli_safetensors *file, const char *name) {
  return sli_stored_find(file->tensors, file->count, name);
}

int sli_safetensors_from(const sli_safetensors *file, const char *name) {
  int low = 0, high = file->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(file->tensors[middle].name, name) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

sl_status sli_safetensors_read(const sli_safetensors *file, const sli_stored_tensor *tensor,
                               float *out) {
  const unsigned char *from = file->data + tensor->offset;
  bool half = !strcmp(tensor->dtype, "F16"), bfloat = !strcmp(tensor->dtype, "BF16");
  if (!strcmp(tensor->dtype, "F32")) {
    memcpy(out, from, tensor->bytes);
  } else if (half || bfloat) {
    for (size_t i = 0; i < tensor->elements; i++) {
      uint16_t v = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
      out[i] = half ? sli_half_to_float(v) : sli_bfloat_to_float(v);
    }
  } else if (!strcmp(tensor->dtype, "F8_E4M3")) {
    for (size_t i = 0; i < tensor->elements; i++) out[i] = sli_e4m3_to_float(from[i]);
  } else {
    return sl_fail(SL_E_INPUT, "%s: tensor %s is %s; F32, F16 and BF16 can be read", file->path,
                   tensor->name, tensor->dtype);
  }
  return SL_OK;
}

const void *sli_safetensors_bytes(const sli_safetensors *file, const sli_stored_tensor *tensor) {
  return file->data + tensor->offset;
}

char *sli_stored_format(char *out, const sli_stored_tensor *tensor) {
  size_t at = (size_t)snprintf(out, 256, "%.16s[", tensor->dtype);
  for (int i = 0; i < tensor->ndim; i++)
    at += (size_t)snprintf(out + at, 256 - at, "%s%lld", i ? ", " : "", (long long)tensor->dim[i]);
  snprintf(out + at, 256 - at, "]");
  return out;
}

/* ---- writing ---------------------------------------------------------------- */

static size_t count_elements(const sli_tensor_data *t) {
  size_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->dim[i];
  return n;
}

/* Makes the JSON text; the caller frees it. */
static char *make_header(const sli_tensor_data *tensors, int count) {
  cJSON *header = cJSON_CreateObject();
  cJSON_AddStringToObject(cJSON_AddObjectToObject(header, "__metadata__"), "format", "pt");
  size_t offset = 0;
  for (int i = 0; i < count; i++) {
    cJSON *entry = cJSON_AddObjectToObject(header, tensors[i].name);
    const char *dtype = tensors[i].dtype ? tensors[i].dtype : "F32";
    cJSON_AddStringToObject(entry, "dtype", dtype);
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    for (int d = 0; d < tensors[i].ndim; d++)
      cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensors[i].dim[d]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)offset));
    offset += count_elements(&tensors[i]) * sizeof(float);
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)offset));
  }
  char *text = cJSON_PrintUnformatted(header);
  cJSON_Delete(header);
  SLI_CHECK(text, "no memory for a header of %d tensors", count);
  return text;
}

/* Callback for values that are not in memory yet. */
typedef struct value_source {
  sli_tensor_values *values;
  void *ctx;
} value_source;

static sl_status write_all(sli_atomic_file *file, const char *header,
                           const sli_tensor_data *tensors, int count, const value_source *from) {
  static const char spaces[8] = "        ";
  size_t text = strlen(header), padding = -text & 7;
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(text + padding) >> 8 * i);
  sl_status status = sli_atomic_write(file, length, 8);
  if (!status) status = sli_atomic_write(file, header, text);
  if (!status) status = sli_atomic_write(file, spaces, padding);
  for (int i = 0; i < count && !status; i++) {
    const float *data = tensors[i].data;
    if (!data && from) status = from->values(from->ctx, i, &data);
    if (!status) status = sli_atomic_write(file, data, count_elements(&tensors[i]) * sizeof(float));
  }
  return status;
}

static sl_status write_file(const char *path, const sli_tensor_data *tensors, int count,
                            const value_source *from, sli_written *out) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  file.hashed = out;
  char *header = make_header(tensors, count);
  status = write_all(&file, header, tensors, count, from);
  free(header);
  if (status) {
    sli_atomic_abandon(&file);
    return status;
  }
  sli_written written = {file.bytes, file.hash};
  status = sli_atomic_commit(&file);
  if (!status && out) *out = written;
  return status;
}

sl_status sli_safetensors_write(const char *path, const sli_tensor_data *tensors, int count) {
  return write_file(path, tensors, count, NULL, NULL);
}

sl_status sli_safetensors_write_each(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_values *values, void *ctx) {
  return write_file(path, tensors, count, &(value_source){values, ctx}, NULL);
}

sl_status sli_safetensors_write_known(const char *path, const sli_tensor_data *tensors, int count,
                                      sli_written *out) {
  return write_file(path, tensors, count, NULL, out);
}

/* ---- one file written by several processes -------------------------------------------------- */

struct sli_tensor_parts {
  char *path;
  int fd;
  int error;       /* errno of the first failure, or 0 */
  size_t *offsets; /* [tensors] offsets in the file */
};

/* Returns the length and the padded header, as at the beginning of a file. */
static char *whole_header(const sli_tensor_data *tensors, int count, size_t *bytes) {
  char *header = make_header(tensors, count);
  size_t text = strlen(header), padded = text + (-text & 7);
  char *out = sli_calloc(1, 8 + padded);
  for (int i = 0; i < 8; i++) out[i] = (char)((uint64_t)padded >> 8 * i);
  memset(out + 8, ' ', padded);
  memcpy(out + 8, header, text);
  free(header);
  *bytes = 8 + padded;
  return out;
}

/* Writes all bytes at an offset, continuing after short writes. */
static bool write_at(int fd, const void *data, size_t bytes, size_t offset) {
  while (bytes) {
    ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data = (const char *)data + n;
    bytes -= (size_t)n;
    offset += (size_t)n;
  }
  return true;
}

static sl_status failed(const char *path, int error) {
  return sl_fail(SL_E_IO, "writing %s failed: %s", path, strerror(error));
}

sl_status sli_safetensors_begin_parts(const char *path, const sli_tensor_data *tensors, int count) {
  size_t header, bytes;
  char *text = whole_header(tensors, count, &header);
  bytes = header;
  for (int i = 0; i < count; i++) bytes += count_elements(&tensors[i]) * sizeof(float);
  unlink(path); /* left by an earlier attempt */
  int fd = open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0666);
  /* detects a full disk now */
  int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
  if (!error && (!write_at(fd, text, header, 0) || fsync(fd))) error = errno;
  if (fd >= 0) close(fd);
  free(text);
  return error ? failed(path, error) : SL_OK;
}

sl_status sli_safetensors_open_parts(const char *path, const sli_tensor_data *tensors, int count,
                                     sli_tensor_parts **out) {
  int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return sl_fail(SL_E_IO, "writing %s failed: %s%s", path, strerror(errno),
                   errno == ENOENT ? ": all processes need a shared folder" : "");
  sli_tensor_parts *parts = sli_calloc(1, sizeof *parts);
  *parts = (sli_tensor_parts){.path = sli_strdup(path),
                              .fd = fd,
                              .offsets = sli_calloc((size_t)count, sizeof *parts->offsets)};
  size_t at;
  free(whole_header(tensors, count, &at));
  for (int i = 0; i < count; i++) {
    parts->offsets[i] = at;
    at += count_elements(&tensors[i]) * sizeof(float);
  }
  *out = parts;
  return SL_OK;
}

void sli_safetensors_write_part(sli_tensor_parts *parts, int tensor, int64_t first, int64_t count,
                                const float *data) {
  size_t at = parts->offsets[tensor] + (size_t)first * sizeof *data;
  if (!parts->error && !write_at(parts->fd, data, (size_t)count * sizeof *data, at))
    parts->error = errno ? errno : EIO;
}

sl_status sli_safetensors_close_parts(sli_tensor_parts *parts) {
  if (!parts->error && fsync(parts->fd)) parts->error = errno;
  if (close(parts->fd) && !parts->error) parts->error = errno;
  sl_status status = parts->error ? failed(parts->path, parts->error) : SL_OK;
  free(parts->offsets);
  free(parts->path);
  free(parts);
  return status;
}

sl_status sli_safetensors_end_parts(const char *path, const char *as) {
  return rename(path, as) || !sli_sync_folder_of(as) ? failed(as, errno) : SL_OK;
}
