/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of a program that is served. */
#ifndef SLUICE_PYTORCH_LOGITS_H
#define SLUICE_PYTORCH_LOGITS_H

#include "graph/graph.h"
#include "pytorch/program.h"

/* Skips views and copies of a value that keep all of its elements in their order. */
const sli_pt_value *sli_pt_viewed(const sli_pt_value *v);
/* Finds the logits of all positions of `ids`, [rows, T]: the result of forward() that is named
 * logits, the only one of all positions and `vocab` tokens (0: not known), or what enters the cross
 * entropy of the loss. Returns NULL if there are none, or if several values may be meant: `g` has
 * failed with their names. */
sli_pt_value *sli_pt_logits(sl_graph *g, const sli_pt_program *p, const sli_pt_value *ids,
                            int64_t vocab);

#endif
