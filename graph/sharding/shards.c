/* SPDX-License-Identifier: Apache-2.0 */
/* Devices' parts of parameters, of parameter gradients, of the loss and of metrics.
 *
 * Parameters have the layout that their updates want: that of their first reader, and shards along
 * the row axes if the optimizer state is sharded. Their gradients are boxed into that layout, once
 * per step or, if gradients are sharded too, every tick. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "graph/sharding/expand.h"

static const sl_sbp broadcast = {SL_BROADCAST, 0};

/* Returns the row axes along which devices hold the same part of a parameter; for expert weights,
 * the axes along which experts are not sharded. */
static sli_along replicas(const sli_expansion *x, const sl_tensor *param, sli_layout lies) {
  sli_along along = 0, rows = sli_share_row(x, param, SLI_AXIS_DATA);
  for (int a = 0; a < SLI_AXES; a++)
    if (rows >> a & 1 && lies.axis[a].kind == SL_BROADCAST) along |= 1u << a;
  return along;
}

static bool is_split(const sli_expansion *x, sli_layout lies, int dim) {
  bool any = false;
  sli_along along = sli_grid_rows() | (x->grid->folded ? sli_grid_experts() : 0);
  for (int a = 0; a < SLI_AXES; a++)
    any |= along >> a & 1 && lies.axis[a].kind == SL_SPLIT && lies.axis[a].dim == dim;
  return any;
}

/* Returns the split along these axes treated as one: the first dim with a part for each device. */
static sl_sbp shard_dim(const sli_expansion *x, const sl_tensor *param, sli_layout lies) {
  int size = sli_grid_size(x->grid, replicas(x, param, lies));
  bool kept_whole = !param->update && x->sharding < SLI_SHARD_PARAMETERS; /* never updated */
  kept_whole |= param->update && param->update->rule->update->whole;
  if (x->sharding == SLI_SHARD_NOTHING || size == 1 || kept_whole) return broadcast;
  for (int d = 0; d < param->type.ndim; d++) {
    bool enough = !is_split(x, lies, d);
    for (int r = 0; r < x->ranks; r++)
      enough &= sli_local_type(x, param, lies, r, 0).dim[d] >= size;
    if (enough) return (sl_sbp){SL_SPLIT, d};
  }
  return broadcast;
}

/* True if the split divides experts, not the rows of replicated experts. */
static bool is_of_experts(const sli_expansion *x, const sl_tensor *param, sli_cutting cut) {
  return !(cut.along & ~sli_grid_experts()) && sli_is_of_experts(x, param);
}

static const sl_shard *shard_of(sli_expansion *x, const sl_tensor *param, sli_layout lies,
                                int rank) {
  sl_shard *shard = sli_arena_alloc(&x->g->arena, sizeof *shard);
  *shard = (sl_shard){param->type, SL_ALL_PARTS};
  sl_type type = param->type;
  sli_cutting cut[SLI_AXES];
  int count = sli_layout_cuttings(x, param, &lies, cut);
  for (int i = 0; i < count; i++) {
    bool inner = cut[i].along == 1u << SLI_AXIS_STAGES || is_of_experts(x, param, cut[i]);
    bool rows = !inner && cut[i].along & sli_share_row(x, param, SLI_AXIS_DATA);
    int place = rows ? 2 : inner ? 1 : 0; /* experts or stages first, then rows */
    int member = sli_rank_share(x->grid, rank, cut[i].along);
    shard->parts[place] = sli_cut_part(x, param, cut[i], member, &type);
    type = sl_part_type(&type, &shard->parts[place]);
  }
  return count ? shard : NULL;
}

/* True if a device of lower rank has the same part. */
static bool is_replica(const sli_expansion *x, sli_layout lies, int rank) {
  for (int a = 0; a < SLI_AXES; a++)
    if (lies.axis[a].kind == SL_BROADCAST && sli_rank_member(x->grid, rank, 1u << a)) return true;
  return false;
}

/* Returns the layout that updates want, without ZeRO shards. */
static sli_layout param_layout(const sli_expansion *x, const sl_tensor *logical) {
  sli_layout lies;
  for (int a = 0; a < SLI_AXES; a++) lies.axis[a] = sli_share_param(x, logical, a);
  return lies;
}

/* Returns the layout of ZeRO shards of a parameter in layout `lies`. */
static sli_layout shard_layout(const sli_expansion *x, const sl_tensor *logical, sli_layout lies) {
  sl_sbp shards = shard_dim(x, logical, lies);
  sli_along along = replicas(x, logical, lies);
  for (int a = 0; a < SLI_AXES; a++)
    if (along >> a & 1 && x->grid->size[a] > 1) lies.axis[a] = shards;
  return lies;
}

static void add_param(sli_expansion *x, const sl_tensor *logical) {
  sl_graph *g = x->g;
  sli_layout whole = param_layout(x, logical), lies = shard_layout(x, logical, whole);
  sli_moment home = {SL_CLASS_U, logical->home, SLI_PHASE_PACK, sli_is_stage_sharded(&lies)};
  sli_array *a = sli_array_add(x, logical, lies, home);
  a->sharded = home.sharded;
  for (int r = 0; r < sli_own_ranks(x, a->sharded); r++) {
    sl_type type = sli_local_type(x, logical, lies, r, 0);
    sl_tensor *t = a->on[r] = sli_graph_tensor(g, &type, logical->name);
    t->at = logical->at;
    t->param = true;
    t->needs_grad = logical->needs_grad;
    t->update = logical->update;
    t->running = logical->running;
    t->adapter = logical->adapter;
    t->frozen = logical->frozen;
    t->init = logical->init;
    t->storage = logical->storage;
    t->values = logical->values;
    t->home = sli_block_of(x, logical->home, a->sharded, r);
    t->rank = r;
    t->shard = shard_of(x, logical, lies, r);
    t->replica = is_replica(x, lies, r);
    t->param_index = g->nparams;
    SLI_GROW(g->params, (size_t)g->nparams, g->capacity.params);
    g->params[g->nparams++] = t;
    t->ngrads = logical->ngrads;
    t->grads = sli_arena_alloc(&g->arena, (size_t)t->ngrads * sizeof *t->grads);
    sli_note_types(x, t, &type, 0);
  }
  sli_stand_for_all(x, a);
  for (int u = 0; u < logical->ngrads && x->sharding >= SLI_SHARD_GRADIENTS; u++)
    x->shared[logical->grads[u]->id] = !sli_layout_equal(&whole, &lies);
}

void sli_expand_params(sli_expansion *x) {
  for (int p = 0; p < x->nparams; p++) add_param(x, x->params[p]);
}

/* ---- gradients of parameters -------------------------------------------------------- */

bool sli_is_shared_at_once(const sli_expansion *x, const sl_tensor *grad, sli_layout lies) {
  bool summands = false;
  sli_along rows = sli_share_row(x, grad, SLI_AXIS_DATA);
  for (int a = 0; a < SLI_AXES; a++) summands |= rows >> a & 1 && lies.axis[a].kind == SL_PARTIAL;
  return x->shared[grad->id] && summands;
}

/* Adds a tick's part of a gradient, which a collective made, to those of earlier ticks. */
static sl_status add_up(sli_expansion *x, const sli_array *part, int rank, sl_tensor **sum) {
  const char *name = sli_arena_format(&x->g->arena, "%s:sum.%d", part->tensor->name, x->nboxes);
  const sli_making making = {
      .op = &sl_op_sum,
      .name = name,
      .at = part->made,
      .cls = SL_CLASS_C,
      .rank = rank,
      .nin = 1,
      .nout = 1,
      .in = &part->on[rank],
      .attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof(sl_attrs)),
      .where = part->tensor->at};
  sli_node *n;
  SLI_TRY(sli_expand_node(x, &making, &n));
  *sum = sli_expand_output(x, n, 0, sli_expand_name(x, name, rank));
  (*sum)->transient = part->on[rank]->transient;
  return SL_OK;
}

/* Boxes a gradient into the layout that its update wants. */
static sl_status box_gradient(sli_expansion *x, const sl_tensor *logical, const sl_tensor *grad,
                              sl_tensor **on) {
  sli_array *made = x->arrays[grad->id], *out;
  SLI_CHECK(x->shaped[grad->id] == logical->id, "gradient %s has parts of its own", grad->name);
  bool every_tick = sli_is_shared_at_once(x, grad, made->layout);
  sli_moment at = made->made;
  at.cls = SL_CLASS_C; /* not part of a pass */
  bool sharded = x->arrays[logical->id]->sharded;
  if (!every_tick) at = (sli_moment){SL_CLASS_U, logical->home, SLI_PHASE_NORM, sharded};
  sl_status status = sli_box(x, grad, x->arrays[logical->id]->layout, at, &out);
  for (int r = 0; r < x->ranks && !status; r++) {
    on[r] = out->on[r];
    if (every_tick && on[r]->producer->along) status = add_up(x, out, r, &on[r]);
    if (every_tick) on[r]->producer->accumulate_span |= 1u << on[r]->output;
  }
  return status;
}

/* Returns the parameter whose gradient this is, and sets the index of its use, or returns NULL. */
static const sl_tensor *owner_of(const sli_expansion *x, const sl_tensor *grad, int *use) {
  for (int p = 0; p < x->nparams; p++)
    for (*use = 0; *use < x->params[p]->ngrads; ++*use)
      if (x->params[p]->grads[*use] == grad) return x->params[p];
  return NULL;
}

/* Boxes the gradients in the order in which they are computed. */
sl_status sli_expand_gradients(sli_expansion *x) {
  sl_tensor *on[x->ranks];
  for (int i = 0; i < x->nlogical; i++) {
    const sli_node *n = x->logical[i];
    for (int o = 0, use; o < n->nout; o++) {
      const sl_tensor *logical =
          n->out[o] && sli_bit(n->accumulate_span, o) ? owner_of(x, n->out[o], &use) : NULL;
      if (!logical) continue;
      sl_status status = box_gradient(x, logical, n->out[o], on);
      if (status) return status;
      const sli_array *param = x->arrays[logical->id];
      for (int r = 0; r < sli_own_ranks(x, param->sharded); r++) param->on[r]->grads[use] = on[r];
    }
  }
  return SL_OK;
}

/* ---- parameters of rollouts ------------------------------------------------------------------ */

/* Adds a placeholder for a device's read of a parameter, until the rollout graph is added. */
static sl_status read_whole(sli_expansion *x, const sl_tensor *param, int rank, sl_tensor *whole) {
  sl_graph *g = x->g;
  const sl_attrs attrs = {0};
  const char *name = sli_arena_format(&g->arena, "%s@%d", param->name, rank);
  sli_node *n = sli_graph_node(g, &sl_op_copy, name, &attrs, SL_CLASS_U, param->home, 1, &whole, 1);
  n->rank = rank;
  n->at = param->at;
  n->phase = SLI_PHASE_ROLLOUT;
  n->pace = SLI_PACE_ROLLOUT;
  n->per_step = true;
  SLI_TRY(sli_node_infer(n));
  sli_expand_output(x, n, 0, param->name);
  g->rollouts.reads[g->rollouts.nreads++] = n;
  return SL_OK;
}

sl_status sli_expand_rollouts(sli_expansion *x) {
  static const sli_layout everywhere;
  struct sli_rollouts *of = &x->g->rollouts;
  of->reads = sli_arena_alloc(&x->g->arena, (size_t)(of->count * x->nparams) * sizeof *of->reads);
  for (int p = 0; p < x->nparams && of->count; p++) {
    const sl_tensor *param = x->params[p];
    if (param->frozen || param->home < 0) continue;
    sli_array *whole;
    sli_moment at = {SL_CLASS_U, param->home, of->ahead ? SLI_PHASE_ROLLOUT : SLI_PHASE_PACK,
                     false};
    SLI_TRY(sli_box(x, param, everywhere, at, &whole));
    for (int r = 0; r < of->count; r++) SLI_TRY(read_whole(x, param, r, whole->on[r]));
  }
  return SL_OK;
}

/* ---- the loss, metrics, counters ----------------------------------------------------------- */

/* Sets the devices' parts of a mean, weighted by `share`; share NULL: the parts are summands. */
static void expand_mean(sli_expansion *x, sli_mean *mean, const double *share) {
  const sli_array *a = x->arrays[mean->tensor->id];
  mean->parts = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *mean->parts);
  mean->nparts = 0;
  for (int r = 0; r < x->ranks; r++)
    if (!is_replica(x, a->layout, r))
      mean->parts[mean->nparts++] =
          (struct sli_mean_part){a->on[r], share ? &share[r * x->nvariants] : NULL};
  mean->tensor = a->on[0];
}

static void expand_outputs(const sli_expansion *x) {
  sl_graph *g = x->g;
  for (int i = 0; i < g->noutputs; i++)
    g->outputs[i].tensor = x->arrays[g->outputs[i].tensor->id]->on[0];
  g->served.batch = x->arrays[g->served.batch->id]->on[0];
}

void sli_expand_results(sli_expansion *x) {
  int means = sli_graph_means(x->g);
  if (x->g->options.serve) {
    expand_outputs(x);
    return;
  }
  for (int i = 0; i < sli_graph_kept(x->g); i++)
    expand_mean(x, sli_graph_keep(x->g, i),
                i < means ? &x->share[i * x->ranks * x->nvariants] : NULL);
}

/* ---- unused nodes ------------------------------------------------------------------ */

static void prune_served(sl_graph *g) {
  sli_graph_prune(g, 2, (sl_tensor *[]){g->outputs[0].tensor, g->served.batch});
}

static void prune_trained(sl_graph *g) {
  int kept = sli_graph_kept(g), nroots = g->rollouts.nreads, n = 0;
  for (int i = 0; i < kept; i++) nroots += sli_graph_keep(g, i)->nparts;
  for (int p = 0; p < g->nparams; p++) nroots += g->params[p]->ngrads;
  sl_tensor **roots = sli_arena_alloc(&g->arena, (size_t)nroots * sizeof *roots);
  for (int i = 0; i < kept; i++) n = sli_mean_tensors(sli_graph_keep(g, i), roots, n);
  for (int p = 0; p < g->nparams; p++)
    for (int u = 0; u < g->params[p]->ngrads; u++) roots[n++] = g->params[p]->grads[u];
  for (int i = 0; i < g->rollouts.nreads; i++) roots[n++] = g->rollouts.reads[i]->out[0];
  sli_graph_prune(g, nroots, roots);
}

static void prune(sl_graph *g) {
  if (g->options.serve) prune_served(g);
  else prune_trained(g);
}

/* Drops replicas of parameters that no node reads: for example, a bias that only the first device
 * of a sum adds. Returns true if any were dropped. */
static bool drop_unread(sl_graph *g) {
  int kept = 0, all = g->nparams;
  for (int p = 0; p < g->nparams; p++) {
    sl_tensor *t = g->params[p];
    if (t->replica && t->home < 0) continue;
    t->param_index = kept;
    g->params[kept++] = t;
  }
  g->nparams = kept;
  return kept < all;
}

/* Drops unused nodes, then unread parameters. Dropping their updates may leave other parameters
 * unread, so this repeats. */
void sli_expand_prune(sl_graph *g) {
  prune(g);
  while (drop_unread(g)) prune(g);
}
