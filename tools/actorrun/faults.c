/* SPDX-License-Identifier: Apache-2.0 */
/* Report of a fault in user code: the op and actor that ran, or the model that was being built. The
 * handler calls only async-signal-safe functions. Other faults are bugs of Sluice and get the
 * default action. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "text/tokens/tokens.h"
#include "kernels/current_call.h"
#include "tools/actorrun/actorrun.h"

enum { RUN_FAILED = 1, INPUT_WRONG = 2 }; /* exit statuses */

typedef struct line {
  char text[512];
  size_t length;
} line;

static void faults_add(line *l, const char *text) {
  size_t n = strnlen(text, sizeof l->text - l->length);
  memcpy(l->text + l->length, text, n);
  l->length += n;
}

static void add_number(line *l, int64_t value) {
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  faults_add(l, at);
}

static const char *fault_name(int number) {
  switch (number) {
  case SIGSEGV: return "segmentation fault";
  case SIGBUS: return "bus error";
  case SIGFPE: return "arithmetic fault (a division by 0?)";
  default: return "illegal instruction";
  }
}

static void add_call(line *l, const sli_current_call *d) {
  faults_add(l, " in op ");
  faults_add(l, d->call->name ? d->call->name : "?");
  faults_add(l, " (");
  faults_add(l, d->call->op->name);
  faults_add(l, "), actor ");
  faults_add(l, d->firing->name ? d->firing->name : "?");
  faults_add(l, ", step ");
  add_number(l, d->firing->tick.step);
  faults_add(l, ", microbatch ");
  add_number(l, d->firing->tick.microbatch);
}

static void on_fault(int number, siginfo_t *info, void *context) {
  (void)context;
  const sli_current_call *current = sli_thread_call;
  const char *built = model_being_built;
  bool in_call = current && current->call;
  if (!in_call && !built) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  line l = {.length = 0};
  const char *file = number == SIGBUS ? sli_token_file_at(info->si_addr) : NULL;
  faults_add(&l, "actorrun: ");
  faults_add(&l, fault_name(number));
  if (file) {
    faults_add(&l, ": ");
    faults_add(&l, file);
    faults_add(&l, " was truncated, or cannot be read,");
  }
  if (in_call) {
    add_call(&l, current);
  } else {
    faults_add(&l, " while the graph of model ");
    faults_add(&l, built);
    faults_add(&l, " was made");
  }
  faults_add(&l, "\n");
  /* A failed write cannot be handled here. */
  if (write(STDERR_FILENO, l.text, l.length) < 0) {}
  _exit(in_call ? RUN_FAILED : INPUT_WRONG);
}

/* Installs the handlers, except under sanitizers, whose handlers report more. */
void faults_catch(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  static const int all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  static char room[1 << 16]; /* for a handler that runs after a stack overflow */
  sigaltstack(&(stack_t){.ss_sp = room, .ss_size = sizeof room}, NULL);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_ONSTACK | SA_SIGINFO};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < SLI_COUNT(all); i++) sigaction(all[i], &action, NULL);
#else
  (void)on_fault;
#endif
}
