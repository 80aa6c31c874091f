/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a program that depend on each other. */
#include "pytorch/dependence.h"

#include "pytorch/fold.h"
#include "pytorch/import.h"

static void mark_args(bool *on, const sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) mark_args(on, args[i].list.of, args[i].list.count);
    else if (args[i].kind == SLI_PT_VALUE) on[args[i].value->id] = true;
}

static bool any_arg(const bool *on, const sli_pt_arg *args, int count) {
  bool any = false;
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) any |= any_arg(on, args[i].list.of, args[i].list.count);
    else any |= args[i].kind == SLI_PT_VALUE && !args[i].value->symbol && on[args[i].value->id];
  return any;
}

static bool *new_marks(sl_graph *g, const sli_pt_program *p) {
  return sl_graph_alloc(g, ((size_t)p->nvalues + 1) * sizeof(bool));
}

bool *sli_pt_sources_of(sl_graph *g, const sli_pt_program *p, const sli_pt_value *v) {
  bool *on = new_marks(g, p);
  on[v->id] = true;
  for (int i = p->nnodes - 1; i >= 0; i--) {
    const sli_pt_node *n = p->nodes[i];
    bool wanted = false;
    for (int k = 0; k < n->nouts; k++) wanted |= n->outs[k] && on[n->outs[k]->id];
    if (wanted) mark_args(on, n->args, n->nargs);
  }
  return on;
}

/* Adds to the marks all that is computed from marked values. */
static bool *spread_marks(const sli_pt_program *p, bool *on) {
  for (int i = 0; i < p->nnodes; i++) {
    const sli_pt_node *n = p->nodes[i];
    const sli_pt_call *row = sli_pt_call_find(n->target);
    bool shape_only = row && row->fold == sli_fold_fill;
    bool any = !shape_only && any_arg(on, n->args, n->nargs);
    for (int k = 0; any && k < n->nouts; k++)
      if (n->outs[k]) on[n->outs[k]->id] = true;
  }
  return on;
}

bool *sli_pt_results_of(sl_graph *g, const sli_pt_program *p, const sli_pt_value *v) {
  bool *on = new_marks(g, p);
  on[v->id] = true;
  return spread_marks(p, on);
}

bool *sli_pt_results_of_role(sl_graph *g, const sli_pt_program *p, sli_pt_role role) {
  bool *on = new_marks(g, p);
  for (int i = 0; i < p->ninputs; i++) on[p->inputs[i].value->id] = p->inputs[i].role == role;
  return spread_marks(p, on);
}
