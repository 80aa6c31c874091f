/* SPDX-License-Identifier: Apache-2.0 */
/* Processes connect through an IPv6 address.
 *
 * needs: zeromq */
#include "tests/support/comm_host.h"

int main(void) {
  if (comm_host_meets("[::1]:0")) return 0;
  printf("skipped: %s\n", sl_detail());
  return 77;
}
