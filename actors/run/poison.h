/* SPDX-License-Identifier: Apache-2.0 */
/* Poison: contents of memory without valid data, to find faults. */
#ifndef SLUICE_ACTORS_RUN_POISON_H
#define SLUICE_ACTORS_RUN_POISON_H

#include "actors/run/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

/* Signalling NaN as bf16 and as f32; as an id larger than any valid one. */
enum { SLI_POISON = 0x7fa1 };

static inline void poison(void *memory, size_t bytes) {
  uint16_t *words = memory;
  for (size_t i = 0; i < bytes / sizeof *words; i++) words[i] = SLI_POISON;
}

/* Poisons a free slot and forbids reading it. */
static inline void close_slot(const reg *r, int32_t slot) {
  if (r->contents.poison) poison(slot_address(r, slot), r->contents.poison);
  if (r->contents.closed) ASAN_POISON_MEMORY_REGION(slot_address(r, slot), r->stride);
}

#endif
