/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

const char *sli_address_limit(char out[SLI_LIMIT_TEXT]) {
  struct rlimit limit;
  char text[32];
  out[0] = 0;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return out;
  snprintf(out, SLI_LIMIT_TEXT, "; the address space of this process is limited to %s (ulimit -v)",
           sli_format_bytes(text, (double)limit.rlim_cur));
  return out;
}

/* ---- reserve ------------------------------------------------------------------------------- */

enum { RESERVE_BLOCKS = 16, RESERVE_BLOCK = SLI_RESERVE_BYTES / RESERVE_BLOCKS };

/* Blocks that are never written, so that they take addresses and no memory. */
static struct {
  pthread_mutex_t lock;
  void *blocks[RESERVE_BLOCKS];
  size_t block;      /* bytes of a block */
  int count, most;   /* blocks at hand; blocks of a full reserve */
  unsigned shortage; /* times that the reserve was full and then used */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool sli_memory_short;
const sli_allowance *sli_memory_bound;

/* Request of this thread that the system refused, and the shortage in which it did. */
static _Thread_local struct {
  unsigned shortage;
  size_t count, size;
} refused;

/* Fills the reserve. Requires the lock. */
static bool fill(void) {
  while (reserve.count < reserve.most) {
    void *block = sli_take(sli_memory_bound, reserve.block) ? malloc(reserve.block) : NULL;
    if (!block) return false;
    reserve.blocks[reserve.count++] = block;
  }
  return true;
}

__attribute__((constructor)) static void fill_first(void) {
  struct rlimit limit;
  reserve.block = RESERVE_BLOCK;
  reserve.most = RESERVE_BLOCKS;
  if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
    reserve.block = SLI_MIN(reserve.block, (size_t)limit.rlim_cur / 16 / RESERVE_BLOCKS);
  fill();
  reserve.most = reserve.count;
}

/* Frees a block of the reserve for a request that the system refused. False: none is left. Frees it
 * first, because a thread's first access to `refused` may allocate. */
static bool use_reserve(size_t count, size_t size) {
  pthread_mutex_lock(&reserve.lock);
  bool is_left = reserve.count > 0;
  if (is_left) {
    free(reserve.blocks[--reserve.count]);
    sli_give(sli_memory_bound, reserve.block);
    reserve.shortage += !sli_memory_short;
    __atomic_store_n(&sli_memory_short, true, __ATOMIC_RELAXED);
    if (refused.shortage != reserve.shortage) {
      refused.shortage = reserve.shortage;
      refused.count = count;
      refused.size = size;
    }
  }
  pthread_mutex_unlock(&reserve.lock);
  return is_left;
}

sl_status sli_memory_refill(void) {
  pthread_mutex_lock(&reserve.lock);
  bool is_full = fill() || (malloc_trim(0) && fill());
  bool is_own = refused.shortage == reserve.shortage;
  __atomic_store_n(&sli_memory_short, !is_full, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&reserve.lock);
  if (is_full || !is_own) return SL_OK;
  return sli_no_memory(refused.count, refused.size, "the library's own records");
}

sl_status sli_no_memory(size_t count, size_t size, const char *what) {
  char limit[SLI_LIMIT_TEXT], text[32];
  return sl_fail(SL_E_MEMORY, "no memory for %s: %s%s", what,
                 sli_format_bytes(text, (double)count * (double)size), sli_address_limit(limit));
}

/* ---- allocation ---------------------------------------------------------------------------- */

static noreturn void end_without_memory(size_t count, size_t size) {
  char limit[SLI_LIMIT_TEXT];
  fprintf(stderr, "sluice: out of memory allocating %zu x %zu bytes%s\n", count, size,
          sli_address_limit(limit));
  exit(1);
}

enum { LARGE_BYTES = 32 << 20, LARGE_PAGE = 2 << 20 };

/* Requests huge pages for large new memory, to reduce page faults. Marks only whole huge pages, so
 * that no more memory is taken than is used. */
static void *use_large_pages(void *memory, size_t bytes) {
  uintptr_t begin = ((uintptr_t)memory + LARGE_PAGE - 1) & -(uintptr_t)LARGE_PAGE;
  uintptr_t end = ((uintptr_t)memory + bytes) & -(uintptr_t)LARGE_PAGE;
  if (bytes >= LARGE_BYTES) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
  return memory;
}

/* Product of sizes; SIZE_MAX if it is larger. */
static size_t bytes_of(size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count ? count : 1, size ? size : 1, &bytes) ? SIZE_MAX : bytes;
}

void *sli_try_calloc(size_t count, size_t size) {
  size_t bytes = bytes_of(count, size);
  void *memory = sli_take(sli_memory_bound, bytes) ? calloc(1, bytes) : NULL;
  return memory ? use_large_pages(memory, bytes) : NULL;
}

void *sli_try_realloc(void *old, size_t count, size_t size) {
  size_t bytes = bytes_of(count, size);
  return sli_take(sli_memory_bound, bytes) ? realloc(old, bytes) : NULL;
}

bool sli_memory_has(size_t bytes) {
  void *tried = sli_try_realloc(NULL, bytes, 1);
  if (tried) sli_give(sli_memory_bound, bytes);
  free(tried);
  return tried;
}

sl_status sli_memory_for_json(size_t bytes, const char *path) {
  enum { ITEM = 64 }; /* bytes of a value, which may be two characters of text */
  return sli_memory_has(bytes * ITEM / 2) ? SL_OK : sli_no_memory(bytes, ITEM / 2, path);
}

void *sli_calloc(size_t count, size_t size) {
  void *memory;
  while (!(memory = sli_try_calloc(count, size)))
    if (!use_reserve(count, size)) end_without_memory(count, size);
  return memory;
}

void *sli_realloc(void *old, size_t count, size_t size) {
  void *memory;
  while (!(memory = sli_try_realloc(old, count, size)))
    if (!use_reserve(count, size)) end_without_memory(count, size);
  return memory;
}

void *sli_aligned_alloc(size_t alignment, size_t bytes) {
  void *memory;
  while (!(memory = sli_take(sli_memory_bound, bytes) ? aligned_alloc(alignment, bytes) : NULL))
    if (!use_reserve(1, bytes)) end_without_memory(1, bytes);
  return memory;
}

FILE *sli_memory_stream(char **text, size_t *bytes) {
  FILE *stream;
  while (!(stream = open_memstream(text, bytes)))
    if (!use_reserve(1, BUFSIZ)) end_without_memory(1, BUFSIZ);
  return stream;
}

char *sli_strdup(const char *text) { return strcpy(sli_calloc(strlen(text) + 1, 1), text); }
