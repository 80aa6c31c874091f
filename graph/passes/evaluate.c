/* Evaluation: the way forward a second time, on other data, every so many steps.
 *
 * What the loss comes of is there once more, as nodes of their own that read other sources. They
 * read copies of the parameters, which the updates hand over after every N-th step; so training
 * goes on meanwhile, and what is evaluated is one version of all. To whoever comes behind this pass they
 * are nodes like all others, on the devices of those that they are copies of, but for how often
 * they fire. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

typedef struct pass {
  sl_graph *g;
  bool *wanted;     /* [tensors before] */
  sl_tensor **twin; /* [tensors before] what stands for it in an evaluation */
  int nnodes, ntensors; /* before */
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
  if (!g->nlosses) want(p, g->loss);
  for (int i = 0; i < g->nlosses; i++) want(p, g->losses[i].tensor);
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

/* Part of the update: of the version it has made. */
static sl_tensor *copy_param(pass *p, sl_tensor *t) {
  sl_graph *g = p->g;
  const sl_attrs none = {0};
  const char *name = sli_arena_format(&g->arena, "eval:%s%s%d", t->name, t->rank ? "#" : ":", t->rank);
  sli_node *n = sli_graph_node(g, &sl_op_copy, name, &none, SL_CLASS_U, t->home, 1, &t, 1);
  n->rank = t->rank;
  n->phase = SLI_PHASE_UPDATE;
  n->per_step = n->eval = true;
  n->out_type[0] = t->type;
  return sli_node_output(g, n, 0, name);
}

static void copy_node(pass *p, const sli_node *from) {
  sl_graph *g = p->g;
  sl_tensor *in[from->nin + 1];
  for (int a = 0; a < from->nin; a++) in[a] = from->in[a] ? p->twin[from->in[a]->id] : NULL;
  const char *name = sli_arena_format(&g->arena, "eval:%s", from->name);
  sl_attrs attrs = from->attrs;
  if (from->op == &sl_op_source) attrs.user = sli_source_for_eval(attrs.user);
  sli_node *n = sli_graph_node(g, from->op, name, &attrs, from->cls, from->block, from->nin, in,
                               from->nout);
  n->at = from->at;
  n->rank = from->rank;
  n->phase = SLI_PHASE_EVAL;
  n->per_step = from->per_step;
  n->eval = true;
  n->remote_axis = from->remote_axis;
  n->remote_bytes = from->remote_bytes;
  n->accumulate_span = from->accumulate_span;
  n->in_type = from->in_type;
  n->out_type = from->out_type;
  n->shapes = from->shapes;
  for (int o = 0; o < from->nout; o++) {
    const sl_tensor *t = from->out[o];
    if (!t || (!p->wanted[t->id] && !sli_bit(n->op->updates, o))) continue; /* records stay */
    sl_tensor *twin = p->twin[t->id] =
        sli_node_output(g, n, o, sli_arena_format(&g->arena, "eval:%s", t->name));
    twin->rank = t->rank;
    twin->narrow = t->narrow;
  }
}

static sl_status check_sources(const pass *p) {
  for (int i = 0; i < p->nnodes; i++) {
    const sli_node *n = p->g->nodes[i];
    if (n->op == &sl_op_source && is_wanted(p, n) && !sli_source_for_eval(n->attrs.user))
      return sl_fail(SL_E_UNSUPPORTED, "evaluation: %s is no source of tokens (sl_tokens), so it has no "
                     "other files to read", n->name);
    for (int o = 0; o < n->nout; o++)
      if (n->out[o] && p->wanted[n->out[o]->id] && n->out[o]->transient)
        return sl_fail(SL_E_UNSUPPORTED, "evaluation: not with --shard parameters");
  }
  return SL_OK;
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

sl_status sli_pass_evaluate(sl_graph *g, sl_tensor **losses) {
  pass p = {.g = g, .nnodes = g->nnodes, .ntensors = g->ntensors,
            .wanted = sli_calloc((size_t)g->ntensors, sizeof *p.wanted),
            .twin = sli_calloc((size_t)g->ntensors, sizeof(sl_tensor *))};
  find_wanted(&p);
  sl_status status = check_sources(&p);
  if (!status) copy_all(&p);
  for (int i = 0; i < SLI_MAX(g->nlosses, 1) && !status; i++)
    losses[i] = p.twin[g->nlosses ? g->losses[i].tensor->id : g->loss->id];
  free(p.wanted);
  free(p.twin);
  return status;
}
