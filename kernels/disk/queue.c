/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of copies to and from disk; the launching thread waits for them. With io_uring, all
 * copies of a program are in flight together. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/disk/disk.h"
#include "kernels/disk/loaders.h"
#include "kernels/disk/rate.h"
#include "kernels/disk/ring.h"
#include "ops/facets.h"

typedef struct disk_queue {
  sli_disk_ring *ring; /* NULL: this thread copies, one transfer at a time */
  size_t count, capacity;
  sli_disk_way *ways; /* transfers of a firing */
  char *failed;       /* NULL: no error */
  void *scratch;      /* of the loads of a firing */
  sli_disk_rate_limit rate;
  size_t moved; /* bytes of a firing */
} disk_queue;

static sl_status disk_open(const sl_queue_config *config, void **queue) {
  disk_queue *q = sli_calloc(1, sizeof *q);
  if (config->bind) config->bind(config->bind_arg, 0);
  const char *why;
  q->rate.rate = sli_disk_rate();
  q->scratch = aligned_alloc(SLI_DISK_PAGE, sli_disk_pages(SLI_MAX(config->scratch_bytes, 1)));
  q->ring = sli_disk_ring_open(&why);
  if (!q->ring) sli_disk_say_plain(why);
  *queue = q;
  return SL_OK;
}

static void disk_close(void *queue) {
  disk_queue *q = queue;
  if (!q) return;
  sli_disk_ring_close(q->ring);
  free(q->ways);
  free(q->scratch);
  free(q->failed);
  free(q);
}

/* Starts a copy: queues it if the ring can carry it, otherwise copies it immediately. */
static sl_status begin_way(void *queue, const char *name, void *to, const void *from,
                           size_t bytes) {
  disk_queue *q = queue;
  sli_disk_way way = sli_disk_way_of(to, from, bytes);
  way.name = name;
  q->moved += bytes;
  if (!way.file) return sl_memory_disk.copy(to, from, bytes);
  if (!q->ring || !sli_disk_way_straight(&way)) return sli_disk_go(&way);
  SLI_GROW(q->ways, q->count, q->capacity);
  q->ways[q->count++] = way;
  return SL_OK;
}

static sl_status begin_copy(disk_queue *q, const sl_program_call *c, const sli_lengths *x,
                            const sl_firing *firing) {
  const void *from = sli_place_address(c->in[0], firing->bases);
  void *to = sli_place_address(c->out[0], firing->bases);
  sl_type valid = sli_valid_type(x, c->in_length, 0, &c->in_type[0]);
  size_t all = sl_type_bytes(&c->in_type[0]), bytes = sl_type_bytes(&valid);
  if (bytes < all) bytes = SLI_MIN(sli_disk_pages(bytes), all); /* slots are whole pages */
  return from && to && bytes ? begin_way(q, c->name, to, from, bytes) : SL_OK;
}

static const sli_loader *loader_of(const sl_op *op) {
  return op == sli_load_rows.op ? &sli_load_rows : NULL;
}

/* Starts what a tick's rows make of a call, or ends it once all is read. */
static sl_status run_loads(disk_queue *q, const sl_program_call *c, const sli_lengths *x,
                           const sl_firing *firing, const sl_tick *tick, bool end) {
  const sli_loader *loader = loader_of(c->op);
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  int32_t in_rows[c->nin + 1];
  sl_call call;
  if (!sli_call_bind(c, firing, tick, in, out, &call)) return SL_OK;
  for (int i = 0; i < c->nin; i++) in_rows[i] = sli_argument_rows(x, c->in_length, i);
  call.in_rows = in_rows;
  call.scratch = q->scratch;
  if (!end) return loader->begin(&call, c->name, begin_way, q);
  if (loader->end) loader->end(&call);
  return SL_OK;
}

static sl_status copy_all(disk_queue *q, const sl_program *program, const sl_firing *firing) {
  sl_tick tick;
  const sl_program_call *calls = sli_program_calls(program, firing, &tick);
  sl_status status = SL_OK;
  int32_t numbers[2 * program->nlengths + 1];
  sli_lengths x = sli_lengths_load(program, firing, numbers);
  uint64_t begun_ns = sli_now_ns();
  q->count = q->moved = 0;
  for (int i = 0; i < program->ncalls && !status; i++)
    status = loader_of(calls[i].op) ? run_loads(q, &calls[i], &x, firing, &tick, false)
                                    : begin_copy(q, &calls[i], &x, firing);
  sli_lengths_keep(&x, program, firing);
  if (!status && q->count) status = sli_disk_ring_go(q->ring, q->ways, q->count);
  for (int i = 0; i < program->ncalls && !status; i++)
    if (loader_of(calls[i].op)) status = run_loads(q, &calls[i], &x, firing, &tick, true);
  sli_disk_rate_keep(&q->rate, begun_ns, q->moved);
  return status;
}

/* Runs the copies. The fence of a failed launch never completes, so that waiters look for the
 * error. */
static bool disk_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  disk_queue *q = queue;
  *fence = 0;
  if (q->failed) return false;
  if (!program || !copy_all(q, program, firing)) return true;
  q->failed = sli_format("step %lld, microbatch %d: %s", (long long)firing->tick.step,
                         firing->tick.microbatch, sl_detail());
  return false;
}

static bool disk_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)queue, (void)fence, (void)now_ns;
  return false;
}

static uint64_t disk_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static const char *disk_failure(void *queue) {
  const disk_queue *q = queue;
  return q->failed;
}

static bool is_plain_copy(const sl_program_call *c) {
  return c->op == &sl_op_copy && !c->accumulate && !c->accumulate_span &&
         c->in_type[0].dtype == c->out_type[0].dtype;
}

static sl_status disk_prepare(sl_program *program, int device) {
  (void)device;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (is_plain_copy(c) || loader_of(c->op)) continue;
    return sl_fail(SL_E_UNSUPPORTED, "op %s (%s): disks can only copy registers unchanged",
                   c->name ? c->name : "", c->op->name);
  }
  return SL_OK;
}

static void disk_release(sl_program *program) { (void)program; }

static size_t disk_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  (void)threads;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sli_loader *loader = loader_of(program->calls[i].op);
    sl_call call = sli_call_shape(&program->calls[i]);
    if (loader && loader->scratch) most = SLI_MAX(most, loader->scratch(&call));
  }
  return most;
}

const sl_queue_ops sl_queue_disk = {
    .name = "disk",
    .blocks = true,
    .open = disk_open,
    .close = disk_close,
    .launch = disk_launch, /* blocks until the disk is done */
    .done = disk_done,
    .due = disk_due,
    .failure = disk_failure,
    .prepare = disk_prepare, /* refuses ops other than copies and loads */
    .release = disk_release,
    .scratch = disk_scratch,
};
