/* The CPU queue: a team of cores that runs a program where it is launched. */
#include <sluice/program.h>

#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cpu/team.h"
#include "kernels/doing.h"

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
  if (config->threads > 1) q->team = sli_team_create(config->threads, config->bind, config->bind_arg);
  if (config->scratch_bytes) {
    size_t bytes = (config->scratch_bytes + 63) & ~(size_t)63;
    q->scratch = aligned_alloc(64, bytes);
    if (!q->scratch) {
      cpu_close(q);
      return sl_fail(SL_E_MEMORY, "no memory for %zu bytes of scratch", bytes);
    }
  }
  *queue = q;
  return SL_OK;
}

static void run_call(cpu_queue *q, const sl_program_call *c, const sl_firing *firing,
                     const sl_tick *tick) {
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  if (!sli_call_bind(c, firing, tick, in, out, &call)) return;
  call.scratch = q->scratch;
  call.team = q->team;
  c->op->cpu(&call);
}

/* Apart, so that a firing with nothing to run costs next to nothing. */
static __attribute__((noinline)) void run_program(cpu_queue *q, const sl_program *program,
                                                  const sl_firing *firing) {
  uint64_t start = sli_now_ns();
  sl_tick tick;
  const sl_program_call *calls = sli_program_calls(program, firing, &tick);
  sli_doing doing = {NULL, firing};
  sli_doing_now = &doing;
  for (int i = 0; i < program->ncalls; i++) {
    sl_call_time *time = calls[i].time;
    doing.call = &calls[i];
    run_call(q, &calls[i], firing, &tick);
    if (!time) continue;
    uint64_t end = sli_now_ns();
    if (time->calls++) time->ns += end - start;
    start = end;
  }
  sli_doing_now = NULL;
}

static sl_status cpu_prepare(sl_program *program, int device) {
  (void)device;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (c->op->cpu) continue;
    return sl_fail(SL_E_UNSUPPORTED, "op %s (%s) has no CPU function: set sl_op.cpu, or run it on "
                   "GPUs", c->name ? c->name : "", c->op->name);
  }
  return sl_program_prepare(program);
}

static bool cpu_launch(void *queue, const sl_program *program, const sl_firing *firing,
                       uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns, (void)fence;
  if (program) run_program(queue, program, firing);
  return true;
}

static bool cpu_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)queue, (void)fence, (void)now_ns;
  return true; /* nothing is ever left unfinished */
}

static uint64_t cpu_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return 0;
}

const sl_queue_ops sl_queue_cpu = {
    .name = "cpu",
    .open = cpu_open,     /* allocates, starts the team */
    .close = cpu_close,
    .launch = cpu_launch, /* runs the program: takes as long as it takes */
    .done = cpu_done,
    .prepare = cpu_prepare, /* refuses what has no CPU function */
    .release = sl_program_release,
    .scratch = sl_program_scratch,
    .due = cpu_due,
};
