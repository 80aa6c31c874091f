/* SPDX-License-Identifier: Apache-2.0 */
/* Document boundaries in models that keep states: a state is reset to zero where a document begins.
 *
 * B rows of a microbatch, T context. */
#ifndef SLUICE_MODELS_STATES_H
#define SLUICE_MODELS_STATES_H

#include <sluice/sluice.h>

/* Builds a term [B, T, 1] to add to the logarithms of gates [B, T, n]: -1e9 where a document
 * begins, 0 elsewhere. `positions` [B, T] are positions within documents; returns NULL if they are
 * NULL. */
static inline sl_tensor *states_shut(sl_graph *g, sl_tensor *positions, int64_t rows) {
  const float least = -1e9f; /* exp(least) is 0 */
  if (!positions) return NULL;
  sl_tensor *behind = sl_clamp(g, sl_cast(g, positions, SL_F32), 0, 1);
  return sl_reshape(g, sl_scale(g, sl_add_constant(g, behind, -1), -least), rows, -1, 1);
}

static inline sl_tensor *states_gates(sl_graph *g, sl_tensor *gates, sl_tensor *shut) {
  return shut ? sl_add(g, gates, shut) : gates;
}

#endif
