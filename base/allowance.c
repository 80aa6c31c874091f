/* SPDX-License-Identifier: Apache-2.0 */
#include "base/allowance.h"
#include "base/memory.h"

enum { BLOCK = 64 << 10, HEAD = 64 }; /* block and header sizes of sli_arena */

/* Takes memory for the arena's next block. */
static bool take_block(sli_bounded *b, size_t bytes) {
  size_t block = SLI_MAX(bytes, (size_t)BLOCK);
  if (!sli_memory_has(block + HEAD) || !sli_take(b->allowance, block + HEAD)) return false;
  b->taken += block + HEAD;
  b->left = block;
  return true;
}

void *sli_bounded_alloc(sli_bounded *b, size_t bytes) {
  if (bytes > SIZE_MAX / 4) return NULL;
  bytes = (bytes + 15) & ~(size_t)15;
  if (b->left < bytes && !take_block(b, bytes)) return NULL;
  b->left -= bytes;
  return sli_arena_alloc(&b->arena, bytes);
}

void sli_bounded_fini(sli_bounded *b) {
  sli_arena_fini(&b->arena);
  sli_give(b->allowance, b->taken);
  b->taken = b->left = 0;
}
