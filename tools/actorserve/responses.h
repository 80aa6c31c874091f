/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses: translates its bodies to those of /v1/chat/completions, and formats its
 * answers. */
#ifndef SLUICE_TOOLS_ACTORSERVE_RESPONSES_H
#define SLUICE_TOOLS_ACTORSERVE_RESPONSES_H

#include "tools/actorserve/request.h"

/* Translates a body; the caller frees *out. SL_E_USAGE names a field that is wrong or not
 * supported; *param is then its name, or NULL. */
sl_status responses_translate(const char *body, size_t bytes, const sli_allowance *allowance,
                              char **out, const char **param);

/* Appends an unstreamed answer. This and the following functions append to `out` and return false
 * if memory ran out. */
bool responses_whole(request *r, struct evbuffer *out);
/* Append the events at the beginning of a stream; for a piece, which the choice has kept; and at
 * the end. */
bool responses_begin(choice *c, struct evbuffer *out);
bool responses_piece(choice *c, const answer_piece *piece, struct evbuffer *out);
bool responses_end(choice *c, struct evbuffer *out);

#endif
