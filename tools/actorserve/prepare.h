/* From the body of a request to its prompts. */
#ifndef SLUICE_TOOLS_ACTORSERVE_PREPARE_H
#define SLUICE_TOOLS_ACTORSERVE_PREPARE_H

#include "tools/actorserve/request.h"

/* Reads the body, and lists prompts: texts, or tokens. Touches nothing that others do but what does not change. Where it fails
 * r->param and r->unknown_model say at what, and sl_detail(). */
sl_status request_prepare(request *r, const char *body, size_t bytes);

#endif
