/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of gradients: the f32 sum of each leaf is rounded to a multiple of 2^-40. f64 sums of
 * these numbers are exact up to 2^13, so neither the order of leaves nor their owner changes the
 * result. */
#ifndef SLUICE_OPS_LEAVES_H
#define SLUICE_OPS_LEAVES_H

/* Maximum groups of an exact sum along a dim (attrs.numbers.chunk). */
enum { SLI_MOST_GROUPS = 8 };

/* A leaf has a multiple of this many positions, because gradients of keys are sums over tiles of
 * that many queries. */
enum { SLI_LEAF_MULTIPLE = 32 };

#define SLI_LEAF_MOST 0x1p12 /* largest sum that is accepted */

/* Rounds to a multiple of 2^-40. An f32 number of 2^11 or more is already one. */
#define SLI_LEAF_SHIFT 0x1.8p12
static inline double sli_leaf_round(float x) {
  return ((double)x + SLI_LEAF_SHIFT) - SLI_LEAF_SHIFT;
}

/* Rounds a row's loss to a multiple of 2^-30; sums are exact up to 2^22. */
static inline double sli_loss_round(double x) {
  const double shift = 0x1.8p22;
  return (x + shift) - shift;
}

/* A sum of squares of multiples of 2^-40 is an integer of up to 128 bits. It is stored as 32-bit
 * words, each in an f64, the lowest first, so that sums of words are exact. */
enum { SLI_SQUARE_WORDS = 4 };

#endif
