/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes that run the same function, and a parent that passes data between them. It
 * replaces a launcher and a control plane in tests. */
#ifndef SLUICE_TESTS_SUPPORT_PROCESSES_H
#define SLUICE_TESTS_SUPPORT_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>

enum { PROCESSES_MOST = 8, PROCESSES_SHARED_BYTES = 4096, PROCESS_ENDPOINT_CHARS = 64 };

typedef struct process {
  int self, n;
  void *shared; /* PROCESSES_SHARED_BYTES of shared memory, zero at first */
  int up, down; /* pipes to and from the parent */
} process;

typedef struct process_blob {
  void *data; /* freed with free() */
  size_t bytes;
} process_blob;

/* Runs `main` in n processes and waits for all. Returns true if each returned or was killed by
 * SIGKILL. Processes are reaped as soon as they end. */
bool processes_run(int n, void (*main)(process *p));

/* Blocks until all live processes have called it, and gives each process the data of all. Dead
 * processes have no data. */
void process_exchange(process *p, const void *data, size_t bytes, process_blob *all);

/* Blocks until all live processes have called it, calling meanwhile(arg) repeatedly. */
void process_meet(process *p, void (*meanwhile)(void *arg), void *arg);

/* Reserves a port of this host as a meeting point. It is bound and not listened on, so it stays
 * reserved until the returned socket is closed. */
int process_port(char endpoint[PROCESS_ENDPOINT_CHARS]);

#endif
