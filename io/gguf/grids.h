/* SPDX-License-Identifier: Apache-2.0 */
/* Lattices of GGUF's IQ types: a block names points of a table, and the signs of their numbers. */
#ifndef SLUICE_IO_GGUF_GRIDS_H
#define SLUICE_IO_GGUF_GRIDS_H

#include <stdint.h>

/* Points of eight numbers, of two bits each, which stand for 8, 25 and 43, or for -1, 0 and 1. */
extern const uint16_t sli_grid_iq2_xxs[256], sli_grid_iq2_xs[512], sli_grid_iq2_s[1024],
    sli_grid_iq1[2048];
/* Points of four numbers, of three bits each: 4, 12, .. 52 and 62, or 1, 3, .. 15. */
extern const uint16_t sli_grid_iq3_xxs[256], sli_grid_iq3_s[512];

#endif
