/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the CPU level that this process uses. */
#include <stdio.h>

#include "kernels/cpu/chunk.h"

int main(void) {
  printf("%d\n", sli_cpu_level());
  return 0;
}
