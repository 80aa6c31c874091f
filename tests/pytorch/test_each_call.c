/* SPDX-License-Identifier: Apache-2.0 */
/* Each call of the table, in a tiny module (tests/reference/pytorch_calls.py, pytorch_edges.py),
 * has PyTorch's loss and gradients, or gives a message that says what is not supported. Random
 * programs (pytorch_random.py) have both, too.
 * labels: numbers
 * needs: libzip */
#include <string.h>

#include "base/base.h"
#include "tests/support/exported.h"
#include "tests/support/test.h"

static void one(const exported_cases *c, const cJSON *of) {
  const cJSON *refused = cJSON_GetObjectItemCaseSensitive(of, "refused");
  char *error = exported_check(c, of, 1e-5);
  if (refused) CHECK(strstr(error, refused->valuestring), "%s: \"%s\"", of->string, error);
  else CHECK(!*error, "%s: %s", of->string, error);
  free(error);
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_each("calls", one);
  exported_each("edges", one);
  exported_each("random", one);
  return 0;
}
