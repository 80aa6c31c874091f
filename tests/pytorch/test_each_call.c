/* SPDX-License-Identifier: Apache-2.0 */
/* Each call of the table, in a tiny module (tests/reference/pytorch_calls.py, pytorch_edges.py),
 * has PyTorch's loss and gradients, or gives a message that says what is not supported. Random
 * programs (pytorch_random.py) have both, too.
 * labels: numbers
 * needs: libzip */
#include "tests/support/exported.h"
#include "tests/support/test.h"

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_compare("calls", 1e-5);
  exported_compare("edges", 1e-5);
  exported_compare("random", 1e-5);
  return 0;
}
