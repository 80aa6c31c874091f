/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that serve a single reader, and their numbers among others of their kind. */
#include "graph/lower/ir.h"

static bool is_alone_there(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  int n = 0;
  for (int i = 0; i < b->nconsumers; i++) n += l->tasks[b->consumers[i]].device == task->device;
  return n == 1;
}

/* True if an exchange reads parameters that are stored elsewhere. They are fetched when it needs
 * them, at most a quota at a time. Parameters that several tasks read once a step are fetched once,
 * and stay. */
bool sli_is_fetched(const sli_lowering *l, const sli_buffer *b, const sli_task *task) {
  return task->cls == SL_CLASS_C && !task->host && b->memory == SL_MEMORY_PARAMETERS &&
         b->rate == SLI_PER_STEP && b->initial &&
         (task->rate == SLI_PER_TICK || is_alone_there(l, b, task));
}

/* Returns how many buffers a task fetches from the same device before this one. */
int sli_fetched_before(const sli_lowering *l, int buffer, const sli_task *task) {
  int n = 0;
  for (int i = 0;; i++) {
    int origin = l->buffers[task->inputs[i]].origin;
    if (origin == buffer) return n;
    const sli_buffer *b = &l->buffers[origin];
    n += b->device == l->buffers[buffer].device && sli_is_fetched(l, b, task);
  }
}

/* Returns how many buffers of a role have been filled for the task, regardless of later copies;
 * `some`: buffers of offloaded pieces only, or all others. */
int sli_filled_before(const sli_lowering *l, const sli_task *task, sli_role role, bool some) {
  int n = 0;
  for (int i = 0; i < task->ninputs; i++) {
    const sli_buffer *b = &l->buffers[task->inputs[i]];
    if (b->origin == task->inputs[i] || l->buffers[b->origin].target == SL_SPACE_DEVICE) continue;
    const sli_buffer *home = &l->buffers[sli_buffer_home(l, b->origin)];
    if ((home->rate == SLI_PER_LEAVING) != some) continue;
    n += l->tasks[b->producer].transfer->reader != SL_NONE && sli_roles[home->role].filled == role;
  }
  return n;
}
