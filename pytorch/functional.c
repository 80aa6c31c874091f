/* SPDX-License-Identifier: Apache-2.0 */
/* Converts calls that write in place to calls with a result. Later readers of the tensor, of the
 * tensor that it is a view of, and of other views of that tensor read the new contents. */
#include <stdlib.h>
#include <string.h>

#include "pytorch/import.h"
#include "pytorch/sharing.h"

static sli_pt_value *first_value(const sli_pt_node *n) {
  return n->nargs && n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
}

typedef struct rewrite {
  sli_pt_program *p;
  sli_pt_node **out;
  int count;
  size_t capacity, value_capacity;
  sli_pt_value **now;   /* [values] current contents of each; NULL: the value itself */
  sli_pt_value **whole; /* [values] the tensor that a view belongs to; NULL if not a view */
  int *written;         /* [values] number of writes to each */
  int *seen;            /* [values] for a view: writes to the whole when the view was made */
  sli_pt_value **same;  /* [values] for a write's result: the tensor that was written; or NULL */
  const sli_pt_node **lent; /* [values] call whose result may share elements with it; or NULL */
  bool *shown;              /* [values] a view of it was made */
  bool *learned;            /* [values] PyTorch keeps a gradient for it */
  size_t room;
} rewrite;

static void make_room(rewrite *w) {
  size_t count = (size_t)w->p->nvalues, old = w->room;
  if (count <= old) return;
  w->room = 2 * count;
  w->now = sli_realloc(w->now, w->room, sizeof *w->now);
  w->whole = sli_realloc(w->whole, w->room, sizeof *w->whole);
  w->written = sli_realloc(w->written, w->room, sizeof *w->written);
  w->seen = sli_realloc(w->seen, w->room, sizeof *w->seen);
  w->same = sli_realloc(w->same, w->room, sizeof *w->same);
  w->lent = sli_realloc(w->lent, w->room, sizeof *w->lent);
  w->shown = sli_realloc(w->shown, w->room, sizeof *w->shown);
  w->learned = sli_realloc(w->learned, w->room, sizeof *w->learned);
  memset(w->now + old, 0, (w->room - old) * sizeof *w->now);
  memset(w->whole + old, 0, (w->room - old) * sizeof *w->whole);
  memset(w->written + old, 0, (w->room - old) * sizeof *w->written);
  memset(w->seen + old, 0, (w->room - old) * sizeof *w->seen);
  memset(w->same + old, 0, (w->room - old) * sizeof *w->same);
  memset(w->lent + old, 0, (w->room - old) * sizeof *w->lent);
  memset(w->shown + old, 0, (w->room - old) * sizeof *w->shown);
  memset(w->learned + old, 0, (w->room - old) * sizeof *w->learned);
}

static bool any_learned(const rewrite *w, const sli_pt_arg *args, int count) {
  bool any = false;
  for (int i = 0; i < count && !any; i++)
    if (args[i].kind == SLI_PT_LIST) any = any_learned(w, args[i].list.of, args[i].list.count);
    else any = args[i].kind == SLI_PT_VALUE && w->learned[args[i].value->id];
  return any;
}

static void append(rewrite *w, sli_pt_node *n) {
  SLI_GROW(w->out, (size_t)w->count, w->capacity);
  n->id = w->count;
  w->out[w->count++] = n;
  bool learned =
      !n->no_grad && strcmp(n->target, "aten.detach.default") && any_learned(w, n->args, n->nargs);
  for (int i = 0; i < n->nouts; i++)
    if (n->outs[i]) w->learned[n->outs[i]->id] = learned && sli_pt_floats(n->outs[i]->type.dtype);
}

static sli_pt_value *new_value(rewrite *w, const sli_pt_value *like, sli_pt_node *def) {
  sli_pt_program *p = w->p;
  if ((size_t)p->nvalues >= w->value_capacity) {
    w->value_capacity = 2 * (size_t)p->nvalues + 16;
    p->values = sli_realloc(p->values, w->value_capacity, sizeof *p->values);
  }
  sli_pt_value *v = sli_arena_alloc(&p->arena, sizeof *v);
  *v = (sli_pt_value){.name = like->name, .type = like->type, .def = def, .id = p->nvalues};
  p->values[p->nvalues++] = v;
  make_room(w);
  return v;
}

static sli_pt_value *newest(rewrite *w, sli_pt_value *v);

/* Makes a view again, of the current contents of the whole. */
static sli_pt_value *view_again(rewrite *w, sli_pt_value *v) {
  sli_pt_node *old = v->def, *n = sli_arena_alloc(&w->p->arena, sizeof *n);
  *n = *old;
  n->args = sli_arena_alloc(&w->p->arena, (size_t)(n->nargs + 1) * sizeof *n->args);
  memcpy(n->args, old->args, (size_t)n->nargs * sizeof *n->args);
  n->args[0].value = newest(w, w->whole[v->id]);
  n->outs = sli_arena_alloc(&w->p->arena, (size_t)(n->nouts + 1) * sizeof *n->outs);
  sli_pt_value *result = NULL;
  for (int i = 0; i < n->nouts; i++) {
    if (!old->outs[i]) continue;
    n->outs[i] = new_value(w, old->outs[i], n);
    n->outs[i]->output = i;
    if (old->outs[i] == v) result = n->outs[i];
  }
  append(w, n);
  return result;
}

static int writes_to(const rewrite *w, const sli_pt_value *v) {
  int count = w->written[v->id];
  return w->whole[v->id] ? count + writes_to(w, w->whole[v->id]) : count;
}

static sli_pt_value *variable(const rewrite *w, sli_pt_value *v) {
  while (v && w->same[v->id]) v = w->same[v->id];
  return v;
}

static sli_pt_value *newest(rewrite *w, sli_pt_value *v) {
  v = variable(w, v);
  sli_pt_value *whole = w->whole[v->id];
  if (whole && writes_to(w, whole) != w->seen[v->id]) {
    w->now[v->id] = view_again(w, v);
    w->seen[v->id] = writes_to(w, whole);
  }
  return w->now[v->id] ? w->now[v->id] : v;
}

static void renew_args(rewrite *w, sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) renew_args(w, args[i].list.of, args[i].list.count);
    else if (args[i].kind == SLI_PT_VALUE && !args[i].value->symbol)
      args[i].value = newest(w, args[i].value);
}

static sl_status refuse(const rewrite *w, const sli_pt_node *n, const char *what, const char *by) {
  return sl_fail(
      SL_E_UNSUPPORTED, "%s: %s at %s:%d %s%s, which is not supported; write out of place",
      sli_archive_path(w->p->archive), n->target, n->file ? n->file : "?", n->line, what, by);
}

/* Sets the contents of v, and updates the part of the whole that it is a view of. */
static sl_status write_back(rewrite *w, const sli_pt_node *n, sli_pt_value *v,
                            sli_pt_value *contents) {
  w->now[v->id] = contents;
  w->written[v->id]++;
  sli_pt_value *whole = w->whole[v->id];
  if (!whole) return SL_OK;
  sli_pt_node *put = sli_arena_alloc(&w->p->arena, sizeof *put);
  *put = *n;
  if (!sli_pt_write_through(&w->p->arena, v, newest(w, whole), contents, put))
    return refuse(w, n, "writes into a view that is made by ", v->def->target);
  put->nouts = 1;
  put->outs = sli_arena_alloc(&w->p->arena, sizeof *put->outs);
  put->outs[0] = new_value(w, whole, put);
  append(w, put);
  sl_status status = write_back(w, n, whole, put->outs[0]);
  w->seen[v->id] = writes_to(w, whole);
  return status;
}

static sli_pt_value *root(const rewrite *w, sli_pt_value *v) {
  for (v = variable(w, v); v && w->whole[v->id];) v = variable(w, w->whole[v->id]);
  return v;
}

/* Returns whether a view passes no gradient to the whole. */
static bool without_gradient(const rewrite *w, const sli_pt_value *v) {
  for (; w->whole[v->id]; v = w->whole[v->id])
    if (!strcmp(v->def->target, "aten.detach.default")) return true;
  return false;
}

static const sli_pt_value *newest_of(const rewrite *w, const sli_pt_value *whole) {
  return w->now[whole->id] ? w->now[whole->id] : whole;
}

/* Returns whether PyTorch computes a call without a gradient, but keeps the gradient of the tensor
 * that the call overwrites. */
static bool keeps_old_gradient(const sli_pt_node *n) {
  return !strncmp(n->target, "aten.logical_", 13);
}

/* Refuses a write whose effect is not known in full. */
static sl_status check_write(const rewrite *w, const sli_pt_node *n, const char *target,
                             sli_pt_value *v) {
  sli_pt_value *whole = root(w, v);
  const sli_pt_input *in = whole->input;
  if (w->lent[whole->id])
    return refuse(w, n, "writes into a tensor that may share elements with the result of ",
                  w->lent[whole->id]->target);
  if (in && (in->role == SLI_PT_PARAM || in->role == SLI_PT_CONSTANT))
    return refuse(w, n,
                  in->role == SLI_PT_PARAM ? "writes into parameter " : "writes into constant ",
                  in->name);
  bool without = n->no_grad || without_gradient(w, v) || keeps_old_gradient(n);
  if (w->learned[newest_of(w, whole)->id] && without)
    return refuse(w, n, "writes without a gradient into a tensor that has one", "");
  sli_pt_node in_shape = *n;
  in_shape.target = target;
  bool reshapes = sli_pt_sharing_of(&in_shape) == SLI_PT_VIEW;
  if (reshapes && (w->whole[v->id] || w->shown[v->id]))
    return refuse(w, n, "changes the shape of a tensor that has views", "");
  return SL_OK;
}

static void lend(rewrite *w, const sli_pt_node *n, const sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) lend(w, n, args[i].list.of, args[i].list.count);
    else if (args[i].kind == SLI_PT_VALUE && !args[i].value->symbol)
      w->lent[root(w, args[i].value)->id] = n;
}

/* Notes the tensors whose elements the results of a call share. */
static void note_sharing(rewrite *w, const sli_pt_node *n, sli_pt_value *first) {
  bool tensors = false;
  for (int i = 0; i < n->nouts; i++) tensors |= n->outs[i] && !n->outs[i]->symbol;
  sli_pt_sharing sharing = tensors ? sli_pt_sharing_of(n) : SLI_PT_FRESH;
  if (sharing == SLI_PT_UNCERTAIN) lend(w, n, n->args, n->nargs);
  if (sharing == SLI_PT_VIEW) w->shown[first->id] = true;
  for (int i = 0; sharing != SLI_PT_FRESH && i < n->nouts; i++) {
    if (!n->outs[i] || n->outs[i]->symbol) continue;
    if (sharing == SLI_PT_UNCERTAIN) w->lent[n->outs[i]->id] = n;
    else w->whole[n->outs[i]->id] = first, w->seen[n->outs[i]->id] = writes_to(w, first);
  }
}

static sl_status rewrite_node(rewrite *w, sli_pt_node *n) {
  sli_pt_value *first = variable(w, first_value(n));
  if (sli_pt_writes_unseen(n)) return refuse(w, n, "may write into its arguments", "");
  sli_pt_value *target = sli_pt_writes_in_place(n) ? first : NULL;
  const char *result = n->target;
  if (target) {
    const char *name = sli_pt_out_of_place(&w->p->arena, n->target);
    sl_status status = check_write(w, n, name, target);
    if (status) return status;
    result = name;
  } else note_sharing(w, n, first);
  renew_args(w, n->args, n->nargs);
  append(w, n);
  if (!target) return SL_OK;
  w->same[n->outs[0]->id] = target;
  sl_status status = write_back(w, n, target, n->outs[0]);
  n->target = result;
  return status;
}

sl_status sli_pt_functional(sli_pt_program *p) {
  rewrite w = {.p = p, .value_capacity = (size_t)p->nvalues};
  make_room(&w);
  for (int i = 0; i < p->ninputs; i++)
    w.learned[p->inputs[i].value->id] =
        p->inputs[i].role == SLI_PT_PARAM && p->inputs[i].value->type.trained;
  sl_status status = SL_OK;
  for (int i = 0; i < p->nnodes && !status; i++) status = rewrite_node(&w, p->nodes[i]);
  for (int i = 0; i < p->nouts && !status; i++) p->outs[i] = newest(&w, p->outs[i]);
  for (int i = 0; i < p->ninputs && !status; i++) {
    sli_pt_input *in = &p->inputs[i];
    if (in->mutated) in->mutated = newest(&w, in->mutated);
    else if (in->role == SLI_PT_BUFFER && w.now[in->value->id]) in->mutated = w.now[in->value->id];
  }
  free(w.now);
  free(w.whole);
  free(w.written);
  free(w.seen);
  free(w.same);
  free(w.lent);
  free(w.shown);
  free(w.learned);
  free(p->nodes);
  p->nodes = w.out;
  p->nnodes = w.count;
  return status;
}
