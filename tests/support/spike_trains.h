/* SPDX-License-Identifier: Apache-2.0 */
/* Spike trains that encode integers exactly (SpikingBrain, arXiv 2509.05276). A train has one spike
 * of -1, 0 or 1 per step and number. A spike counts as the weight of its step. */
#ifndef SLUICE_TESTS_SUPPORT_SPIKE_TRAINS_H
#define SLUICE_TESTS_SUPPORT_SPIKE_TRAINS_H

#include <stdbool.h>
#include <stdint.h>

/* BINARY: s spikes of 1, for numbers that are not negative. TERNARY: |s| spikes of the sign of s.
 * BITWISE: the bits of |s| from the lowest, each with the sign of s. */
typedef enum train_code { TRAIN_BINARY, TRAIN_TERNARY, TRAIN_BITWISE, TRAIN_CODES } train_code;

static inline int64_t train_size(int64_t s) { return s < 0 ? -s : s; }

/* Returns the steps of a train for n numbers, or -1 if the code cannot represent them. */
static inline int64_t train_steps(train_code code, const int64_t *s, int64_t n) {
  int64_t most = 0, steps = 1;
  for (int64_t i = 0; i < n; i++) {
    if (code == TRAIN_BINARY && s[i] < 0) return -1;
    most = train_size(s[i]) > most ? train_size(s[i]) : most;
  }
  if (code != TRAIN_BITWISE) return most;
  while (most >> steps) steps++; /* max(1, ceil(log2(most + 1))) */
  return steps;
}

static inline int64_t train_weight(train_code code, int64_t step) {
  return code == TRAIN_BITWISE ? INT64_C(1) << step : 1;
}

/* Fills train[steps][n]. */
static inline void train_encode(train_code code, const int64_t *s, int64_t n, int64_t steps,
                                int8_t *train) {
  for (int64_t t = 0; t < steps; t++)
    for (int64_t i = 0; i < n; i++) {
      int64_t size = train_size(s[i]);
      bool fires = code == TRAIN_BITWISE ? size >> t & 1 : size > t;
      train[t * n + i] = (int8_t)(fires ? s[i] < 0 ? -1 : 1 : 0);
    }
}

static inline void train_decode(train_code code, const int8_t *train, int64_t n, int64_t steps,
                                int64_t *s) {
  for (int64_t i = 0; i < n; i++) s[i] = 0;
  for (int64_t t = 0; t < steps; t++)
    for (int64_t i = 0; i < n; i++) s[i] += train_weight(code, t) * train[t * n + i];
}

#endif
