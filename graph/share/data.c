/* The data axis: nothing to choose, and much that may be impossible. */
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/share/search.h"

typedef struct pass {
  sl_graph *g;
  const sli_dim *dims;
  int size;
  sl_sbp *lies; /* [ntensors] of what has been made so far */
} pass;

static sl_status refuse_source(const pass *p, const sli_node *n) {
  for (int o = 0; o < n->nout; o++) {
    const sl_type *type = &n->out_type[o];
    char text[SL_TYPE_TEXT];
    if (type->ndim && type->dim[0] >= p->size) continue;
    return sli_graph_fail_at(p->g, n->at, SL_E_USAGE, "the data of %s cannot be shared out over %d "
                             "devices: its output %d, %s, has %s", n->name, p->size, o,
                             sli_type_text(text, type), type->ndim ? "too few rows" : "no rows");
  }
  return sli_graph_fail_at(p->g, n->at, SL_E_USAGE, "the data of %s cannot be shared out over %d "
                           "devices: it is not cut into rows along dim 0", n->name, p->size);
}

static const char *lies_in_words(sli_arena *arena, sl_sbp lies) {
  if (lies.kind == SL_SPLIT) return sli_arena_format(arena, "split along dim %d", lies.dim);
  return lies.kind == SL_PARTIAL ? "a summand on each" : "whole on each";
}

/* "ids i32[8, 4] split along dim 0, table f32[16, 8] whole on each" */
static const char *describe(const pass *p, const sli_node *n) {
  sli_arena *arena = &p->g->arena;
  const char *text = "";
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    char type[SL_TYPE_TEXT];
    text = sli_arena_format(arena, "%s%s%s %s %s", text, *text ? ", " : "", n->in[i]->name,
                            sl_type_format(type, &n->in_type[i]),
                            lies_in_words(arena, p->lies[n->in[i]->id]));
  }
  return text;
}

/* What is whole on each may be wanted as a sum, of which the first has all; and where it has no gradient,
 * each device may as well take its part. */
static bool may_be_boxed(const pass *p, const sl_tensor *t, sl_sbp want) {
  if (p->lies[t->id].kind != SL_BROADCAST) return false;
  return want.kind == SL_PARTIAL || (want.kind == SL_SPLIT && !t->needs_grad && !t->param);
}

static bool fits(const pass *p, const sli_node *n, const sl_signature *s, bool boxed) {
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i] || sli_sbp_equal(p->lies[n->in[i]->id], sli_signature_in(s, i))) continue;
    if (!boxed || !may_be_boxed(p, n->in[i], sli_signature_in(s, i))) return false;
  }
  return true;
}

/* Rows come in equal numbers of elements, so where the units of a dim are of several (as where
 * rows were put together) each device must have as many units as the others. */
static bool is_even(const pass *p, const sl_tensor *t, sl_sbp sbp) {
  if (!t || sbp.kind != SL_SPLIT) return true;
  int64_t units = p->dims[t->id * SL_MAX_DIMS + sbp.dim].units;
  return units == t->type.dim[sbp.dim] || units % p->size == 0;
}

static bool are_even(const pass *p, const sli_node *n, const sl_signature *s) {
  for (int i = 0; i < n->nin; i++)
    if (!is_even(p, n->in[i], sli_signature_in(s, i))) return false;
  for (int o = 0; o < n->nout; o++)
    if (!is_even(p, n->out[o], sli_signature_out(s, o))) return false;
  return true;
}

/* What it reads that each device has a summand of; NULL: nothing. */
static const sl_tensor *summand(const pass *p, const sli_node *n) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && p->lies[n->in[i]->id].kind == SL_PARTIAL) return n->in[i];
  return NULL;
}

static sl_status choose(const pass *p, const sli_node *n, sl_signature *out) {
  sl_signature all[SL_SIGNATURES];
  int count = sli_signatures(p->g, p->dims, n, p->size, all);
  if (n->op == &sl_op_source && !n->whole) {
    if (count < 2) return refuse_source(p, n);
    *out = all[1];
    return SL_OK;
  }
  for (int i = 0; i < 2 * count; i++) { /* as all lies already, if there is such a way */
    const sl_signature *s = &all[i % count];
    if (!fits(p, n, s, i >= count) || !are_even(p, n, s)) continue;
    *out = *s;
    return SL_OK;
  }
  const sl_tensor *sum = summand(p, n);
  if (sum)
    return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED, "op %s (%s) reads %s, of which each of %d "
                             "data-parallel devices has a summand: only what is linear can read that",
                             n->name, n->op->name, sum->name, p->size);
  return sli_graph_fail_at(p->g, n->at, SL_E_UNSUPPORTED, "op %s (%s) has no form for %d "
                           "data-parallel devices that have %s: set .pieces or .signatures in its "
                           "sl_op", n->name, n->op->name, p->size, describe(p, n));
}

/* What a device has of the loss must be its own share. */
static sl_status check_loss(const pass *p) {
  const sl_tensor *loss = p->g->loss.tensor;
  if (!loss || p->lies[loss->id].kind == SL_PARTIAL) return SL_OK;
  return sli_graph_fail_at(p->g, loss->at, SL_E_UNSUPPORTED,
                           "the loss %s does not depend on rows of data: there is nothing to "
                           "share out over %d devices", loss->name, p->size);
}

sl_status sli_choose_data(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                          sli_choice *out) {
  pass p = {.g = g, .dims = dims, .size = grid->size[SLI_AXIS_DATA]};
  sl_status status = SL_OK;
  sli_choice choice = {.of = sli_calloc((size_t)g->nnodes, sizeof *choice.of),
                       .params = sli_calloc((size_t)g->nparams, sizeof *choice.params)};
  p.lies = sli_calloc((size_t)g->ntensors, sizeof *p.lies);
  for (int i = 0; i < g->nnodes && !status && p.size > 1; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n)) continue;
    sl_signature *s = &choice.of[i];
    status = choose(&p, n, s);
    for (int o = 0; o < n->nout && !status; o++)
      if (n->out[o]) p.lies[n->out[o]->id] = sli_signature_out(s, o);
  }
  if (!status && p.size > 1) status = check_loss(&p);
  free(p.lies);
  if (status) {
    sli_choice_free(&choice);
    return status;
  }
  sli_costs costs;
  sli_costs_init(&costs, g, dims, grid, SLI_AXIS_DATA);
  sli_costs_sum(&costs, NULL, &choice, NULL);
  sli_costs_fini(&costs);
  *out = choice;
  return SL_OK;
}

/* ---- what the user has said -------------------------------------------------------- */

static sl_status check_given(const sl_graph *g, const sli_choice *data, const sl_given_sbp *given) {
  char want[SLI_SBP_TEXT], is[SLI_SBP_TEXT];
  sl_sbp lies = {SL_BROADCAST, 0};
  const char *why = "--shard says how parameters do";
  bool known = false;
  for (int p = 0; p < g->nparams; p++) known |= !strcmp(g->params[p]->name, given->name);
  for (int i = 0; i < g->nnodes && !known; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_shared(n) || strcmp(n->name, given->name)) continue;
    lies = sli_signature_out(&data->of[i], 0);
    why = "what comes from rows is split into rows";
    known = true;
  }
  if (!known) return sl_fail(SL_E_USAGE, "no parameter or op is called %s", given->name);
  if (sli_sbp_equal(lies, given->sbp)) return SL_OK;
  return sl_fail(SL_E_USAGE, "%s lies as %s along the data axis, and cannot as %s: %s", given->name,
                 sli_sbp_format(is, lies), sli_sbp_format(want, given->sbp), why);
}

sl_status sli_check_data(const sl_graph *g, const sli_choice *data, int ngiven,
                         const sl_given_sbp *given) {
  sl_status status = SL_OK;
  for (int i = 0; i < ngiven && !status; i++)
    if (given[i].axis == SLI_AXIS_DATA) status = check_given(g, data, &given[i]);
  return status;
}

void sli_choice_free(sli_choice *choice) {
  free(choice->of);
  free(choice->params);
  free(choice->runner_up);
  *choice = (sli_choice){0};
}
