/* SPDX-License-Identifier: Apache-2.0 */
/* Modules whose batch dim moves, on several microbatches and devices
 * (tests/reference/pytorch_rows.py): they have PyTorch's loss and gradients, or are refused with a
 * message that names the call.
 * labels: numbers
 * needs: libzip */
#include <string.h>

#include "base/base.h"
#include "tests/support/exported.h"
#include "tests/support/test.h"

static void one(const exported_cases *c, const cJSON *of) {
  const cJSON *message = cJSON_GetObjectItemCaseSensitive(of, "message");
  char *error = exported_check(c, of, 2e-6);
  if (message) CHECK(strstr(error, message->valuestring), "%s: \"%s\"", of->string, error);
  else CHECK(!*error, "%s: %s", of->string, error);
  free(error);
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  exported_each("rows", one);
  return 0;
}
