/* SPDX-License-Identifier: Apache-2.0 */
/* Converts calls that write in place to calls with a result. Later readers of the tensor, of the
 * tensor that it is a view of, and of other views of that tensor read the new contents. */
#include <stdlib.h>
#include <string.h>

#include "pytorch/import.h"

/* Views: calls whose result shares its elements with the first argument. `puts`: a write to the
 * view can be converted to a write to the whole. */
static const struct view {
  const char *target;
  bool puts;
} views[] = {{"aten.slice.Tensor", true},
             {"aten.select.int", true},
             {"aten.alias.default", true},
             {"aten.detach.default", true},
             {"aten.view.default", true},
             {"aten.unsqueeze.default", true},
             {"aten.squeeze.dim", true},
             {"aten.reshape.default", false},
             {"aten.transpose.int", false},
             {"aten.permute.default", false},
             {"aten.expand.default", false},
             {"aten.t.default", false},
             {"aten.split_with_sizes.default", false},
             {"aten.split.Tensor", false},
             {"aten.chunk.default", false}};

static const struct view *find_view(const sli_pt_node *n) {
  for (size_t i = 0; i < SLI_COUNT(views); i++)
    if (!strcmp(n->target, views[i].target)) return &views[i];
  return NULL;
}

static sli_pt_value *first_value(const sli_pt_node *n) {
  return n->nargs && n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
}

/* Returns true for "aten.copy_.default": a method whose name ends with one underscore. */
static bool writes_in_place(const char *target) {
  const char *dot = strrchr(target, '.');
  return dot && dot - target > 2 && dot[-1] == '_' && dot[-2] != '_' &&
         !strncmp(target, "aten.", 5);
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
  size_t room;
} rewrite;

/* Finds the call that computes the result of an in-place call, or returns the same name if there is
 * none. */
static const char *with_result(const rewrite *w, const char *target) {
  const char *dot = strrchr(target, '.');
  const char *name = sli_arena_format(&w->p->arena, "%.*s%s", (int)(dot - target - 1), target, dot);
  return sli_pt_call_find(name) ? name : target;
}

static void make_room(rewrite *w) {
  size_t count = (size_t)w->p->nvalues, old = w->room;
  if (count <= old) return;
  w->room = 2 * count;
  w->now = sli_realloc(w->now, w->room, sizeof *w->now);
  w->whole = sli_realloc(w->whole, w->room, sizeof *w->whole);
  w->written = sli_realloc(w->written, w->room, sizeof *w->written);
  w->seen = sli_realloc(w->seen, w->room, sizeof *w->seen);
  w->same = sli_realloc(w->same, w->room, sizeof *w->same);
  memset(w->now + old, 0, (w->room - old) * sizeof *w->now);
  memset(w->whole + old, 0, (w->room - old) * sizeof *w->whole);
  memset(w->written + old, 0, (w->room - old) * sizeof *w->written);
  memset(w->seen + old, 0, (w->room - old) * sizeof *w->seen);
  memset(w->same + old, 0, (w->room - old) * sizeof *w->same);
}

static void append(rewrite *w, sli_pt_node *n) {
  SLI_GROW(w->out, (size_t)w->count, w->capacity);
  n->id = w->count;
  w->out[w->count++] = n;
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

/* Sets the contents of v, and updates the part of the whole that it is a view of. */
static sl_status write_back(rewrite *w, const sli_pt_node *n, sli_pt_value *v,
                            sli_pt_value *contents) {
  w->now[v->id] = contents;
  w->written[v->id]++;
  sli_pt_value *whole = w->whole[v->id];
  if (!whole) return SL_OK;
  const sli_pt_node *view = v->def;
  const struct view *known = find_view(view);
  if (!known || !known->puts)
    return sl_fail(
        SL_E_UNSUPPORTED, "%s: %s at %s:%d writes into a view that %s made, which is not supported",
        sli_archive_path(w->p->archive), n->target, n->file ? n->file : "?", n->line, view->target);
  sli_pt_node *put = sli_arena_alloc(&w->p->arena, sizeof *put);
  *put = *n;
  put->target = sli_arena_format(&w->p->arena, "put.%s", view->target);
  put->nargs = view->nargs + 1;
  put->args = sli_arena_alloc(&w->p->arena, (size_t)(put->nargs + 1) * sizeof *put->args);
  memcpy(put->args, view->args, (size_t)view->nargs * sizeof *put->args);
  put->args[0].value = newest(w, whole);
  put->args[view->nargs] = (sli_pt_arg){.name = "put", .kind = SLI_PT_VALUE, .value = contents};
  put->nouts = 1;
  put->outs = sli_arena_alloc(&w->p->arena, sizeof *put->outs);
  put->outs[0] = new_value(w, whole, put);
  append(w, put);
  sl_status status = write_back(w, n, whole, put->outs[0]);
  w->seen[v->id] = writes_to(w, whole);
  return status;
}

static sl_status rewrite_node(rewrite *w, sli_pt_node *n) {
  sli_pt_value *first = variable(w, first_value(n));
  sli_pt_value *target = writes_in_place(n->target) ? first : NULL;
  if (target) n->target = with_result(w, n->target);
  renew_args(w, n->args, n->nargs);
  append(w, n);
  sli_pt_value *of = find_view(n) ? first : NULL;
  for (int i = 0; of && i < n->nouts; i++) {
    if (!n->outs[i]) continue;
    w->whole[n->outs[i]->id] = of;
    w->seen[n->outs[i]->id] = writes_to(w, of);
  }
  if (!target || n->nouts != 1 || !n->outs[0]) return SL_OK;
  w->same[n->outs[0]->id] = target;
  return write_back(w, n, target, n->outs[0]);
}

sl_status sli_pt_functional(sli_pt_program *p) {
  rewrite w = {.p = p, .value_capacity = (size_t)p->nvalues};
  make_room(&w);
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
  free(p->nodes);
  p->nodes = w.out;
  p->nnodes = w.count;
  return status;
}
