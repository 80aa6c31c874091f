/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing the body of a request into its prompts. */
#ifndef SLUICE_TOOLS_ACTORSERVE_PREPARE_H
#define SLUICE_TOOLS_ACTORSERVE_PREPARE_H

#include "tools/actorserve/request.h"

/* Parses the body and lists its prompts, as texts or tokens. Runs on any thread: it uses only the
 * request and immutable data. On failure r->param and r->unknown_model say what is wrong, and
 * sl_detail() why. */
sl_status request_prepare(request *r, const char *body, size_t bytes);

#endif
