/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

char *sli_format_list(sli_arena *arena, const char *format, va_list args) {
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
  char *text = sli_format_list(NULL, format, args);
  va_end(args);
  return text;
}

char *sli_arena_format(sli_arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(arena, format, args);
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
