/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of a program that is served.
 *
 * A result counts as logits if it has floats for all positions and all tokens. A loss has them,
 * too, if all of its cross entropies read one value of this kind: the logits are that value, with
 * all scales and caps in it, and not the product of the last layer. */
#include "pytorch/logits.h"

#include <string.h>

#include "base/json.h"
#include "pytorch/dependence.h"

/* A program whose logits are searched. */
typedef struct search {
  sl_graph *g;
  const sli_pt_program *p;
  const sli_pt_value *ids;
  int64_t vocab;
} search;

/* ---- values ------------------------------------------------------------------------------------
 */

static bool begins(const char *target, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!strncmp(target, names[i], strlen(names[i]))) return true;
  return false;
}

/* Returns the first argument of a call, if it is a tensor. */
static sli_pt_value *first_of(const sli_pt_node *n) {
  const sli_pt_arg *arg = n && n->nargs ? &n->args[0] : NULL;
  return arg && arg->kind == SLI_PT_VALUE && !arg->value->symbol ? arg->value : NULL;
}

/* Calls that keep elements in their order. */
static const char *const copies[] = {"aten.alias.", "aten.clone.",    "aten.contiguous.",
                                     "aten.to.",    "aten._to_copy.", "aten.detach."};
static const char *const views[] = {"aten.view.",     "aten.reshape.",   "aten._unsafe_view.",
                                    "aten.flatten.",  "aten.unflatten.", "aten.squeeze.",
                                    "aten.unsqueeze."};

static bool keeps_order(const sli_pt_node *n) {
  return begins(n->target, copies, SLI_COUNT(copies)) || begins(n->target, views, SLI_COUNT(views));
}

const sli_pt_value *sli_pt_viewed(const sli_pt_value *v) {
  while (v && v->def && keeps_order(v->def)) v = first_of(v->def);
  return v;
}

/* Returns whether a value has floats of all positions, for `classes` tokens each; 0: any number. */
static bool has_logits(const search *s, const sli_pt_value *v, int64_t classes) {
  const sli_pt_type *ids = &s->ids->type;
  if (v->symbol || !sli_pt_floats(v->type.dtype) || v->type.ndim < 2) return false;
  int64_t last = v->type.dim[v->type.ndim - 1];
  return last > 1 && (!classes || last == classes) &&
         sli_pt_elements(&v->type) == last * ids->dim[0] * ids->dim[1];
}

/* Describes a value: "mul_3 (aten.mul.Tensor at model.py:31) float32[1, 32, 61]". */
static const char *describe(const search *s, const sli_pt_value *v) {
  sli_arena *arena = &s->g->arena;
  const sli_pt_node *n = v->def;
  char *text = sli_arena_strdup(arena, v->name);
  if (n && n->file)
    text = sli_arena_format(arena, "%s (%s at %s:%d)", text, n->target, n->file, n->line);
  else if (n) text = sli_arena_format(arena, "%s (%s)", text, n->target);
  text = sli_arena_format(arena, "%s %s", text, sli_pt_dtype_name(v->type.dtype));
  for (int d = 0; d < v->type.ndim; d++)
    text = sli_arena_format(arena, "%s%s%lld%s", text, d ? ", " : "[", (long long)v->type.dim[d],
                            d == v->type.ndim - 1 ? "]" : "");
  return text;
}

static sli_pt_value *refuse(const search *s, const char *why) {
  sl_graph_fail(s->g, SL_E_UNSUPPORTED, "%s cannot be served: %s", sli_archive_path(s->p->archive),
                why);
  return NULL;
}

/* ---- results -----------------------------------------------------------------------------------
 */

/* Names the leaves of a tree, from left to right, by their innermost key; "" if a leaf has none. */
static void name_leaves(const search *s, const cJSON *spec, const char *name, int depth,
                        const char **out, int *count) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(spec, "type");
  const cJSON *context = cJSON_GetObjectItemCaseSensitive(spec, "context"), *child;
  const cJSON *children = cJSON_GetObjectItemCaseSensitive(spec, "children_spec");
  if (depth > SLI_JSON_DEPTH) return;
  if (cJSON_IsNull(type)) {
    if (*count < s->p->nleaves) out[*count] = name;
    ++*count;
    return;
  }
  cJSON *keys = cJSON_IsString(context) ? cJSON_Parse(context->valuestring) : NULL;
  bool named = cJSON_IsArray(keys) && cJSON_GetArraySize(keys) == cJSON_GetArraySize(children);
  int i = 0;
  cJSON_ArrayForEach(child, children) {
    const cJSON *key = named ? cJSON_GetArrayItem(keys, i++) : NULL;
    name_leaves(s, child,
                cJSON_IsString(key) ? sli_arena_strdup(&s->g->arena, key->valuestring) : "",
                depth + 1, out, count);
  }
  cJSON_Delete(keys);
}

/* Returns the names of the results, [nouts], "" for those without one. */
static const char **name_results(const search *s) {
  const sli_pt_program *p = s->p;
  const char **leaves = sl_graph_alloc(s->g, ((size_t)p->nleaves + 1) * sizeof *leaves);
  const char **out = sl_graph_alloc(s->g, ((size_t)p->nouts + 1) * sizeof *out);
  for (int i = 0; i < p->nleaves; i++) leaves[i] = "";
  cJSON *spec = p->out_spec ? cJSON_Parse(p->out_spec) : NULL;
  int count = 0;
  name_leaves(s, cJSON_GetArrayItem(spec, 1), "", 0, leaves, &count); /* [version, tree] */
  cJSON_Delete(spec);
  for (int i = 0; i < p->nouts; i++) out[i] = count == p->nleaves ? leaves[p->leaf[i]] : "";
  return out;
}

/* Lists results: "hidden: add_4 (..) float32[..], logits: linear_12 (..) float32[..]". */
static const char *list_results(const search *s, const char **names, int64_t classes, bool all) {
  char *text = sli_arena_strdup(&s->g->arena, "");
  for (int i = 0; i < s->p->nouts; i++) {
    const sli_pt_value *v = s->p->outs[i];
    if (!all && !has_logits(s, v, classes)) continue;
    text = sli_arena_format(&s->g->arena, "%s%s%s%s%s", text, *text ? ", " : "", names[i],
                            *names[i] ? ": " : "", describe(s, v));
  }
  return *text ? text : "nothing";
}

/* Returns the only result that is named logits; NULL: none or several. */
static sli_pt_value *result_named(const search *s, const char **names) {
  sli_pt_value *found = NULL;
  int count = 0;
  for (int i = 0; i < s->p->nouts; i++)
    if (!strcmp(names[i], "logits")) found = s->p->outs[i], count++;
  return count == 1 ? found : NULL;
}

/* Counts the results that have logits, and returns the last of them. */
static int count_results(const search *s, int64_t classes, sli_pt_value **out) {
  int count = 0;
  for (int i = 0; i < s->p->nouts; i++) {
    sli_pt_value *v = s->p->outs[i];
    if (!has_logits(s, v, classes) || (count && v == *out)) continue;
    *out = v;
    count++;
  }
  return count;
}

/* Returns whether another result of all positions is computed from a result. */
static bool leads_on(const search *s, const sli_pt_value *v) {
  const bool *on = sli_pt_results_of(s->g, s->p, v);
  bool any = false;
  for (int i = 0; i < s->p->nouts; i++)
    any |= s->p->outs[i] != v && on[s->p->outs[i]->id] && has_logits(s, s->p->outs[i], 0);
  return any;
}

/* Returns the logits among the results; NULL if there are none, or `g` has failed. */
static sli_pt_value *logits_returned(const search *s) {
  const char **names = name_results(s);
  sli_pt_value *named = result_named(s, names), *v = NULL;
  int64_t classes = s->vocab;
  if (named && has_logits(s, named, 0)) return named;
  if (named)
    return refuse(s, sli_arena_format(&s->g->arena,
                                      "its logits are %s, and must be [rows, %lld, tokens] of all "
                                      "positions",
                                      describe(s, named), (long long)s->ids->type.dim[1]));
  int count = classes ? count_results(s, classes, &v) : 0;
  if (!count) count = count_results(s, classes = 0, &v);
  if (!count) return NULL;
  if (count == 1 && !leads_on(s, v)) return v;
  return refuse(s, sli_arena_format(&s->g->arena,
                                    "several results may be its logits: %s; return only one, or a "
                                    "dict in which one is named logits",
                                    list_results(s, names, count == 1 ? 0 : classes, false)));
}

/* ---- losses ------------------------------------------------------------------------------------
 */

/* An argument whose dim of classes is known. */
typedef struct scores {
  sli_pt_value *value;
  int dim;
} scores;

static int whole_arg(const sli_pt_node *n, const char *name, int ndim) {
  const sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  int64_t i = arg && arg->kind == SLI_PT_INT ? arg->i : INT64_MIN;
  if (i < 0) i += ndim;
  return i >= 0 && i < ndim ? (int)i : -1;
}

/* Finds the dim of a type that begins at the same element as dim `dim` of its view. */
static int same_dim(const sli_pt_type *from, const sli_pt_type *view, int dim) {
  int64_t inner = 1, inside = 1;
  for (int d = dim + 1; d < view->ndim; d++) inner *= view->dim[d];
  for (int d = from->ndim - 1; d >= 0 && inside <= inner; inside *= from->dim[d--])
    if (inside == inner && from->dim[d] == view->dim[dim]) return d;
  return -1;
}

/* Returns the dim of the argument of a permutation that becomes dim `dim`; -1: not understood. */
static int permuted_dim(const sli_pt_node *n, int ndim, int dim) {
  const sli_pt_arg *list = sli_pt_arg_peek(n, "dims");
  if (!strcmp(n->target, "aten.transpose.int")) {
    int a = whole_arg(n, "dim0", ndim), b = whole_arg(n, "dim1", ndim);
    return a < 0 || b < 0 ? -1 : dim == a ? b : dim == b ? a : dim;
  }
  if (strcmp(n->target, "aten.permute.default") || !list || list->kind != SLI_PT_LIST ||
      list->list.count != ndim || list->list.of[dim].kind != SLI_PT_INT)
    return -1;
  int64_t in = list->list.of[dim].i;
  return (int)(in < 0 ? in + ndim : in);
}

/* Steps from a view to what it shows: all of it, in another order, or part of its rows or
 * positions. Returns false if the value is no such view. */
static bool step(scores *at) {
  const sli_pt_node *n = at->value->def;
  sli_pt_value *x = first_of(n);
  if (!x) return false;
  const sli_pt_type *view = &at->value->type;
  int dim = -1;
  if (begins(n->target, copies, SLI_COUNT(copies))) dim = at->dim;
  else if (begins(n->target, views, SLI_COUNT(views))) dim = same_dim(&x->type, view, at->dim);
  else if (!strcmp(n->target, "aten.slice.Tensor") || !strcmp(n->target, "aten.narrow.default")) {
    const sli_pt_arg *arg = sli_pt_arg_peek(n, "dim"); /* 0 if it is absent */
    int cut = arg ? whole_arg(n, "dim", x->type.ndim) : 0;
    bool all = cut == at->dim && x->type.dim[cut] == view->dim[cut];
    dim = cut >= 0 && (cut != at->dim || all) ? at->dim : -1;
  } else dim = permuted_dim(n, x->type.ndim, at->dim);
  if (dim < 0 || dim >= x->type.ndim || !sli_pt_floats(x->type.dtype)) return false;
  *at = (scores){x, dim};
  return true;
}

static void step_all(scores *at) {
  while (step(at)) {}
}

static bool is_log_softmax(const sli_pt_node *n) {
  static const char *const names[] = {"aten.log_softmax.", "aten._log_softmax.",
                                      "aten.special_log_softmax."};
  return n && begins(n->target, names, SLI_COUNT(names));
}

/* Finds what enters a cross entropy, given whole or as the loss of log-probabilities; false: the
 * call is none. The value is NULL if it is not understood. */
static bool enters(const sli_pt_node *n, scores *out) {
  bool whole = !strcmp(n->target, "aten.cross_entropy_loss.default");
  bool logs = !strncmp(n->target, "aten.nll_loss", 13);
  if (!whole && !logs) return false;
  sli_pt_value *x = first_of(n);
  *out = (scores){x, x && x->type.ndim > 1};
  if (!x || !x->type.ndim) return out->value = NULL, true;
  step_all(out);
  if (whole) return true;
  const sli_pt_node *of = out->value->def;
  x = is_log_softmax(of) ? first_of(of) : NULL;
  bool same = x && whole_arg(of, "dim", x->type.ndim) == out->dim;
  *out = (scores){same ? x : NULL, out->dim};
  if (same) step_all(out);
  return true;
}

/* Returns another value with a number for each of the classes that a loss learns from: it depends
 * on parameters and inputs, not on the logits, and the logits do not depend on it. */
static const sli_pt_value *other_logits(const search *s, const bool *in_loss,
                                        const sli_pt_value *logits) {
  int64_t classes = logits->type.dim[logits->type.ndim - 1];
  const bool *before = sli_pt_sources_of(s->g, s->p, logits),
             *after = sli_pt_results_of(s->g, s->p, logits);
  const bool *params = sli_pt_results_of_role(s->g, s->p, SLI_PT_PARAM),
             *data = sli_pt_results_of_role(s->g, s->p, SLI_PT_USER);
  for (int i = 0; i < s->p->nvalues; i++) {
    const sli_pt_value *v = s->p->values[i];
    bool apart = in_loss[v->id] && !before[v->id] && !after[v->id] && params[v->id] && data[v->id];
    if (!apart || v->symbol || !sli_pt_floats(v->type.dtype)) continue;
    for (int d = 0; d < v->type.ndim; d++)
      if (v->type.dim[d] == classes) return v;
  }
  return NULL;
}

static sli_pt_value *refuse_two(const search *s, const sli_pt_value *a, const sli_pt_value *b) {
  return refuse(s, sli_arena_format(&s->g->arena,
                                    "its loss is computed from several logits, %s and %s; export a "
                                    "module that returns the logits to serve",
                                    describe(s, a), describe(s, b)));
}

/* Finds the logits of a loss written out with log_softmax. */
static sli_pt_value *logits_of_logs(const search *s, const bool *in_loss) {
  sli_pt_value *found = NULL;
  for (int i = 0; i < s->p->nnodes; i++) {
    const sli_pt_node *n = s->p->nodes[i];
    sli_pt_value *x = is_log_softmax(n) && in_loss[n->outs[0]->id] ? first_of(n) : NULL;
    if (!x || !x->type.ndim) continue;
    scores at = {x, whole_arg(n, "dim", x->type.ndim)};
    if (at.dim < 0) continue;
    step_all(&at);
    if (!has_logits(s, at.value, s->vocab) || at.dim != at.value->type.ndim - 1) continue;
    if (found && found != at.value) return refuse_two(s, found, at.value);
    found = at.value;
  }
  return found;
}

/* Finds what enters the cross entropies of a loss, if all read one value. */
static sli_pt_value *logits_of_loss(const search *s, const sli_pt_value *loss) {
  const bool *in_loss = sli_pt_sources_of(s->g, s->p, loss);
  sli_pt_value *found = NULL;
  bool any = false;
  for (int i = 0; i < s->p->nnodes; i++) {
    const sli_pt_node *n = s->p->nodes[i];
    scores at;
    if (!n->nouts || !n->outs[0] || !in_loss[n->outs[0]->id] || !enters(n, &at)) continue;
    any = true;
    if (!at.value || !has_logits(s, at.value, 0) || at.dim != at.value->type.ndim - 1)
      return refuse(s,
                    sli_arena_format(
                        &s->g->arena,
                        "%s at %s:%d has a loss of %s, which is not found to be logits [rows, "
                        "%lld, tokens] of all positions; export a module that returns the logits",
                        n->target, n->file ? n->file : "?", n->line,
                        describe(s, at.value      ? at.value
                                    : first_of(n) ? first_of(n)
                                                  : n->outs[0]),
                        (long long)s->ids->type.dim[1]));
    if (found && found != at.value) return refuse_two(s, found, at.value);
    found = at.value;
  }
  if (!any) found = logits_of_logs(s, in_loss);
  const sli_pt_value *other = found ? other_logits(s, in_loss, found) : NULL;
  return other ? refuse_two(s, found, other) : found;
}

/* ---- failures ----------------------------------------------------------------------------------
 */

/* Returns the call that takes some of the tokens before they are looked up, or NULL. */
static const sli_pt_node *tokens_cut(const search *s) {
  for (int i = 0; i < s->p->nnodes; i++) {
    const sli_pt_arg *arg = sli_pt_arg_peek(s->p->nodes[i], "indices");
    if (strcmp(s->p->nodes[i]->target, "aten.embedding.default") || !arg) continue;
    const sli_pt_value *v = arg->kind == SLI_PT_VALUE ? sli_pt_viewed(arg->value) : NULL;
    const sli_pt_node *cut = NULL;
    while (v && v->def && !strcmp(v->def->target, "aten.slice.Tensor")) {
      bool fewer =
          first_of(v->def) && sli_pt_elements(&first_of(v->def)->type) != sli_pt_elements(&v->type);
      if (fewer) cut = v->def;
      v = sli_pt_viewed(first_of(v->def));
    }
    if (cut && v && v->input && v->input->role == SLI_PT_USER) return cut;
  }
  return NULL;
}

sli_pt_value *sli_pt_logits(sl_graph *g, const sli_pt_program *p, const sli_pt_value *ids,
                            int64_t vocab) {
  const search s = {g, p, ids, vocab};
  if (sl_graph_status(g)) return NULL;
  const sli_pt_node *cut = tokens_cut(&s);
  if (cut)
    return refuse(&s, sli_arena_format(&g->arena,
                                       "%s (%s) at %s:%d cuts the tokens before they are looked "
                                       "up; export a module that looks up all tokens that it takes",
                                       cut->target, cut->outs[0]->name, cut->file ? cut->file : "?",
                                       cut->line));
  sli_pt_value *logits = logits_returned(&s);
  if (!logits && !sl_graph_status(g) && p->loss >= 0) logits = logits_of_loss(&s, p->outs[p->loss]);
  if (logits || sl_graph_status(g)) return logits;
  return refuse(&s, sli_arena_format(&g->arena,
                                     "forward() must return logits [rows, %lld, tokens] of all "
                                     "positions, or a cross entropy of such; it returns %s",
                                     (long long)ids->type.dim[1],
                                     list_results(&s, name_results(&s), 0, true)));
}
