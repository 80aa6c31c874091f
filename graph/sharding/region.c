/* SPDX-License-Identifier: Apache-2.0 */
/* Computes which region of the whole tensor a device's part is, for calls that must know their
 * position. */
#include "graph/sharding/expand.h"

#include <string.h>

/* Adds the ranges that cover positions [begin, begin + count) within `of`. */
static void add_ranges(const sl_part *of, int64_t begin, int64_t count, sl_part *to) {
  for (int r = 0; r < of->nranges && count > 0; begin -= of->count[r++]) {
    if (begin >= of->count[r]) continue;
    int64_t from = SLI_MAX(begin, 0), n = SLI_MIN(of->count[r] - from, count);
    SLI_CHECK(to->nranges < SL_PART_RANGES, "a share has more than %d ranges", SL_PART_RANGES);
    to->begin[to->nranges] = of->begin[r] + from;
    to->count[to->nranges++] = n;
    count -= n;
    begin += n;
  }
}

static sl_part take_part(const sl_part *of, int64_t length, const sl_part *part) {
  sl_part all = {.axis = part->axis, .nranges = 1, .count = {length}}, taken = {.axis = part->axis};
  if (of->nranges) all = *of;
  for (int r = 0; r < part->nranges; r++)
    if (part->count[r]) add_ranges(&all, part->begin[r], part->count[r], &taken);
  return taken;
}

const sl_region *sli_share_region(const sli_expansion *x, const sl_tensor *t, sli_layout lies,
                                  int rank, int variant, const sl_region *piece) {
  sl_type type = sli_logical_type(t, variant);
  sl_region *region = sli_arena_alloc(&x->g->arena, sizeof *region);
  region->ndim = type.ndim;
  memcpy(region->whole, type.dim, sizeof type.dim);
  if (piece) *region = *piece;
  sli_cutting cut[SLI_AXES];
  int count = sli_layout_cuttings(x, t, &lies, cut);
  for (int i = 0; i < count; i++) {
    int d = cut[i].dim, member = sli_rank_share(x->grid, rank, cut[i].along);
    sl_part part = sli_cut_part(x, t, cut[i], member, &type);
    region->parts[d] = take_part(&region->parts[d], type.dim[d], &part);
    type = sl_part_type(&type, &part);
  }
  return region;
}
