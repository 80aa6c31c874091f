/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/stored_planes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/planes.h"

sli_stored_planes sli_stored_planes_find(const sli_shards *from, const char *name) {
  sli_stored_planes found = {0};
  for (int base = SLI_PLANES_LEAST; base <= SLI_PLANES_MOST && !found.tensor; base++) {
    char *stored = sli_format("%s.planes%d", name, base);
    found.base = base;
    found.tensor = sli_shards_find(from, stored, &found.file);
    free(stored);
  }
  if (found.tensor && found.tensor->ndim == 3) found.width = (int)found.tensor->dim[0];
  return found;
}

sl_status sli_stored_planes_check(const sli_shards *from, const sli_stored_planes *planes,
                                  const sl_type *matrix) {
  const sli_stored_tensor *t = planes->tensor;
  char got[256];
  bool fits = !strcmp(t->dtype, "U32") && t->ndim == 3 && t->dim[0] >= planes->base &&
              t->dim[0] <= SLI_PLANES_MOST && t->dim[1] == sl_type_rows(matrix) &&
              t->dim[2] == sli_plane_row(sl_type_last(matrix));
  if (fits) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s: tensor %s is %s, but planes of a matrix of %lld by %lld must be U32[%d to "
                 "%d, %lld, %lld]",
                 sli_shards_path(from, planes->file), t->name, sli_stored_format(got, t),
                 (long long)sl_type_rows(matrix), (long long)sl_type_last(matrix), planes->base,
                 SLI_PLANES_MOST, (long long)sl_type_rows(matrix),
                 (long long)sli_plane_row(sl_type_last(matrix)));
}

/* Refuses scales and offsets that no weights have. */
static sl_status check_numbers(const sli_shards *from, const sli_stored_planes *planes,
                               const sl_type *matrix, const uint32_t *words) {
  int64_t k = sl_type_last(matrix), row = sli_plane_row(k), rows = sl_type_rows(matrix);
  for (int64_t r = 0; r < planes->width * rows; r++)
    for (int64_t i = sli_plane_words(k); i < row; i++) {
      float number;
      memcpy(&number, words + r * row + i, sizeof number);
      if (isfinite(number)) continue;
      return sl_fail(SL_E_INPUT, "%s: tensor %s: number %lld of row %lld of plane %lld is %g",
                     sli_shards_path(from, planes->file), planes->tensor->name,
                     (long long)(i - sli_plane_words(k)), (long long)(r % rows),
                     (long long)(r / rows), (double)number);
    }
  return SL_OK;
}

/* Returns all planes of the file; the caller frees them. */
static sl_status read_all(const sli_shards *from, const sli_stored_planes *planes,
                          const sl_type *matrix, uint32_t **out) {
  SLI_TRY(sli_stored_planes_check(from, planes, matrix));
  SLI_TRY(SLI_ALLOCATE(*out, planes->tensor->bytes / sizeof **out, planes->tensor->name));
  sl_status status = sli_shards_blocks(from, planes->file, planes->tensor, *out);
  return status ? status : check_numbers(from, planes, matrix, *out);
}

sl_status sli_stored_planes_read(const sli_shards *from, const sli_stored_planes *planes,
                                 const sl_type *matrix, int base, int width, void *out) {
  uint32_t *all = NULL;
  if (planes->base != base)
    return sl_fail(SL_E_INPUT, "%s: tensor %s has a base of %d bits, not of %d: planes:%d..%d",
                   sli_shards_path(from, planes->file), planes->tensor->name, planes->base, base,
                   planes->base, SLI_MAX(planes->width, planes->base));
  if (planes->width < width)
    return sl_fail(SL_E_INPUT, "%s: tensor %s has %d planes, not %d: planes:%d..%d",
                   sli_shards_path(from, planes->file), planes->tensor->name, planes->width, width,
                   planes->base, SLI_MAX(planes->width, planes->base));
  sl_status status = read_all(from, planes, matrix, &all);
  if (!status) memcpy(out, all, (size_t)width * sli_plane_bytes(matrix));
  free(all);
  return status;
}

sl_status sli_stored_planes_values(const sli_shards *from, const sli_stored_planes *planes,
                                   const sl_type *matrix, float *out) {
  uint32_t *all = NULL;
  sl_status status = read_all(from, planes, matrix, &all);
  const void *each[SLI_PLANES_MOST];
  for (int p = 0; p < planes->width && !status; p++)
    each[p] = (const char *)all + (size_t)p * sli_plane_bytes(matrix);
  if (!status)
    sli_planes_unpack(each, planes->base, planes->width, sl_type_last(matrix), 0,
                      sl_type_rows(matrix), out);
  free(all);
  return status;
}
