/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges in line (--exchange inline): a pass, once begun, keeps its device until it is done.
 *
 * If devices of a stage shard its tensors, a pass is several actors with exchanges between them.
 * Overlapped exchanges have a separate queue, and the device continues with whatever can fire. The
 * next microbatch then enters at each exchange. Credits count microbatches that have begun, so many
 * may have begun while none is done. In line, an exchange that a pass waits for is on the queue of
 * the passes, and all actors of a pass except the first have priority over passes that have not
 * begun. Devices of a stage may drift apart in time, so the order is also fixed, to the order on
 * the virtual clock, where they do not drift. A device then waits for the others only at exchanges.
 *
 * Recomputation of forward tensors waits for the same inputs as its backward pass: its own inputs
 * are ready early, so it would otherwise run for microbatches that are not due for long. If another
 * stage's backward pass reads the result, recomputation does not wait, since that pass comes first.
 *
 * On modelled devices the wire to the next stage is in line as well: a pass ends when its result
 * has arrived.
 *
 * Exchanges that no pass waits for, such as gradient sums and prefetches, still overlap with
 * passes, and so do those that gather what another stage sent in parts (--boundary scattered). */
#include "graph/lower/ir.h"

#include <stdlib.h>

static bool is_of_pass(const sli_task *task) {
  return !task->transfer && !task->host && task->phase == SLI_PHASE_MAIN &&
         task->rate == SLI_PER_TICK && task->stage != SL_NONE;
}

/* True if a pass that has begun waits for a task's results of a tick. What another stage sent in
 * parts is gathered before the pass begins. */
static bool is_awaited(const sli_task *task) {
  bool awaited = false;
  for (int i = 0; i < task->nnodes; i++)
    awaited |= !task->nodes[i]->accumulate_span && !sli_makes_transient(task->nodes[i]) &&
               !task->nodes[i]->arrives;
  return awaited;
}

bool sli_lower_is_in_line(const sli_lowering *l, const sli_task *task) {
  if (l->in->in_line && task->transfer)
    return task->transfer->kind == SLI_TRANSFER_WIRE && task->rate == SLI_PER_TICK;
  return l->in->in_line && task->cls == SL_CLASS_C && is_of_pass(task) && is_awaited(task);
}

static bool is_in_pass(const sli_lowering *l, const sli_task *task) {
  if (!is_of_pass(task)) return false;
  return task->cls == SL_CLASS_F || task->cls == SL_CLASS_B || sli_lower_is_in_line(l, task);
}

static bool is_same_pass(const sli_lowering *l, const sli_task *a, const sli_task *b) {
  return is_in_pass(l, a) && is_in_pass(l, b) && a->stage == b->stage && a->rank == b->rank &&
         a->backward == b->backward;
}

bool sli_lower_goes_on(const sli_lowering *l, const sli_task *task) {
  if (!l->in->in_line || !is_in_pass(l, task)) return false;
  int self = (int)(task - l->tasks);
  for (int i = *sli_newest_on(l, task->stage, task->rank); i != SL_NONE; i = l->tasks[i].before)
    if (i != self && is_same_pass(l, &l->tasks[i], task) && sli_lower_turn(l, i, self) < 0)
      return true;
  return false;
}

/* ---- backward passes begin with their inputs
 * --------------------------------------------------- */

static void add_reader(sli_lowering *l, int buffer, int reader) {
  sli_buffer *b = &l->buffers[buffer];
  int *readers = sli_arena_alloc(&l->arena, (size_t)(b->nconsumers + 1) * sizeof *readers), n = 0;
  for (int i = 0; i < b->nconsumers; i++) {
    if (b->consumers[i] == reader) return;
    if (b->consumers[i] > reader && n == i) readers[n++] = reader;
    readers[n++] = b->consumers[i];
  }
  if (n == b->nconsumers) readers[n++] = reader;
  b->consumers = readers;
  b->nconsumers = n;
  sli_add_port(&l->tasks[reader], buffer, false);
}

/* Adds `early` as a reader of the data that another stage writes for a task in each tick. */
static void begin_with(sli_lowering *l, int early, const sli_task *first) {
  for (int i = 0; i < first->ninputs; i++) {
    const sli_buffer *b = &l->buffers[first->inputs[i]];
    bool arrives = b->producer != SL_NONE && l->tasks[b->producer].stage != first->stage &&
                   b->rate == SLI_PER_TICK && l->tasks[b->producer].backward;
    if (arrives) add_reader(l, first->inputs[i], early);
  }
}

/* True if the task waits for something of its pass, judging by the earlier tasks found so far. */
static bool waits(const sli_lowering *l, const sli_task *task, const bool *early) {
  for (int i = 0; i < task->ninputs; i++) {
    int by = l->buffers[task->inputs[i]].producer;
    if (by == SL_NONE || !l->tasks[by].backward || !is_of_pass(&l->tasks[by])) continue;
    if (l->tasks[by].stage != task->stage || !early[by]) return true;
  }
  return false;
}

/* True if the task only recomputes or exchanges forward tensors. A vocabulary sharded over the
 * stages is excluded: other stages wait for it, and it does not wait for this stage's gradient. */
static bool repeats(const sli_lowering *l, const sli_task *task) {
  bool all = task->backward && is_of_pass(task) && !sli_is_sharded_task(l, task);
  for (int i = 0; i < task->nnodes; i++)
    all &=
        task->nodes[i]->rematerialized || task->nodes[i]->cls == SL_CLASS_C || !task->nodes[i]->nin;
  return all;
}

/* Parts of backward passes that wait for nothing of their pass. */
typedef struct early_tasks {
  bool *all;    /* [ntasks] */
  bool *serves; /* [ntasks] tasks whose results another stage waits for */
} early_tasks;

/* Finds the tasks of backward passes that wait for nothing of their pass: [ntasks]. */
static bool *find_all_early(const sli_lowering *l) {
  bool *early = sli_calloc((size_t)l->ntasks + 1, sizeof *early), changed = true;
  for (int i = 0; i < l->ntasks; i++) early[i] = repeats(l, &l->tasks[i]);
  while (changed) {
    changed = false;
    for (int i = 0; i < l->ntasks; i++)
      if (early[i] && waits(l, &l->tasks[i], early)) early[i] = false, changed = true;
  }
  return early;
}

/* True if another stage, or a task that serves another stage, reads a result of the task. */
static bool is_read_elsewhere(const sli_lowering *l, const sli_task *task, const bool *serves) {
  for (int i = 0; i < task->noutputs; i++) {
    const sli_buffer *b = &l->buffers[task->outputs[i]];
    for (int k = 0; k < b->nconsumers; k++) {
      const sli_task *to = &l->tasks[b->consumers[k]];
      if (serves[b->consumers[k]] ||
          (to->backward && to->stage != SL_NONE && to->stage != task->stage))
        return true;
    }
  }
  return false;
}

/* Finds the early tasks that another stage waits for: [ntasks]. */
static bool *find_serving(const sli_lowering *l, const bool *early) {
  bool *serves = sli_calloc((size_t)l->ntasks + 1, sizeof *serves), changed = true;
  while (changed) {
    changed = false;
    for (int i = 0; i < l->ntasks; i++)
      if (early[i] && !serves[i] && is_read_elsewhere(l, &l->tasks[i], serves))
        serves[i] = changed = true;
  }
  return serves;
}

/* Makes the other tasks wait for the first, by a register without bytes. */
static void begin_together(sli_lowering *l, int first, int count, const int *others) {
  const sli_task *g = &l->tasks[first];
  int *readers = sli_arena_alloc(&l->arena, (size_t)count * sizeof *readers);
  for (int i = 0; i < count; i++) readers[i] = others[count - 1 - i];
  sli_add_buffer(l, (sli_buffer){.name = sli_arena_format(&l->arena, "begun@%d", g->stage),
                                 .role = SLI_ROLE_INNER,
                                 .producer = first,
                                 .nconsumers = count,
                                 .consumers = readers,
                                 .memory = SL_MEMORY_ACTIVATIONS,
                                 .device = g->device,
                                 .aliases = SL_NONE,
                                 .reg = SL_NONE});
}

/* For the first task of a backward pass that waits for something: lists the earlier tasks, which
 * wait for nothing, except those that serve another stage; in reverse order. Returns their number;
 * 0 for any other task. */
static int find_early(const sli_lowering *l, int first, const early_tasks *early, int *out) {
  const sli_task *g = &l->tasks[first];
  int n = 0;
  if (!g->backward || early->all[first] || !is_in_pass(l, g)) return 0;
  for (int e = *sli_newest_on(l, g->stage, g->rank); e != SL_NONE; e = l->tasks[e].before) {
    if (e == first || !is_same_pass(l, &l->tasks[e], g) || sli_lower_turn(l, e, first) > 0)
      continue;
    if (!early->all[e]) return 0;
    if (early->serves[e]) continue;
    out[n++] = e;
    if (n > 1 && sli_lower_turn(l, out[n - 2], e) < 0) out[n - 1] = out[n - 2], out[n - 2] = e;
  }
  return n;
}

void sli_lower_line(sli_lowering *l) {
  if (!l->in->in_line) return;
  early_tasks early = {.all = find_all_early(l)};
  early.serves = find_serving(l, early.all);
  int *of = sli_calloc((size_t)l->ntasks + 1, sizeof *of);
  for (int i = 0; i < l->ntasks; i++) {
    int n = find_early(l, i, &early, of);
    if (n) begin_with(l, of[n - 1], &l->tasks[i]);
    if (n > 1) begin_together(l, of[n - 1], n - 1, of);
  }
  free(of);
  free(early.all);
  free(early.serves);
}
