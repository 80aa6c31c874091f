/* Pages of other origins, as browsers ask for them (CORS). */
#ifndef SLUICE_TOOLS_ACTORSERVE_CORS_H
#define SLUICE_TOOLS_ACTORSERVE_CORS_H

#include "tools/actorserve/http/http.h"

/* SL_E_USAGE: --cors is no such word. */
sl_status cors_check(const char *allowed);
/* Whether a page of that origin may ask; NULL: no page does. */
bool cors_allows(const char *allowed, const char *origin);
/* Fields of an answer to whoever may. */
void cors_add_fields(http_exchange *x, const char *allowed, const http_request *request);

#endif
