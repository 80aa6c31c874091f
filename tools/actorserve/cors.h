/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-origin requests by browsers (CORS). */
#ifndef SLUICE_TOOLS_ACTORSERVE_CORS_H
#define SLUICE_TOOLS_ACTORSERVE_CORS_H

#include "tools/actorserve/http/http.h"

/* Checks --cors. SL_E_USAGE: the text is not valid. */
sl_status cors_check(const char *allowed);
/* Returns whether a page of that origin may send requests. A NULL `allowed` permits none. */
bool cors_allows(const char *allowed, const char *origin);
/* Adds the CORS header fields to an answer, if the origin is allowed. */
void cors_add_fields(http_exchange *x, const char *allowed, const http_request *request);

#endif
