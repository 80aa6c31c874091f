/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of this host, to find out which processes share memory. */
#ifndef SLUICE_COMM_NET_THIS_HOST_H
#define SLUICE_COMM_NET_THIS_HOST_H

#include "base/base.h"

/* Returns a value that is equal in two processes exactly if they can share memory: same boot of the
 * same machine, user, /dev/shm, and PID and network namespaces. */
uint64_t sli_this_host(void);

#endif
