/* SPDX-License-Identifier: Apache-2.0 */
/* Loopback network for several processes in one program: runtimes that reach each other by
 * function calls. It behaves like a real network. Messages wait until the receiver's carrier
 * looks, data is copied then, and the sender learns of it later. */
#ifndef SLUICE_TESTS_SUPPORT_LOOPBACK_H
#define SLUICE_TESTS_SUPPORT_LOOPBACK_H

#include <sluice/sluice.h>

enum { MOST_PROCESSES = 8 };

typedef struct loopback loopback;

loopback *loopback_create(int count);
void loopback_destroy(loopback *x);
/* Returns the network interface of process `self`, for its runtime. */
const sl_peers *loopback_peers(loopback *x, int self);
void loopback_attach(loopback *x, int self, sl_runtime *rt);
/* Returns the bytes of data sent so far from one process to another. */
size_t loopback_bytes(loopback *x, int from, int to);

#endif
