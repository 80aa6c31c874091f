/* SPDX-License-Identifier: Apache-2.0 */
/* A mapped file of tokens, with their type and offset. */
#ifndef SLUICE_TEXT_TOKENS_TOKEN_FILE_H
#define SLUICE_TEXT_TOKENS_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <sluice/status.h>

typedef struct sli_token_type {
  const char *name; /* "u16" */
  int width;        /* bytes */
  bool is_signed;
} sli_token_type;

typedef struct sli_token_file {
  char *path;
  const uint8_t *bytes; /* the mapped file */
  size_t size;
  size_t offset; /* offset of the tokens */
  const sli_token_type *type;
  int64_t count;
  bool apart; /* the mapping no longer belongs to this file (sli_token_file_take) */
  struct timespec modified;
  uint64_t device, inode, hash; /* hash: sli_hash_samples of the mapped bytes */
} sli_token_file;

/* Splits FILE or FILE:TYPE; *type is NULL if none is given. An existing file with the whole name
 * takes precedence. The caller frees the path. SL_E_INPUT names an unknown type. */
sl_status sli_token_name_read(const char *text, char **path, const sli_token_type **type);
/* Returns whether the path has a suffix of token files. */
bool sli_token_name_known(const char *path);

/* Maps a file. `said` is the type given by the user; NULL: the suffix or the content decides. Every
 * token must be less than `vocab`. SL_E_INPUT, or SL_E_IO if reading fails, names the file and the
 * position in it; nothing is left to close. */
sl_status sli_token_file_open(const char *path, const sli_token_type *said, int64_t vocab,
                              sli_token_file *out);
void sli_token_file_close(sli_token_file *file);

/* Checks that the mapped file has not changed since it was opened. SL_E_INPUT names a file that was
 * written to. A file that was replaced by another stays valid. */
sl_status sli_token_file_check(const sli_token_file *file);

/* Returns whether the file is text that a tokenizer may encode. The type u8 means plain bytes
 * instead. */
bool sli_token_file_is_text(const sli_token_file *file);
/* Returns whether it contains chats, one JSON line each. Once encoded it holds the words of
 * sli_chats_encode(). */
bool sli_token_file_is_chats(const sli_token_file *file);
/* Replaces the mapping by one of uint32 words, and takes ownership of it. SL_E_INPUT names the
 * file; nothing is left to close then. */
sl_status sli_token_file_take(sli_token_file *file, const void *map, size_t bytes, int64_t vocab);

/* Copies `count` tokens, starting at index `first`. Any thread. */
void sli_token_file_copy(const sli_token_file *file, int64_t first, int64_t count, int32_t *out);

#endif
