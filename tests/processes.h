/* A stand-in for several processes: runtimes of one program that reach each other
 * by function calls. What a real network does, this does too: messages wait until
 * the receiver's carrier looks, data is copied then, and the sender learns of it
 * later. */
#ifndef SLUICE_TESTS_PROCESSES_H
#define SLUICE_TESTS_PROCESSES_H

#include <sluice/sluice.h>

enum { MOST_PROCESSES = 8 };

typedef struct processes processes;

processes *processes_create(int count);
void processes_destroy(processes *x);
/* To be given to the runtime of process `self`, and which that is. */
const sl_peers *processes_peers(processes *x, int self);
void processes_attach(processes *x, int self, sl_runtime *rt);
/* Bytes of data sent so far from one to another. */
size_t processes_bytes(processes *x, int from, int to);

#endif
