/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

noreturn void sli_broken(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "sluice: broken invariant at %s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

void sli_log(const char *format, ...) {
  char text[2048], line[sizeof text];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "sluice: %s\n", sli_escape(line, sizeof line, text));
}

const char *sli_address_limit(char out[SLI_LIMIT_TEXT]) {
  struct rlimit limit;
  char text[32];
  out[0] = 0;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return out;
  snprintf(out, SLI_LIMIT_TEXT, "; the address space of this process is limited to %s (ulimit -v)",
           sli_format_bytes(text, (double)limit.rlim_cur));
  return out;
}

static void *check_memory(void *memory, size_t count, size_t size) {
  if (!memory && count && size) {
    char limit[SLI_LIMIT_TEXT];
    fprintf(stderr, "sluice: out of memory allocating %zu x %zu bytes%s\n", count, size,
            sli_address_limit(limit));
    exit(1);
  }
  return memory;
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

void *sli_calloc(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size ? size : 1);
  return use_large_pages(check_memory(memory, count, size), count * size);
}

void *sli_realloc(void *old, size_t count, size_t size) {
  return check_memory(reallocarray(old, count ? count : 1, size), count, size);
}

char *sli_strdup(const char *text) { return strcpy(sli_calloc(strlen(text) + 1, 1), text); }

static char *format_list(sli_arena *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  size_t bytes = (size_t)vsnprintf(NULL, 0, format, args) + 1;
  char *text = arena ? sli_arena_alloc(arena, bytes) : sli_calloc(bytes, 1);
  vsnprintf(text, bytes, format, again);
  va_end(again);
  return text;
}

char *sli_format(const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = format_list(NULL, format, args);
  va_end(args);
  return text;
}

char *sli_arena_format(sli_arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = format_list(arena, format, args);
  va_end(args);
  return text;
}

uint64_t sli_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct sli_arena_block {
  struct sli_arena_block *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

void *sli_arena_alloc(sli_arena *arena, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  struct sli_arena_block *block = arena->blocks;
  if (!block || block->size - block->used < bytes) {
    size_t size = SLI_MAX(bytes, (size_t)64 << 10);
    block = sli_calloc(1, sizeof *block + size);
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
  }
  void *out = block->bytes + block->used;
  block->used += bytes;
  return out;
}

char *sli_arena_strdup(sli_arena *arena, const char *text) {
  return strcpy(sli_arena_alloc(arena, strlen(text) + 1), text);
}

void sli_arena_fini(sli_arena *arena) {
  for (struct sli_arena_block *block = arena->blocks, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  arena->blocks = NULL;
}

uint64_t sli_hash(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *b = bytes;
  for (size_t i = 0; i < count; i++) hash = (hash ^ b[i]) * UINT64_C(1099511628211);
  return hash;
}

char *sli_format_bytes(char *out, double bytes) {
  static const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < SLI_COUNT(units)) bytes /= 1024, unit++;
  snprintf(out, 32, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return out;
}

typedef struct scale {
  double least;
  const char *prefix;
} scale;

/* Formats four digits with the prefix of the largest scale that the value reaches after
 * rounding. */
static char *format_scaled(char *out, double value, const scale *scales, const char *unit) {
  while (scales[1].prefix && value < scales->least * 0.99995) scales++;
  snprintf(out, 32, "%.4g %s%s", value / scales->least, scales->prefix, unit);
  return out;
}

char *sli_format_seconds(char *out, double seconds) {
  static const scale scales[] = {{1, ""}, {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}, {0, NULL}};
  return format_scaled(out, seconds, scales, "s");
}

char *sli_format_rate(char *out, double rate, const char *unit) {
  static const scale scales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"},
                                 {1e3, "k"},  {1, ""},    {0, NULL}};
  return format_scaled(out, rate, scales, unit);
}
