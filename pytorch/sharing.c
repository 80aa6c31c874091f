/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch/sharing.h"

#include <stdlib.h>
#include <string.h>

#include "pytorch/import.h"

/* ---- views --------------------------------------------------------------------------------- */

/* Elements of the first argument that a result shows. */
typedef enum shown {
  NOT_WRITTEN, /* several times the same, or in a way that cannot be written */
  SHAPED,      /* all, in their order */
  ORDERED,     /* all, with dims in the order `dims` */
  SWAPPED,     /* all, with two dims exchanged, by default the last two */
  REVERSED,    /* all, with dims in reverse */
  MOVED,       /* all, with dims moved from `source` to `destination` */
  SLICED,      /* positions of a dim: start, end, step */
  NARROWED,    /* positions of a dim: start, length */
  SELECTED,    /* one position of a dim */
  SPLIT,       /* positions of a dim, after those of the outputs before it */
  UNBOUND      /* one position of a dim: the number of the output */
} shown;

/* When a call returns a view; otherwise its result is fresh. */
typedef enum when { ALWAYS, IF_DENSE, IF_RESHAPED, IF_SAME_TYPE, IF_IDLE } when;

static const struct view {
  const char *target;
  shown shown;
  when when;
  const char *a, *b; /* names of arguments: dims */
} views[] = {
    {"aten.alias.default", SHAPED, ALWAYS, 0, 0},
    {"aten.detach.default", SHAPED, ALWAYS, 0, 0},
    {"aten.view.default", SHAPED, ALWAYS, 0, 0},
    {"aten._unsafe_view.default", SHAPED, ALWAYS, 0, 0},
    {"aten.view_as.default", SHAPED, ALWAYS, 0, 0},
    {"aten.unflatten.int", SHAPED, ALWAYS, 0, 0},
    {"aten.squeeze.default", SHAPED, ALWAYS, 0, 0},
    {"aten.squeeze.dim", SHAPED, ALWAYS, 0, 0},
    {"aten.squeeze.dims", SHAPED, ALWAYS, 0, 0},
    {"aten.unsqueeze.default", SHAPED, ALWAYS, 0, 0},
    {"aten.reshape.default", SHAPED, IF_RESHAPED, 0, 0},
    {"aten.reshape_as.default", SHAPED, IF_RESHAPED, 0, 0},
    {"aten.flatten.using_ints", SHAPED, IF_RESHAPED, 0, 0},
    {"aten.ravel.default", SHAPED, IF_DENSE, 0, 0},
    {"aten.contiguous.default", SHAPED, IF_DENSE, 0, 0},
    {"aten.to.dtype", SHAPED, IF_SAME_TYPE, 0, 0},
    {"aten.to.dtype_layout", SHAPED, IF_SAME_TYPE, 0, 0},
    {"aten.to.device", SHAPED, IF_SAME_TYPE, 0, 0},
    {"aten.to.other", SHAPED, IF_SAME_TYPE, 0, 0},
    {"aten.type_as.default", SHAPED, IF_SAME_TYPE, 0, 0},
    {"aten.dropout.default", SHAPED, IF_IDLE, 0, 0},
    {"aten.permute.default", ORDERED, ALWAYS, "dims", 0},
    {"aten.transpose.int", SWAPPED, ALWAYS, "dim0", "dim1"},
    {"aten.swapaxes.default", SWAPPED, ALWAYS, "axis0", "axis1"},
    {"aten.swapdims.default", SWAPPED, ALWAYS, "dim0", "dim1"},
    {"aten.mT.default", SWAPPED, ALWAYS, 0, 0},
    {"aten.mH.default", SWAPPED, ALWAYS, 0, 0},
    {"aten.adjoint.default", SWAPPED, ALWAYS, 0, 0},
    {"aten.t.default", REVERSED, ALWAYS, 0, 0},
    {"aten.numpy_T.default", REVERSED, ALWAYS, 0, 0},
    {"aten.movedim.int", MOVED, ALWAYS, "source", "destination"},
    {"aten.movedim.intlist", MOVED, ALWAYS, "source", "destination"},
    {"aten.moveaxis.int", MOVED, ALWAYS, "source", "destination"},
    {"aten.moveaxis.intlist", MOVED, ALWAYS, "source", "destination"},
    {"aten.slice.Tensor", SLICED, ALWAYS, 0, 0},
    {"aten.narrow.default", NARROWED, ALWAYS, 0, 0},
    {"aten.select.int", SELECTED, ALWAYS, 0, 0},
    {"aten.split.Tensor", SPLIT, ALWAYS, 0, 0},
    {"aten.split.sizes", SPLIT, ALWAYS, 0, 0},
    {"aten.split_with_sizes.default", SPLIT, ALWAYS, 0, 0},
    {"aten.chunk.default", SPLIT, ALWAYS, 0, 0},
    {"aten.tensor_split.sections", SPLIT, ALWAYS, 0, 0},
    {"aten.tensor_split.indices", SPLIT, ALWAYS, 0, 0},
    {"aten.unbind.int", UNBOUND, ALWAYS, 0, 0},
    {"aten.diagonal.default", NOT_WRITTEN, ALWAYS, 0, 0},
    {"aten.expand.default", NOT_WRITTEN, ALWAYS, 0, 0},
    {"aten.expand_as.default", NOT_WRITTEN, ALWAYS, 0, 0},
    {"aten.unfold.default", NOT_WRITTEN, ALWAYS, 0, 0},
};

static const struct view *find_view(const sli_pt_node *n) {
  for (size_t i = 0; i < SLI_COUNT(views); i++)
    if (!strcmp(n->target, views[i].target)) return &views[i];
  return NULL;
}

/* Returns whether a dropout returns its argument. */
static bool is_idle(const sli_pt_node *n) {
  const sli_pt_arg *p = sli_pt_arg_find(n, "p");
  return !sli_pt_flag(n, "train", true) || (p && p->kind == SLI_PT_FLOAT && p->f == 0);
}

static sli_pt_sharing view_or(bool view, sli_pt_sharing other) {
  return view ? SLI_PT_VIEW : other;
}

sli_pt_sharing sli_pt_sharing_of(const sli_pt_node *n) {
  const struct view *view = find_view(n);
  const sli_pt_call *row = view ? NULL : sli_pt_call_find(n->target);
  const sli_pt_value *from = sli_pt_first(n), *to = n->nouts ? n->outs[0] : NULL;
  if (!view) return row && row->fresh ? SLI_PT_FRESH : SLI_PT_UNCERTAIN;
  if (!from || !to) return SLI_PT_UNCERTAIN;
  switch (view->when) {
  case ALWAYS: break;
  case IF_DENSE: return view_or(from->dense, SLI_PT_FRESH);
  case IF_RESHAPED: return view_or(from->dense, SLI_PT_UNCERTAIN);
  case IF_SAME_TYPE:
    if (sli_pt_arg_find(n, "memory_format")) return SLI_PT_UNCERTAIN;
    return view_or(from->type.dtype == to->type.dtype && !sli_pt_flag(n, "copy", false),
                   SLI_PT_FRESH);
  case IF_IDLE: return view_or(is_idle(n), SLI_PT_FRESH);
  }
  return SLI_PT_VIEW;
}

/* ---- writes through views ------------------------------------------------------------------ */

/* Reads dims that are numbers, counted from the beginning. Returns how many, or -1. */
static int read_dims(const sli_pt_node *n, const char *name, int ndim, int *out) {
  const sli_pt_arg *arg = name ? sli_pt_arg_find(n, name) : NULL;
  bool list = arg && arg->kind == SLI_PT_LIST;
  int count = list ? arg->list.count : 1;
  if (!arg || count > ndim) return -1;
  for (int i = 0; i < count; i++) {
    const sli_pt_arg *one = list ? &arg->list.of[i] : arg;
    if (one->kind != SLI_PT_INT || one->i < -ndim || one->i >= ndim) return -1;
    out[i] = (int)(one->i < 0 ? one->i + ndim : one->i);
  }
  return count;
}

/* Sets order[to[i]] = from[i], and the other dims in their order. */
static void move_dims(int ndim, int count, const int *from, const int *to, int *order) {
  uint32_t used = 0;
  for (int d = 0; d < ndim; d++) order[d] = -1;
  for (int i = 0; i < count; i++) order[to[i]] = from[i], used |= 1u << from[i];
  for (int d = 0, next = 0; d < ndim; d++) {
    if (order[d] >= 0) continue;
    while (used >> next & 1) next++;
    order[d] = next++;
  }
}

/* Finds the dim of the whole that is at each dim of the view. */
static bool find_order(const struct view *view, const sli_pt_node *n, int ndim, int *order) {
  int from[SLI_PT_DIMS] = {ndim - 2}, to[SLI_PT_DIMS] = {ndim - 1};
  for (int d = 0; d < ndim; d++) order[d] = view->shown == REVERSED ? ndim - 1 - d : d;
  if (view->shown == REVERSED) return true;
  if (view->shown == ORDERED) return read_dims(n, view->a, ndim, order) == ndim;
  int count = view->a ? read_dims(n, view->a, ndim, from) : 1;
  if (count < 1 || (view->b && read_dims(n, view->b, ndim, to) != count)) return false;
  if (view->shown == MOVED) move_dims(ndim, count, from, to, order);
  else if (from[0] < 0) return false;
  else order[from[0]] = to[0], order[to[0]] = from[0];
  return true;
}

static sli_pt_arg number_arg(const char *name, int64_t i) {
  return (sli_pt_arg){.name = name, .kind = SLI_PT_INT, .i = i};
}

static sli_pt_arg value_arg(const char *name, sli_pt_value *v) {
  return (sli_pt_arg){.name = name, .kind = SLI_PT_VALUE, .value = v};
}

/* Permutes the contents back. */
static bool order_back(sli_arena *arena, const struct view *view, const sli_pt_node *n,
                       sli_pt_value *contents, sli_pt_node *out) {
  int order[SLI_PT_DIMS], ndim = contents->type.ndim;
  if (!find_order(view, n, ndim, order)) return false;
  sli_pt_arg *dims = sli_arena_alloc(arena, (size_t)(ndim + 1) * sizeof *dims);
  for (int d = 0; d < ndim; d++) dims[order[d]] = number_arg(NULL, d);
  out->target = "aten.permute.default";
  out->args[0] = value_arg("self", contents);
  out->args[1] = (sli_pt_arg){.name = "dims", .kind = SLI_PT_LIST, .list = {ndim, dims}};
  out->nargs = 2;
  return true;
}

/* Returns the positions of a dim before those of an output. */
static int64_t positions_before(const sli_pt_value *view, int dim) {
  int64_t sum = 0;
  for (int i = 0; i < view->output; i++)
    if (view->def->outs[i]) sum += view->def->outs[i]->type.dim[dim];
  return sum;
}

/* Replaces positions of a dim. */
static bool put_part(const struct view *view, const sli_pt_value *v, int ndim, sli_pt_node *out) {
  const sli_pt_node *n = v->def;
  int dim = 0;
  if (sli_pt_arg_find(n, "dim") && read_dims(n, "dim", ndim, &dim) != 1) return false;
  bool position = view->shown == SELECTED || view->shown == UNBOUND;
  const sli_pt_arg *start = sli_pt_arg_find(n, position ? "index" : "start");
  out->target = position ? "put.aten.select.int" : "put.aten.slice.Tensor";
  out->args[out->nargs++] = number_arg("dim", dim);
  if (view->shown == UNBOUND) out->args[out->nargs++] = number_arg("index", v->output);
  else if (view->shown == SPLIT)
    out->args[out->nargs++] = number_arg("start", positions_before(v, dim));
  else if (start) out->args[out->nargs++] = *start;
  const sli_pt_arg *step = sli_pt_arg_find(n, "step");
  if (step) out->args[out->nargs++] = *step;
  return true;
}

bool sli_pt_write_through(sli_arena *arena, const sli_pt_value *v, sli_pt_value *whole,
                          sli_pt_value *contents, sli_pt_node *out) {
  enum { MOST_ARGS = 6 };
  const struct view *view = find_view(v->def);
  int ndim = whole->type.ndim;
  if (!view || view->shown == NOT_WRITTEN || ndim > SLI_PT_DIMS) return false;
  out->args = sli_arena_alloc(arena, MOST_ARGS * sizeof *out->args);
  out->args[0] = value_arg("self", whole);
  out->nargs = 1;
  if (view->shown >= ORDERED && view->shown <= MOVED)
    return order_back(arena, view, v->def, contents, out);
  if (view->shown == SHAPED) out->target = "put.aten.view.default";
  else if (!put_part(view, v, ndim, out)) return false;
  out->args[out->nargs++] = value_arg("put", contents);
  return true;
}

/* ---- calls that write ---------------------------------------------------------------------- */

/* Returns the end of a call's name without its overload: the dot in "aten.add_.Tensor". */
static const char *name_end(const char *target) {
  const char *dot = strrchr(target, '.');
  return dot ? dot : target + strlen(target);
}

/* Returns whether a name is Python's for an operator in place: "aten.__iand__.Tensor". */
static bool is_operator_in_place(const char *target) {
  return !strncmp(target, "aten.__i", 8) && strncmp(target, "aten.__is", 9);
}

bool sli_pt_writes_in_place(const sli_pt_node *n) {
  const char *target = n->target, *end = name_end(target);
  if (strncmp(target, "aten.", 5) || end - target < 7) return false;
  return (end[-1] == '_' && end[-2] != '_') || is_operator_in_place(target);
}

const char *sli_pt_out_of_place(sli_arena *arena, const char *target) {
  const char *end = name_end(target);
  const char *name = is_operator_in_place(target)
                         ? sli_arena_format(arena, "aten.__%s", target + 8)
                         : sli_arena_format(arena, "%.*s%s", (int)(end - target - 1), target, end);
  return sli_pt_call_find(name) ? name : target;
}

static bool has_tensor(const sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++) {
    if (args[i].kind == SLI_PT_VALUE && !args[i].value->symbol) return true;
    if (args[i].kind == SLI_PT_LIST && has_tensor(args[i].list.of, args[i].list.count)) return true;
  }
  return false;
}

bool sli_pt_writes_unseen(const sli_pt_node *n) {
  static const char *const pure[] = {"_operator.", "math.", "torch.", "higher_order.", "put."};
  if (sli_pt_writes_in_place(n)) return !sli_pt_first(n) || n->nouts != 1 || !n->outs[0];
  if (strstr(n->target, "out") && sli_pt_arg_find(n, "out")) return true;
  if (!strncmp(n->target, "aten.", 5) || sli_pt_call_find(n->target)) return false;
  for (size_t i = 0; i < SLI_COUNT(pure); i++)
    if (!strncmp(n->target, pure[i], strlen(pure[i]))) return false;
  return has_tensor(n->args, n->nargs);
}
