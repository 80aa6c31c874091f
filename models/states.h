/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of models that keep states: a state is zero where a document begins.
 *
 * B rows of a microbatch, T context. */
#ifndef SLUICE_MODELS_STATES_H
#define SLUICE_MODELS_STATES_H

#include <sluice/sluice.h>

/* Summand for the logarithms of gates [B, T, n]: far below any where a document begins, 0
 * elsewhere. [B, T, 1]; NULL without positions [B, T] in documents. */
static inline sl_tensor *states_shut(sl_graph *g, sl_tensor *positions, int64_t rows) {
  const float least = -1e9f; /* its exponential is 0 */
  if (!positions) return NULL;
  sl_tensor *behind = sl_clamp(g, sl_cast(g, positions, SL_F32), 0, 1);
  return sl_reshape(g, sl_scale(g, sl_add_constant(g, behind, -1), -least), rows, -1, 1);
}

static inline sl_tensor *states_gates(sl_graph *g, sl_tensor *gates, sl_tensor *shut) {
  return shut ? sl_add(g, gates, shut) : gates;
}

#endif
