/* SPDX-License-Identifier: Apache-2.0 */
/* Run fingerprint: values besides a plan's hash that results depend on. */
#ifndef SLUICE_GRAPH_COMPILE_FINGERPRINT_H
#define SLUICE_GRAPH_COMPILE_FINGERPRINT_H

#include <sluice/job.h>

#include "graph/lower/lower.h"

/* Formats the slots of trained parameters on each stage: "1", or "2,1 of wte h.0 | h.1 head". The
 * arena owns the text. */
const char *sli_fingerprint_versions(const sli_lowering *l, int stages, const char *cut,
                                     sli_arena *arena);

typedef struct sli_fingerprint_of {
  const char *versions, *cut;
  bool paths;          /* paths are given */
  const char *library; /* library that computes products; NULL: unknown */
  int nparams;
  const sl_param_info *params;
} sli_fingerprint_of;
/* Makes the fingerprint's items in the arena and returns their number. A resumed run compares the
 * first *nresults too. */
int sli_fingerprint_make(const sli_fingerprint_of *of, sli_arena *arena, sl_fingerprint_item **out,
                         int *nresults);

#endif
