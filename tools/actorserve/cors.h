/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by browsers: from pages of other origins (CORS), and to other names of this machine. */
#ifndef SLUICE_TOOLS_ACTORSERVE_CORS_H
#define SLUICE_TOOLS_ACTORSERVE_CORS_H

#include "tools/actorserve/http/http.h"

/* Checks --cors. SL_E_USAGE: the text is not valid. */
sl_status cors_check(const char *allowed);
/* Returns whether a page of that origin may send requests. A NULL `allowed` permits none. */
bool cors_allows(const char *allowed, const char *origin);
/* Adds the CORS header fields to an answer, if the origin is allowed. */
void cors_add_fields(http_exchange *x, const char *allowed, const http_request *request);
/* Returns whether a server that listens at an address takes a request with this Host field. Without
 * a key, a server on loopback takes no names of the internet: a site can lead a browser here by its
 * own name (DNS rebinding), and its page then has the server's origin. */
bool cors_takes_host(const char *listens, const char *key, const char *field);

#endif
