/* The sockets of a user's runs on this machine: a directory nobody else may enter, a
 * socket in it for each process that runs, named by its process id. */
#ifndef SLUICE_TOOLS_ACTORRUN_SOCKET_H
#define SLUICE_TOOLS_ACTORRUN_SOCKET_H

#include <sys/types.h>

#include <sluice/status.h>

/* This process's: listens, and says where. */
sl_status socket_listen(char path[108], int *out);
/* That of another process; SL_E_INPUT: there is none. */
sl_status socket_connect(pid_t pid, int *out);
/* All there are, in order; those of processes that are gone are removed. free(*out). */
size_t socket_list(pid_t **out);

#endif
