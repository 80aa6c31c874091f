/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in nested bit planes (D2MoE, arXiv 2504.15299).
 *
 * A matrix [rows, k] has groups of SLI_PLANE_GROUP numbers along its rows. The base has codes of
 * `base` bits; each further plane adds one bit:
 *
 *   s = (max - min) / (2^base - 1), z = round(-min / s), q = clamp(round(w / s + z), 0, 2^base - 1)
 *   W_base = (q - z) s;   W_n = W_(n-1) + s_n sign(W - W_(n-1)), s_n = mean |W - W_(n-1)|
 *
 * sign(0) is +1. If all numbers of a group are equal, s is their size, and the base is exact. The
 * codes' bits are planes too, so a width of n bits is the first n planes, which are equally large.
 * A row of a plane has its bits, from the lowest bit of its first word on, and then a number for
 * each group: s in the base's first plane, z in its second, 0 in its others, and s_n. */
#ifndef SLUICE_OPS_PLANES_H
#define SLUICE_OPS_PLANES_H

#include <stdint.h>

#include <sluice/op.h>

enum { SLI_PLANE_GROUP = 128, SLI_PLANES_LEAST = 2, SLI_PLANES_MOST = 8 };
enum { SLI_BITS_ALL = 1000000 }; /* capacity of all rows, in bit_choice */

static inline int64_t sli_plane_words(int64_t k) { return (k + 31) / 32; }
static inline int64_t sli_plane_groups(int64_t k) {
  return (k + SLI_PLANE_GROUP - 1) / SLI_PLANE_GROUP;
}
/* Words of a row of a plane, and bytes of a plane of a matrix. */
static inline int64_t sli_plane_row(int64_t k) { return sli_plane_words(k) + sli_plane_groups(k); }
static inline size_t sli_plane_bytes(const sl_type *matrix) {
  return (size_t)sl_type_rows(matrix) * (size_t)sli_plane_row(sl_type_last(matrix)) * 4;
}

/* Packs a matrix into `width` planes, one after another; base: bits of the first code. */
void sli_planes_pack(const sl_type *matrix, int base, int width, const float *from, void *out);
/* Computes the numbers [k] that the first `width` planes of a row stand for. */
void sli_planes_values(int64_t k, int base, int width, const float *from, float *out);
/* Unpacks rows of a matrix from its first `width` planes, whose addresses are given. */
void sli_planes_unpack(const void *const *planes, int base, int width, int64_t k, int64_t row,
                       int64_t rows, float *out);

#endif
