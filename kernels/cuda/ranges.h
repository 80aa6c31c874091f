/* SPDX-License-Identifier: Apache-2.0 */
/* Named ranges for profilers (Nsight Systems), through the CUDA toolkit's NVTX header. They cost
 * almost nothing without a profiler. */
#ifndef SLUICE_KERNELS_CUDA_RANGES_H
#define SLUICE_KERNELS_CUDA_RANGES_H

#if __has_include(<nvtx3/nvToolsExt.h>) && !defined SLUICE_EMULATED
#include <nvtx3/nvToolsExt.h>

static inline void sli_range_begin(const char *name) { nvtxRangePushA(name ? name : "firing"); }
static inline void sli_range_end(void) { nvtxRangePop(); }
#else
static inline void sli_range_begin(const char *name) { (void)name; }
static inline void sli_range_end(void) {}
#endif

#endif
