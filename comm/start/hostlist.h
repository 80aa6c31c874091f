/* Lists of hosts, as starters of jobs shorten them: "n[1-3,07],login". */
#ifndef SLUICE_COMM_HOSTLIST_H
#define SLUICE_COMM_HOSTLIST_H

#include "base/base.h"

/* The index-th host of a list, from 0. Brackets may stand anywhere in a name and
 * several times ("r[0-1]n[1-8]", the last one fastest); numbers keep the zeros in
 * front that the first of a range has. Open MPI's "n[2:1-8]" gives all numbers two
 * digits. SL_E_INPUT, with the list, if it is malformed or not that long. */
sl_status sli_hostlist_at(const char *list, size_t index, char *out, size_t size);
/* How many hosts there are; 0: malformed. */
size_t sli_hostlist_count(const char *list);

/* Tasks on node `index` of Slurm's "2(x3),1"; 0: malformed or not that long. */
int sli_hostlist_tasks(const char *list, size_t index);

#endif
