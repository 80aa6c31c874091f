/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

int64_t sl_graph_evaluated(const sl_graph *g, const char **word) {
  const struct sli_evaluated *e = &g->evaluated;
  *word = e->rows ? "rows" : "microbatches";
  return e->rows ? (int64_t)e->whole * e->rows + e->rest : e->microbatches;
}

int64_t sl_graph_items(const sl_graph *g, const char **word) {
  *word = "rows";
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *node = g->nodes[i];
    if (!sli_op_is(node->op, SL_OP_SOURCE) || node->nout < 1) continue;
    const sl_type *type = &((const sl_source *)node->attrs.user)->types[0]; /* microbatch type */
    bool tokens = type->dtype == SL_I32;
    if (tokens) *word = "tokens";
    int64_t rows = type->ndim ? type->dim[0] : 1;
    return (tokens ? sl_type_elements(type) : rows) * g->options.microbatches;
  }
  return 0;
}
