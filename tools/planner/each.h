/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel for: several threads call one function for each index of a range. */
#ifndef SLUICE_TOOLS_PLANNER_EACH_H
#define SLUICE_TOOLS_PLANNER_EACH_H

#include <stdbool.h>
#include <stddef.h>

/* Calls fn for each i in [from, end), in any order. Stops early once `stopped` (may be NULL)
 * returns true. */
void each(int threads, bool (*stopped)(void), size_t from, size_t end,
          void (*fn)(void *ctx, size_t i), void *ctx);

#endif
