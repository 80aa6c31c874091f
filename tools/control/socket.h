/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of a user's runs on this machine: one for each running process, named by its process
 * id, in a directory that only the user may enter. */
#ifndef SLUICE_TOOLS_CONTROL_SOCKET_H
#define SLUICE_TOOLS_CONTROL_SOCKET_H

#include <sluice/status.h>

/* Opens this process's socket for listening and returns its path. */
sl_status socket_listen(char path[108], int *out);
#endif
