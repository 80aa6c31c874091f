/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a program that depend on each other. All functions return marks [values of p], which
 * live as long as the graph. */
#ifndef SLUICE_PYTORCH_DEPENDENCE_H
#define SLUICE_PYTORCH_DEPENDENCE_H

#include "graph/graph.h"
#include "pytorch/program.h"

/* Marks a value and all that it is computed from. */
bool *sli_pt_sources_of(sl_graph *g, const sli_pt_program *p, const sli_pt_value *v);
/* Marks a value and all tensors that are computed from its elements. Tensors that have only a shape
 * from it, as ones_like() does, are not marked. */
bool *sli_pt_results_of(sl_graph *g, const sli_pt_program *p, const sli_pt_value *v);
/* Marks the inputs of a role, and all tensors that are computed from their elements. */
bool *sli_pt_results_of_role(sl_graph *g, const sli_pt_program *p, sli_pt_role role);

#endif
