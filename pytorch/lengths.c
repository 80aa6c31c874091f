/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of a symbolic number of positions in a program that is served.
 *
 * A program with a symbolic length T is read at the length of its example. A position's numbers
 * must not depend on T. They do not if T only shapes tensors, and if constants with T entries are
 * computed entry by entry, so that a longer one begins with a shorter one. All other calls are
 * refused. */
#include "pytorch/lengths.h"

#include <string.h>

#include "pytorch/dependence.h"
#include "pytorch/sizes.h"

/* Arguments that only shape a result, or end a range. */
static const struct {
  const char *target, *argument;
} shapes[] = {
    {"aten.view.", "size"},       {"aten.reshape.", "shape"}, {"aten._unsafe_view.", "size"},
    {"aten.expand.", "size"},     {"aten.slice.", "end"},     {"aten.arange.", "end"},
    {"aten.zeros.", "size"},      {"aten.ones.", "size"},     {"aten.full.", "size"},
    {"aten.new_zeros.", "size"},  {"aten.new_ones.", "size"}, {"aten.new_full.", "size"},
    {"aten.unflatten.", "sizes"}, {"aten.narrow.", "length"}, {"aten.broadcast_to.", "size"}};

/* Calls that make each entry of their result from entries at the same place, or before it. */
static const char *const by_entry[] = {
    "aten.add.",        "aten.sub.",          "aten.rsub.",
    "aten.mul.",        "aten.div.",          "aten.pow.",
    "aten.neg.",        "aten.abs.",          "aten.cos.",
    "aten.sin.",        "aten.exp.",          "aten.log.",
    "aten.sqrt.",       "aten.rsqrt.",        "aten.reciprocal.",
    "aten.floor.",      "aten.floor_divide.", "aten.remainder.",
    "aten.clamp.",      "aten.clamp_min.",    "aten.clamp_max.",
    "aten.minimum.",    "aten.maximum.",      "aten.eq.",
    "aten.ne.",         "aten.lt.",           "aten.le.",
    "aten.gt.",         "aten.ge.",           "aten.logical_and.",
    "aten.logical_or.", "aten.logical_not.",  "aten.bitwise_and.",
    "aten.bitwise_or.", "aten.bitwise_not.",  "aten.__and__.",
    "aten.__or__.",     "aten.where.",        "aten.masked_fill.",
    "aten.to.",         "aten._to_copy.",     "aten.type_as.",
    "aten.alias.",      "aten.clone.",        "aten.contiguous.",
    "aten.detach.",     "aten.unsqueeze.",    "aten.squeeze.",
    "aten.view.",       "aten.reshape.",      "aten._unsafe_view.",
    "aten.expand.",     "aten.expand_as.",    "aten.broadcast_to.",
    "aten.transpose.",  "aten.permute.",      "aten.t.",
    "aten.tril.",       "aten.triu.",         "aten.cumsum.",
    "aten.cat.",        "aten.stack.",        "aten.matmul.",
    "aten.index.",      "aten.embedding.",    "aten.ones_like.",
    "aten.zeros_like.", "aten.full_like.",    "aten.outer."};

static bool begins(const char *target, const char *name) {
  return !strncmp(target, name, strlen(name));
}

static bool varies(const sli_pt_program *p, const sli_pt_value *v, int d) {
  return v->size && sli_pt_size_varies(p, v->size[d]);
}

/* Counts the dims of a tensor that have a symbolic length. */
static int count_lengths(const sli_pt_program *p, const sli_pt_value *v) {
  int count = 0;
  for (int d = 0; !v->symbol && d < v->type.ndim; d++) count += varies(p, v, d);
  return count;
}

/* Returns whether a number, or one in a list, is a symbolic length or computed from one. */
static bool has_length(const bool *lengths, const sli_pt_arg *arg) {
  bool any = arg->kind == SLI_PT_VALUE && lengths[arg->value->id];
  for (int i = 0; arg->kind == SLI_PT_LIST && i < arg->list.count; i++)
    any |= has_length(lengths, &arg->list.of[i]);
  return any;
}

/* Marks the numbers that are symbolic lengths or computed from them. */
static bool *find_lengths(sl_graph *g, const sli_pt_program *p) {
  bool *on = sl_graph_alloc(g, ((size_t)p->nvalues + 1) * sizeof *on);
  for (int i = 0; i < p->nnodes; i++) {
    const sli_pt_node *n = p->nodes[i];
    bool any = false;
    for (int a = 0; a < n->nargs; a++) any |= has_length(on, &n->args[a]);
    for (int k = 0; k < n->nouts; k++) {
      const sli_pt_value *v = n->outs[k];
      if (v && v->symbol) on[v->id] = any || varies(p, v, 0);
    }
  }
  return on;
}

static bool only_shapes(const sli_pt_node *n, const sli_pt_arg *arg) {
  for (size_t i = 0; i < SLI_COUNT(shapes); i++)
    if (begins(n->target, shapes[i].target) && !strcmp(arg->name, shapes[i].argument)) return true;
  return false;
}

/* Counts the most symbolic lengths among the dims of a tensor of an argument. */
static int most_lengths(const sli_pt_program *p, const sli_pt_arg *arg) {
  int most = arg->kind == SLI_PT_VALUE ? count_lengths(p, arg->value) : 0;
  for (int i = 0; arg->kind == SLI_PT_LIST && i < arg->list.count; i++)
    most = SLI_MAX(most, most_lengths(p, &arg->list.of[i]));
  return most;
}

static int64_t number(const sli_pt_node *n, const char *name, int64_t absent) {
  const sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  return arg && arg->kind == SLI_PT_INT ? arg->i : absent;
}

static int64_t inside(const sli_pt_type *type, int dim) {
  int64_t count = 1;
  for (int d = dim + 1; d < type->ndim; d++) count *= type->dim[d];
  return count;
}

/* Returns whether a view keeps its dims of symbolic length: as long, with as many elements inside.
 */
static bool keeps_dims(const sli_pt_program *p, const sli_pt_value *x, const sli_pt_value *y) {
  for (int d = 0; d < y->type.ndim; d++) {
    bool found = !varies(p, y, d);
    for (int k = 0; !found && k < x->type.ndim; k++)
      found = varies(p, x, k) && !strcmp(x->size[k], y->size[d]) &&
              inside(&x->type, k) == inside(&y->type, d);
    if (!found) return false;
  }
  return true;
}

/* Returns whether integers count from the first entry: they are ranges, views of them, and sums
 * with positive numbers. Negative indices would count from the last entry. */
static bool counts_up(const sli_pt_arg *arg, int depth) {
  enum { DEEPEST = 32 };
  static const char *const keep[] = {"aten.unsqueeze.", "aten.squeeze.", "aten.view.",
                                     "aten.reshape.",   "aten.expand.",  "aten.slice.",
                                     "aten.alias.",     "aten.to.",      "aten.clone."};
  const sli_pt_node *n = arg->kind == SLI_PT_VALUE ? arg->value->def : NULL;
  if (arg->kind == SLI_PT_ABSENT) return true;
  if (!n || depth == DEEPEST) return false;
  if (begins(n->target, "aten.arange."))
    return number(n, "start", 0) >= 0 && number(n, "step", 1) > 0;
  bool same =
      begins(n->target, "aten.add.") && number(n, "other", -1) >= 0 && number(n, "alpha", 1) == 1;
  for (size_t i = 0; i < SLI_COUNT(keep); i++) same |= begins(n->target, keep[i]);
  return same && n->nargs && counts_up(&n->args[0], depth + 1);
}

static bool indices_count(const sli_pt_node *n) {
  const sli_pt_arg *list = sli_pt_arg_peek(n, "indices");
  bool all = list && list->kind == SLI_PT_LIST;
  for (int i = 0; all && i < list->list.count; i++) all = counts_up(&list->list.of[i], 0);
  return all;
}

/* Returns whether each entry of a constant's result keeps its numbers when the length grows. */
static bool keeps_entries(const sli_pt_program *p, const sli_pt_node *n) {
  const sli_pt_value *x = n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
  const sli_pt_value *y = n->outs[0];
  bool known = false;
  int most = 0;
  for (size_t i = 0; i < SLI_COUNT(by_entry); i++) known |= begins(n->target, by_entry[i]);
  for (int a = 0; a < n->nargs; a++) most = SLI_MAX(most, most_lengths(p, &n->args[a]));
  if (begins(n->target, "aten.slice.")) return number(n, "start", 0) >= 0;
  if (begins(n->target, "aten.select.")) return number(n, "index", -1) >= 0;
  if (begins(n->target, "aten.diff.") && !sli_pt_arg_peek(n, "append")) known = true;
  if (!known || count_lengths(p, y) < most) return false;
  bool views = begins(n->target, "aten.view.") || begins(n->target, "aten.reshape.") ||
               begins(n->target, "aten._unsafe_view.");
  if (views) return x && keeps_dims(p, x, y);
  int64_t dim = number(n, "dim", 0);
  if (dim < 0) dim += y->type.ndim;
  if (begins(n->target, "aten.cat.")) return !varies(p, y, (int)dim);
  if (begins(n->target, "aten.matmul."))
    return x && x->type.ndim && !varies(p, x, x->type.ndim - 1);
  return !begins(n->target, "aten.index.") || (x && (!count_lengths(p, x) || indices_count(n)));
}

static void refuse(sl_graph *g, const sli_pt_program *p, const sli_pt_node *n, const char *why) {
  sl_graph_fail(g, SL_E_UNSUPPORTED,
                "%s cannot be served: %s (%s) at %s:%d: %s; a served sequence grows, so its length "
                "may end ranges and slices, and shape tensors",
                sli_archive_path(p->archive), n->target, n->outs[0]->name, n->file ? n->file : "?",
                n->line, why);
}

void sli_pt_check_lengths(sl_graph *g, const sli_pt_program *p, const sli_pt_value *logits) {
  const bool *lengths = find_lengths(g, p), *wanted = sli_pt_sources_of(g, p, logits);
  const bool *data = sli_pt_results_of_role(g, p, SLI_PT_USER);
  for (int i = 0; i < p->nnodes && !sl_graph_status(g); i++) {
    const sli_pt_node *n = p->nodes[i];
    const sli_pt_value *y = n->nouts ? n->outs[0] : NULL;
    if (!y || y->symbol || !n->nargs) continue;
    bool needed = false, shown = false, fixed = !data[y->id];
    for (int k = 0; k < n->nouts; k++) needed |= n->outs[k] && wanted[n->outs[k]->id];
    for (int a = 0; a < n->nargs && needed; a++) {
      if (has_length(lengths, &n->args[a]) && !only_shapes(n, &n->args[a]))
        refuse(g, p, n, "it computes with the number of positions");
      shown |= most_lengths(p, &n->args[a]) > 0;
    }
    bool fills = begins(n->target, "aten.new_") || strstr(n->target, "_like");
    if (needed && shown && fixed && !fills && !keeps_entries(p, n) && !sl_graph_status(g))
      refuse(g, p, n, "its constants depend on the number of positions");
  }
}
