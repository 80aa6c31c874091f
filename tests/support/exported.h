/* SPDX-License-Identifier: Apache-2.0 */
/* Programs exported from PyTorch, compared with PyTorch's results. */
#ifndef SLUICE_TESTS_SUPPORT_EXPORTED_H
#define SLUICE_TESTS_SUPPORT_EXPORTED_H

#include <sluice/pytorch.h>
#include <sluice/sluice.h>

#include "io/json.h"

/* Unpacks tests/reference/pytorch/NAME.tar.gz into a folder. */
void exported_unpack(const char *name, const char *folder);

/* A folder of tiny modules: NAME.pt2, NAME.INPUT.npy, and losses.json. */
typedef struct exported_cases {
  const char *folder;
  sli_json figures;
} exported_cases;

/* Unpacks tests/reference/pytorch/NAME.tar.gz, which has such a folder, and runs each module as a
 * case. */
void exported_each(const char *name, double tolerance,
                   void (*one)(const exported_cases *c, const cJSON *of, double tolerance));
/* Builds a module and runs one step. It must have PyTorch's loss, within a relative difference of
 * `tolerance`, and the gradients of all parameters, within ten times that; or, unless `refused` is
 * NULL, it must end with a message that contains this text. */
void exported_check(const exported_cases *c, const cJSON *of, double tolerance,
                    const char *refused);
/* Checks each module of an archive. Its figures say whether it is refused. */
void exported_compare(const char *name, double tolerance);

#endif
