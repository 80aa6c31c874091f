/* SPDX-License-Identifier: Apache-2.0 */
/* Objectives: data and losses from callbacks, and a frozen model next to the trained one.
 *
 * The frozen model is built first, in separate blocks. When both models are built, its nodes move
 * into the model's blocks, in order, before the model's nodes. */
#include "graph/build/build.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/objective.h>

#include "ops/ops.h"

/* ---- data ------------------------------------------------------------------------------ */

static bool is_shape(const sl_tensor *t, int64_t rows, int64_t context) {
  return t && t->type.dtype == SL_I32 && t->type.ndim == 2 && t->type.dim[0] == rows &&
         t->type.dim[1] == context;
}

/* Returns the tokens that both the frozen model and the model read. */
static sl_texts same_tokens(sl_here at, sl_graph *g, int64_t rows, int64_t context, int64_t vocab) {
  const struct sli_frozen *f = &g->frozen;
  if (is_shape(f->texts.tokens, rows, context) && vocab == f->vocab) return f->texts;
  sli_graph_fail_at(
      g, at, SL_E_USAGE,
      "%s: the %s reads %lld rows of %lld tokens with a vocabulary of %lld, but the model reads "
      "%lld rows of %lld with %lld",
      g->options.objective->name, f->word, (long long)sl_dim(f->texts.tokens, 0),
      (long long)sl_dim(f->texts.tokens, 1), (long long)f->vocab, (long long)rows,
      (long long)context, (long long)vocab);
  return (sl_texts){NULL};
}

static sl_texts made_tokens(sl_here at, sl_graph *g, int64_t rows, int64_t context, int64_t vocab) {
  const sl_objective *o = g->options.objective;
  sl_texts out = {NULL};
  out.tokens = o->tokens(o->ctx, g, rows, context, vocab, &out.targets);
  if (g->status || (is_shape(out.tokens, rows, context) && is_shape(out.targets, rows, context)))
    return out;
  sli_graph_fail_at(g, at, SL_E_USAGE,
                    "%s: its data must be tokens and targets, each i32[%lld, %lld]", o->name,
                    (long long)rows, (long long)context);
  return (sl_texts){NULL};
}

/* Gets the positions that the loss needs from the objective. */
static void make_positions(sl_here at, sl_graph *g, int64_t rows) {
  const sl_objective *o = sli_objective(g);
  struct sli_frozen *f = &g->frozen;
  if (g->status || !o || !o->positions) return;
  f->positions = o->positions(o->ctx, g, &f->chosen);
  if (g->status || !f->positions) return;
  const sl_type *t = &f->positions->type;
  int64_t count = t->ndim > 1 ? sl_type_elements(t) / t->dim[0] : 0;
  if (t->dtype != SL_I32 || t->ndim > 3 || !is_shape(f->chosen, rows, count))
    sli_graph_fail_at(
        g, at, SL_E_USAGE,
        "%s: its positions must be i32[%lld, N] or i32[%lld, PARTS, N], with as many targets",
        o->name, (long long)rows, (long long)rows);
}

static sl_texts read_texts(sl_here at, sl_graph *g, const char *paths, int64_t rows,
                           int64_t context, int64_t vocab, bool chats, bool alone) {
  const sl_objective *o = sli_objective(g);
  struct sli_frozen *f = &g->frozen;
  if (g->status) return (sl_texts){NULL};
  if (rows < 1 || context < 1 || vocab < 1) {
    sli_graph_fail_at(g, at, SL_E_USAGE,
                      "sl_tokens: %lld rows of %lld tokens, vocabulary %lld: each must be positive",
                      (long long)rows, (long long)context, (long long)vocab);
    return (sl_texts){NULL};
  }
  if (o && g->served.sinks) {
    sli_graph_fail_at(g, at, SL_E_UNSUPPORTED,
                      "%s: not supported for models with sink tokens (sl_sink_tokens)", o->name);
    return (sl_texts){NULL};
  }
  if (f->nnodes && f->texts.tokens) return same_tokens(at, g, rows, context, vocab);
  f->texts = o && o->tokens ? made_tokens(at, g, rows, context, vocab)
                            : sli_texts_of_files(at, g, paths, rows, context, vocab, chats, alone);
  f->vocab = vocab;
  make_positions(at, g, rows);
  return f->texts;
}

sl_tensor *sl_tokens_at(sl_here at, sl_graph *g, const char *paths, int64_t rows, int64_t context,
                        int64_t vocab, sl_tensor **targets) {
  sl_texts out = read_texts(at, g, paths, rows, context, vocab, false, false);
  *targets = out.targets;
  return out.tokens;
}

void sl_sink_tokens(sl_graph *g, int64_t count) {
  if (count < 0 || count > 1 << 20)
    sl_graph_fail(g, SL_E_USAGE, "%lld sink tokens: must be from 0 to 1048576", (long long)count);
  else g->served.sinks = count;
}

sl_texts sl_texts_at(sl_here at, sl_graph *g, const char *paths, int64_t rows, int64_t context,
                     int64_t vocab, bool alone) {
  return read_texts(at, g, paths, rows, context, vocab, true, alone);
}

/* ---- losses ---------------------------------------------------------------------------- */

/* Computes what the loss needs from the frozen model's logits. The result is a placeholder for the
 * frozen model's loss, which is not used. */
static sl_tensor *frozen_loss(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets) {
  const sl_objective *o = g->options.objective;
  o->frozen(o->ctx, g, logits, targets, g->frozen.results);
  sl_tensor *first = g->frozen.results[0];
  if (!g->status && !first)
    sli_graph_fail_at(g, at, SL_E_USAGE, "%s: the objective does not use the %s's logits", o->name,
                      g->frozen.word);
  return first ? sl_mean_at(at, g, first, 0, false) : NULL;
}

sl_tensor *sli_objective_loss(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets) {
  const sl_objective *o = g->options.objective;
  if (g->status || !logits || !targets) return NULL;
  if (g->frozen.learns) {
    sli_graph_fail_at(
        g, at, SL_E_UNSUPPORTED,
        "%s: the model calls sl_cross_entropy twice, so it is unclear which logits the loss "
        "applies to",
        o->name);
    return NULL;
  }
  g->frozen.learns = true;
  if (g->frozen.positions) {
    logits = sli_at_positions(at, g, logits, g->frozen.positions);
    targets = g->frozen.chosen;
  }
  if (!logits) return NULL;
  if (g->frozen.builds) return frozen_loss(at, g, logits, targets);
  sl_tensor *loss = o->loss(o->ctx, g, logits, targets, g->frozen.results);
  if (g->status || (loss && !loss->type.ndim && loss->type.dtype == SL_F64)) return loss;
  sli_graph_fail_at(g, at, SL_E_SHAPE, "%s: its loss must be an f64 scalar", o->name);
  return NULL;
}

sl_tensor *sl_cross_entropy_at(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *targets) {
  if (sli_objective(g)) return sli_objective_loss(at, g, logits, targets);
  return sl_op2_at(at, g, &sl_op_cross_entropy, NULL, logits, targets);
}

/* Divides the loss of a microbatch by its share of all tokens in the step's loss, so that the mean
 * over microbatches is the mean over these tokens. */
sl_tensor *sl_texts_loss_at(sl_here at, sl_graph *g, sl_tensor *logits, const sl_texts *texts) {
  sl_tensor *total = sli_objective(g) ? NULL : sli_texts_learned(at, g, texts), *out[2] = {NULL};
  if (!total) return sl_cross_entropy_at(at, g, logits, texts->targets);
  sl_apply_at(at, g, &sl_op_weighted_cross_entropy, &(sl_attrs){.loss.ignore = SLI_UNLEARNED}, 3,
              (sl_tensor *[]){logits, texts->targets, total}, 0, out);
  return out[0];
}

sl_status sli_objective_check(sl_graph *g) {
  const sl_objective *o = sli_objective(g);
  const char *model = g->frozen.model ? g->frozen.model : "the model";
  if (g->status || !o) return g->status;
  if (o->tokens && !g->frozen.texts.tokens)
    return sl_graph_fail(g, SL_E_UNSUPPORTED,
                         "%s: %s reads no tokens (sl_tokens) for the data to replace", o->name,
                         model);
  if (!g->frozen.learns)
    return sl_graph_fail(g, SL_E_UNSUPPORTED,
                         "%s: %s has no cross entropy (sl_cross_entropy) for the loss to replace",
                         o->name, model);
  return SL_OK;
}

/* ---- the frozen model ---------------------------------------------------------------------- */

static sl_status build_once(const sl_model *model, sl_graph *g, const sl_args *args) {
  return model->build_own ? model->build_own(model, g, args) : model->build(g, args);
}

static sl_status build_frozen(const sl_model *model, sl_graph *g, const sl_args *args,
                              const char *word) {
  struct sli_frozen *f = &g->frozen;
  f->builds = true;
  f->word = word;
  sl_status status = build_once(model, g, args);
  if (!status) status = sli_objective_check(g);
  if (g->status) g->detail = sli_arena_format(&g->arena, "the %s: %s", word, g->detail);
  if (status) status = sl_graph_status(g);
  f->builds = f->learns = false;
  f->nnodes = g->nnodes;
  f->nblocks = g->nblocks;
  g->nblocks = 0;
  return status;
}

/* Returns the model's block for a block of the frozen model: the same block, or if their numbers of
 * blocks differ, the block at the same relative position. */
static int block_for(const sl_graph *g, int block) {
  int from = g->frozen.nblocks, to = g->nblocks;
  if (from == to || block < 0) return block;
  return from == 1 ? 0 : (int)(((int64_t)block * (to - 1) + (from - 1) / 2) / (from - 1));
}

/* Returns the sort key of a node. Sources come first, since they may have readers in both
 * models. */
static int order_of(const sli_node *n) { return sli_op_is(n->op, SL_OP_SOURCE) ? -1 : n->block; }

/* Moves the nodes of the frozen model into the model's blocks. */
static void merge_blocks(sl_graph *g) {
  sli_node **nodes = sli_calloc((size_t)g->nnodes + 1, sizeof(sli_node *));
  int count = 0;
  for (int i = 0; i < g->frozen.nnodes; i++) g->nodes[i]->block = block_for(g, g->nodes[i]->block);
  for (int b = -1; b < g->nblocks; b++)
    for (int i = 0; i < g->nnodes; i++)
      if (order_of(g->nodes[i]) == b) nodes[count++] = g->nodes[i];
  SLI_CHECK(count == g->nnodes, "%d of %d nodes are in blocks", count, g->nnodes);
  sli_graph_reorder(g, nodes);
  free(nodes);
}

/* Puts the model's parameters before those of the frozen model. */
static void merge_params(sl_graph *g) {
  size_t n = (size_t)g->nparams + 1;
  sl_tensor **params = sli_calloc(n, sizeof(sl_tensor *));
  uint64_t *known = sli_calloc(n, sizeof *known);
  int count = 0;
  for (int frozen = 0; frozen < 2; frozen++)
    for (int i = 0; i < g->nparams; i++) {
      if ((g->params[i]->frozen != NULL) != frozen) continue;
      known[count] = g->known.hashes[i];
      params[count++] = g->params[i];
    }
  for (int i = 0; i < g->nparams; i++) {
    g->params[i] = params[i];
    g->params[i]->param_index = i;
    g->known.hashes[i] = known[i];
  }
  free(params);
  free(known);
}

sl_status sl_model_build(const sl_model *model, sl_graph *g, const sl_args *args) {
  const sl_objective *o = sli_objective(g);
  sl_status status = SL_OK;
  g->frozen.model = model->name;
  if (o && o->frozen)
    status = o->teacher ? build_frozen(o->teacher, g, o->teacher_args, "teacher")
                        : build_frozen(model, g, args, "reference");
  if (!status) status = build_once(model, g, args);
  if (!status) status = sli_objective_check(g);
  if (status || !o || !o->frozen) return status;
  merge_blocks(g);
  merge_params(g);
  return SL_OK;
}

/* ---- parameters that both have --------------------------------------------------------------- */

/* Returns the model's parameter whose values always equal those of a reference's parameter, or NULL
 * if there is none. */
static sl_tensor *lasting_twin(const sl_graph *g, const sl_tensor *reference) {
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *t = g->params[i];
    if (!t->frozen && !strcmp(t->name, reference->frozen))
      return t->update || !sl_type_equal(&t->type, &reference->type) ? NULL : t;
  }
  return NULL;
}

void sli_objective_share(sl_graph *g) {
  const sl_objective *o = sli_objective(g);
  if (!o || !o->frozen || o->teacher) return;
  int kept = 0;
  for (int i = 0; i < g->nparams; i++) {
    sl_tensor *t = g->params[i], *twin = t->frozen ? lasting_twin(g, t) : NULL;
    if (twin) sli_graph_replace_reads(g, 0, t, twin);
    if (twin) continue;
    g->known.hashes[kept] = g->known.hashes[i];
    g->params[kept] = t;
    t->param_index = kept++;
  }
  g->nparams = kept;
}
