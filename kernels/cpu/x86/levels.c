/* SPDX-License-Identifier: Apache-2.0 */
/* CPU levels of x86-64. */
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/chunk.h"

/* Reads CPUID directly for F16C: not all compilers have a name for its bit. */
static bool has_avx2(void) {
  unsigned a, b, c, d;
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512_bf16(void) {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}

/* Requests AMX tile state, once for all later threads. Linux requires the request because tiles add
 * 8 KiB of state per thread. */
static bool may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}

/* Reads CPUID directly: not all compilers have names for these bits. */
static bool has_amx(void) {
  enum { LEAF = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
  unsigned a, b, c, d;
  return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE &&
         may_use_tiles();
}

const sli_cpu_level_row sli_cpu_levels[] = {
    {&sli_cpu_level0, NULL},       {&sli_cpu_level1, has_avx2},
    {&sli_cpu_level2, has_avx512}, {&sli_cpu_level3, has_avx512_bf16},
    {&sli_cpu_level4, has_amx},    {NULL, NULL}};
