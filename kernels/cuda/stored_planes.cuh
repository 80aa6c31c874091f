/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in bit planes (ops/planes.h), read by lanes of a warp. A span is the 32 numbers of a
 * word. */
#ifndef SLUICE_CUDA_STORED_PLANES_CUH
#define SLUICE_CUDA_STORED_PLANES_CUH

#include "kernels/cuda/loaded.cuh"
#include "kernels/cuda/stored_product.cuh"

namespace sli {

/* Planes of a matrix; stored.data. */
struct planes_place {
  int32_t base, width; /* of the first code, and of all */
  const uint32_t *planes[SLI_PLANES_MOST];
};

struct stored_planes {
  static constexpr int E = 4, SPAN = QUADS * E;
  static_assert(SPAN == 32, "a span is a word of bits");
  __device__ static int64_t column(int64_t span, int) { return span * SPAN + quad_of_lane() * E; }
  /* Returns the number of a word's group. */
  __device__ static float group_number(const uint32_t *row, int64_t k, int64_t word) {
    return __uint_as_float(row[sli_plane_words(k) + word * SPAN / SLI_PLANE_GROUP]);
  }
  __device__ static void read_row(const planes_place &p, int64_t at, int64_t k, int64_t span,
                                  float (&to)[E]) {
    int shift = quad_of_lane() * E;
    uint32_t codes[E] = {};
    const auto row = [&](int plane) { return p.planes[plane] + at * sli_plane_row(k); };
    for (int b = 0; b < p.base; b++) {
      uint32_t bits = row(b)[span] >> shift;
      for (int e = 0; e < E; e++) codes[e] |= (bits >> e & 1) << b;
    }
    float s = group_number(row(0), k, span), z = group_number(row(1), k, span);
    for (int e = 0; e < E; e++) to[e] = ((float)codes[e] - z) * s;
    for (int b = p.base; b < p.width; b++) {
      uint32_t bits = row(b)[span] >> shift;
      float step = group_number(row(b), k, span);
      for (int e = 0; e < E; e++) to[e] += bits >> e & 1 ? step : -step;
    }
  }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    const planes_place &p = *(const planes_place *)w.data;
    for (int r = 0; r < LANE_ROWS; r++) {
      int64_t at = row + first_row_of_lane() + r;
      read_row(p, at < w.n ? at : w.n - 1, w.k, span, to[r]);
    }
  }
};

} // namespace sli

#endif
