/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of loads of experts. Its worker, that of the device, plans each firing and goes on. A
 * thread behind the queue reads (reads.h), and has nothing to do with firings whose experts are in
 * memory. */
#include <sluice/ops.h>
#include <sluice/program.h>

#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/disk/loaders.h"
#include "kernels/disk/reads.h"
#include "ops/expert_loads.h"

typedef struct loads_queue {
  sli_disk_reads *reads;
  int flying;   /* firings that are not complete */
  char *failed; /* NULL: no error */
} loads_queue;

static sl_status loads_open(const sl_queue_config *config, void **queue) {
  (void)config;
  loads_queue *q = sli_calloc(1, sizeof *q);
  q->reads = sli_disk_reads_open();
  *queue = q;
  return SL_OK;
}

static void loads_close(void *queue) {
  loads_queue *q = queue;
  if (!q) return;
  sli_disk_reads_close(q->reads);
  free(q->failed);
  free(q);
}

static sl_status load(loads_queue *q, const sl_program *program, const sl_firing *firing,
                      uint64_t *number) {
  sl_tick tick;
  const sl_program_call *c = sli_program_calls(program, firing, &tick);
  int32_t numbers[2 * program->nlengths + 1], in_rows[c->nin + 1];
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  sli_lengths x = sli_lengths_load(program, firing, numbers);
  if (!sli_call_bind(c, firing, &tick, in, out, &call)) return SL_OK;
  for (int i = 0; i < c->nin; i++) in_rows[i] = sli_argument_rows(&x, c->in_length, i);
  call.in_rows = in_rows;
  sl_status status = sli_load_experts(&call, c->name, q->reads, number);
  sli_lengths_keep(&x, program, firing);
  return status;
}

/* Plans a firing. It is complete if all that it lends is in memory, and earlier ones are complete.
 * The fence of a failed launch never completes, so that waiters look for the error. */
static bool loads_launch(void *queue, const sl_program *program, const sl_firing *firing,
                         uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  loads_queue *q = queue;
  uint64_t number = 0;
  *fence = UINT64_MAX;
  if (q->failed) return false;
  if (program && load(q, program, firing, &number)) {
    q->failed = sli_format("step %lld, microbatch %d: %s", (long long)firing->tick.step,
                           firing->tick.microbatch, sl_detail());
    return false;
  }
  *fence = number;
  if (!q->flying && number <= sli_disk_reads_passed(q->reads)) return true;
  q->flying++;
  return false;
}

static bool loads_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  loads_queue *q = queue;
  bool done = fence <= sli_disk_reads_passed(q->reads);
  q->flying -= done;
  return done;
}

static uint64_t loads_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

static const char *loads_failure(void *queue) {
  const loads_queue *q = queue;
  return q->failed ? q->failed : sli_disk_reads_failure(q->reads);
}

static sl_status loads_prepare(sl_program *program, int device) {
  (void)device;
  bool fits = program->ncalls == 1;
  for (int i = 0; i < sli_program_call_count(program); i++)
    fits &= program->calls[i].op == &sl_op_load_experts;
  return fits ? SL_OK
              : sl_fail(SL_E_UNSUPPORTED, "the queue of loads runs firings of load_experts alone");
}

static void loads_release(sl_program *program) { (void)program; }

static size_t loads_scratch(const sl_program *program, int threads) {
  (void)program, (void)threads;
  return 0;
}

const sl_queue_ops sl_queue_loads = {
    .name = "loads",
    .open = loads_open,
    .close = loads_close,
    .launch = loads_launch, /* asks for reads */
    .done = loads_done,
    .due = loads_due,
    .failure = loads_failure,
    .prepare = loads_prepare,
    .release = loads_release,
    .scratch = loads_scratch,
};
