/* SPDX-License-Identifier: Apache-2.0 */
/* Construction of tasks and buffers, and queries about them. */
#include "graph/lower/ir.h"

int sli_add_task(sli_lowering *l, sli_task task) {
  SLI_GROW(l->tasks, (size_t)l->ntasks, l->task_capacity);
  task.actor = SL_NONE;
  if (!task.transfer) task.about = l->ntasks;
  l->tasks[l->ntasks] = task;
  return l->ntasks++;
}

void sli_add_port(sli_task *task, int buffer, bool output) {
  int *count = output ? &task->noutputs : &task->ninputs;
  int **ports = output ? &task->outputs : &task->inputs;
  SLI_GROW(*ports, (size_t)*count, *(output ? &task->output_capacity : &task->input_capacity));
  (*ports)[(*count)++] = buffer;
}

void sli_put_buffer(sli_lowering *l, int at, sli_buffer b) {
  b.slot_pool.leader = b.source = SL_NONE;
  b.origin = at;
  b.home = b.producer == SL_NONE ? SL_SPACE_DEVICE : sli_lower_space(l, &l->tasks[b.producer]);
  l->buffers[at] = b;
  if (b.producer != SL_NONE) sli_add_port(&l->tasks[b.producer], at, true);
  for (int i = 0; i < b.nconsumers; i++) sli_add_port(&l->tasks[b.consumers[i]], at, false);
}

int sli_add_buffer(sli_lowering *l, sli_buffer b) {
  SLI_GROW(l->buffers, (size_t)l->nbuffers, l->buffer_capacity);
  sli_put_buffer(l, l->nbuffers++, b);
  return l->nbuffers - 1;
}

int sli_task_port(const sli_lowering *l, const sli_task *task, int buffer, bool output) {
  const int *ports = output ? task->outputs : task->inputs;
  int count = output ? task->noutputs : task->ninputs;
  for (int i = 0; i < count; i++)
    if (sli_buffer_taken_for(l, task, ports[i]) == buffer) return i + (output ? task->ninputs : 0);
  SLI_CHECK(false, "group %s has no port for bundle %d", task->name, buffer);
  return SL_NONE;
}

int sli_task_results(const sli_task *task) {
  int n = 0;
  for (int i = 0; i < task->nnodes; i++) n += task->nodes[i]->nout;
  return n;
}

int sli_buffer_home(const sli_lowering *l, int buffer) {
  if (l->buffers[buffer].target == SL_SPACE_DEVICE) return buffer;
  for (int i = buffer; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->origin != buffer || b->source == SL_NONE) continue;
    if (l->tasks[b->producer].transfer->kind == SLI_TRANSFER_SPILL) return i;
  }
  return buffer;
}

int sli_buffer_holder(const sli_lowering *l, const sli_buffer *b) {
  int further = b->home == SL_SPACE_PEER ? l->buffers[b->origin].peer : 0;
  return sli_peer_of(l->in, b->device, further);
}

int sli_buffer_stage(const sli_lowering *l, const sli_buffer *b) {
  int maker = l->buffers[b->origin].producer;
  if (maker == SL_NONE) maker = b->producer; /* for frozen parameters: a transfer */
  return maker == SL_NONE ? SL_NONE : l->tasks[maker].stage;
}

int sli_lower_turn(const sli_lowering *l, int a, int b) {
  const sli_task *x = &l->tasks[a], *y = &l->tasks[b];
  /* one block finishes its turn before the next */
  bool tick = x->rate < SLI_PER_STEP, blocks = l->in->layers && tick;
  if (x->backward != y->backward) return x->backward - y->backward;
  if (l->in->layers && tick != (y->rate < SLI_PER_STEP)) return tick ? -1 : 1;
  bool backward =
      x->backward || l->tasks[x->about].cls == SL_CLASS_U; /* in the order of the gradients */
  int level = x->level - y->level, part = backward ? y->part - x->part : x->part - y->part;
  int first = blocks ? part : level, then = blocks ? level : part;
  if (first || then) return first ? first : then;
  return x->about != y->about ? x->about - y->about : a - b;
}

sl_space sli_lower_space(const sli_lowering *l, const sli_task *task) {
  bool host = task->host || sli_reads_homes(task);
  return host ? sli_kind_host_space(l->in->kind) : SL_SPACE_DEVICE;
}
