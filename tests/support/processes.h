/* Several processes that run the same function, with somebody who carries data
 * between them: what a launcher and a control plane are for in earnest. */
#ifndef SLUICE_TESTS_PROCESSES_H
#define SLUICE_TESTS_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>

enum { PROCESSES_MOST = 8, PROCESSES_SHARED_BYTES = 4096, PROCESS_ENDPOINT_CHARS = 64 };

typedef struct process {
  int self, n;
  void *shared; /* PROCESSES_SHARED_BYTES seen by all, zero at first */
  int up, down; /* pipes to and from who started it */
} process;

typedef struct process_blob {
  void *data; /* free() it */
  size_t bytes;
} process_blob;

/* Runs `main` in n processes and waits for all. True if each returned, or was
 * killed by SIGKILL. They are reaped as soon as they end. */
bool processes_run(int n, void (*main)(process *p));

/* Blocks until all that still live have called it; gives everybody everybody's
 * data, none for the dead. */
void process_exchange(process *p, const void *data, size_t bytes, process_blob *all);

/* Blocks until all that still live have called it, calling meanwhile(arg) again and
 * again. */
void process_meet(process *p, void (*meanwhile)(void *arg), void *arg);

/* A port of this host, for processes to meet at: bound, and not listened at, so it stays ours until the
 * socket that is returned is closed. */
int process_port(char endpoint[PROCESS_ENDPOINT_CHARS]);

#endif
