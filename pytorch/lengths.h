/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of a symbolic number of positions in a program that is served. */
#ifndef SLUICE_PYTORCH_LENGTHS_H
#define SLUICE_PYTORCH_LENGTHS_H

#include "graph/graph.h"
#include "pytorch/program.h"

/* Fails `g` if a call that the logits need makes numbers of a symbolic length: a server has no such
 * length, and would compute with that of the example. */
void sli_pt_check_lengths(sl_graph *g, const sli_pt_program *p, const sli_pt_value *logits);

#endif
