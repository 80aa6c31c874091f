/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the table, in a tiny module each (tests/reference/pytorch_calls.py): PyTorch's loss and
 * gradients.
 * labels: numbers
 * needs: libzip */
#include <string.h>

#include "base/base.h"
#include "base/tempdir.h"
#include "tests/support/exported.h"
#include "tests/support/test.h"

static void one(const exported_cases *c, const cJSON *of) {
  char *error = exported_check(c, of, 1e-5);
  CHECK(!*error, "%s: %s", of->string, error);
  free(error);
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  sli_tempdir unpacked;
  CHECK(!sli_tempdir_open(NULL, &unpacked), "%s", sl_detail());
  exported_unpack("calls", unpacked.folder);
  char *folder = sli_tempdir_path(&unpacked, "calls");
  exported_cases c;
  exported_open(folder, &c);
  const cJSON *of;
  cJSON_ArrayForEach(of, c.figures.root) RUN_AS(of->string, one(&c, of));
  exported_close(&c);
  free(folder);
  sli_tempdir_close(&unpacked);
  return 0;
}
