/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights in the storage format of their file.
 *
 * No step changes a frozen weight, so it may stay in the blocks of its file. The products and
 * tables that read it, in the forward and backward pass, become ops that unpack the data they read.
 * Weights that some other op reads, those of experts, and those whose rows are not a whole number
 * of blocks are f32 as usual. The pass runs when all training nodes exist, for every device. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"
#include "ops/storage.h"

/* ---- storage ------------------------------------------------------------------------------ */

bool sli_store(sl_tensor *param, sl_storage storage) {
  sl_shard blocks;
  if (!sli_storage_fits(storage, &param->type)) return false;
  if (param->shard && !sli_storage_shard(storage, param->shard, &blocks)) return false;
  param->storage = storage;
  param->values = param->shard ? param->shard->whole : param->type;
  param->type = sli_storage_type(storage, &param->type);
  return true;
}

/* ---- readers ------------------------------------------------------------------------------ */

/* Ops that read a weight as input 1, and their versions that read any storage format. */
static const struct {
  const sl_op *op, *stored;
} readers[] = {{&sl_op_linear, &sl_op_linear_stored},
               {&sl_op_linear_b, &sl_op_linear_b_stored},
               {&sl_op_embedding, &sl_op_embedding_stored}};

static const sl_op *stored_op(const sli_node *n) {
  for (size_t i = 0; i < SLI_COUNT(readers); i++)
    if (n->op == readers[i].op && !n->attrs.product.transposed) return readers[i].stored;
  return NULL;
}

/* Returns the first node that cannot read a stored weight, or NULL if there is none. */
static const sli_node *other_reader(const sl_graph *g, const sl_tensor *param) {
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a] == param && (a != 1 || !stored_op(g->nodes[i]))) return g->nodes[i];
  return NULL;
}

static void read_stored(sl_graph *g, sli_node *n, int64_t width) {
  const sl_tensor *w = n->in[1];
  n->op = stored_op(n);
  sli_node_own_types(g, n);
  n->in_type[1] = w->type;
  n->attrs.weight.width = width;
  n->attrs.weight.storage = w->storage;
  for (int v = 0; v < g->cut.nvariants && n->shapes; v++) {
    n->shapes[v].in[1] = w->type;
    n->shapes[v].attrs.weight.width = width;
    n->shapes[v].attrs.weight.storage = w->storage;
  }
}

/* ---- the pass ----------------------------------------------------------------------------- */

/* True for a weight of the trained model that no step changes. */
static bool is_frozen(const sl_tensor *p) {
  return !p->update && !p->running && !p->frozen && !p->storage;
}

static sl_status refuse_gather(const sl_tensor *p, const sli_node *reader) {
  return sl_fail(
      SL_E_UNSUPPORTED,
      "weight %s cannot keep its file's format: devices hold shards of it, which %s gathers",
      p->name, reader->name);
}

sl_status sli_refuse_cut(const sl_tensor *p) {
  return sl_fail(
      SL_E_UNSUPPORTED,
      "weight %s cannot keep its file's format: shards would begin inside a quantization block",
      p->name);
}

static sl_status settle(sl_graph *g, sl_tensor *p, int64_t *stored) {
  const sl_training *by = g->options.training;
  int64_t width = sl_type_last(&p->type);
  sl_storage storage = is_frozen(p) ? by->storage(by->storage_ctx, p->name) : SL_STORAGE_F32;
  if (storage == SL_STORAGE_F32 ||
      !sli_storage_fits(storage, p->shard ? &p->shard->whole : &p->type) || p->type.ndim > 2)
    return SL_OK;
  const sli_node *other = other_reader(g, p);
  if (other && p->shard) return refuse_gather(p, other);
  if (other) return SL_OK;
  if (!sli_store(p, storage)) return sli_refuse_cut(p);
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->nin > 1 && g->nodes[i]->in[1] == p) read_stored(g, g->nodes[i], width);
  ++*stored;
  return SL_OK;
}

/* Updates the types of nodes that carry parameters over to the next step. */
static void infer_kept(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->op == &sl_op_keep) g->nodes[i]->out_type[0] = g->nodes[i]->out[0]->type;
}

sl_status sli_pass_stored(sl_graph *g) {
  int64_t stored = 0;
  sl_status status = SL_OK;
  for (int i = 0; i < g->nparams && !status; i++) status = settle(g, g->params[i], &stored);
  if (!status && !stored)
    status = sl_fail(
        SL_E_UNSUPPORTED,
        "no frozen weight can keep its file's format: that needs matrices [out, in] in blocks or "
        "halves, read only by products and tables");
  infer_kept(g);
  return status;
}
