/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays one after another in memory that is counted first and allocated later. */
#ifndef SLUICE_OPS_PLACE_H
#define SLUICE_OPS_PLACE_H

#include <stddef.h>
#include <stdint.h>

/* Places an array at *at, in whole cache lines; if the memory is NULL, only counts its bytes. */
static inline void *sli_place(char *memory, size_t *at, int64_t count, size_t each) {
  size_t begin = *at;
  *at += ((size_t)count * each + 63) / 64 * 64;
  return memory ? memory + begin : NULL;
}

#endif
