/* SPDX-License-Identifier: Apache-2.0 */
/* Modules whose batch dim moves, on several microbatches and devices
 * (tests/reference/pytorch_rows.py): they have PyTorch's loss and gradients, or are refused with a
 * message that names the call.
 * labels: numbers
 * needs: libzip */
#include "tests/support/exported.h"
#include "tests/support/test.h"

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_compare("rows", 2e-6);
  return 0;
}
