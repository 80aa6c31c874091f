/* One file of tokens, mapped: what type its tokens have, and where they lie in it. */
#ifndef SLUICE_IO_TOKEN_FILE_H
#define SLUICE_IO_TOKEN_FILE_H

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
  size_t offset;        /* where the tokens begin */
  const sli_token_type *type;
  int64_t count;
  bool apart;           /* what is mapped is not the file any more (sli_token_file_take) */
  struct timespec modified;
  uint64_t device, inode, hash; /* sli_hash_samples of what is mapped */
} sli_token_file;

/* FILE or FILE:TYPE in two; *type is NULL where none is said, and a file whose whole name looks so
 * is that file. The path is the caller's to free(). SL_E_INPUT names a type that there is not. */
sl_status sli_token_name_read(const char *text, char **path, const sli_token_type **type);
/* Does this path end as token files do? */
bool sli_token_name_known(const char *path);

/* Maps a file. `said` is the type the user says, or NULL: then its suffix, or what is in it, must
 * say. Every token must be less than `vocab`. SL_E_INPUT, or SL_E_IO where reading fails, with the
 * file and the position in the text; nothing is left to close. */
sl_status sli_token_file_open(const char *path, const sli_token_type *said, int64_t vocab,
                              sli_token_file *out);
void sli_token_file_close(sli_token_file *file);

/* Is what is mapped still what it was when it was opened? SL_E_INPUT names a file that was written to since. One that
 * another file has taken the place of stays as it was. */
sl_status sli_token_file_check(const sli_token_file *file);

/* Is it a text, whose tokens could be others than its bytes? A user who says u8 means bytes. */
bool sli_token_file_is_text(const sli_token_file *file);
/* Takes over a mapping of uint32 tokens in place of what was mapped. SL_E_INPUT names the file;
 * nothing is left to close then. */
sl_status sli_token_file_take(sli_token_file *file, const void *map, size_t bytes, int64_t vocab);

/* Copies `count` tokens, beginning with number `first`. Any thread. */
void sli_token_file_copy(const sli_token_file *file, int64_t first, int64_t count, int32_t *out);

#endif
