/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: a second forward pass, on held-out data, every eval_every steps.
 *
 * The pass duplicates the nodes that the loss and the metrics depend on. The copies read held-out
 * data, have no dropout, and use running statistics in batch norm. They read copies of the
 * parameters that the updates hand over after every N-th step, so training continues meanwhile, and
 * an evaluation sees one version of all parameters. For later passes they are ordinary nodes on the
 * devices of the originals, except that they fire less often. Nodes that only metrics need are
 * removed from training. */
#include "actors/plan/plan.h"
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct pass {
  sl_graph *g;
  bool *wanted;         /* [tensors before] the evaluation needs it */
  sl_tensor **twin;     /* [tensors before] copy used by an evaluation */
  int nnodes, ntensors; /* counts before this pass */
} pass;

static void want(pass *p, const sl_tensor *t) {
  if (t) p->wanted[t->id] = true;
}

static bool is_wanted(const pass *p, const sli_node *n) {
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !n->out[o]->param && p->wanted[n->out[o]->id]) return true;
  return false;
}

static void find_wanted(pass *p) {
  sl_graph *g = p->g;
  for (int m = 0; m < sli_graph_means(g); m++)
    for (int i = 0; i < sli_graph_mean(g, m)->nparts; i++)
      want(p, sli_graph_mean(g, m)->parts[i].tensor);
  for (int i = p->nnodes - 1; i >= 0; i--)
    for (int a = 0; a < g->nodes[i]->nin && is_wanted(p, g->nodes[i]); a++)
      want(p, g->nodes[i]->in[a]);
}

static bool is_updated(const pass *p, const sl_tensor *t) {
  for (int i = 0; i < p->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    for (int o = 0; o < n->nout && n->cls == SL_CLASS_U; o++)
      if (n->out[o] == t) return true;
  }
  return false;
}

/* Copies a parameter as part of the update: the evaluation gets the new version. */
static sl_tensor *copy_param(pass *p, sl_tensor *t) {
  sl_graph *g = p->g;
  const sl_attrs none = {0};
  const char *name =
      sli_arena_format(&g->arena, "eval:%s%s%d", t->name, t->rank ? "#" : ":", t->rank);
  sli_node *n = sli_graph_node(g, &sl_op_copy, name, &none, SL_CLASS_U, t->home, 1, &t, 1);
  n->rank = t->rank;
  n->phase = SLI_PHASE_UPDATE;
  n->per_step = true;
  n->pace = SLI_PACE_EVAL;
  n->out_type[0] = t->type;
  return sli_node_output(g, n, 0, name);
}

static sl_type *copies(sl_graph *g, const sl_type *types, int count) {
  sl_type *out = sli_arena_alloc(&g->arena, (size_t)count * sizeof *out);
  return memcpy(out, types, (size_t)count * sizeof *out);
}

/* Copies the types, since later passes may change those of only one of the two nodes. */
static void copy_types(sl_graph *g, sli_node *n, const sli_node *from) {
  int nin = SLI_MAX(from->nin, from->op->max_in), variants = from->shapes ? g->cut.nvariants : 0;
  n->in_type = copies(g, from->in_type, nin);
  n->out_type = copies(g, from->out_type, from->nout);
  if (!variants) return;
  n->shapes = sli_arena_alloc(&g->arena, (size_t)variants * sizeof *n->shapes);
  for (int v = 0; v < variants; v++) {
    n->shapes[v] = from->shapes[v];
    n->shapes[v].in = copies(g, from->shapes[v].in, nin);
    n->shapes[v].out = copies(g, from->shapes[v].out, from->nout);
  }
}

/* Makes batch norm and its kind read their running statistics. */
static void read_statistics(const sl_graph *g, sli_node *n) {
  if (!sli_op_is(n->op, SL_OP_AVERAGES)) return;
  n->attrs.norm.given = true;
  for (int v = 0; n->shapes && v < g->cut.nvariants; v++) n->shapes[v].attrs.norm.given = true;
}

/* Skips dropout. */
static bool passes_on(pass *p, const sli_node *n) {
  if (!sli_op_is(n->op, SL_OP_SKIPPED)) return false;
  p->twin[n->out[0]->id] = p->twin[n->in[0]->id];
  return true;
}

static void copy_node(pass *p, const sli_node *from) {
  if (passes_on(p, from)) return;
  sl_graph *g = p->g;
  sl_tensor *in[from->nin + 1];
  for (int a = 0; a < from->nin; a++) in[a] = from->in[a] ? p->twin[from->in[a]->id] : NULL;
  const char *name = sli_arena_format(&g->arena, "eval:%s", from->name);
  sl_attrs attrs = from->attrs;
  bool source = sli_op_is(from->op, SL_OP_SOURCE);
  if (source) attrs.user = sli_source_held_out(g, attrs.user);
  sli_node *n =
      sli_graph_node(g, from->op, name, &attrs, from->cls, from->block, from->nin, in, from->nout);
  n->at = from->at;
  n->rank = from->rank;
  n->phase = SLI_PHASE_EVAL;
  n->per_step = from->per_step;
  n->pace = SLI_PACE_EVAL;
  n->remote_axis = from->remote_axis;
  n->remote_bytes = from->remote_bytes;
  n->along = from->along;
  n->accumulate_span = from->accumulate_span;
  copy_types(g, n, from);
  for (int v = 0; n->shapes && source && v < g->cut.nvariants; v++)
    n->shapes[v].attrs.user = attrs.user;
  read_statistics(g, n);
  for (int o = 0; o < from->nout; o++) {
    const sl_tensor *t = from->out[o];
    if (!t || (!p->wanted[t->id] && !sli_bit(sli_op_memory(n->op)->updates, o)))
      continue; /* records stay */
    sl_tensor *twin = p->twin[t->id] =
        sli_node_output(g, n, o, sli_arena_format(&g->arena, "eval:%s", t->name));
    twin->rank = t->rank;
    twin->transient = t->transient;
    twin->narrow = t->narrow;
  }
}

/* Returns the rows of a microbatch; 0 if outputs differ, or rows are cut. */
static int evaluate_rows_of(const sl_source *source) {
  int64_t rows = source->nout && source->types[0].ndim ? source->types[0].dim[0] : 0;
  for (int o = 0; o < source->nout; o++)
    if (!source->types[o].ndim || source->types[o].dim[0] != rows) return 0;
  return source->cut == 1 || rows > INT32_MAX ? 0 : (int)rows;
}

/* Amount of held-out data of all sources. */
typedef struct amount {
  int sources, rows;         /* rows of a microbatch; 0: unknown, or sources differ */
  int64_t all, microbatches; /* rows in total; whole microbatches */
} amount;

static void count_source(amount *a, const sl_source *source) {
  int rows = evaluate_rows_of(source);
  int64_t all = (int64_t)source->held_out * rows + (rows ? source->held_out_rest : 0);
  a->rows = a->sources++ && a->rows != rows ? 0 : rows;
  a->all = SLI_MIN(a->all, all);
  a->microbatches = SLI_MIN(a->microbatches, source->held_out);
}

static sl_status count_sources(const pass *p, amount *a) {
  *a = (amount){.all = INT64_MAX, .microbatches = INT64_MAX};
  for (int i = 0; i < p->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    const sl_source *source = n->attrs.user;
    if (!sli_op_is(n->op, SL_OP_SOURCE) || !is_wanted(p, n)) continue;
    if (!source->fill_held_out || (source->held_out < 1 && source->held_out_rest < 1))
      return sl_fail(
          SL_E_USAGE,
          "evaluation: %s has no held-out data: --eval FILE gives it to a model that reads text, "
          "chats or pairs, held_out to arrays of Python, sl_source.fill_held_out to a source in C",
          n->name);
    count_source(a, source);
  }
  const char *eval = p->g->options.eval;
  if (p->g->reads_eval || !eval) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "--eval %s: the model has a source of its own, which does not read it; --eval-every alone "
      "evaluates what that source holds out",
      eval);
}

/* Returns the number of parts into which the left-over rows are split; each part is the largest
 * divisor of a microbatch that fits. */
static int count_parts(int rows, int rest) {
  int count = 0;
  for (int part = rows; rest; rest -= part, count++)
    while (part > rest || rows % part) part--;
  return count;
}

/* Sets the size of an evaluation: the data that all sources have, or eval_rows. */
static sl_status count_microbatches(const pass *p) {
  sl_graph *g = p->g;
  amount a;
  sl_status status = count_sources(p, &a);
  if (status) return status;
  int64_t limit = g->options.eval_rows, most = SLI_TICKS_MOST / SLI_MAX(g->options.pieces, 1);
  if (limit && !a.rows)
    return sl_fail(SL_E_USAGE,
                   "--eval-rows %lld: the model's held-out data does not consist of rows",
                   (long long)limit);
  if (limit) a.all = SLI_MIN(a.all, limit);
  int64_t whole = a.rows ? a.all / a.rows : a.microbatches;
  int rest = a.rows ? (int)(a.all % a.rows) : 0;
  g->evaluated =
      (struct sli_evaluated){.rows = a.rows, .rest = rest, .whole = (int)SLI_MIN(whole, most)};
  g->evaluated.microbatches = g->evaluated.whole + (rest ? count_parts(a.rows, rest) : 0);
  if (whole <= most && g->evaluated.microbatches <= most && g->evaluated.microbatches) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "evaluation: %lld microbatches of held-out data: must be from 1 to %lld; --eval-rows N "
      "limits the rows",
      (long long)whole, (long long)most);
}

static void copy_all(pass *p) {
  sl_graph *g = p->g;
  for (int i = 0; i < p->ntensors; i++) {
    sl_tensor *t = g->tensors[i];
    if (t->param && p->wanted[i]) p->twin[i] = is_updated(p, t) ? copy_param(p, t) : t;
  }
  for (int i = 0; i < p->nnodes; i++)
    if (is_wanted(p, g->nodes[i])) copy_node(p, g->nodes[i]);
}

static sli_mean twin_of(const pass *p, const sli_mean *mean) {
  sli_mean twin = *mean;
  twin.parts = sli_arena_alloc(&p->g->arena, (size_t)mean->nparts * sizeof *twin.parts);
  for (int i = 0; i < mean->nparts; i++)
    twin.parts[i] =
        (struct sli_mean_part){p->twin[mean->parts[i].tensor->id], mean->parts[i].share};
  twin.tensor = twin.parts[0].tensor;
  return twin;
}

/* Keeps the nodes of training and of the evaluation. */
static void prune(sl_graph *g, const sli_mean *twins) {
  int most = 1 + g->loss.nparts + g->logprobs.nparts, n = 0;
  for (int m = 0; m < sli_graph_means(g); m++) most += twins[m].nparts;
  for (int t = 0; t < g->metrics.counters.count; t++) most += g->metrics.counters.of[t].nparts;
  sl_tensor **roots = sli_arena_alloc(&g->arena, (size_t)most * sizeof *roots);
  roots[n++] = g->grad_norm;
  n = sli_mean_tensors(&g->loss, roots, n);
  for (int m = 0; m < sli_graph_means(g); m++) n = sli_mean_tensors(&twins[m], roots, n);
  for (int t = 0; t < g->metrics.counters.count; t++)
    n = sli_mean_tensors(&g->metrics.counters.of[t], roots, n);
  n = sli_mean_tensors(&g->logprobs, roots, n);
  sli_graph_prune(g, n, roots);
}

sl_status sli_pass_evaluate(sl_graph *g, sli_mean *twins) {
  pass p = {.g = g,
            .nnodes = g->nnodes,
            .ntensors = g->ntensors,
            .wanted = sli_calloc((size_t)g->ntensors, sizeof *p.wanted),
            .twin = sli_calloc((size_t)g->ntensors, sizeof(sl_tensor *))};
  find_wanted(&p);
  sl_status status = count_microbatches(&p);
  if (!status) copy_all(&p);
  for (int m = 0; m < sli_graph_means(g) && !status; m++)
    twins[m] = twin_of(&p, sli_graph_mean(g, m));
  if (!status && sli_graph_means(g) > 1) prune(g, twins);
  free(p.wanted);
  free(p.twin);
  return status;
}
