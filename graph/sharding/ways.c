/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to shard each node, restricted by the layouts that the user gives. */
#include "graph/sharding/ways.h"

#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"
#include "ops/ops.h"

/* ---- layouts given by the user -------------------------------------------------------------- */

enum { NEAREST = 3 };
typedef struct nearest {
  const char *name[NEAREST];
  size_t distance[NEAREST];
} nearest;

static void note_name(nearest *n, const char *wanted, const char *name) {
  size_t d = sli_word_distance(wanted, name);
  for (int i = 0; i < NEAREST; i++) {
    if (n->name[i] && n->distance[i] <= d) continue;
    memmove(&n->name[i + 1], &n->name[i], (size_t)(NEAREST - 1 - i) * sizeof *n->name);
    memmove(&n->distance[i + 1], &n->distance[i], (size_t)(NEAREST - 1 - i) * sizeof *n->distance);
    n->name[i] = name;
    n->distance[i] = d;
    return;
  }
}

static sl_status unknown_name(const sli_ways *w, const sl_given_sbp *given) {
  const sl_graph *g = w->costs.g;
  nearest n = {0};
  for (int p = 0; p < g->nparams; p++) note_name(&n, given->name, g->params[p]->name);
  for (int i = 0; i < w->count; i++) note_name(&n, given->name, w->nodes[i]->name);
  char *text = sli_strdup("");
  for (int i = 0; i < NEAREST && n.name[i]; i++) {
    char *more = sli_format("%s%s%s", text, i ? ", " : "", n.name[i]);
    free(text);
    text = more;
  }
  sl_fail(SL_E_USAGE, "no parameter or op is called %s; the nearest are %s", given->name, text);
  free(text);
  return SL_E_USAGE;
}

static sl_status impossible(const sli_ways *w, const sl_given_sbp *given, const char *what,
                            const sl_tensor *t) {
  char sbp[SLI_SBP_TEXT], type[SL_TYPE_TEXT];
  const char *why = "no rule for this layout is known";
  int size = w->costs.size;
  sli_sbp_format(sbp, given->sbp);
  sl_type_format(type, &t->type);
  if (given->sbp.kind == SL_SPLIT && given->sbp.dim >= t->type.ndim)
    return sl_fail(SL_E_USAGE, "%s %s %s cannot lie as %s on %d devices: it has no dim %d", what,
                   given->name, type, sbp, size, given->sbp.dim);
  if (given->sbp.kind == SL_SPLIT) {
    int64_t units = w->costs.dims[t->id * SL_MAX_DIMS + given->sbp.dim].units;
    if (units < size)
      return sl_fail(
          SL_E_USAGE, "%s %s %s cannot lie as %s on %d devices: its dim %d has %lld unit%s", what,
          given->name, type, sbp, size, given->sbp.dim, (long long)units, units == 1 ? "" : "s");
  }
  return sl_fail(SL_E_USAGE, "%s %s %s cannot lie as %s on %d devices: %s", what, given->name, type,
                 sbp, size, why);
}

static sl_status give_param(sli_ways *w, const sl_given_sbp *given, const sl_tensor *t) {
  bool fits = given->sbp.kind != SL_PARTIAL;
  if (given->sbp.kind == SL_SPLIT)
    fits = given->sbp.dim < t->type.ndim &&
           w->costs.dims[t->id * SL_MAX_DIMS + given->sbp.dim].units >= w->costs.size;
  if (!fits) return impossible(w, given, "parameter", t);
  w->fixed[t->param_index] = true;
  w->params[t->param_index] = given->sbp;
  return SL_OK;
}

static sl_status give_node(sli_ways *w, const sl_given_sbp *given, int i) {
  int kept = 0;
  for (int a = 0; a < w->nways[i]; a++)
    if (sli_sbp_equal(w->of[i][a].signature.out[0], given->sbp)) w->of[i][kept++] = w->of[i][a];
  const sl_tensor *t = w->nodes[i]->out[0];
  if (!kept) {
    const sl_tensor unread = {.type = w->nodes[i]->out_type[0]};
    return impossible(
        w, given,
        sli_arena_format(&((sl_graph *)w->costs.g)->arena, "op %s", w->nodes[i]->op->name),
        t ? t : &unread);
  }
  w->nways[i] = kept;
  return SL_OK;
}

/* True if the name is given, or matches a given pattern. */
static bool is_meant(const sl_given_sbp *given, const char *name) {
  return !strcmp(name, given->name) ||
         (strpbrk(given->name, "*?[") && sli_pattern_finds(given->name, name));
}

static sl_status give(sli_ways *w, const sl_given_sbp *given) {
  const sl_graph *g = w->costs.g;
  sl_status status = SL_OK;
  bool found = false;
  for (int p = 0; p < g->nparams && !status; p++) {
    if (!is_meant(given, g->params[p]->name)) continue;
    status = give_param(w, given, g->params[p]);
    found = true;
  }
  for (int i = 0; i < w->count && !status; i++) {
    if (!is_meant(given, w->nodes[i]->name)) continue;
    status = give_node(w, given, i);
    found = true;
  }
  return status || found ? status : unknown_name(w, given);
}

/* ---- candidates ---------------------------------------------------------------------------- */

/* True if enough data rows remain for the other axis. */
static bool leaves_rows(const sli_costs *c, const sl_tensor *t, sl_sbp sbp) {
  if (!t || sbp.kind != SL_SPLIT || sbp.dim || !c->has_rows[t->id]) return true;
  return c->dims[t->id * SL_MAX_DIMS].units >= (int64_t)c->size * c->share;
}

/* True if enough units remain for the sequence axis when both axes split the same dim. */
static bool leaves_units(const sli_costs *c, const sl_tensor *t, sl_sbp sbp, sl_sbp sequence) {
  if (!t || sbp.kind != SL_SPLIT || !sli_sbp_equal(sbp, sequence)) return true;
  if (c->grid->ring) return false; /* ring attention fixes positions */
  int size = c->grid->size[SLI_AXIS_SEQUENCE];
  return c->dims[t->id * SL_MAX_DIMS + sbp.dim].units >= (int64_t)c->size * size;
}

/* True if rows at their experts stay whole and experts are not split twice. */
static bool leaves_experts(sl_sbp sbp, sl_sbp expert) {
  bool rows = expert.kind == SL_DISPATCHED && sbp.dim <= expert.dim;
  return sbp.kind != SL_SPLIT || !(rows || sli_sbp_equal(sbp, expert));
}

static bool leaves_routes(const sli_costs *c, const sli_node *n, const sl_signature *s) {
  bool leaves = true;
  if (!c->experts) return true;
  const sl_signature *other = &c->experts->signatures[n->id];
  if (sli_signature_out(other, 0).kind != SL_DISPATCHED) return true;
  for (int i = 0; i < n->nin; i++)
    leaves &= leaves_experts(sli_signature_in(s, i), sli_signature_in(other, i));
  for (int o = 0; o < n->nout; o++)
    leaves &= leaves_experts(sli_signature_out(s, o), sli_signature_out(other, o));
  return leaves;
}

static bool usable(const sli_costs *c, const sli_node *n, const sl_signature *s) {
  static const sl_signature none;
  if (!leaves_routes(c, n, s)) return false;
  const sl_signature *other = c->sequence ? &c->sequence->signatures[n->id] : &none;
  for (int i = 0; i < n->nin; i++) {
    sl_sbp in = sli_signature_in(s, i);
    if (!leaves_rows(c, n->in[i], in)) return false;
    if (!leaves_units(c, n->in[i], in, sli_signature_in(other, i))) return false;
  }
  for (int o = 0; o < n->nout; o++) {
    sl_sbp out = sli_signature_out(s, o);
    if (!leaves_rows(c, n->out[o], out)) return false;
    if (!leaves_units(c, n->out[o], out, sli_signature_out(other, o))) return false;
  }
  return true;
}

/* Returns the way of a call at experts that have a separate grid: tokens are split, and everything
 * that is not sharded with the experts is replicated. */
static sl_signature tokens_way(const sli_costs *c, const sli_node *n) {
  const sl_signature *dispatched = &c->experts->signatures[n->id];
  const sl_sbp tokens = {SL_SPLIT, c->grid->tokens}, all = {SL_BROADCAST, 0};
  sl_signature s = {0};
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++) {
    s.in[i] = dispatched->in[i].kind == SL_DISPATCHED ? tokens : all;
    s.out[i] = dispatched->out[i].kind == SL_DISPATCHED ? tokens : all;
  }
  return s;
}

static bool is_on_own_grid(const sli_costs *c, const sli_node *n) {
  return c->grid->folded && c->experts && sli_is_forward(n) && sli_is_at_experts(c->experts, n);
}

/* ---- served graphs ------------------------------------------------------------------------- */

static bool makes_summands(const sli_node *n, const sl_signature *s) {
  for (int o = 0; o < n->nout; o++)
    if (sli_signature_out(s, o).kind == SL_PARTIAL) return true;
  return false;
}

static bool has_much(const sli_node *n) {
  return sli_op_weight(n->op) || sli_op_sequence(n->op) == SL_SEQUENCE_RING;
}

/* True if one device computes each number, bitwise as without sharding. For rows of a table, all
 * devices but one add zeros. */
static bool serves(const sli_node *n, const sl_signature *s) {
  if (sli_op_weight(n->op) != SL_WEIGHT_TABLE) return !makes_summands(n, s);
  return s->in[1].kind != SL_SPLIT || !s->in[1].dim;
}

/* Drops ways that would change bits and, if weights or pages can be sharded, the way that
 * replicates them. */
static void leave_served(const sli_node *n, sl_signature *all, int *count) {
  int kept = 0;
  for (int s = 0; s < *count; s++)
    if (serves(n, &all[s])) all[kept++] = all[s];
  *count = kept;
  if (!has_much(n) || kept < 2) return;
  memmove(all, all + 1, (size_t)-- * count * sizeof *all);
}

static void find_ways(sli_ways *w, int i, bool free_sources) {
  const sli_node *n = w->nodes[i];
  if (is_on_own_grid(&w->costs, n)) {
    w->of[i][w->nways[i]++].signature = tokens_way(&w->costs, n);
    return;
  }
  sl_signature all[SL_SIGNATURES];
  int count = sli_signatures(w->costs.dims, n, SLI_AXIS_TENSOR, w->costs.size, all);
  if (w->costs.size == 1 || (sli_op_is(n->op, SL_OP_SOURCE) && !free_sources)) count = 1;
  if (w->costs.g->options.serve) leave_served(n, all, &count);
  for (int s = 0; s < count; s++)
    if (usable(&w->costs, n, &all[s])) w->of[i][w->nways[i]++].signature = all[s];
}

/* Returns the weight of a parameter with a single reader. */
static double own_param(const sli_ways *w, const sl_tensor *t, sli_reading r) {
  const sli_costs *c = &w->costs;
  uint8_t lies = w->fixed[t->param_index] ? (uint8_t)sli_sbp_code(w->params[t->param_index])
                                          : sli_param_lies(r.want);
  sli_seen seen = {.layout = lies};
  sli_cost cost = sli_cost_update(c, t, sli_code_sbp(lies));
  sli_cost_add(&cost, sli_cost_reading(c, t, r, &seen));
  return sli_cost_weight(c, cost);
}

static void price(sli_ways *w, int i) {
  const sli_node *n = w->nodes[i];
  for (int a = 0; a < w->nways[i]; a++) {
    sli_way *way = &w->of[i][a];
    way->weight = sli_cost_weight(&w->costs, sli_cost_node(&w->costs, n, &way->signature));
    for (int k = 0; k < n->nin; k++) {
      if (!n->in[k]) continue;
      sli_reading r = sli_reading_of(&w->costs, n, &way->signature, k);
      if (k < SL_SIGNATURE_ARGS) way->in[k] = r;
      if (n->in[k]->param && w->reads[n->in[k]->id] == 1) way->weight += own_param(w, n->in[k], r);
    }
  }
}

sl_status sli_ways_init(sli_ways *w, const sli_tensor_search *search) {
  const sl_graph *g = search->g;
  *w = (sli_ways){0};
  sli_costs_init(&w->costs, g, search->dims, search->grid, SLI_AXIS_TENSOR);
  w->costs.rows_last = !search->free_sources;
  if (search->rows && search->grid->size[SLI_AXIS_SEQUENCE] > 1)
    w->costs.sequence = &search->rows[SLI_AXIS_SEQUENCE];
  if (search->rows && search->rows[SLI_AXIS_EXPERT].routers)
    w->costs.experts = &search->rows[SLI_AXIS_EXPERT];
  size_t n = (size_t)g->nnodes + 1;
  w->nodes = sli_calloc(n, sizeof *w->nodes);
  w->nways = sli_calloc(n, sizeof *w->nways);
  w->of = sli_calloc(n, sizeof *w->of);
  w->reads = sli_calloc((size_t)g->ntensors + 1, sizeof *w->reads);
  w->fixed = sli_calloc((size_t)g->nparams + 1, sizeof *w->fixed);
  w->params = sli_calloc((size_t)g->nparams + 1, sizeof *w->params);
  for (int i = 0; i < g->nnodes; i++)
    if (sli_is_shared(g->nodes[i])) w->nodes[w->count++] = g->nodes[i];
  for (int i = 0; i < w->count; i++) {
    find_ways(w, i, search->free_sources);
    for (int k = 0; k < w->nodes[i]->nin; k++)
      if (w->nodes[i]->in[k]) w->reads[w->nodes[i]->in[k]->id]++;
  }
  sl_status status = SL_OK;
  for (int s = 0; s < search->ngiven && !status; s++)
    if (search->given[s].axis == SLI_AXIS_TENSOR && w->costs.size > 1)
      status = give(w, &search->given[s]);
  for (int i = 0; i < w->count && !status; i++) price(w, i);
  if (status) sli_ways_fini(w);
  return status;
}

void sli_ways_take(const sli_ways *w, const int *way, sli_choice *out) {
  const sl_graph *g = w->costs.g;
  *out = (sli_choice){.signatures = sli_calloc((size_t)g->nnodes + 1, sizeof *out->signatures),
                      .params = sli_calloc((size_t)g->nparams + 1, sizeof *out->params)};
  memcpy(out->params, w->params, (size_t)g->nparams * sizeof *out->params);
  for (int k = 0; k < w->count; k++) out->signatures[w->nodes[k]->id] = w->of[k][way[k]].signature;
  sli_costs_sum(&w->costs, w->fixed, out, NULL);
}

void sli_ways_fini(sli_ways *w) {
  sli_costs_fini(&w->costs);
  free(w->nodes);
  free(w->nways);
  free(w->of);
  free(w->reads);
  free(w->fixed);
  free(w->params);
}
