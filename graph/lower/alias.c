/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that alias activations.
 *
 * Activations of the forward pass live until the last call that reads them; gradients for the
 * update live from the call that makes them. If a step is one tick, both exist once a step, and one
 * shrinks while the other grows. They therefore share memory, call by call where there is room. As
 * registers, the gradients alias the activations. As places, a gradient's place is inside the slot
 * of the activations (programs.c), so a program shows the true addresses and its readers need not
 * know of this.
 *
 * The next forward pass must not begin before the gradients have been read. It waits for the
 * updated parameters anyway; any other reader of gradients passes it a turn.
 *
 * With several ticks, gradients are summed and exist while activations still arrive, so no memory
 * is shared. */
#include <stdlib.h>

#include "graph/lower/ir.h"

typedef struct pass {
  sli_lowering *l;
  int *begin;   /* [nbuffers + 1] start of each buffer's tensors in `tensors` */
  int *tensors; /* [tensors in buffers] sorted by buffer */
  bool *leaves; /* [nbuffers] a transfer takes it elsewhere */
  bool *taken;  /* [nbuffers] already aliased, or cannot be */
} pass;

static pass begin_pass(sli_lowering *l) {
  const sl_graph *g = l->in->g;
  size_t n = (size_t)l->nbuffers + 2;
  pass p = {l, sli_calloc(n, sizeof *p.begin),
            sli_calloc((size_t)g->ntensors + 1, sizeof *p.tensors), sli_calloc(n, sizeof *p.leaves),
            sli_calloc(n, sizeof *p.taken)};
  int *end = p.begin + 1; /* while counting: tensors in earlier buffers; while listing: each
                             buffer's end */
  for (int t = 0; t < g->ntensors; t++)
    if (l->spots[t].buffer != SL_NONE) end[l->spots[t].buffer + 1]++;
  for (int b = 0; b < l->nbuffers; b++) end[b + 1] += end[b];
  for (int t = 0; t < g->ntensors; t++)
    if (l->spots[t].buffer != SL_NONE) p.tensors[end[l->spots[t].buffer]++] = t;
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->source != SL_NONE) p.leaves[b->source] = true;
    if (b->aliases != SL_NONE) p.taken[i] = p.taken[b->aliases] = true;
  }
  return p;
}

static void end_pass(pass *p) {
  free(p->begin);
  free(p->tensors);
  free(p->leaves);
  free(p->taken);
}

/* ---- which pairs --------------------------------------------------------------------- */

/* True if the buffer has exactly one, unshared slot, where it is written. */
static bool has_one_slot(const pass *p, int at) {
  const sli_buffer *b = &p->l->buffers[at];
  return b->producer != SL_NONE && b->bytes && !b->held && !b->initial && !b->valid_length &&
         !b->pace && !b->transient && !b->slot_pool.least && b->source == SL_NONE &&
         !sli_is_spilled(b) && !p->leaves[at] && !p->taken[at] &&
         sli_lower_given(p->l, b->role, sli_buffer_stage(p->l, b)) <= 1;
}

/* True for gradients of one tick that no exchange reads, and that are read only where they are
 * made. */
static bool is_gradient(const pass *p, int at) {
  const sli_lowering *l = p->l;
  const sli_buffer *b = &l->buffers[at];
  if (b->role != SLI_ROLE_GRAD || !has_one_slot(p, at)) return false;
  bool here = l->tasks[b->producer].rate == SLI_PER_TICK;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *to = &l->tasks[b->consumers[i]];
    here &= to->device == b->device && to->cls != SL_CLASS_C;
  }
  return here && sli_lower_given(l, SLI_ROLE_PARAM, l->tasks[b->producer].stage) <= 1;
}

/* Returns the largest buffer of the forward pass that only this task reads, or SL_NONE. */
static int find_activations(const pass *p, int task, const sli_buffer *gradient) {
  const sli_task *g = &p->l->tasks[task];
  int best = SL_NONE;
  for (int i = 0; i < g->ninputs; i++) {
    const sli_buffer *b = &p->l->buffers[g->inputs[i]];
    bool fits = sli_roles[b->role].activation && b->rate == SLI_PER_TICK && b->nconsumers == 1 &&
                b->device == gradient->device && b->home == gradient->home &&
                g->inputs[i] < gradient - p->l->buffers && has_one_slot(p, g->inputs[i]);
    if (fits && (best == SL_NONE || b->bytes > p->l->buffers[best].bytes)) best = g->inputs[i];
  }
  return best;
}

/* ---- places -------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b, void *spots) {
  const sli_spot *x = (const sli_spot *)spots + *(const int *)a,
                 *y = (const sli_spot *)spots + *(const int *)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return *(const int *)a - *(const int *)b;
}

/* Finds the first node that makes each tensor of the task's output `at`, or the last that reads
 * each tensor of its input `at`. */
static void find_nodes(const sli_lowering *l, const sli_task *task, int at, bool output,
                       int *node) {
  for (int i = 0; i < task->nnodes; i++) {
    const sli_node *n = task->nodes[i];
    for (int o = n->nout - 1; output && o >= 0; o--)
      if (n->out[o] && l->spots[n->out[o]->id].buffer == at) node[n->out[o]->id] = i;
    for (int a = 0; !output && a < n->nin; a++)
      for (const sl_tensor *t = n->in[a]; t;
           t = t == n->in[a] && !n->rematerialized ? t->kept : NULL)
        if (l->spots[t->id].buffer == at) node[t->id] = i;
  }
}

/* Lists the tensors of a buffer in all[], one entry per place, and returns the number of
 * entries. item[]: the entry of each, in the order of tensors. */
static int list_lifetimes(pass *p, const sli_task *task, int at, bool output, int *node, int id,
                          sli_lifetime *all, int *item) {
  sli_lowering *l = p->l;
  int n = p->begin[at + 1] - p->begin[at], count = 0;
  int *tensors = p->tensors + p->begin[at];
  qsort_r(tensors, (size_t)n, sizeof *tensors, by_offset, l->spots);
  for (int i = 0; i < n; i++) node[tensors[i]] = -1;
  find_nodes(l, task, at, output, node);
  for (int i = 0; i < n; i++) {
    int t = tensors[i];
    bool same = i && l->spots[tensors[i - 1]].offset == l->spots[t].offset;
    if (!same) all[count++] = (sli_lifetime){id + i, -1, -1, 0, 0};
    sli_lifetime *s = &all[count - 1];
    item[i] = s->id;
    s->bytes = SLI_MAX(s->bytes, sli_lower_aligned(sl_type_bytes(&l->in->g->tensors[t]->type)));
    if (output) s->first = same ? SLI_MIN(s->first, node[t]) : node[t], s->last = task->nnodes;
    else s->last = SLI_MAX(s->last, node[t]);
  }
  return count;
}

/* Writes the new offsets to the tensors of a buffer. */
static void move(pass *p, int at, const size_t *offset, const int *item) {
  sli_buffer *b = &p->l->buffers[at];
  b->bytes = 0;
  for (int i = 0; i < p->begin[at + 1] - p->begin[at]; i++) {
    const sl_tensor *t = p->l->in->g->tensors[p->tensors[p->begin[at] + i]];
    p->l->spots[t->id].offset = offset[item[i]];
    b->bytes = SLI_MAX(b->bytes, offset[item[i]] + sli_lower_aligned(sl_type_bytes(&t->type)));
  }
}

/* Lays out both buffers together. Returns false if that takes as much memory as separate
 * buffers. */
static bool lay_out(pass *p, int under, int over) {
  const sli_lowering *l = p->l;
  const sli_task *g = &l->tasks[l->buffers[over].producer];
  int nunder = p->begin[under + 1] - p->begin[under],
      n = nunder + p->begin[over + 1] - p->begin[over];
  sli_lifetime *all = sli_calloc((size_t)n, sizeof *all);
  int *item = sli_calloc((size_t)n, sizeof *item),
      *node = sli_calloc((size_t)l->in->g->ntensors, sizeof *node);
  size_t *offset = sli_calloc((size_t)n, sizeof *offset);
  int count = list_lifetimes(p, g, under, false, node, 0, all, item);
  count += list_lifetimes(p, g, over, true, node, nunder, all + count, item + nunder);
  bool smaller = sli_lower_fit(all, count) < l->buffers[under].bytes + l->buffers[over].bytes;
  for (int i = 0; i < count; i++) offset[all[i].id] = all[i].offset;
  if (smaller) {
    move(p, under, offset, item);
    move(p, over, offset, item + nunder);
  }
  free(all);
  free(item);
  free(node);
  free(offset);
  return smaller;
}

/* ---- the pass ------------------------------------------------------------------------------ */

/* True if the task waits for the clip, which waits for all norms. */
static bool is_clipped(const sli_lowering *l, const sli_task *task) {
  bool clipped = false;
  for (int i = 0; i < task->ninputs; i++) {
    int by = l->buffers[l->buffers[task->inputs[i]].origin].producer;
    clipped |= by != SL_NONE && l->tasks[by].phase == SLI_PHASE_CLIP;
  }
  return clipped;
}

/* True if the next firing of `to` waits for this firing of the task: it reads parameters that
 * the task updates, or parameters clipped by its norm. */
static bool is_awaited(const sli_lowering *l, int task, int to) {
  bool awaited = false, norm = l->tasks[task].phase == SLI_PHASE_NORM;
  for (int i = 0; i < l->tasks[to].ninputs; i++) {
    const sli_buffer *b = &l->buffers[l->tasks[to].inputs[i]];
    if (b->role != SLI_ROLE_PARAM || b->initial != 1 || b->producer == SL_NONE) continue;
    awaited |= b->producer == task || (norm && is_clipped(l, &l->tasks[b->producer]));
  }
  return awaited;
}

static void alias(pass *p, int over) {
  sli_lowering *l = p->l;
  int under = find_activations(p, l->buffers[over].producer, &l->buffers[over]);
  if (under == SL_NONE || !lay_out(p, under, over)) return;
  p->taken[under] = p->taken[over] = true;
  l->buffers[over].aliases = under;
  l->buffers[under].aliased_by = 1 + over;
  int maker = l->buffers[under].producer, n = l->buffers[over].nconsumers;
  const int *readers = l->buffers[over].consumers;
  for (int i = 0; i < n; i++)
    if (!is_awaited(l, readers[i], maker)) sli_add_turn(l, readers[i], maker, true);
}

void sli_lower_aliases(sli_lowering *l) {
  if (l->in->m * l->in->k > 1 || l->routes) return;
  pass p = begin_pass(l);
  for (int i = 0, n = l->nbuffers; i < n; i++)
    if (is_gradient(&p, i)) alias(&p, i);
  end_pass(&p);
}
