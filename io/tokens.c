#include "io/tokens.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "io/file.h"

struct sli_tokens {
  const uint8_t *bytes; /* the mapped file */
  size_t size;
  int width;            /* bytes per token: 1 or 2 */
  int64_t count, context, sequences;
};

static bool has_suffix(const char *path, const char *suffix) {
  size_t n = strlen(path), m = strlen(suffix);
  return n >= m && !strcmp(path + n - m, suffix);
}

static int32_t token_at(const sli_tokens *t, int64_t i) {
  if (t->width == 1) return t->bytes[i];
  uint16_t token;
  memcpy(&token, t->bytes + 2 * i, sizeof token);
  return le16toh(token);
}

/* ---- opening -------------------------------------------------------------------- */

static sl_status map_file(const char *path, int fd, sli_tokens *t) {
  struct stat info;
  if (fstat(fd, &info)) return sl_fail(SL_E_IO, "%s: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode))
    return sl_fail(SL_E_INPUT, "%s is a directory, not a token file", path);
  if (!S_ISREG(info.st_mode)) return sl_fail(SL_E_INPUT, "%s is not a regular file", path);
  if (!info.st_size) return sl_fail(SL_E_INPUT, "%s is empty", path);
  if (info.st_size % t->width)
    return sl_fail(SL_E_INPUT,
                   "%s has an odd number of bytes (%lld): not uint16 tokens, or cut off", path,
                   (long long)info.st_size);
  t->size = (size_t)info.st_size;
  void *bytes = mmap(NULL, t->size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (bytes == MAP_FAILED)
    return sl_fail(SL_E_IO, "%s: cannot be mapped: %s", path, strerror(errno));
  t->bytes = bytes;
  t->count = info.st_size / t->width;
  return SL_OK;
}

static sl_status open_and_map(const char *path, sli_tokens *t) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return sl_fail(SL_E_INPUT, "%s: %s", path, strerror(errno));
  sl_status status = map_file(path, fd, t);
  close(fd);
  return status;
}

static sl_status check_length(const char *path, const sli_tokens *t) {
  if (t->sequences > 0) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s has %lld tokens: one sequence of %lld, and the target after it, needs %lld",
                 path, (long long)t->count, (long long)t->context, (long long)t->context + 1);
}

/* The largest of a run of tokens; a plain loop, so that it runs at the speed of
 * memory. */
static int32_t largest(const sli_tokens *t, int64_t begin, int64_t end) {
  uint8_t byte = 0;
  uint16_t pair = 0;
  if (t->width == 1) {
    for (int64_t i = begin; i < end; i++) byte = SLI_MAX(byte, t->bytes[i]);
    return byte;
  }
  for (int64_t i = begin; i < end; i++) {
    uint16_t token = (uint16_t)token_at(t, i);
    pair = SLI_MAX(pair, token);
  }
  return pair;
}

static sl_status check_range(const char *path, const sli_tokens *t, int64_t vocab) {
  enum { RUN = 1 << 16 };
  if (vocab >= (int64_t)1 << 8 * t->width) return SL_OK;
  for (int64_t begin = 0; begin < t->count; begin += RUN) {
    int64_t end = SLI_MIN(begin + RUN, t->count);
    if (largest(t, begin, end) < vocab) continue;
    int64_t i = begin;
    while (token_at(t, i) < vocab) i++;
    return sl_fail(SL_E_INPUT, "%s: token %lld is %d, but the vocabulary has %lld tokens", path,
                   (long long)i, token_at(t, i), (long long)vocab);
  }
  return SL_OK;
}

sl_status sli_tokens_open(const char *path, int64_t context, int64_t vocab, sli_tokens **out) {
  SLI_CHECK(context > 0 && vocab > 0, "token file %s opened for context %lld, vocabulary %lld",
            path, (long long)context, (long long)vocab);
  sli_tokens *t = sli_calloc(1, sizeof *t);
  t->width = has_suffix(path, ".u16") || has_suffix(path, ".bin") ? 2 : 1;
  t->context = context;
  sl_status status = open_and_map(path, t);
  t->sequences = (t->count - 1) / context;
  if (!status) status = check_length(path, t);
  if (!status) status = check_range(path, t, vocab);
  if (status) {
    sli_tokens_close(t);
    return status;
  }
  *out = t;
  return SL_OK;
}

void sli_tokens_close(sli_tokens *t) {
  if (!t) return;
  if (t->bytes) munmap((void *)t->bytes, t->size);
  free(t);
}

/* ---- reading -------------------------------------------------------------------- */

int64_t sli_tokens_sequences(const sli_tokens *t) { return t->sequences; }

void sli_tokens_read(const sli_tokens *t, int64_t i, int64_t first, int64_t count, int32_t *out,
                     int32_t *targets) {
  int64_t at = i % t->sequences * t->context + first;
  for (int64_t j = 0; out && j < count; j++) out[j] = token_at(t, at + j);
  for (int64_t j = 0; targets && j < count; j++) targets[j] = token_at(t, at + 1 + j);
}

void sli_tokens_fingerprint(const sli_tokens *t, uint64_t *bytes, uint64_t *hash) {
  *bytes = t->size;
  *hash = sli_hash_samples(t->bytes, t->size);
}
