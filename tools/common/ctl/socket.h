/* The sockets of a user's runs on this machine: a directory nobody else may enter, a
 * socket in it for each process that runs, named by its process id. */
#ifndef SLUICE_TOOLS_COMMON_CTL_SOCKET_H
#define SLUICE_TOOLS_COMMON_CTL_SOCKET_H

#include <sluice/status.h>

/* This process's: listens, and says where. */
sl_status socket_listen(char path[108], int *out);
#endif
