/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokens/tokens.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "io/file.h"
#include "text/tokens/packing.h"
#include "text/tokens/shuffle.h"
#include "text/tokens/token_file.h"
#include "text/tokens/token_text.h"

struct sli_tokens {
  sli_tokens_options options;
  int64_t sequences;
  size_t count, capacity, begin_capacity;
  sli_token_file *files;
  sli_token_text *text; /* encoder of text, while files are opened */
  int64_t *begins;      /* [count] index of the file's first token */
  int64_t total;        /* total tokens */
  sli_packing *packing; /* NULL if there are no chats */
};

/* ---- opening -------------------------------------------------------------------- */

/* Checks that chats can be read. */
static sl_status check_chats(const sli_tokens *t, const sli_token_file *file) {
  if (!sli_token_file_is_chats(file)) return SL_OK;
  if (!t->options.chats)
    return sl_fail(SL_E_USAGE,
                   "%s has chats, and the model reads texts only (sl_tokens; sl_texts reads both)",
                   file->path);
  if (t->options.tokenizer) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s: chats need the model's tokenizer: --tokenizer FILE names one",
                 file->path);
}

static sl_status add_file(sli_tokens *t, const char *path, const sli_token_type *said) {
  sli_token_file file;
  sl_status status = sli_token_file_open(path, said, t->options.vocab, &file);
  if (status) return status;
  status = check_chats(t, &file);
  if (status) {
    sli_token_file_close(&file);
    return status;
  }
  if (t->options.tokenizer && (sli_token_file_is_text(&file) || sli_token_file_is_chats(&file)))
    status = sli_token_text_encode(t->text, &file);
  if (status) return status;
  SLI_GROW(t->begins, t->count, t->begin_capacity);
  t->begins[t->count] = t->total;
  t->total += file.count;
  SLI_GROW(t->files, t->count, t->capacity);
  t->files[t->count++] = file;
  return SL_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

static int is_visible_file(const struct dirent *entry) {
  return entry->d_name[0] != '.' && sli_token_name_known(entry->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible_chats(const struct dirent *entry) {
  return entry->d_name[0] != '.' && ends_with(entry->d_name, ".jsonl");
}

/* Adds the token files of a folder, or if it has none, its files of chats. */
static sl_status add_folder(sli_tokens *t, const char *path, const sli_token_type *said) {
  struct dirent **entries = NULL;
  int n = scandir(path, &entries, is_visible_file, by_name);
  if (!n) {
    free(entries);
    n = scandir(path, &entries, is_visible_chats, by_name);
  }
  if (n < 0) return sl_fail(SL_E_INPUT, "%s: %s", path, strerror(errno));
  sl_status status = SL_OK;
  if (!n)
    status = sl_fail(SL_E_INPUT,
                     "%s is a directory without token files (.txt, .bin, .npy, .u16, "
                     ".u32, ...) and without chats (.jsonl)",
                     path);
  for (int i = 0; i < n; i++) {
    char *full = sli_format("%s/%s", path, entries[i]->d_name);
    if (!status) status = add_file(t, full, said);
    free(full);
    free(entries[i]);
  }
  free(entries);
  return status;
}

static sl_status tokens_add(sli_tokens *t, const char *text) {
  char *path;
  const sli_token_type *said;
  sl_status status = sli_token_name_read(text, &path, &said);
  if (status) return status;
  struct stat info;
  bool folder = !stat(path, &info) && S_ISDIR(info.st_mode);
  status = folder ? add_folder(t, path, said) : add_file(t, path, said);
  free(path);
  return status;
}

bool sli_tokens_may_be_chats(const char *paths) {
  char *all = sli_strdup(paths), *rest = all, *path;
  bool may = false;
  while ((path = strsep(&rest, "\n"))) {
    struct stat info;
    may |= ends_with(path, ".jsonl") || ends_with(path, ":chats") ||
           (!stat(path, &info) && S_ISDIR(info.st_mode));
  }
  free(all);
  return may;
}

static sl_status add_all(sli_tokens *t) {
  char *paths = sli_strdup(t->options.paths), *rest = paths, *line;
  sl_status status = SL_OK;
  while (!status && (line = strsep(&rest, "\n"))) status = tokens_add(t, line);
  free(paths);
  return status;
}

/* Packs chats, which cannot be combined with other files. */
static sl_status pack(sli_tokens *t) {
  size_t chats = 0;
  for (size_t i = 0; i < t->count; i++) chats += sli_token_file_is_chats(&t->files[i]);
  if (!chats) return SL_OK;
  for (size_t i = 0; i < t->count; i++)
    if (!sli_token_file_is_chats(&t->files[i]))
      return sl_fail(SL_E_INPUT,
                     "%s has no chats, as other files have: either all or none are of chats",
                     t->files[i].path);
  t->packing = sli_packing_create(&t->options);
  sl_status status = SL_OK;
  for (size_t i = 0; i < t->count && !status; i++)
    status = sli_packing_add(t->packing, &t->files[i]);
  t->sequences = sli_packing_rows(t->packing);
  return status;
}

static sl_status check_length(const sli_tokens *t) {
  if (t->packing && !t->sequences)
    return sl_fail(SL_E_INPUT, "%s: no chat is left to learn: all are longer than %lld tokens",
                   t->files[0].path, (long long)t->options.context);
  if (t->sequences > 0) return SL_OK;
  long long context = t->options.context;
  return sl_fail(SL_E_INPUT,
                 "%s%s has %lld tokens: one sequence of %lld, and the target after it, needs %lld",
                 t->files[0].path, t->count > 1 ? " with all that follows" : "",
                 (long long)t->total, context, context + 1);
}

sl_status sli_tokens_open(const sli_tokens_options *options, sli_tokens **out) {
  SLI_CHECK(options->context > 0 && options->vocab > 0,
            "token files %s opened for context %lld, vocabulary %lld", options->paths,
            (long long)options->context, (long long)options->vocab);
  sli_tokens *t = sli_calloc(1, sizeof *t);
  t->options = *options;
  const sli_chats_options chats = {options->tokenizer, options->chat_template,
                                   options->learn && !strcmp(options->learn, "all"),
                                   options->vocab};
  if (options->tokenizer) t->text = sli_token_text_create(&chats);
  sl_status status = add_all(t);
  sli_token_text_destroy(t->text);
  t->text = NULL;
  t->sequences = (t->total - 1) / options->context;
  if (!status) status = pack(t);
  t->options.paths = t->options.tokenizer = NULL; /* owned by the caller */
  t->options.chat_template = t->options.learn = t->options.long_chats = NULL;
  if (!status) status = check_length(t);
  if (status) sli_tokens_close(t);
  else *out = t;
  return status;
}

void sli_tokens_close(sli_tokens *t) {
  if (!t) return;
  for (size_t i = 0; i < t->count; i++) sli_token_file_close(&t->files[i]);
  sli_packing_destroy(t->packing);
  free(t->files);
  free(t->begins);
  free(t);
}

/* ---- reading -------------------------------------------------------------------- */

int64_t sli_tokens_sequences(const sli_tokens *t) { return t->sequences; }

/* Returns the file that holds a token. */
static size_t file_of(const sli_tokens *t, int64_t at) {
  size_t low = 0, high = t->count;
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    if (t->begins[middle] <= at) low = middle;
    else high = middle;
  }
  return low;
}

static void copy(const sli_tokens *t, int64_t at, int64_t count, int32_t *out) {
  for (size_t f = file_of(t, at); count > 0; f++) {
    int64_t first = at - t->begins[f], n = SLI_MIN(count, t->files[f].count - first);
    sli_token_file_copy(&t->files[f], first, n, out);
    at += n;
    out += n;
    count -= n;
  }
}

int64_t sli_tokens_sequence(const sli_tokens *t, int64_t i) {
  int64_t n = t->sequences, within = i % n;
  return t->options.shuffle ? sli_shuffle(t->options.shuffle, i / n, within, n) : within;
}

void sli_tokens_read(const sli_tokens *t, int64_t i, int64_t first, int64_t count,
                     const sli_tokens_out *out) {
  int64_t sequence = sli_tokens_sequence(t, i);
  if (t->packing) return sli_packing_read(t->packing, sequence, first, count, out);
  int64_t at = sequence * t->options.context + first;
  if (out->tokens) copy(t, at, count, out->tokens);
  if (out->targets) copy(t, at + 1, count, out->targets);
}

int64_t sli_tokens_learned(const sli_tokens *t, int64_t i, int64_t count) {
  int64_t learned = 0;
  for (int64_t n = 0; n < count; n++)
    learned += sli_packing_learned(t->packing, sli_tokens_sequence(t, i + n));
  return learned;
}

bool sli_tokens_are_chats(const sli_tokens *t, sli_tokens_chats *numbers) {
  if (t->packing && numbers) *numbers = sli_packing_numbers(t->packing);
  return t->packing;
}

const uint32_t *sli_tokens_chat(const sli_tokens *t, int64_t i, int64_t *count) {
  for (size_t f = 0; f < t->count && t->packing; f++) {
    const uint32_t *at = (const uint32_t *)t->files[f].bytes, *end = at + t->files[f].count;
    for (; at < end; at += 1 + *at) {
      if (i--) continue;
      *count = *at;
      return at + 1;
    }
  }
  return NULL;
}

/* ---- files ---------------------------------------------------------------------- */

int sli_tokens_files(const sli_tokens *t) { return (int)t->count; }

const char *sli_tokens_path(const sli_tokens *t, int file) { return t->files[file].path; }

void sli_tokens_fingerprint(const sli_tokens *t, int file, uint64_t *bytes, uint64_t *hash) {
  const sli_token_file *f = &t->files[file];
  *bytes = f->size;
  *hash = f->hash;
}

sl_status sli_tokens_check(const sli_tokens *t) {
  sl_status status = SL_OK;
  for (size_t i = 0; i < t->count && !status; i++) status = sli_token_file_check(&t->files[i]);
  return status;
}
