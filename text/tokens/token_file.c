/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens. The type of a file's tokens comes from the user (FILE:u32), the suffix, or the
 * file itself. A .npy file has a header; a .bin file may have llm.c's header, or Megatron's .idx
 * file beside it. A bare .bin is uint16, as most tools write it, unless it looks like uint32. Any
 * other file is text if it looks like text, and is rejected if not. */
#include "text/tokens/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"
#include "io/npy.h"
#include "text/tokens/tokens.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold what memory does");

/* Type names, which are also suffixes. */
static const sli_token_type types[] = {
    {"text", 1, false}, {"chats", 1, false}, {"u8", 1, false}, {"u16", 2, false}, {"u32", 4, false},
    {"u64", 8, false},  {"i8", 1, true},     {"i16", 2, true}, {"i32", 4, true},  {"i64", 8, true}};
enum { TYPES = SLI_COUNT(types) };
#define TYPE_WORDS "text, chats, u8, u16, u32, u64, i8, i16, i32 or i64"

static const sli_token_type *type_named(const char *name) {
  for (int i = 0; i < TYPES; i++)
    if (!strcmp(types[i].name, name)) return &types[i];
  return NULL;
}

static const sli_token_type *type_of(int width, bool is_signed) {
  for (int i = 2; i < TYPES; i++)
    if (types[i].width == width && types[i].is_signed == is_signed) return &types[i];
  return NULL;
}

/* ---- names ----------------------------------------------------------------------------- */

/* Returns the suffix of the file name, without the dot, or "" if there is none. */
static const char *suffix(const char *path) {
  const char *slash = strrchr(path, '/'), *point = strrchr(slash ? slash : path, '.');
  return point ? point + 1 : "";
}

static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++)
    if (!strcmp(word, *words)) return true;
  return false;
}

bool sli_token_name_known(const char *path) {
  const char *end = suffix(path);
  return is_one_of(end, (const char *const[]){"txt", "bin", "npy", NULL}) || type_named(end);
}

sl_status sli_token_name_read(const char *text, char **path, const sli_token_type **type) {
  const char *colon = strrchr(text, ':');
  *path = sli_strdup(text);
  *type = NULL;
  if (!colon || !access(text, F_OK)) return SL_OK;
  (*path)[colon - text] = 0;
  *type = type_named(colon + 1);
  if (*type) return SL_OK;
  bool meant = !access(*path, F_OK);
  (*path)[colon - text] = ':';
  if (!meant) return SL_OK; /* opening it reports that the file is missing */
  sl_status status = sl_fail(SL_E_INPUT, "%s: %s is not a token type; must be one of %s", text,
                             colon + 1, TYPE_WORDS);
  free(*path);
  return status;
}

/* ---- tokens ---------------------------------------------------------------------------- */

static int64_t token_at(const sli_token_file *f, int64_t i) {
  const uint8_t *at = f->bytes + f->offset + i * f->type->width;
  switch (f->type->width) {
  case 1: return f->type->is_signed ? (int8_t)*at : *at;
  case 2: {
    uint16_t token;
    memcpy(&token, at, sizeof token);
    return f->type->is_signed ? (int16_t)token : token;
  }
  case 4: {
    uint32_t token;
    memcpy(&token, at, sizeof token);
    return f->type->is_signed ? (int32_t)token : (int64_t)token;
  }
  default: {
    int64_t token; /* an overflowing unsigned value becomes negative, and is rejected */
    memcpy(&token, at, sizeof token);
    return token;
  }
  }
}

/* Simple loops for the common types, at memory speed. */
static void copy_bytes(const uint8_t *from, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < count; i++) out[i] = from[i];
}

static void copy_pairs(const uint8_t *from, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t token;
    memcpy(&token, from + 2 * i, sizeof token);
    out[i] = token;
  }
}

void sli_token_file_copy(const sli_token_file *f, int64_t first, int64_t count, int32_t *out) {
  const uint8_t *from = f->bytes + f->offset + first * f->type->width;
  if (f->type->width == 1 && !f->type->is_signed) copy_bytes(from, count, out);
  else if (f->type->width == 2 && !f->type->is_signed) copy_pairs(from, count, out);
  else if (f->type->width == 4) memcpy(out, from, (size_t)count * sizeof *out);
  else
    for (int64_t i = 0; i < count; i++) out[i] = (int32_t)token_at(f, first + i);
}

/* Returns the largest of a run of tokens; negative tokens count as larger than all others. Simple
 * loops, at memory speed. */
static uint64_t largest(const sli_token_file *f, int64_t begin, int64_t end) {
  if (f->type->width == 2 && !f->type->is_signed) {
    uint16_t most = 0;
    for (int64_t i = begin; i < end; i++) {
      uint16_t token = (uint16_t)token_at(f, i);
      most = SLI_MAX(most, token);
    }
    return most;
  }
  uint64_t most = 0;
  for (int64_t i = begin; i < end; i++) {
    uint64_t token = (uint64_t)token_at(f, i);
    most = SLI_MAX(most, token);
  }
  return most;
}

static bool all_fit(const sli_token_type *type, int64_t vocab) {
  return !type->is_signed && type->width < 4 && vocab >= (int64_t)1 << 8 * type->width;
}

/* Checks all tokens against `vocab`. `guessed` says that the user gave no type. */
static sl_status check_range(const sli_token_file *f, bool guessed, int64_t vocab) {
  enum { RUN = 1 << 16 };
  if (sli_token_file_is_chats(f) || all_fit(f->type, vocab)) return SL_OK;
  for (int64_t begin = 0; begin < f->count; begin += RUN) {
    int64_t end = SLI_MIN(begin + RUN, f->count);
    if (largest(f, begin, end) < (uint64_t)vocab) continue;
    int64_t i = begin;
    while ((uint64_t)token_at(f, i) < (uint64_t)vocab) i++;
    return sl_fail(SL_E_INPUT, "%s: token %lld is %lld, but the vocabulary has %lld tokens%s%s%s",
                   f->path, (long long)i, (long long)token_at(f, i), (long long)vocab,
                   guessed ? " (read as " : "", guessed ? f->type->name : "",
                   guessed ? "; FILE:TYPE says another type)" : "");
  }
  return SL_OK;
}

/* ---- type detection -------------------------------------------------------------------- */

static int32_t word_at(const sli_token_file *f, size_t index) {
  int32_t word;
  memcpy(&word, f->bytes + index * sizeof word, sizeof word);
  return word;
}

/* Reads llm.c's header: 256 words, of which the first are a magic number, a version, and the
 * number of tokens that follow. */
static sl_status read_llmc(sli_token_file *f, bool *found) {
  enum { HEADER = 256 * sizeof(int32_t) };
  static const struct {
    int32_t magic, version;
    const char *type;
  } kinds[] = {{20240520, 1, "u16"}, {20240801, 7, "u32"}};
  for (size_t i = 0; i < SLI_COUNT(kinds) && f->size >= HEADER; i++) {
    if (word_at(f, 0) != kinds[i].magic || word_at(f, 1) != kinds[i].version) continue;
    f->type = type_named(kinds[i].type);
    f->offset = HEADER;
    *found = true;
    size_t count = (uint32_t)word_at(f, 2);
    if (count * (size_t)f->type->width == f->size - HEADER) return SL_OK;
    return sl_fail(SL_E_INPUT, "%s: its header says %zu tokens, but %zu bytes follow: truncated?",
                   f->path, count, f->size - HEADER);
  }
  return SL_OK;
}

/* Reads Megatron's FILE.idx beside FILE.bin: "MMIDIDX", zeros, a version, and a type number. */
static sl_status read_megatron(sli_token_file *f, bool *found) {
  static const char *const of_number[] = {NULL, "u8", "i8", "i16", "i32", "i64", NULL, NULL, "u16"};
  char *path = sli_format("%.*s.idx", (int)(strlen(f->path) - strlen(".bin")), f->path);
  unsigned char head[18] = {0};
  bool read_all = sli_file_begin(path, head, sizeof head) == sizeof head;
  sl_status status = SL_OK;
  if (read_all && !memcmp(head, "MMIDIDX\0", 9)) {
    const char *name = head[17] < SLI_COUNT(of_number) ? of_number[head[17]] : NULL;
    f->type = name ? type_named(name) : NULL;
    *found = f->type != NULL;
    if (!name) status = sl_fail(SL_E_INPUT, "%s: type %d is none of tokens", path, head[17]);
  }
  free(path);
  return status;
}

/* Returns whether all values are valid tokens if read as uint32. In a uint16 file every second
 * token would have to be almost 0. */
static bool looks_wide(const sli_token_file *f, int64_t vocab) {
  enum { FEWEST = 16, MOST = 1 << 20 };
  size_t n = SLI_MIN(f->size / 4, (size_t)MOST);
  bool differ = false;
  for (size_t i = 0; i < n; i++) {
    uint32_t token = (uint32_t)word_at(f, i);
    if (token >= vocab) return false;
    differ |= token != (uint32_t)word_at(f, 0);
  }
  return f->size % 4 == 0 && n >= FEWEST && differ;
}

static sl_status find_bin_type(sli_token_file *f, int64_t vocab) {
  bool found = false;
  sl_status status = read_llmc(f, &found);
  if (!status && !found) status = read_megatron(f, &found);
  if (status || found) return status;
  f->type = type_named("u16");
  if (!looks_wide(f, vocab)) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: read as uint16 every second token is next to 0, as if they were "
                 "uint32: say which with %s:u32 or %s:u16",
                 f->path, f->path, f->path);
}

static sl_status find_npy_type(sli_token_file *f) {
  sli_npy array;
  sl_status status = sli_npy_read_integers(f->path, f->bytes, f->size, &array);
  if (status) return status;
  f->type = type_of(array.width, array.is_signed);
  f->offset = array.offset;
  f->count = array.count;
  return SL_OK;
}

/* Suffixes of formats that may look like plain text but are not. */
static const char *const wrapped[] = {
    "json",        "ndjson", "parquet", "arrow", "csv",  "tsv",      "xml", "html",
    "yaml",        "gz",     "zst",     "xz",    "bz2",  "lz4",      "zip", "tar",
    "tgz",         "7z",     "pdf",     "docx",  "epub", "pkl",      "pt",  "pth",
    "safetensors", "gguf",   "h5",      "hdf5",  "npz",  "tfrecord", NULL};

/* Checks that a file is plain text. It must not contain zeros, and its suffix must not name a
 * format, whose syntax would be trained on along with the text. */
static sl_status check_text(const sli_token_file *f) {
  enum { LOOKED_AT = 1 << 16 };
  if (is_one_of(suffix(f->path), wrapped))
    return sl_fail(
        SL_E_INPUT,
        "%s is not plain text by its name, and .%s files are not read: convert text to .txt, or chats to .jsonl; FILE:text reads the file byte by byte",
        f->path, suffix(f->path));
  if (!memchr(f->bytes, 0, SLI_MIN(f->size, (size_t)LOOKED_AT))) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "%s is not text, and its name does not say what it holds: .u16, .u32, .npy, .bin, or FILE:TYPE with one of %s",
      f->path, TYPE_WORDS);
}

/* Finds the type. *guessed is set if it comes from an ambiguous suffix. */
static sl_status find_type(sli_token_file *f, const sli_token_type *said, int64_t vocab,
                           bool *guessed) {
  const char *end = suffix(f->path);
  if (!strcmp(end, "npy") && !said) return find_npy_type(f);
  *guessed = !said && !strcmp(end, "bin");
  if (*guessed) return find_bin_type(f, vocab);
  f->type = said                    ? said
            : !strcmp(end, "txt")   ? type_named("text")
            : !strcmp(end, "jsonl") ? type_named("chats")
                                    : type_named(end);
  if (f->type) return SL_OK;
  f->type = type_named("text");
  return check_text(f);
}

static sl_status count_tokens(sli_token_file *f) {
  size_t bytes = f->size - f->offset, width = (size_t)f->type->width;
  if (f->count >= 0) return SL_OK; /* set by the header */
  if (bytes % width)
    return sl_fail(SL_E_INPUT, "%s has %zu bytes, no multiple of %zu: not %s tokens, or cut off",
                   f->path, f->size, width, f->type->name);
  f->count = (int64_t)(bytes / width);
  return SL_OK;
}

/* ---- mapped files ---------------------------------------------------------------------- */

/* The first NAMED mapped files, so that a fault can name its file. Reading beyond the new end of a
 * file that was truncated while mapped causes a fault. */
enum { NAMED = 1024 };
static struct place {
  _Atomic(const uint8_t *) begin;
  _Atomic(const uint8_t *) end; /* NULL if free */
  _Atomic(const char *) path;
} places[NAMED];

static void remember(const sli_token_file *f) {
  for (size_t i = 0; i < NAMED; i++) {
    const uint8_t *none = NULL;
    if (!atomic_compare_exchange_strong(&places[i].begin, &none, f->bytes)) continue;
    atomic_store(&places[i].path, f->path);
    atomic_store(&places[i].end, f->bytes + f->size);
    return;
  }
}

static void forget(const sli_token_file *f) {
  for (size_t i = 0; i < NAMED && f->bytes; i++)
    if (atomic_load(&places[i].begin) == f->bytes) {
      atomic_store(&places[i].end, NULL);
      atomic_store(&places[i].begin, NULL);
    }
}

const char *sli_token_file_at(const void *address) {
  const uint8_t *at = address;
  for (size_t i = 0; i < NAMED; i++) {
    const uint8_t *begin = atomic_load(&places[i].begin), *end = atomic_load(&places[i].end);
    if (begin && end && at >= begin && at < end) return atomic_load(&places[i].path);
  }
  return NULL;
}

static bool same_file(const sli_token_file *f, const struct stat *info) {
  return f->device == (uint64_t)info->st_dev && f->inode == (uint64_t)info->st_ino;
}

sl_status sli_token_file_check(const sli_token_file *f) {
  struct stat info;
  if (f->apart || stat(f->path, &info) || !same_file(f, &info)) return SL_OK;
  if ((uint64_t)info.st_size < f->size)
    return sl_fail(SL_E_INPUT, "%s has become shorter since the run began, by %llu bytes", f->path,
                   (unsigned long long)(f->size - (uint64_t)info.st_size));
  bool touched =
      info.st_mtim.tv_sec != f->modified.tv_sec || info.st_mtim.tv_nsec != f->modified.tv_nsec;
  if (!touched || sli_hash_samples(f->bytes, f->size) == f->hash) return SL_OK;
  return sl_fail(SL_E_INPUT, "%s has changed since the run began: training has used both versions",
                 f->path);
}

/* ---- opening --------------------------------------------------------------------------- */

static sl_status map_file(int fd, sli_token_file *f) {
  struct stat info;
  if (fstat(fd, &info)) return sl_fail(SL_E_IO, "%s: %s", f->path, strerror(errno));
  if (!info.st_size) return sl_fail(SL_E_INPUT, "%s is empty", f->path);
  void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (bytes == MAP_FAILED)
    return sl_fail(SL_E_IO, "%s: cannot be mapped: %s", f->path, strerror(errno));
  f->bytes = bytes;
  f->size = (size_t)info.st_size;
  f->modified = info.st_mtim;
  f->device = (uint64_t)info.st_dev;
  f->inode = (uint64_t)info.st_ino;
  return sli_file_check(f->path, bytes, f->size);
}

static sl_status open_and_map(sli_token_file *f) {
  int fd;
  size_t bytes;
  SLI_TRY(sli_file_open(f->path, &fd, &bytes));
  sl_status status = map_file(fd, f);
  close(fd);
  return status;
}

sl_status sli_token_file_open(const char *path, const sli_token_type *said, int64_t vocab,
                              sli_token_file *out) {
  sli_token_file f = {.path = sli_strdup(path), .count = -1};
  bool guessed = false;
  sl_status status = open_and_map(&f);
  if (!status) status = find_type(&f, said, vocab, &guessed);
  if (!status) status = count_tokens(&f);
  if (!status) status = check_range(&f, guessed, vocab);
  if (status) {
    sli_token_file_close(&f);
    return status;
  }
  f.hash = sli_hash_samples(f.bytes, f.size);
  remember(&f);
  *out = f;
  return SL_OK;
}

void sli_token_file_close(sli_token_file *f) {
  forget(f);
  if (f->bytes) munmap((void *)f->bytes, f->size);
  free(f->path);
  *f = (sli_token_file){0};
}

/* ---- text ------------------------------------------------------------------------------ */

bool sli_token_file_is_text(const sli_token_file *f) { return !strcmp(f->type->name, "text"); }

bool sli_token_file_is_chats(const sli_token_file *f) { return !strcmp(f->type->name, "chats"); }

sl_status sli_token_file_take(sli_token_file *f, const void *map, size_t bytes, int64_t vocab) {
  forget(f);
  munmap((void *)f->bytes, f->size);
  f->apart = true;
  f->bytes = map;
  f->size = bytes;
  f->offset = 0;
  f->count = (int64_t)(bytes / sizeof(uint32_t));
  if (!sli_token_file_is_chats(f)) f->type = type_named("u32");
  sl_status status = check_range(f, false, vocab);
  if (status) sli_token_file_close(f);
  else f->hash = sli_hash_samples(f->bytes, f->size);
  return status;
}
