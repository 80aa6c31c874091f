/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs written in place of inputs.
 *
 * A call that works element by element, or row by row, can write its output where it reads its
 * input: the op says for which inputs (sl_op_memory.in_place). This is allowed if the input is not
 * needed afterwards: the same task wrote it, no other task reads it, and this call is its last
 * reader. Both then have one place, that of the output. In the workspace they take one interval
 * instead of two that overlap; if the output is for other tasks, the input is written directly into
 * the slot that will hold the output. A chain of such calls, last to first, uses one place
 * throughout.
 *
 * One invariant must hold for every program, and is checked: no call overwrites data that is still
 * to be read, except an input that its op allows. */
#include "graph/lower/ir.h"

#include <stdlib.h>

/* ---- finding them ------------------------------------------------------------------- */

static const sl_type *variant_type(const sli_node *n, int variant, bool out, int i) {
  if (!n->shapes) return out ? &n->out_type[i] : &n->in_type[i];
  return out ? &n->shapes[variant].out[i] : &n->shapes[variant].in[i];
}

/* Compares sizes; dims may differ, as between a tensor and another view of it. */
static bool is_one_size(const sl_type *in, const sl_type *out) {
  return in->dtype == out->dtype && sl_type_bytes(in) == sl_type_bytes(out);
}

static bool is_one_type(const sli_lowering *l, const sli_node *n, int input, int output) {
  for (int v = 0; v < SLI_MAX(l->in->g->cut.nvariants, 1); v++)
    if (!is_one_size(variant_type(n, v, false, input), variant_type(n, v, true, output)))
      return false;
  return true;
}

/* True if output o may overwrite this tensor, in every input position that it has. */
static bool allows(const sli_node *n, int o, const sl_tensor *t) {
  if (o >= SL_IN_PLACE_OUTPUTS) return false;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] == t && !sli_bit(sli_op_memory(n->op)->in_place[o], i)) return false;
  return true;
}

/* True if only this task uses the tensor, and its last use is node `at`. */
static bool dies_at(const sli_uses *u, int task, int at, const sl_tensor *t) {
  int id = t->id;
  return u->producer[id] == task && !u->count[id] && u->last[id] == at && !t->param &&
         !u->summed[id] && !u->state[id];
}

/* Returns the input that output o of a task's node `at` replaces, or NULL. */
static const sl_tensor *find_input(const sli_lowering *l, const sli_uses *u, int task, int at,
                                   int o) {
  const sli_node *n = l->tasks[task].nodes[at];
  const sl_tensor *out = n->out[o];
  if (!out || out->param || u->summed[out->id] || u->state[out->id]) return NULL;
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (t && dies_at(u, task, at, t) && allows(n, o, t) && u->in_place_of[t->id] == t->id &&
        is_one_type(l, n, i, o))
      return t;
  }
  return NULL;
}

void sli_lower_in_place(const sli_lowering *l, sli_uses *u) {
  for (int t = 0; t < l->in->g->ntensors; t++) u->in_place_of[t] = t;
  for (int gi = 0; gi < l->ntasks; gi++) {
    const sli_task *g = &l->tasks[gi];
    if (g->cls == SL_CLASS_C || g->rate != SLI_PER_TICK) continue;
    for (int i = g->nnodes - 1; i >= 0; i--)
      for (int o = 0; o < g->nodes[i]->nout; o++) {
        const sl_tensor *t = find_input(l, u, gi, i, o);
        if (!t) continue;
        int place = u->in_place_of[g->nodes[i]->out[o]->id];
        u->in_place_of[t->id] = place;
        u->first[place] = SLI_MIN(u->first[place], u->first[t->id]);
      }
  }
}

/* ---- invariants ------------------------------------------------------------------------- */

/* Tensor of a task, and the nodes between which it is needed. */
typedef struct span {
  const sl_tensor *tensor;
  int made, last;
} span;

static bool overlap(const sli_lowering *l, const sl_tensor *a, const sl_tensor *b) {
  const sli_spot *x = &l->spots[a->id], *y = &l->spots[b->id];
  return x->buffer == y->buffer && x->offset < y->offset + sl_type_bytes(&b->type) &&
         y->offset < x->offset + sl_type_bytes(&a->type);
}

/* Checks that writing `now` leaves `other` intact, which was written earlier or by the same
 * call. */
static void check_pair(const sli_lowering *l, const sli_task *task, const span *now,
                       const span *other) {
  if (other->last < now->made || now->tensor == other->tensor) return;
  if (!overlap(l, now->tensor, other->tensor)) return;
  const sli_node *n = task->nodes[now->made];
  bool in_place = other->last == now->made && other->made < now->made &&
                  allows(n, now->tensor->output, other->tensor) &&
                  l->spots[now->tensor->id].offset == l->spots[other->tensor->id].offset;
  SLI_CHECK(in_place, "group %s: %s writes %s over %s, which is still needed", task->name, n->name,
            now->tensor->name, other->tensor->name);
}

static void check_task(const sli_lowering *l, const sli_uses *u, const sli_task *task) {
  span *all = sli_calloc((size_t)sli_task_results(task), sizeof *all);
  int count = 0;
  for (int i = 0; i < task->nnodes; i++)
    for (int o = 0; o < task->nodes[i]->nout; o++) {
      const sl_tensor *t = task->nodes[i]->out[o];
      if (!t || t->param) continue;
      bool kept = u->count[t->id] || u->summed[t->id] || u->state[t->id];
      all[count++] = (span){t, i, kept ? task->nnodes : u->last[t->id]};
      for (int k = 0; k + 1 < count; k++) check_pair(l, task, &all[count - 1], &all[k]);
    }
  free(all);
}

void sli_lower_check_places(const sli_lowering *l, const sli_uses *u) {
  for (int i = 0; i < l->ntasks; i++) check_task(l, u, &l->tasks[i]);
}
