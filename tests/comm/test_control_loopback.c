/* SPDX-License-Identifier: Apache-2.0 */
/* Processes connect through the name localhost, and through all addresses of this machine.
 *
 * needs: zeromq */
#include "tests/support/comm_host.h"

int main(void) {
  CHECK(comm_host_meets("localhost:0"), "localhost: %s", sl_detail());
  if (!comm_host_has_address()) {
    printf("skipped: all addresses, as this machine's name has none\n");
    return 77;
  }
  CHECK(comm_host_meets("*:0"), "all addresses: %s", sl_detail());
  return 0;
}
