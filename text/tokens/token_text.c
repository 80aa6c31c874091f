/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes texts with a cache. Tokens of a text of more than a few MiB are cached in
 * $XDG_CACHE_HOME/sluice/tokens, or in ~/.cache, under a name that identifies text and tokenizer.
 * All processes of a host map the same file. If it cannot be written, each process keeps the tokens
 * in memory. A process that writes a cache file removes files that were not used for a long time;
 * their modification time is that of the last use. */
#include "text/tokens/token_text.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "io/atomic.h"
#include "io/file.h"
#include "text/tokenizer/tokenizer.h"

/* version of the rules of tokenizers and chats: cached tokens of other versions are ignored */
enum { RULES = 3 };
enum { KEPT_BYTES = 4 << 20, KEPT_SECONDS = 30 * 24 * 3600 };

struct sli_token_text {
  sli_chats_options options;
  sli_tokenizer *tokenizer;
  sli_chats *chats;
};

sli_token_text *sli_token_text_create(const sli_chats_options *options) {
  sli_token_text *t = sli_calloc(1, sizeof *t);
  t->options = *options;
  return t;
}

void sli_token_text_destroy(sli_token_text *t) {
  if (t) sli_tokenizer_close(t->tokenizer);
  if (t) sli_chats_close(t->chats);
  free(t);
}

/* ---- cache files ------------------------------------------------------------------------ */

/* Returns the cache path of a text, or NULL if there is none; the caller frees it. Long texts are
 * hashed in samples, so their modification time is included. */
static char *kept_path(const sli_token_text *t, const sli_token_file *f) {
  struct stat info;
  uint64_t bytes, hash;
  if (f->size < KEPT_BYTES || stat(f->path, &info) ||
      sli_file_fingerprint(t->options.tokenizer, &bytes, &hash))
    return NULL;
  char *folder = sli_file_cache();
  if (!folder) return NULL;
  hash = sli_hash_word(hash, bytes);
  hash = sli_hash_word(hash, RULES);
  if (t->chats && sli_token_file_is_chats(f)) hash = sli_hash_word(hash, sli_chats_hash(t->chats));
  hash = sli_hash_word(hash, sli_hash_samples(f->bytes, f->size));
  hash = sli_hash_word(hash, (uint64_t)info.st_mtim.tv_sec);
  hash = sli_hash_word(hash, (uint64_t)info.st_mtim.tv_nsec);
  char *path = sli_format("%s/tokens/%016" PRIx64 "-%zu.u32", folder, hash, f->size);
  free(folder);
  sli_file_make_folders(path);
  return path;
}

static bool map_kept(const char *path, const void **map, size_t *bytes) {
  int fd;
  if (sli_file_open(path, &fd, bytes)) return false;
  bool good = *bytes && *bytes % 4 == 0;
  void *at = good ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  futimens(fd, NULL); /* marks its use; if that fails, the file is recreated one day */
  close(fd);
  *map = at;
  return at != MAP_FAILED;
}

static bool is_stale(int folder, const char *name, time_t now) {
  const char *suffix = strrchr(name, '.');
  struct stat info;
  return suffix && !strcmp(suffix, ".u32") && !fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) &&
         S_ISREG(info.st_mode) && now - info.st_mtime > KEPT_SECONDS;
}

/* Removes old cache files beside `path`. A process that has mapped one can continue to use it. */
static void remove_stale(const char *path) {
  char *place = sli_strdup(path);
  *strrchr(place, '/') = 0;
  DIR *folder = opendir(place);
  time_t now = time(NULL);
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    if (is_stale(dirfd(folder), entry->d_name, now)) unlinkat(dirfd(folder), entry->d_name, 0);
  if (folder) closedir(folder);
  free(place);
}

/* Writes the cache file. A folder that cannot be written is not an error. */
static bool keep(const char *path, const sli_token_row *row) {
  sli_atomic_file file;
  remove_stale(path);
  if (sli_atomic_open(path, &file)) return false;
  if (sli_atomic_write(&file, row->items, row->count * sizeof *row->items)) {
    sli_atomic_abandon(&file);
    return false;
  }
  return !sli_atomic_commit(&file);
}

/* ---- encoding --------------------------------------------------------------------------- */

static sl_status make_row(sli_token_text *t, const sli_token_file *f, sli_token_row *row) {
  if (sli_token_file_is_chats(f))
    return sli_chats_encode(t->chats, f->path, (const char *)f->bytes, f->size, row);
  sl_status status = t->tokenizer ? SL_OK : sli_tokenizer_open(t->options.tokenizer, &t->tokenizer);
  if (status) return status;
  status = sli_tokenizer_encode(t->tokenizer, (const char *)f->bytes, f->size, true, row);
  if (!status && !row->count) return sl_fail(SL_E_INPUT, "%s has no tokens", f->path);
  return status ? sl_fail(status, "%s: %s", f->path, sl_detail()) : SL_OK;
}

static sl_status map_row(const sli_token_file *f, const sli_token_row *row, const void **map,
                         size_t *bytes) {
  *bytes = row->count * sizeof *row->items;
  void *at = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return sl_fail(SL_E_MEMORY, "no memory for the %zu tokens of %s", row->count, f->path);
  memcpy(at, row->items, *bytes);
  *map = at;
  return SL_OK;
}

sl_status sli_token_text_encode(sli_token_text *t, sli_token_file *f) {
  bool chats = sli_token_file_is_chats(f) && !t->chats;
  sl_status status = chats ? sli_chats_open(&t->options, &t->chats) : SL_OK;
  char *path = status ? NULL : kept_path(t, f);
  const void *map = NULL;
  size_t bytes;
  if (!status && (!path || !map_kept(path, &map, &bytes))) {
    sli_token_row row = {0};
    status = make_row(t, f, &row);
    bool kept = !status && path && keep(path, &row) && map_kept(path, &map, &bytes);
    if (!status && !kept) status = map_row(f, &row, &map, &bytes);
    free(row.items);
  }
  free(path);
  if (!status) return sli_token_file_take(f, map, bytes, t->options.vocab);
  sli_token_file_close(f);
  return status;
}
