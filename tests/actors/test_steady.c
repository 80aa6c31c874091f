/* SPDX-License-Identifier: Apache-2.0 */
/* In the steady state a firing that only notifies its own worker makes no system call, takes no
 * lock and allocates nothing: the kernel kills a thread that does.
 *
 * In the middle of a run, an op on the worker's thread gives up all system calls but write. An
 * allocation that needs memory, a futex and a sleep are then deadly. If the thread survives to its
 * last firing, the op reports that. It also reports how often the allocator and the locks, which
 * need not enter the kernel, were called: this program counts them in functions of the same
 * names. */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Sanitizers need the kernel in every function. */
int main(void) { return 0; }
#else

static _Atomic bool steady;
static _Atomic int calls;

#define COUNTED(result, name, parameters, arguments)                 \
  result name parameters {                                           \
    static result(*real) parameters;                                 \
    if (atomic_load(&steady)) atomic_fetch_add(&calls, 1);           \
    if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    return real arguments;                                           \
  }
COUNTED(void *, malloc, (size_t size), (size))
COUNTED(void *, realloc, (void *old, size_t size), (old, size))
COUNTED(void *, aligned_alloc, (size_t align, size_t size), (align, size))
COUNTED(int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
COUNTED(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))

enum { FIRINGS = 64, STEPS = 100, WARM = 10 * FIRINGS };

static int tell[2]; /* pipe from the child process */

/* From here on, any system call of this thread except write kills it. */
static bool give_up_system_calls(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
  };
  struct sock_fprog program = {SLI_COUNT(code), code};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void watch_op(const sl_call *call) {
  if (call->tick.number == WARM) {
    CHECK(give_up_system_calls(), "the kernel has no seccomp filters");
    atomic_store(&steady, true);
  }
  if (call->tick.number < STEPS * FIRINGS - 1) return;
  atomic_store(&steady, false);
  int count = atomic_load(&calls);
  SLI_CHECK(write(tell[1], &count, sizeof count) == sizeof count, "the pipe is broken");
}

static void empty_op(const sl_call *call) { (void)call; }

static const sl_op watch_row = {.name = "watch", .max_in = -1, .kernels = SL_CPU_KERNEL(watch_op)};
static const sl_op empty_row = {.name = "empty", .max_in = -1, .kernels = SL_CPU_KERNEL(empty_op)};

static sl_program *make_program(sl_plan *plan, const sl_op *op) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  *call = (sl_program_call){.op = op, .name = op->name};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = 4};
  return program;
}

/* Four actors in a line on two queues of one worker; the last actor hands a token back to the
 * first. */
static sl_plan *make_plan(void) {
  enum { LENGTH = 4 };
  sl_plan *plan = sl_plan_create(FIRINGS, 1);
  int32_t each = sl_plan_map_each(plan), later = sl_plan_map_lag(plan, 1, 2), reg[LENGTH];
  for (int d = 0; d < 2; d++) {
    sl_plan_add_device(plan, (sl_device){.name = "d", .kind = "cpu", .threads = 1});
    sl_plan_add_queue(plan,
                      (sl_queue){.name = "q", .device = d, .ops = &sl_queue_cpu, .run_ahead = 1});
  }
  for (int i = 0; i < LENGTH; i++)
    reg[i] = sl_plan_add_register(plan, (sl_register){.name = "r",
                                                      .quota_name = "r",
                                                      .quota = 3,
                                                      .pool = SL_NONE,
                                                      .initial = i == 0 ? 2 : 0,
                                                      .device = i % 2,
                                                      .slot_bytes = 64});
  for (int i = 0; i < LENGTH; i++) {
    sl_port in = {reg[i], each}, out = {reg[(i + 1) % LENGTH], i + 1 < LENGTH ? each : later};
    sl_plan_add_actor(plan, (sl_actor){.name = "a",
                                       .queue = i % 2,
                                       .ticks = each,
                                       .nin = 1,
                                       .nout = 1,
                                       .in = &in,
                                       .out = &out,
                                       .firings_per_step = FIRINGS,
                                       .program = make_program(plan, i ? &empty_row : &watch_row)});
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static void run_child(void) {
  sl_runtime *rt;
  sl_runtime_options options = {.workers = 1, .watchdog_seconds = -1};
  CHECK(!sl_runtime_create(make_plan(), &options, &rt), "%s", sl_detail());
  sl_runtime_run(rt, STEPS); /* hangs: its worker dies by the end of the run */
}

int main(void) {
  CHECK(!pipe(tell), "no pipe");
  pid_t child = fork();
  CHECK(child >= 0, "no child process");
  if (!child) {
    run_child();
    return 1;
  }
  struct pollfd news = {.fd = tell[0], .events = POLLIN};
  int ready = poll(&news, 1, 20000), count = -1;
  ssize_t got = ready == 1 ? read(tell[0], &count, sizeof count) : 0;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  CHECK(got == sizeof count, "the worker made a system call in the steady state");
  CHECK(count == 0, "%d calls of the allocator or of a lock in the steady state", count);
  return 0;
}
#endif
