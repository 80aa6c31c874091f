/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 2, serving: turns the model of one training row into the model of one tick.
 *
 * Positions of the row now belong to any sequences. Ops that work on each row or element
 * independently stay as they are. Ops that look at other positions, or compute rows together, are
 * replaced by those that sl_op.serve names, which also read the batch. Ops that promise neither are
 * rejected. `begin` sets the number of rows of a tick, so that no more are computed. Before the
 * product that computes the logits, `pick` gathers the rows whose logits are needed, and `sample`
 * ends the graph. If answers may be constrained, `allow` determines on the host, while the tick
 * computes, which tokens may come next.
 *
 * The ends of the graph are added first, and ops on rows are replaced last. Sharding a stage over
 * devices happens in between, by the signatures of the training ops. */
#include <string.h>

#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/attention_table.h"
#include "ops/batch.h"
#include "ops/ops.h"
#include "ops/storage.h"

static sl_status serve_refuse(sl_graph *g, const sli_node *n, const char *why) {
  return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED, "op %s (%s) cannot be served: %s", n->name,
                           n->op->name, why);
}

/* ---- weights in their storage format (rest) ----------------------------------------------- */

/* Finds the nodes that depend on the data of a tick. All others have no positions. */
static const bool *find_fed(sl_graph *g) {
  bool *fed = sli_arena_alloc(&g->arena, ((size_t)g->nnodes + 1) * sizeof *fed);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    fed[i] = n->cls == SL_CLASS_L;
    for (int a = 0; a < n->nin; a++)
      fed[i] |= n->in[a] && n->in[a]->producer && fed[n->in[a]->producer->id];
  }
  return fed;
}

/* True for a weight or table of an op that can read storage formats. Exact sums over several parts
 * of a row are in f32. */
static bool reads_stored(const sli_node *n, int input) {
  bool exact = !n->attrs.numbers.exact || !n->attrs.numbers.part[0];
  return exact && !n->attrs.product.transposed && sli_op_serve(n->op)->stored >> input & 1;
}

/* Returns true if all readers of a parameter can read storage formats; sets *exact if one of them
 * is exact. */
static bool can_be_stored(const sl_graph *g, const bool *fed, const sl_tensor *param, bool *exact) {
  *exact = false;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      if (g->nodes[i]->in[a] != param) continue;
      if (!fed[i] || !reads_stored(g->nodes[i], a)) return false;
      *exact |= g->nodes[i]->attrs.numbers.exact;
    }
  return true;
}

/* Stores the weights whose readers and shards allow it; others are f32. Exact products with blocks
 * have bits of their own, so a grid whose shards would cut blocks is refused. */
static sl_status settle_weights(sl_graph *g, const bool *fed) {
  const sl_serving *s = g->options.serve;
  for (int i = 0; i < g->nparams && s->storage; i++) {
    sl_tensor *p = g->params[i];
    sl_storage storage = s->storage(s->ctx, p->name);
    bool exact;
    if (p->storage || !can_be_stored(g, fed, p, &exact)) continue;
    if (!sli_store(p, storage) && exact && p->shard && sli_storage_by_digits(storage) &&
        sli_storage_fits(storage, &p->shard->whole))
      return sli_refuse_cut(p);
  }
  return SL_OK;
}

/* ---- weights rounded to int8 -------------------------------------------------------------- */

static bool is_only_quantized(const sl_graph *g, const sl_tensor *param) {
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a] == param && g->nodes[i]->op != &sl_op_quantize) return false;
  return true;
}

/* Marks weights to be rounded when they are loaded, since ticks never change them. The ops that
 * rounded them lose their readers. Rollouts read the parameters of training, which are not rounded,
 * and keep these ops; only they have no storage formats. */
static void round_weights(sl_graph *g) {
  if (!g->options.serve->storage) return;
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++) {
      const sli_node *maker = n->in[a] ? n->in[a]->producer : NULL;
      if (!maker || maker->op != &sl_op_quantize) continue;
      sl_tensor *param = maker->in[0];
      if (!param->param || !is_only_quantized(g, param)) continue;
      param->storage = SL_STORAGE_INT8;
      param->values = param->type;
      n->in[a] = param;
    }
  }
}

/* Sets a table's width and a weight's storage format, which a stored type may not show. */
static void set_format(sli_node *n) {
  bool table = sli_op_weight(n->op) == SL_WEIGHT_TABLE;
  if (table) n->attrs.weight.width = sl_type_last(&n->out_type[0]);
  for (int a = 0; a < n->nin; a++)
    if (n->in[a] && n->in[a]->storage && n->in[a]->type.dtype == SL_I32 &&
        sli_op_serve(n->op)->stored >> a & 1) {
      n->attrs.weight.storage = n->in[a]->storage;
    }
}

/* ---- replaced ops ------------------------------------------------------------------------- */

/* Gives a node all inputs that its op may have (absent if not given), followed by the batch. */
static void add_batch(sl_graph *g, sli_node *n, int inputs) {
  sl_tensor **in = sli_arena_alloc(&g->arena, (size_t)(inputs + 1) * sizeof *in);
  sl_type *types = sli_arena_alloc(&g->arena, (size_t)(inputs + 1) * sizeof *types);
  for (int i = 0; i < inputs; i++) {
    in[i] = i < n->nin ? n->in[i] : NULL;
    types[i] = *sl_tensor_type(in[i]);
  }
  in[inputs] = g->served.batch;
  types[inputs] = g->served.batch->type;
  n->in = in;
  n->in_type = types;
  n->nin = inputs + 1;
}

/* True if the op keeps keys and values in f32 although another format is requested; a user's op may
 * ignore the setting. */
static bool keeps_otherwise(const sl_serving *s, const sli_node *n) {
  bool others = s->kv != SL_STORAGE_F32 && !sli_op_serve(n->op)->slots;
  for (int o = 0; o < n->nout && others; o++)
    if (sli_op_memory(n->op)->updates >> o & 1 && n->out_type[o].dtype == SL_F32) return true;
  return false;
}

/* Makes prompts attend to chosen pages. A window limits keys already. */
static sl_status choose_pages(sl_graph *g, sli_node *n, const sl_op_serve *form) {
  const sl_serving *s = g->options.serve;
  if (s->prompt_blocks.share <= 0 || !sli_op_memory(form->op)->updates || n->attrs.attention.window)
    return SL_OK;
  if (form->slots) return serve_refuse(g, n, "it keeps states, not pages that prompts can choose");
  if (!form->chooses) return serve_refuse(g, n, "its prompts attend to all pages");
  n->attrs.pages.prompt_share = s->prompt_blocks.share;
  n->attrs.pages.prompt_chunk = s->prompt_blocks.chunk;
  n->attrs.user = s->choices;
  return SL_OK;
}

/* Replaces the op; its outputs stay, and its state is appended. */
static sl_status exchange(sl_graph *g, sli_node *n) {
  const sl_op_serve *form = n->op->serve;
  const sl_op *op = form->op;
  SLI_TRY(choose_pages(g, n, form));
  set_format(n);
  int had = n->nout, nout = sli_op_outputs(op, &n->attrs, op->max_in);
  sl_tensor **out = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *out);
  memcpy(out, n->out, (size_t)had * sizeof *out);
  add_batch(g, n, n->op->max_in);
  const sl_serving *s = g->options.serve;
  n->attrs.pages.count = form->slots ? s->sequences * (1 + s->drafted) + s->kept : s->pages;
  g->options.serve->stateful |= form->slots;
  n->attrs.place.length = g->options.serve->context;
  n->attrs.numbers.bf16 = false;
  if (sli_op_memory(op)->updates && !form->slots) n->attrs.pages.storage = s->kv;
  n->op = op;
  n->out = out;
  n->nout = nout;
  n->out_type = sli_arena_alloc(&g->arena, (size_t)nout * sizeof *n->out_type);
  if (sli_node_infer(n)) return serve_refuse(g, n, sl_detail());
  if (keeps_otherwise(s, n))
    return serve_refuse(
        g, n,
        sli_arena_format(&g->arena, "it keeps data of earlier positions in f32, not in %s",
                         sli_storage_name(s->kv)));
  for (int o = had; o < nout; o++)
    sli_node_output(g, n, o, sli_arena_format(&g->arena, "%s:%d", n->name, o));
  return SL_OK;
}

/* True for a call that works row by row on a tick, on a device's rows of it or on those picked. */
static bool goes_by_rows(const sl_serving *s, const sli_node *n, int sharers) {
  return sli_keeps_rows(n, s->rows) || sli_keeps_rows(n, s->rows / sharers) ||
         sli_keeps_rows(n, s->picks);
}

static sl_status serve_node(sl_graph *g, sli_node *n, bool fed, int sharers) {
  if (!fed) return SL_OK;
  if (n->cls == SL_CLASS_L)
    return n == g->served.batch->producer
               ? SL_OK
               : serve_refuse(g, n, "a served model can read tokens only");
  if (n->op->serve) return exchange(g, n);
  const char *why = sli_attention_refusal(n->op, SLI_ATTENTION_SERVED);
  return goes_by_rows(g->options.serve, n, sharers)
             ? SL_OK
             : serve_refuse(
                   g, n,
                   sli_words(
                       n->op,
                       "it may mix positions (neither sl_op_cut.pieces nor sl_op.serve says that "
                       "it does not)",
                       why ? why : "it may mix positions in a way that has no served form"));
}

/* ---- capacity of experts -----------------------------------------------------------------------
 */

/* Removes limits on experts' rows: a limit would count rows of other sequences. */
static void lift_limits(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      sl_tensor **in = &g->nodes[i]->in[a];
      const sli_node *maker = *in ? (*in)->producer : NULL;
      if (maker && maker->op == &sl_op_expert_limit) *in = maker->in[0];
    }
}

/* ---- added nodes ----------------------------------------------------------------------------- */

/* Adds a node of a block (of class F), or on the host (of class L). */
static sl_tensor *add_node(sl_graph *g, const sl_op *op, sl_class cls, const sli_node *at, int nin,
                           sl_tensor *const *in) {
  const sl_attrs attrs = {.sampling.picks = g->options.serve->picks,
                          .sampling.words = g->options.serve->edits,
                          .numbers.exact = at->attrs.numbers.exact};
  int block = cls == SL_CLASS_L ? -1 : at->block;
  sli_node *n = sli_graph_node(g, op, op->name, &attrs, cls, block, nin, in, 1);
  n->at = at->at;
  return sli_node_infer(n) ? (serve_refuse(g, n, sl_detail()), NULL)
                           : sli_node_output(g, n, 0, op->name);
}

/* ---- begin
 * ---------------------------------------------------------------------------------------- */

/* Limits reads to the rows of a tick, of tokens or of their adapters. */
static sl_status begin_rows(sl_graph *g, sl_tensor *tokens) {
  sli_node *source = g->served.batch->producer, *first = g->nodes[source->id + 1];
  sl_tensor *in[] = {tokens, g->served.batch};
  sl_tensor *begun = tokens ? add_node(g, &sl_op_begin, SL_CLASS_L, first, 2, in) : NULL;
  if (!begun) return g->status;
  sli_graph_move_before(g, first);
  sli_graph_replace_reads(g, begun->producer->id + 1, tokens, begun);
  return SL_OK;
}

/* ---- end
 * ------------------------------------------------------------------------------------------- */

/* Returns the only input that is not a parameter, or NULL if there are several. */
static sl_tensor *only_input(const sli_node *n, int *at) {
  sl_tensor *found = NULL;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i] || n->in[i]->param) continue;
    if (found) return NULL;
    found = n->in[i];
    *at = i;
  }
  return found;
}

/* Returns the product that computes the logits, if later ops work on each row independently;
 * otherwise NULL. */
static sli_node *find_product(const sl_tensor *logits) {
  for (const sl_tensor *t = logits; t && t->producer;) {
    int at = 0;
    if (sli_op_weight(t->producer->op) == SL_WEIGHT_PRODUCT) return t->producer;
    t = only_input(t->producer, &at);
  }
  return NULL;
}

/* True for the sum of a linear map and its rows' adapters. */
static bool adds_places(const sl_graph *g, const sli_node *n) {
  const sli_node *high = n->op == &sl_op_add && n->in[1] ? n->in[1]->producer : NULL;
  return high && sli_op_weight(high->op) == SL_WEIGHT_EXPERTS && high->in[1] == g->served.adapters;
}

/* Removes the adapters of the product that computes the logits, since it has other rows. Returns
 * the logits. */
static sl_tensor *leave_out_places(sl_graph *g, sl_tensor *logits) {
  int at = 0;
  for (sl_tensor *t = logits, *next; g->served.adapters && t && t->producer; t = next) {
    if (sli_op_weight(t->producer->op) == SL_WEIGHT_PRODUCT) break;
    bool places = adds_places(g, t->producer);
    next = places ? t->producer->in[0] : only_input(t->producer, &at);
    if (places && t == logits) logits = next;
    else if (places) sli_graph_replace_reads(g, 0, t, next);
  }
  return logits;
}

/* Infers the types of all later nodes again, with the number of picked rows. */
static sl_status infer_again(sl_graph *g, const sli_node *from) {
  for (int i = from->id; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++) n->in_type[a] = *sl_tensor_type(n->in[a]);
    if (n->cls != SL_CLASS_F) continue;
    if (sli_node_infer(n)) return serve_refuse(g, n, sl_detail());
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) n->out[o]->type = n->out_type[o];
  }
  return SL_OK;
}

/* Makes the product multiply only the picked rows. *hidden: all rows, if they are an output. */
static sl_status pick_rows(sl_graph *g, sli_node *product, sl_tensor **hidden) {
  int at = 0;
  sl_tensor *x = only_input(product, &at);
  *hidden = g->options.serve->hidden ? x : NULL;
  if (!x) return serve_refuse(g, product, "it computes logits from two tensors");
  sl_tensor *picks = add_node(g, &sl_op_picks, SL_CLASS_L, product, 1, &g->served.batch);
  if (!picks) return g->status;
  sli_graph_move_before(g, product);
  sl_tensor *picked = add_node(g, &sl_op_pick, SL_CLASS_F, product, 2, (sl_tensor *[]){picks, x});
  if (!picked) return g->status;
  product->in[at] = picked;
  sli_graph_move_before(g, product);
  return infer_again(g, product);
}

static sl_status sample(sl_graph *g, sl_tensor *logits, sl_tensor *hidden) {
  sl_tensor *in[] = {logits, g->served.batch};
  sl_tensor *sampled = add_node(g, &sl_op_sample, SL_CLASS_F, logits->producer, 2, in);
  if (!sampled) return g->status;
  g->noutputs = 0;
  sl_output(g, "sampled", sampled);
  if (hidden) sl_output(g, "hidden", hidden);
  return SL_OK;
}

static sl_tensor *find_logits(sl_graph *g) {
  for (int i = 0; i < g->noutputs; i++)
    if (!strcmp(g->outputs[i].name, "logits") && g->outputs[i].tensor->type.ndim == 3)
      return g->outputs[i].tensor;
  sl_graph_fail(g, SL_E_UNSUPPORTED,
                "a served model needs an output \"logits\" with a row for each token");
  return NULL;
}

sl_status sli_pass_serve(sl_graph *g) {
  if (g->status) return sl_graph_status(g);
  sl_tensor *logits = find_logits(g);
  if (!logits) return sl_graph_status(g);
  if (!g->served.batch)
    return sl_graph_fail(g, SL_E_UNSUPPORTED, "a served model must read its tokens with sl_tokens");
  if (sli_lora_settle(g)) return sl_graph_status(g);
  round_weights(g);
  lift_limits(g);
  logits = leave_out_places(g, logits);
  sli_graph_prune(g, 2, (sl_tensor *[]){logits, g->served.batch});
  sli_node *product = find_product(logits);
  if (!product)
    return serve_refuse(g, logits->producer,
                        "its logits must come from the last product through calls that read one "
                        "tensor each, beside parameters and numbers");
  sl_status status = begin_rows(g, g->served.batch->producer->out[0]);
  if (!status) status = begin_rows(g, g->served.adapters);
  sl_tensor *hidden = NULL;
  if (!status) status = pick_rows(g, product, &hidden);
  return status ? status : sample(g, logits, hidden);
}

/* ---- allowed tokens
 * ------------------------------------------------------------------------------------------ */

/* Adds the actor that determines which tokens may come next. It belongs to no block, so it runs on
 * the host next to the first device and reads the batch. */
static void allow_tokens(sl_graph *g, sli_node *sample) {
  sl_serving *s = g->options.serve;
  const sl_attrs attrs = {.user = s, .sampling.picks = s->picks, .sampling.words = s->words};
  sl_tensor *batch[] = {g->served.batch};
  sli_node *n =
      sli_graph_node(g, &sl_op_allow, sl_op_allow.name, &attrs, SL_CLASS_L, -1, 1, batch, 1);
  n->at = sample->at;
  sl_status status = sli_node_infer(n);
  SLI_CHECK(!status, "%s: %s", n->name, sl_detail());
  sl_tensor *allowed = sli_node_output(g, n, 0, n->name);
  sli_graph_move_before(g, sample);
  sl_tensor **in = sli_arena_alloc(&g->arena, 3 * sizeof *in);
  sl_type *types = sli_arena_alloc(&g->arena, 3 * sizeof *types);
  memcpy(in, sample->in, 2 * sizeof *in);
  memcpy(types, sample->in_type, 2 * sizeof *types);
  in[2] = allowed;
  types[2] = allowed->type;
  sample->in = in;
  sample->in_type = types;
  sample->nin = 3;
}

/* ---- rows
 * ------------------------------------------------------------------------------------------ */

static bool is_own(const sl_op *op) {
  return op == &sl_op_begin || op == &sl_op_picks || op == &sl_op_pick || op == &sl_op_allow ||
         op == &sl_op_sample || op == &sl_op_part_rows || op == &sl_op_join_rows;
}

sl_status sli_pass_serve_rows(sl_graph *g, int sharers) {
  const bool *fed = find_fed(g);
  sl_status status = settle_weights(g, fed);
  for (int i = 0, n = g->nnodes; i < n && !status; i++)
    if (!is_own(g->nodes[i]->op)) status = serve_node(g, g->nodes[i], fed[i], sharers);
  for (int i = 0; i < g->nnodes && !status && g->options.serve->allow; i++)
    if (g->nodes[i]->op == &sl_op_sample && g->nodes[i]->nin < 3) allow_tokens(g, g->nodes[i]);
  return status;
}
