/* SPDX-License-Identifier: Apache-2.0 */
/* Link queue: carries slots between devices. Within a process it copies them; between processes it
 * hands them to the peers. */
#include "actors/run/run.h"

#include <stdlib.h>

/* Link to one process. Sends complete in any order, but are polled in the order sent. */
typedef struct link_queue {
  const sl_peers *peers;
  sl_status (*copy)(void *to, const void *from, size_t bytes);
  int process;
  uint32_t carried; /* messages so far */
} link_queue;

static sl_status link_open(const sl_queue_config *config, void **queue) {
  link_queue *q = sli_calloc(1, sizeof *q);
  *q = (link_queue){config->peers, config->copy, config->process, 0};
  *queue = q;
  return SL_OK;
}

static void link_close(void *queue) { free(queue); }

static bool link_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)now_ns, (void)duration_ns;
  link_queue *q = queue;
  const sl_move *move = firing->move;
  if (!q->peers) { /* both ends are in one process */
    void *const *ends = firing->bases;
    SLI_CHECK(!move->bytes || !q->copy(ends[move->to], ends[0], move->bytes), "a link broke: %s",
              sl_detail());
    return true;
  }
  sli_message m = {.key = move->key,
                   .reg = move->reg,
                   .slot = move->slot,
                   .kind = SLI_READY,
                   .valid_rows = move->valid_rows,
                   .fence = ++q->carried};
  return q->peers->send(q->peers->ctx, q->process, &m, firing->bases[0], move->bytes, fence);
}

static bool link_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  const link_queue *q = queue;
  return q->peers->done(q->peers->ctx, fence);
}

static uint64_t link_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

const sl_queue_ops sl_queue_link = {.name = "link",
                                    .overlaps = true,
                                    .link = true,
                                    .open = link_open,
                                    .close = link_close,
                                    .launch = link_launch,
                                    .done = link_done,
                                    .due = link_due};
