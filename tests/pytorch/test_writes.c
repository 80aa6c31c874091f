/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that write in place (tests/reference/pytorch_writes.py): they have PyTorch's loss and
 * gradients, or are refused with a message that names the call.
 * labels: numbers
 * needs: libzip */
#include "tests/support/exported.h"
#include "tests/support/test.h"

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_compare("writes", 2e-6);
  return 0;
}
