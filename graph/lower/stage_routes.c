/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that skip stages, or visit them in another order (--paths).
 *
 * Key maps express a path; nothing else is needed. A stage that a microbatch does not visit has no
 * firing for it: its actors count their firings, and a map leads from these to ticks. The output of
 * a stage is split by destination. For each stage q and each stage s that follows it on some path
 * there is a separate register, whose keys are the microbatches that go from q to s:
 *
 *     F0 -> fwd@0-1 -> F1 -> fwd@1-2 -> F2 -> fwd@2-3 -> F3
 *     F0 -> fwd@0-2 ------------------> F2    F1 -> fwd@1-3 -> F3
 *
 * The same holds for the backward pass. In each firing F0 writes one of the two, and F2 reads one
 * of the two; the other port skips it, and the program finds both in the same place
 * (sl_actor.bases). Everything else follows: a gradient is summed over the firings of its stage,
 * and links and copies carry the data that exists.
 *
 * Every stage takes its microbatches in order, forward and backward. A plan with slots for one
 * microbatch therefore finishes, since all can go one after another; and the bits of a run depend
 * only on the paths.
 *
 * The output of a stage must fit every stage that may follow: the same shapes flow between all
 * blocks. */
#include "graph/lower/ir.h"

#include <stdlib.h>
#include <string.h>

/* Buffers that stages write for the next stage, in one direction. */
typedef struct flow {
  bool backward;
  int *made; /* [stages] buffers by the stage that writes them; SL_NONE if it writes none */
} flow;

/* ---- paths ----------------------------------------------------------------------------------- */

static int next_of(const sli_lowering *l, int microbatch, int stage) {
  return l->routes->next[microbatch * l->stages + stage];
}

static void find_next(sli_lowering *l) {
  const sli_paths *paths = l->pick.paths;
  for (int i = 0; i < l->in->m * l->stages; i++) l->routes->next[i] = SL_NONE;
  for (int i = 0; i < l->in->m; i++)
    for (int n = 0; n + 1 < paths->items[i].length; n++)
      l->routes->next[i * l->stages + paths->items[i].stage[n]] = paths->items[i].stage[n + 1];
}

/* Returns the microbatches that go from one stage to another; `to` SL_NONE: to any stage. */
static sli_visits visits_of(sli_lowering *l, int from, int to) {
  int32_t *tick = sli_arena_alloc(&l->arena, (size_t)l->in->m * sizeof *tick);
  sli_visits v = {.tick = tick};
  for (int i = 0; i < l->in->m; i++) {
    int next = next_of(l, i, from);
    if (to == SL_NONE ? next != SL_NONE : next == to) tick[v.count++] = i;
  }
  return v;
}

/* Finds the visits of each stage; all microbatches visit the last. */
static void find_visits(sli_lowering *l) {
  for (int s = 0; s + 1 < l->stages; s++) l->routes->stage[s] = visits_of(l, s, SL_NONE);
  l->routes->stage[l->stages - 1].count = l->in->m;
}

/* ---- flows
 * -------------------------------------------------------------------------------------- */

static int stage_of(const sli_lowering *l, int task) { return l->tasks[task].stage; }

/* Returns the next or previous stage that reads a buffer, or SL_NONE. The stage that writes it may
 * read it as well. */
static int reader_of(const sli_lowering *l, const sli_buffer *b) {
  int from = stage_of(l, b->producer), to = SL_NONE;
  for (int c = 0; c < b->nconsumers; c++) {
    const sli_task *g = &l->tasks[b->consumers[c]];
    if (sli_is_of_pass(g) && g->stage != from) to = SLI_MAX(to, g->stage);
  }
  return to;
}

static bool is_made_by_pass(const sli_lowering *l, const sli_buffer *b) {
  return b->producer != SL_NONE && b->rate == SLI_PER_TICK &&
         sli_is_of_pass(&l->tasks[b->producer]);
}

static bool flows(const sli_lowering *l, const sli_buffer *b) {
  int to = is_made_by_pass(l, b) ? reader_of(l, b) : SL_NONE;
  return to != SL_NONE && abs(to - stage_of(l, b->producer)) == 1;
}

/* Returns the nth buffer that a device of a stage writes for the next stage in one direction, or
 * SL_NONE. */
static int find_flow(const sli_lowering *l, bool backward, int stage, int rank, int nth) {
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (!flows(l, b) || stage_of(l, b->producer) != stage || l->tasks[b->producer].rank != rank)
      continue;
    if ((reader_of(l, b) < stage) == backward && !nth--) return i;
  }
  return SL_NONE;
}

/* Fills in flow number nth; returns false if no stage has one. */
static bool make_flow(sli_lowering *l, bool backward, int rank, int nth, flow *out) {
  bool any = false;
  *out = (flow){backward, sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *out->made)};
  for (int s = 0; s < l->stages; s++) {
    out->made[s] = find_flow(l, backward, s, rank, nth);
    any |= out->made[s] != SL_NONE;
  }
  return any;
}

/* Lists all flows, at most one for each buffer; returns their number. */
static int find_flows(sli_lowering *l, flow *all) {
  int n = 0;
  for (int rank = 0; rank < l->in->ranks; rank++)
    for (int backward = 0; backward < 2; backward++)
      for (int nth = 0; make_flow(l, backward, rank, nth, &all[n]); nth++) n++;
  return n;
}

static sl_status stage_routes_refuse(const sli_lowering *l, const sli_buffer *b, int stage,
                                     const char *why) {
  return sl_fail(SL_E_UNSUPPORTED, "paths: stage %d reads what stage %d makes (%s): %s", stage,
                 stage_of(l, b->producer), b->name, why);
}

/* Checks that a task may read a buffer that is not a flow: it must exist in exactly the ticks
 * in which the task fires. */
static sl_status check_reader(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  const sli_visits *made = sli_buffer_visits(l, b), *read = sli_task_visits(l, task);
  bool same = made == read || (task->cls == SL_CLASS_L && !task->transfer);
  if (task->rate != SLI_PER_TICK || task->pace || same) return SL_OK;
  return stage_routes_refuse(l, b, task->stage,
                             "only the data flowing from stage to stage may pass between them");
}

static sl_status check_report(const sli_lowering *l, const sli_task *task) {
  const sli_visits *v = sli_task_visits(l, task);
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (b->rate == SLI_PER_TICK && !b->pace && sli_buffer_visits(l, b) != v)
      return stage_routes_refuse(l, b, task->stage,
                                 "but different microbatches visit these stages");
  }
  return SL_OK;
}

/* Checks all buffers that are not flows. */
static sl_status check_others(const sli_lowering *l) {
  sl_status status = SL_OK;
  for (int i = 0; i < l->nbuffers && !status; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->producer == SL_NONE || b->pace || b->rate >= SLI_PER_STEP || flows(l, b)) continue;
    for (int c = 0; c < b->nconsumers && !status; c++)
      status = check_reader(l, b, &l->tasks[b->consumers[c]]);
  }
  for (int i = 0; i < l->ntasks && !status; i++)
    if (l->tasks[i].cls == SL_CLASS_L && l->tasks[i].rate == SLI_PER_TICK && !l->tasks[i].pace)
      status = check_report(l, &l->tasks[i]);
  return status;
}

/* Checks that a flow is read only by its own stage and one other. */
static sl_status check_flow(const sli_lowering *l, const sli_buffer *b) {
  int from = stage_of(l, b->producer), to = reader_of(l, b);
  for (int c = 0; c < b->nconsumers; c++) {
    const sli_task *g = &l->tasks[b->consumers[c]];
    if (!sli_is_of_pass(g) || (g->stage != from && g->stage != to))
      return stage_routes_refuse(l, b, g->stage, "but a neighbouring stage reads it too");
  }
  return b->valid_length ? stage_routes_refuse(l, b, to, "but some of its rows may be invalid")
                         : SL_OK;
}

/* ---- checks that flows fit all stages
 * ------------------------------------------------------------- */

/* True if another tensor overwrites this one in place, so that the other tensor is passed on. */
static bool is_overlaid(const sli_lowering *l, const sl_tensor *t) {
  const sli_spot *spot = &l->spots[t->id];
  for (int i = t->id + 1; i < l->in->g->ntensors; i++)
    if (l->spots[i].buffer == spot->buffer && l->spots[i].offset == spot->offset) return true;
  return false;
}

/* Returns the next tensor after `after` that a buffer passes on, or NULL if there are no more. */
static const sl_tensor *tensor_in(const sli_lowering *l, int buffer, int *after) {
  while (*after < l->in->g->ntensors) {
    const sl_tensor *t = l->in->g->tensors[(*after)++];
    if (l->spots[t->id].buffer == buffer && !is_overlaid(l, t)) return t;
  }
  return NULL;
}

/* True if tensors have the same type and, on a grid, are the same part of the whole. */
static bool is_alike(const sli_lowering *l, const sl_tensor *x, const sl_tensor *y) {
  bool same_layout = l->in->ranks == 1 || (x->layout && y->layout && !strcmp(x->layout, y->layout));
  return same_layout && sl_type_equal(&x->type, &y->type) &&
         l->spots[x->id].offset == l->spots[y->id].offset;
}

/* Finds the first tensors of two buffers that differ, NULL if a buffer has no more. Returns false
 * if all are alike. */
static bool find_unlike(const sli_lowering *l, int a, int b, const sl_tensor **x,
                        const sl_tensor **y) {
  int at_a = 0, at_b = 0;
  do {
    *x = a == SL_NONE ? NULL : tensor_in(l, a, &at_a);
    *y = b == SL_NONE ? NULL : tensor_in(l, b, &at_b);
  } while (*x && *y && is_alike(l, *x, *y));
  return *x != *y;
}

/* Describes a tensor, "h.1/add.2 f32[2, 16, 32] (tensor S1)"; NULL: "nothing". */
static const char *text_of(sli_lowering *l, const sl_tensor *t) {
  char type[SL_TYPE_TEXT];
  if (!t) return "nothing";
  sl_type_format(type, &t->type);
  return t->layout && *t->layout
             ? sli_arena_format(&l->arena, "%s %s (%s)", t->name, type, t->layout)
             : sli_arena_format(&l->arena, "%s %s", t->name, type);
}

/* Checks that all stages except the last (backward: the first) write a flow of the same shape, in
 * the same layout. */
static sl_status check_fit(sli_lowering *l, const flow *f) {
  int first = f->backward, last = l->stages - 2 + f->backward;
  for (int s = first; s <= last; s++) {
    const sl_tensor *was, *is;
    bool unlike = find_unlike(l, f->made[first], f->made[s], &was, &is);
    if (unlike || f->made[s] == SL_NONE)
      return sl_fail(SL_E_UNSUPPORTED,
                     "paths: stage %d passes %s %s, but stage %d %s: all stages must pass on the "
                     "same shape%s",
                     s, f->backward ? "back" : "on", text_of(l, is), first, text_of(l, was),
                     l->in->ranks > 1 ? ", in the same layout (--sbp)" : "");
    sl_status status = check_flow(l, &l->buffers[f->made[s]]);
    if (status) return status;
  }
  return SL_OK;
}

/* ---- routes
 * --------------------------------------------------------------------------------------- */

/* Copies the readers on the buffer's stage, or those on other stages. */
static void add_readers(const sli_lowering *l, const sli_buffer *b, bool own, sli_buffer *to) {
  for (int c = 0; c < b->nconsumers; c++)
    if ((stage_of(l, b->consumers[c]) == stage_of(l, b->producer)) == own)
      to->consumers[to->nconsumers++] = b->consumers[c];
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Returns a buffer that one stage writes for the readers of another stage's buffer. */
static sli_buffer buffer_along(sli_lowering *l, const sli_buffer *made, const sli_buffer *read,
                               int to) {
  sli_buffer b = *made;
  b.consumers = sli_arena_alloc(
      &l->arena, (size_t)(made->nconsumers + read->nconsumers) * sizeof *b.consumers);
  b.nconsumers = 0;
  add_readers(l, made, true, &b);
  add_readers(l, read, false, &b);
  qsort(b.consumers, (size_t)b.nconsumers, sizeof *b.consumers, by_number);
  b.name = sli_arena_format(&l->arena, "%s-%d", made->name, to);
  return b;
}

static void drop_port(int *ports, int *count, int buffer) {
  int n = 0;
  for (int i = 0; i < *count; i++)
    if (ports[i] != buffer) ports[n++] = ports[i];
  *count = n;
}

/* Removes the ports of a buffer, which is unused then. */
static void stage_routes_leave(sli_lowering *l, int buffer) {
  const sli_buffer *b = &l->buffers[buffer];
  drop_port(l->tasks[b->producer].outputs, &l->tasks[b->producer].noutputs, buffer);
  for (int c = 0; c < b->nconsumers; c++)
    drop_port(l->tasks[b->consumers[c]].inputs, &l->tasks[b->consumers[c]].ninputs, buffer);
}

/* Reserves space for all routes of `nflows` flows. */
static void make_room(sli_lowering *l, int nflows) {
  sli_stage_routes *w = l->routes;
  w->nroutes = l->nbuffers + nflows * l->stages * SLI_MIN(l->stages, l->in->m);
  w->routes = sli_arena_alloc(&l->arena, (size_t)w->nroutes * sizeof *w->routes);
  for (int i = 0; i < w->nroutes; i++) w->routes[i].made_as = SL_NONE;
}

/* Replaces a flow's buffers by one per route, reusing their indices first. */
static void lay_routes(sli_lowering *l, const flow *f) {
  sli_buffer line[l->stages];
  int places[l->stages], nplaces = 0;
  for (int s = 0; s < l->stages; s++) {
    if (f->made[s] == SL_NONE) continue;
    line[s] = l->buffers[f->made[s]];
    stage_routes_leave(l, f->made[s]);
    places[nplaces++] = f->made[s];
  }
  for (int i = 0; i < l->stages * l->stages; i++) {
    int from = i / l->stages, to = i % l->stages, beside = f->backward ? to + 1 : to - 1;
    sli_visits v = f->backward ? visits_of(l, to, from) : visits_of(l, from, to);
    if (!v.count) continue;
    sli_buffer b = buffer_along(l, &line[from], &line[beside], to);
    int at = nplaces ? places[--nplaces] : l->nbuffers;
    if (at < l->nbuffers) sli_put_buffer(l, at, b);
    else sli_add_buffer(l, b);
    l->routes->routes[at] = (sli_stage_route){f->made[from], f->made[beside], from, to, v};
  }
}

/* ---- the pass -------------------------------------------------------------------------------- */

static sl_status check_options(const sli_lowering *l) {
  const sli_paths *paths = l->pick.paths;
  if (l->in->k > 1)
    return sl_fail(SL_E_UNSUPPORTED, "%s: not supported with sequences cut into pieces",
                   paths->file);
  if (l->in->barriers)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s: not supported with the vocabulary on all stages, since every microbatch visits each "
        "of them",
        paths->file);
  return SL_OK;
}

static sl_status lay_flows(sli_lowering *l) {
  flow *all = sli_calloc((size_t)l->nbuffers + 1, sizeof *all);
  int n = find_flows(l, all);
  sl_status status = check_others(l);
  for (int i = 0; i < n && !status; i++) status = check_fit(l, &all[i]);
  if (!status) make_room(l, n);
  for (int i = 0; i < n && !status; i++) lay_routes(l, &all[i]);
  free(all);
  return status;
}

sl_status sli_lower_stage_routes(sli_lowering *l) {
  if (!l->pick.paths) return SL_OK;
  sl_status status = check_options(l);
  if (status) return status;
  sli_stage_routes *w = l->routes = sli_arena_alloc(&l->arena, sizeof *w);
  w->stage = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *w->stage);
  w->next = sli_arena_alloc(&l->arena, (size_t)(l->in->m * l->stages) * sizeof *w->next);
  find_next(l);
  find_visits(l);
  return lay_flows(l);
}
