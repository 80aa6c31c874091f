/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk functions for CPU level 4 of x86-64: AVX-512 with bf16 products, and AMX. */
#include "kernels/cpu/vector/vector.h"

#if !defined(__clang__)
#pragma GCC target( \
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,amx-tile,amx-bf16")
#endif
#define SLI_TABLE sli_cpu_level4
#include "kernels/cpu/vector/vector.h"
