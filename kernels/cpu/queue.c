/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU queue: a team of cores that runs a program on the launching thread. */
#include <sluice/program.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cpu/joined.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/current_call.h"
#include "ops/ops.h"

typedef struct cpu_queue {
  struct sl_team *team; /* NULL: one thread */
  void *scratch;
} cpu_queue;

static void cpu_close(void *queue) {
  cpu_queue *q = queue;
  if (!q) return;
  if (q->team) sli_team_destroy(q->team);
  free(q->scratch);
  free(q);
}

static sl_status cpu_open(const sl_queue_config *config, void **queue) {
  cpu_queue *q = sli_calloc(1, sizeof *q);
  if (config->bind) config->bind(config->bind_arg, 0);
  if (config->threads > 1)
    q->team = sli_team_create(config->threads, config->bind, config->bind_arg);
  if (config->scratch_bytes) {
    size_t bytes = (config->scratch_bytes + 63) & ~(size_t)63;
    q->scratch = aligned_alloc(64, bytes);
    if (!q->scratch) {
      cpu_close(q);
      return sl_fail(SL_E_MEMORY, "out of memory: %zu bytes of scratch space", bytes);
    }
  }
  *queue = q;
  return SL_OK;
}

/* Records the valid length that a call set. */
static void take_length(const sl_program_call *c, int o, int32_t rows, const sli_lengths *x) {
  int e = sli_length_of(c->out_length, o);
  if (e < 0 || !sli_bit_on(sli_op_rows(c->op)->fills, o)) return;
  SLI_CHECK(rows >= 0 && rows <= x->room[e],
            "op %s (%s) says that it filled %d rows of output %d, which has room for %d only",
            c->name, c->op->name, rows, o, x->room[e]);
  x->valid[e] = rows;
}

/* Runs a call that reads or sets valid lengths. */
static void run_counting(const sl_program_call *c, sl_call *call, const sli_lengths *x) {
  int32_t in_rows[c->nin + 1], out_rows[c->nout + 1];
  for (int i = 0; i < c->nin; i++) in_rows[i] = sli_argument_rows(x, c->in_length, i);
  for (int o = 0; o < c->nout; o++) {
    int e = sli_length_of(c->out_length, o);
    out_rows[o] = e >= 0 ? x->room[e] : -1;
  }
  call->in_rows = in_rows;
  call->out_rows = out_rows;
  c->kernel->run(call);
  for (int o = 0; o < c->nout; o++)
    if (call->out[o]) take_length(c, o, out_rows[o], x);
}

/* Runs a call on zero rows: outputs with a valid length have no rows, and sums are 0. */
static void run_empty(const sl_program_call *c, const sl_call *call) {
  for (int o = 0; o < c->nout; o++)
    if (call->out[o] && !sli_bit(call->accumulate, o) && sli_length_of(c->out_length, o) < 0)
      memset(call->out[o], 0, sl_type_bytes(&c->out_type[o]));
}

/* Runs a call that is unaware of valid lengths, on types cut to their valid rows. */
static void run_cut(const sl_program_call *c, sl_call *call, const sli_lengths *x) {
  sl_type in_type[c->nin + 1], out_type[c->nout + 1];
  bool empty = false;
  for (int i = 0; i < c->nin; i++) {
    in_type[i] = sli_valid_type(x, c->in_length, i, &c->in_type[i]);
    empty |= !sli_argument_rows(x, c->in_length, i);
  }
  for (int o = 0; o < c->nout; o++)
    out_type[o] = sli_valid_type(x, c->out_length, o, &c->out_type[o]);
  call->in_type = in_type;
  call->out_type = out_type;
  if (empty) run_empty(c, call);
  else c->kernel->run(call);
}

/* Checks that the valid rows given to a call equal the number stored with the slot that it
 * reads. */
static void check_told(const sl_program_call *c, const sl_firing *firing, const sli_lengths *x) {
  for (int i = 0; i < c->nin && c->in_length && firing->lengths; i++) {
    int32_t base = c->in[i].base;
    if (base < 0 || base >= x->nread || !firing->lengths[base]) continue;
    SLI_CHECK(sli_argument_rows(x, c->in_length, i) == *firing->lengths[base],
              "actor %s, op %s: input %d has %d valid rows, but its call says %d",
              firing->name ? firing->name : "", c->name, i, *firing->lengths[base],
              sli_argument_rows(x, c->in_length, i));
  }
}

static void run_call(cpu_queue *q, const sl_program_call *c, const sl_firing *firing,
                     const sl_tick *tick, const sli_lengths *x) {
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  if (!sli_call_bind(c, firing, tick, in, out, &call)) return;
  call.scratch = q->scratch;
  call.team = q->team;
  check_told(c, firing, x);
  if (!c->in_length && !c->out_length) c->kernel->run(&call);
  else if (sli_op_rows(c->op)->fills || sli_op_rows(c->op)->looks) run_counting(c, &call, x);
  else run_cut(c, &call, x);
}

/* Runs n joined calls, none of which sets a valid length. */
static void run_joined(cpu_queue *q, const sl_program_call *c, int n, const sl_firing *firing,
                       const sl_tick *tick, const sli_lengths *x) {
  const void *in[SLI_JOINED][SLI_JOINED_INPUTS];
  void *out[SLI_JOINED][1];
  int32_t in_rows[SLI_JOINED][SLI_JOINED_INPUTS];
  sl_call calls[SLI_JOINED];
  int wanted = 0;
  for (int k = 0; k < n; k++, c++) {
    sl_call *call = &calls[wanted];
    if (!sli_call_bind(c, firing, tick, in[wanted], out[wanted], call)) continue;
    for (int i = 0; i < c->nin; i++) in_rows[wanted][i] = sli_argument_rows(x, c->in_length, i);
    call->in_rows = in_rows[wanted++];
    call->scratch = q->scratch;
    call->team = q->team;
  }
  if (wanted) sli_joined_run(calls, wanted);
}

/* Divides the time of joined calls among them by output bytes. */
static void note_times(const sl_program_call *calls, int n, uint64_t ns) {
  double all = 0;
  for (int i = 0; i < n && n > 1; i++) all += (double)sl_type_bytes(calls[i].out_type);
  for (int i = 0; i < n; i++) {
    sl_call_time *time = calls[i].time;
    double share = n > 1 ? (double)sl_type_bytes(calls[i].out_type) / all : 1;
    if (time && time->calls++) time->ns += (uint64_t)((double)ns * share);
  }
}

/* Runs a firing. Kept out of line, so that a firing with nothing to run costs almost nothing. */
static __attribute__((noinline)) void run_program(cpu_queue *q, const sl_program *program,
                                                  const sl_firing *firing) {
  uint64_t start = sli_now_ns();
  sl_tick tick;
  const sl_program_call *calls = sli_program_calls(program, firing, &tick);
  /* NULL if another kind of queue prepared the program; each call then runs alone */
  const int32_t *joined = program->state;
  if (joined) joined += calls - program->calls;
  sli_current_call current = {NULL, firing};
  sli_thread_call = &current;
  int32_t numbers[2 * program->nlengths + 1];
  sli_lengths x = sli_lengths_load(program, firing, numbers);
  for (int i = 0, n; i < program->ncalls; i += n) {
    n = joined ? joined[i] : 1;
    current.call = &calls[i];
    if (n > 1) run_joined(q, &calls[i], n, firing, &tick, &x);
    else run_call(q, &calls[i], firing, &tick, &x);
    if (!calls[i].time) continue;
    uint64_t end = sli_now_ns();
    note_times(&calls[i], n, end - start);
    start = end;
  }
  sli_thread_call = NULL;
  sli_lengths_keep(&x, program, firing);
}

static sl_status cpu_prepare(sl_program *program, int device) {
  (void)device;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (sli_cpu_kernel(c->op)) continue;
    return sl_fail(SL_E_UNSUPPORTED,
                   "op %s (%s) has no CPU kernel: add one to sl_op.kernels, or run it on GPUs",
                   c->name ? c->name : "", c->op->name);
  }
  if (!program->state) program->state = sli_joined_find(program);
  return sl_program_prepare(program);
}

static void cpu_release(sl_program *program) {
  free(program->state);
  program->state = NULL;
  sl_program_release(program);
}

static bool cpu_launch(void *queue, const sl_program *program, const sl_firing *firing,
                       uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns, (void)fence;
  if (program) run_program(queue, program, firing);
  return true;
}

static bool cpu_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)queue, (void)fence, (void)now_ns;
  return true; /* a launch is complete when it returns */
}

static uint64_t cpu_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return 0;
}

const sl_queue_ops sl_queue_cpu = {
    .name = "cpu",
    .works = true,
    .open = cpu_open, /* allocates, starts the team */
    .close = cpu_close,
    .launch = cpu_launch, /* runs the program on this thread */
    .done = cpu_done,
    .prepare = cpu_prepare, /* refuses ops without a CPU kernel */
    .release = cpu_release,
    .scratch = sl_program_scratch,
    .due = cpu_due,
};
