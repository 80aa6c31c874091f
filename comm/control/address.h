/* SPDX-License-Identifier: Apache-2.0 */
/* Host names and ports: parsing, resolving, and the address to bind. */
#ifndef SLUICE_COMM_CONTROL_ADDRESS_H
#define SLUICE_COMM_CONTROL_ADDRESS_H

#include "base/base.h"

enum { SLI_HOST_CHARS = 256, SLI_ENDPOINT_CHARS = 288, SLI_IP_CHARS = 80 };

/* Parses "HOST:PORT". An IPv6 address is in brackets; host "*" means any address of this host. */
sl_status sli_endpoint_parse(const char *text, char host[SLI_HOST_CHARS], int *port);
char *sli_endpoint_write(char out[SLI_ENDPOINT_CHARS], const char *prefix, const char *host,
                         int port);

bool sli_host_is_address(const char *host);
bool sli_host_is_loopback(const char *host); /* loopback address or localhost */

/* Resolves a host to a reachable address, and finds this machine's address on the route to it.
 * Blocks while the resolver runs. */
bool sli_host_route(const char *host, int port, char there[SLI_IP_CHARS], char here[SLI_IP_CHARS]);

#endif
