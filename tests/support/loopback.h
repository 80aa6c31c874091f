/* A stand-in for several processes: runtimes of one program that reach each other
 * by function calls. What a real network does, this does too: messages wait until
 * the receiver's carrier looks, data is copied then, and the sender learns of it
 * later. */
#ifndef SLUICE_TESTS_LOOPBACK_H
#define SLUICE_TESTS_LOOPBACK_H

#include <sluice/sluice.h>

enum { MOST_PROCESSES = 8 };

typedef struct loopback loopback;

loopback *loopback_create(int count);
void loopback_destroy(loopback *x);
/* To be given to the runtime of process `self`, and which that is. */
const sl_peers *loopback_peers(loopback *x, int self);
void loopback_attach(loopback *x, int self, sl_runtime *rt);
/* Bytes of data sent so far from one to another. */
size_t loopback_bytes(loopback *x, int from, int to);

#endif
