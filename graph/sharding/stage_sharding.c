/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabulary tables sharded over all stages.
 *
 * A vocabulary's embedding and classifier cost as much as several layers, and normally burden only
 * the first and the last stage. With stage sharding, each stage holds some of the table's rows
 * (Vocabulary Parallelism: Yeung et al., arXiv 2411.05288). It looks up ids in its rows, and
 * computes the logits of its words from the last stage's output, which goes to all stages.
 *
 * For expansion this is one more axis, from stage to stage, along which the table is split and the
 * calls that read it are sharded as along any other axis. The difference is that other calls run on
 * a single stage, not on all members, and that stage's tensors represent all stages. Each stage's
 * part of a block is a separate block on that stage. */
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/sharding/expand.h"
#include "graph/sharding/search.h"

/* ---- ranks and blocks ------------------------------------------------------------------ */

void sli_stand_for_all(const sli_expansion *x, sli_array *a) {
  for (int r = x->own; r < x->ranks && !a->sharded; r++) a->on[r] = a->on[r % x->own];
}

static int add_blocks(sli_expansion *x, int block) {
  sl_graph *g = x->g;
  int first = g->nblocks, stages = x->grid->size[SLI_AXIS_STAGES];
  for (int s = 0; s < stages; s++) {
    const char *name = sli_arena_format(&g->arena, "%s@%d", g->blocks[block].name, s);
    SLI_GROW(g->blocks, (size_t)g->nblocks, g->capacity.blocks);
    g->blocks[g->nblocks++] = (sli_block){.name = name, .stage = s, .sharded = true};
  }
  return first;
}

int sli_block_of(sli_expansion *x, int block, bool sharded, int rank) {
  if (!sharded || block < 0) return block;
  if (!x->sharded[block]) x->sharded[block] = add_blocks(x, block);
  return x->sharded[block] + rank / x->own;
}

void sli_fold_ranks(sli_expansion *x) {
  sl_graph *g = x->g;
  for (int i = 0; i < g->nnodes; i++) g->nodes[i]->rank %= x->own;
  for (int i = 0; i < g->ntensors; i++) g->tensors[i]->rank %= x->own;
}

/* ---- choice ------------------------------------------------------------------------------ */

typedef struct pass {
  sl_graph *g;
  const sli_dim *dims;
  int stages;
  const sli_node *loss; /* loss computed from the logits; other losses may be added to it */
  sli_choice *choice;
  bool *table;  /* [ntensors] parameters of which each stage holds some rows */
  bool *logits; /* [ntensors] logits, of which each stage holds some columns */
} pass;

static sl_sbp along(int dim) { return (sl_sbp){SL_SPLIT, dim}; }

/* Finds the first way to shard a call that has input `of` in this layout. */
static bool find_way(const pass *p, const sli_node *n, int of, sl_sbp lies, sl_signature *out) {
  sl_signature all[SL_SIGNATURES];
  int count = sli_signatures(p->dims, n, SLI_AXIS_STAGES, p->stages, all);
  for (int i = 0; i < count; i++) {
    if (!sli_sbp_equal(sli_signature_in(&all[i], of), lies)) continue;
    *out = all[i];
    return true;
  }
  return false;
}

static const char *loss_option = "vocabulary.parallel";

static sl_status refuse(const pass *p, const sli_node *n, const char *why) {
  return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED, "%s: op %s (%s) %s", loss_option, n->name,
                           n->op->name, why);
}

/* Returns the reason why stages cannot shard the classes of a loss: it has no classes, or too few.
 */
static const char *no_way(const sli_node *loss) {
  sl_signature all[SLI_SIGNATURES_RAW];
  int count = sli_signatures_raw(loss, all), shares = 0;
  for (int i = 0; i < count; i++) shares += all[i].local != NULL;
  if (!shares)
    return "makes a loss without classes to split over the stages, like losses of preferences "
           "and of distillation";
  return loss->attrs.numbers.exact
             ? "is not a cross entropy whose classes the stages can split in whole groups"
             : "is not a cross entropy with enough classes for the stages";
}

/* Finds the table: the weight of the linear layer that computes the loss's logits. */
static sl_status find_table(pass *p, const sli_node **classifier) {
  const sli_node *n = p->loss = sli_loss_of_logits(p->g),
                 *made = n->nin ? n->in[0]->producer : NULL;
  const sl_type *logits = &n->in_type[0];
  sl_signature *way = &p->choice->signatures[n->id];
  if (!find_way(p, n, 0, along(logits->ndim - 1), way) || !way->local)
    return refuse(p, n, no_way(n));
  if (!made || sli_op_weight(made->op) != SL_WEIGHT_PRODUCT || !made->in[1]->param)
    return refuse(p, n, "does not read the result of a linear map");
  p->logits[n->in[0]->id] = p->table[made->in[1]->id] = true;
  *classifier = made;
  return SL_OK;
}

/* Returns the table's dim that runs along words. */
static int word_dim(const sli_node *classifier) {
  return classifier->attrs.product.transposed ? 1 : 0;
}

/* Marks embedding tables with the same number of words, which are sharded as well. */
static void find_embeddings(pass *p, int64_t words) {
  for (int i = 0; i < p->g->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    if (sli_is_shared(n) && sli_op_weight(n->op) == SL_WEIGHT_TABLE && n->in[1]->param &&
        n->in_type[1].dim[0] == words)
      p->table[n->in[1]->id] = true;
  }
}

/* Returns the input that is private to each stage (sl_op_cut.own), or -1 if none. */
static int reads_own(const sli_node *n) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && n->in[i]->producer &&
        sli_bit(sli_op_cut(n->in[i]->producer->op)->own, n->in[i]->output))
      return i;
  return -1;
}

/* Returns the index of the first input among the given tensors, or -1 if none. */
static int reads(const sli_node *n, const bool *of) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && of[n->in[i]->id]) return i;
  return -1;
}

static sl_status choose(const pass *p, const sli_node *n, int words) {
  int table = reads(n, p->table), logits = reads(n, p->logits), own = reads_own(n);
  sl_signature *way = &p->choice->signatures[n->id];
  if (table >= 0) {
    int dim = sli_op_weight(n->op) == SL_WEIGHT_TABLE ? 0 : words;
    if (!find_way(p, n, table, along(dim), way))
      return refuse(p, n, "reads the vocabulary's table and cannot be split over the stages");
  } else if (logits >= 0 && n != p->loss) {
    if (!find_way(p, n, logits, along(n->in_type[logits].ndim - 1), way))
      return refuse(p, n, "reads the logits, which no stage holds completely");
  } else if (own >= 0) {
    bool found = find_way(p, n, own, (sl_sbp){SL_PARTIAL, 0}, way);
    SLI_CHECK(found, "%s reads what is each stage's own", n->name);
  }
  return SL_OK;
}

static void choose_params(const pass *p, int words, const sli_node *classifier) {
  for (int i = 0; i < p->g->nparams; i++) {
    const sl_tensor *t = p->g->params[i];
    int dim = t == classifier->in[1] ? words : 0;
    if (p->table[t->id]) p->choice->params[i] = (sl_sbp){SL_SPLIT, dim};
  }
  /* the classifier's bias, one number per word */
  if (classifier->nin > 2 && classifier->in[2] && classifier->in[2]->param)
    p->choice->params[classifier->in[2]->param_index] = (sl_sbp){SL_SPLIT, 0};
}

sl_status sli_choose_stage_sharding(sl_graph *g, const sli_dim *dims, int stages, sli_choice *out) {
  pass p = {.g = g, .dims = dims, .stages = stages, .choice = out};
  const sli_node *classifier = NULL;
  *out = (sli_choice){.signatures = sli_calloc((size_t)g->nnodes, sizeof *out->signatures),
                      .params = sli_calloc((size_t)g->nparams, sizeof *out->params)};
  p.table = sli_calloc((size_t)g->ntensors, sizeof *p.table);
  p.logits = sli_calloc((size_t)g->ntensors, sizeof *p.logits);
  sl_status status = find_table(&p, &classifier);
  int words = status ? 0 : word_dim(classifier);
  if (!status) find_embeddings(&p, classifier->in_type[1].dim[words]);
  for (int i = 0; i < g->nnodes && !status; i++)
    if (sli_is_shared(g->nodes[i])) status = choose(&p, g->nodes[i], words);
  if (!status) choose_params(&p, words, classifier);
  free(p.table);
  free(p.logits);
  return status;
}
