/* SPDX-License-Identifier: Apache-2.0 */
/* Utilities shared by every folder: checked allocation, logging, invariants, hashes, time.
 * Internal; nothing here is installed. */
#ifndef SLUICE_BASE_BASE_H
#define SLUICE_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

#include <sluice/status.h>

#define SLI_COUNT(a) (sizeof(a) / sizeof *(a))
#define SLI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SLI_MAX(a, b) ((a) > (b) ? (a) : (b))
#define SLI_CACHE_LINE 64
/* Distance between data that different threads write: adjacent cache lines are fetched in pairs. */
#define SLI_LINE_PAIR 128

/* Reports a broken invariant with its file and line, then aborts. Always compiled in. */
noreturn void sli_broken(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define SLI_CHECK(condition, ...)                                                       \
  do {                                                                                  \
    if (__builtin_expect(!(condition), 0)) sli_broken(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

/* Writes one line to stderr, "sluice: ...". */
void sli_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Allocates zeroed memory. What the system refuses comes from a reserve (base/memory.h). For sizes
 * that no user sets; tensors go through devices, which return SL_E_MEMORY. */
void *sli_calloc(size_t count, size_t size);
void *sli_realloc(void *old, size_t count, size_t size);
char *sli_strdup(const char *text);
char *sli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Grows a heap array so that index `count` may be written: doubles the capacity, keeps the old
 * elements, zeroes the new ones. */
#define SLI_GROW(array, count, capacity)                                    \
  do {                                                                      \
    if ((count) >= (capacity)) {                                            \
      size_t old_ = (capacity), new_ = old_ ? 2 * old_ : 16;                \
      (array) = sli_realloc((array), new_, sizeof *(array));                \
      __builtin_memset((array) + old_, 0, (new_ - old_) * sizeof *(array)); \
      (capacity) = new_;                                                    \
    }                                                                       \
  } while (0)

/* Tests bit i of a mask; bits from 32 on count as clear. */
static inline bool sli_bit(uint32_t mask, int i) { return i < 32 && mask >> i & 1; }

/* Greatest common divisor of two numbers that are not negative and not both 0. */
static inline int64_t sli_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Returns monotonic time in nanoseconds since an arbitrary start. */
uint64_t sli_now_ns(void);

/* Bump allocator for objects that are freed together. A zeroed sli_arena is empty and ready.
 * Memory is zeroed and 16-byte aligned. Not thread-safe. */
typedef struct sli_arena {
  struct sli_arena_block *blocks;
} sli_arena;
void *sli_arena_alloc(sli_arena *arena, size_t bytes);
char *sli_arena_strdup(sli_arena *arena, const char *text);
char *sli_arena_format(sli_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Formats into the arena, or into memory that the caller frees if it is NULL. */
char *sli_format_list(sli_arena *arena, const char *format, va_list args);
void sli_arena_fini(sli_arena *arena);

/* 64-bit FNV-1a over bytes, continued from `hash` (start with SLI_HASH_SEED). */
#define SLI_HASH_SEED UINT64_C(14695981039346656037)
uint64_t sli_hash(uint64_t hash, const void *bytes, size_t count);

/* Hashes one 64-bit word. For a fixed hash the result is a bijection of the word, and for a
 * fixed word a bijection of the hash. */
static inline uint64_t sli_hash_word(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 32;
}

/* Hashes all bits of a double. */
static inline uint64_t sli_hash_real(uint64_t hash, double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return sli_hash_word(hash, bits);
}

/* Escapes text for a terminal: control characters other than tab and newline, and bytes that are
 * not UTF-8, become \xNN. Writes as much as fits; returns `out`. */
char *sli_escape(char *out, size_t size, const char *text);

/* Returns the edit distance, counting letters inserted, dropped, changed, or swapped with the next
 * one; SIZE_MAX for a `b` of 64 letters or more. */
size_t sli_word_distance(const char *a, const char *b);
/* Returns the word of a NULL-terminated list that is nearest to the mistyped `text`, or NULL if
 * none is near. */
const char *sli_nearest(const char *const *words, const char *text);
/* Formats "; did you mean WORD?" for an error message, or "" if no word is near; returns `out`. */
enum { SLI_MEANT_TEXT = 96 };
char *sli_meant(char out[SLI_MEANT_TEXT], const char *const *words, const char *text);

/* Formats "1.5 GiB", "384 KiB", "12 B"; returns `out` (at least 32 bytes). */
char *sli_format_bytes(char *out, double bytes);
/* Formats "12.3 ms", "1.5 s" with four digits; and "5.1 Gflop/s" for 5.1e9 and "flop/s". Returns
 * `out` (at least 32 bytes). */
char *sli_format_seconds(char *out, double seconds);
char *sli_format_rate(char *out, double rate, const char *unit);

/* Writes "; this process is limited to 390 MiB of addresses (ulimit -v)", for messages about
 * memory that cannot be allocated, or "" if there is no such limit. */
enum { SLI_LIMIT_TEXT = 96 };
const char *sli_address_limit(char out[SLI_LIMIT_TEXT]);
/* Checks that `bytes` more of address space can be mapped, if it is limited; the SL_E_MEMORY error
 * names the limit. For libraries that allocate later and cannot report a failure. */
enum { SLI_LIBRARY_BYTES = 64 << 20 };
/* Returns the memory of this machine, or its cgroup's limit if that is smaller. */
size_t sli_memory_bytes(void);
sl_status sli_address_room(size_t bytes, const char *what);

#define SLI_TRY(expression)           \
  do {                                \
    sl_status status_ = (expression); \
    if (status_) return status_;      \
  } while (0)

#endif
