/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed host lists of launchers: "n[1-3,07],login". */
#ifndef SLUICE_COMM_START_HOSTLIST_H
#define SLUICE_COMM_START_HOSTLIST_H

#include "base/base.h"

/* Writes the index-th host of a list, from 0. A name may have brackets anywhere, and several
 * ("r[0-1]n[1-8]", where the last varies fastest). Numbers keep the leading zeros of the first
 * number of their range. Open MPI's "n[2:1-8]" gives all numbers two digits. Fails with SL_E_INPUT,
 * naming the list, if it is malformed or too short. */
sl_status sli_hostlist_at(const char *list, size_t index, char *out, size_t size);
/* Returns the number of hosts, or 0 if the list is malformed. */
size_t sli_hostlist_count(const char *list);

/* Returns the tasks on node `index` according to Slurm's "2(x3),1", or 0 if the list is malformed
 * or too short. */
int sli_hostlist_tasks(const char *list, size_t index);

#endif
