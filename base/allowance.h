/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the memory that a program allocates for untrusted input. */
#ifndef SLUICE_BASE_ALLOWANCE_H
#define SLUICE_BASE_ALLOWANCE_H

#include "base/base.h"

/* A bound. take() is called before memory is allocated and may refuse; give() is called after it is
 * freed. A NULL allowance means no bound. */
typedef struct sli_allowance {
  bool (*take)(void *ctx, size_t bytes);
  void (*give)(void *ctx, size_t bytes);
  void *ctx;
} sli_allowance;

static inline bool sli_take(const sli_allowance *a, size_t bytes) {
  return !a || a->take(a->ctx, bytes);
}
static inline void sli_give(const sli_allowance *a, size_t bytes) {
  if (a) a->give(a->ctx, bytes);
}

/* An arena within an allowance. Zeroed and with its allowance set, it is empty and ready for
 * use. */
typedef struct sli_bounded {
  sli_arena arena;
  const sli_allowance *allowance;
  size_t taken, left; /* taken from the allowance; left of the newest block */
} sli_bounded;
/* Allocates zeroed memory. Returns NULL if the allowance or the system has none left. */
void *sli_bounded_alloc(sli_bounded *b, size_t bytes);
void sli_bounded_fini(sli_bounded *b);

#endif
