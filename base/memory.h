/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the system refuses.
 *
 * The library keeps a reserve of memory. What the system refuses to sli_calloc() and its kin comes
 * from the reserve, and the thread's next sli_memory_check() fails with SL_E_MEMORY, unless the
 * reserve could be filled again. Functions therefore need no path of errors for each allocation:
 * they check where they loop over nodes, passes, files or requests, and release what they hold as
 * after any other error. A request larger than the rest of the reserve ends the program, so sizes
 * that a model, a file or a request sets go through SLI_ALLOCATE(). */
#ifndef SLUICE_BASE_MEMORY_H
#define SLUICE_BASE_MEMORY_H

#include <stdio.h>

#include "base/allowance.h"

/* The reserve; at most a sixteenth of a limit on the address space (ulimit -v). */
enum { SLI_RESERVE_BYTES = 64 << 20 };

/* Bound on what the system provides, for tests; NULL: none. */
extern const sli_allowance *sli_memory_bound;

/* True while the reserve is not full. */
extern bool sli_memory_short;
/* Fills the reserve. If it cannot be filled and this thread has used it: SL_E_MEMORY, with the
 * request that the system refused. */
sl_status sli_memory_refill(void);

/* Fails with SL_E_MEMORY if this thread has run out of memory. Cheap enough for inner loops. */
static inline sl_status sli_memory_check(void) {
  bool is_short = __atomic_load_n(&sli_memory_short, __ATOMIC_RELAXED);
  return __builtin_expect(is_short, 0) ? sli_memory_refill() : SL_OK;
}

/* Allocates `count` zeroed items for the pointer `array`. The SL_E_MEMORY error says how much was
 * wanted for what: "no memory for the tokens of a request: 1.5 GiB". */
#define SLI_ALLOCATE(array, count, what)                \
  (((array) = sli_try_calloc((count), sizeof *(array))) \
       ? SL_OK                                          \
       : sli_no_memory((count), sizeof *(array), what))
/* Allocates zeroed memory, or returns NULL. */
void *sli_try_calloc(size_t count, size_t size);
/* Resizes memory; if it returns NULL, the old memory stays. */
void *sli_try_realloc(void *old, size_t count, size_t size);
/* Allocates aligned memory, from the reserve too. */
void *sli_aligned_alloc(size_t alignment, size_t bytes);
/* Opens a stream into memory, as open_memstream() does, from the reserve too. Never NULL. */
FILE *sli_memory_stream(char **text, size_t *bytes);
/* True if the system would provide so many bytes now. */
bool sli_memory_has(size_t bytes);
/* For JSON of `bytes` that cJSON did not read: SL_E_MEMORY if memory may be the reason. */
sl_status sli_memory_for_json(size_t bytes, const char *path);
/* Fails with SL_E_MEMORY for `count` items of `size` bytes. */
sl_status sli_no_memory(size_t count, size_t size, const char *what);

#endif
