/* Which host this is, for those who ask whether they share it. */
#ifndef SLUICE_COMM_NET_THIS_HOST_H
#define SLUICE_COMM_NET_THIS_HOST_H

#include "base/base.h"

/* Equal in two processes exactly if they share memory and what describes it: the same boot of a
 * machine, user, /dev/shm, and namespaces of processes and networks. */
uint64_t sli_this_host(void);

#endif
