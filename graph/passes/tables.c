/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of embeddings on disk: replaces the look-up in a table that has that home by an actor on
 * the disk's queue, which reads the rows of a tick's ids. It waits for nothing but the ids, so rows
 * of later blocks come while earlier blocks compute. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"
#include "ops/storage.h"
#include "ops/table_loads.h"

static bool looks_up(const sli_node *n) {
  return n->op == &sl_op_embedding_served || n->op == &sl_op_load_rows;
}

/* True for a table of plain numbers, whole on a device, that nothing else reads. */
static bool is_readable(const sl_graph *g, const sli_node *n) {
  const sl_tensor *table = n->in[1];
  bool whole = table->param && !table->shard && !n->attrs.place.first && !n->attrs.place.partial;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      whole &= g->nodes[i]->in[a] != table || (looks_up(g->nodes[i]) && a == 1);
  return whole && !sli_storage_blocks(table->storage);
}

sl_status sli_pass_tables(sl_graph *g, const bool *on_disk) {
  int found = 0;
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (n->op != &sl_op_embedding_served || n->block < 0 || !on_disk[n->block]) continue;
    if (!is_readable(g, n))
      return sl_fail(SL_E_UNSUPPORTED,
                     "home tables=disk: table %s cannot be read by rows: it must be f32 or bf16, "
                     "whole on its device, and read by nothing but look-ups (no --tied)",
                     n->in[1]->name);
    n->op = &sl_op_load_rows;
    n->attrs.experts.firings = 1;
    n->attrs.user = g->options.serve;
    found++;
  }
  return found ? SL_OK
               : sl_fail(SL_E_USAGE, "home tables=disk: the model looks up no rows of a table");
}
