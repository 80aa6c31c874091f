/* SPDX-License-Identifier: Apache-2.0 */
/* Programs exported from PyTorch, run beside what PyTorch computed. */
#ifndef SLUICE_TESTS_EXPORTED_H
#define SLUICE_TESTS_EXPORTED_H

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

/* Unpacks tests/reference/pytorch/NAME.tar.gz, such a folder, and runs a case for each module. */
void exported_each(const char *name, void (*one)(const exported_cases *c, const cJSON *of));
/* Builds and runs one step of a module; the error's text, or "" after the loss and the gradients of
 * all parameters have been found to be PyTorch's, within a relative difference of losses and ten
 * times it of gradients. The caller frees it. */
char *exported_check(const exported_cases *c, const cJSON *of, double tolerance);

#endif
