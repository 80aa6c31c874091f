/* SPDX-License-Identifier: Apache-2.0 */
/* Traces modified by tests. */
#ifndef SLUICE_TESTS_SUPPORT_TRACE_FILE_H
#define SLUICE_TESTS_SUPPORT_TRACE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

enum { TRACE_HEAD_BYTES = 64 };

/* Recomputes the sections' hashes and the head's checksum, so that they do not reveal a
 * modification. */
static inline void trace_rehash(unsigned char *bytes, size_t count) {
  uint32_t sections, section_bytes, none = 0;
  memcpy(&sections, bytes + 16, 4);
  memcpy(&section_bytes, bytes + 20, 4);
  for (uint32_t i = 0; i < sections && 64 + (i + 1) * (size_t)32 <= count && section_bytes == 32;
       i++) {
    uint32_t item_bytes;
    uint64_t items, offset;
    memcpy(&item_bytes, bytes + 64 + i * 32 + 4, 4);
    memcpy(&items, bytes + 64 + i * 32 + 8, 8);
    memcpy(&offset, bytes + 64 + i * 32 + 16, 8);
    if (offset > count || !item_bytes || items > (count - offset) / item_bytes) continue;
    uint64_t hash = sli_hash(SLI_HASH_SEED, bytes + offset, items * item_bytes);
    memcpy(bytes + 64 + i * 32 + 24, &hash, 8);
  }
  uint64_t table = (uint64_t)sections * section_bytes;
  if (table > count - 64) return;
  memcpy(bytes + 44, &none, 4);
  uint32_t sum = (uint32_t)sli_hash(SLI_HASH_SEED, bytes, 64 + table);
  memcpy(bytes + 44, &sum, 4);
}

#endif
