/* SPDX-License-Identifier: Apache-2.0 */
/* Memory layout of buffers with lifetimes: greedy by size, each at the lowest offset that is
 * free during its lifetime. */
#include <stdlib.h>

#include "graph/lower/ir.h"

static int larger_first(const void *a, const void *b) {
  const sli_lifetime *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns the lowest free offset among placed[count], which are sorted by offset. */
static size_t lowest_fit(const sli_lifetime *const *placed, int count, const sli_lifetime *x) {
  size_t offset = 0;
  for (int i = 0; i < count && placed[i]->offset < offset + x->bytes; i++) {
    const sli_lifetime *y = placed[i];
    bool together = x->first <= y->last && y->first <= x->last;
    if (together) offset = SLI_MAX(offset, y->offset + y->bytes);
  }
  return offset;
}

size_t sli_lower_fit(sli_lifetime *all, int count) {
  const sli_lifetime **placed = sli_calloc((size_t)count, sizeof *placed);
  size_t end = 0;
  qsort(all, (size_t)count, sizeof *all, larger_first);
  for (int i = 0, at; i < count; i++) {
    all[i].offset = lowest_fit(placed, i, &all[i]);
    end = SLI_MAX(end, all[i].offset + all[i].bytes);
    for (at = i; at > 0 && placed[at - 1]->offset > all[i].offset; at--)
      placed[at] = placed[at - 1];
    placed[at] = &all[i];
  }
  free(placed);
  return end;
}
