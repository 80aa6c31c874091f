/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses: its bodies as those of /v1/chat/completions, and its answers. */
#ifndef SLUICE_TOOLS_ACTORSERVE_RESPONSES_H
#define SLUICE_TOOLS_ACTORSERVE_RESPONSES_H

#include "tools/actorserve/request.h"

/* Translates a body; the caller frees *out. SL_E_USAGE names a field that is wrong or that the
 * server does not have; *param is then its name, or NULL. */
sl_status responses_translate(const char *body, size_t bytes, const sli_allowance *allowance,
                              char **out, const char **param);

/* The items of an answer: messages, reasoning and calls, in their order. */
typedef struct response response;
response *response_create(void);
void response_destroy(response *x);

/* Appends the answer of one that is not streamed. This and the following functions append to `out`;
 * false: there was no memory. */
bool responses_whole(request *r, struct evbuffer *out);
/* Appends the events that begin a stream; those of a piece, which the choice has kept; and those
 * that end it. */
bool responses_begin(choice *c, struct evbuffer *out);
bool responses_piece(choice *c, const answer_piece *piece, struct evbuffer *out);
bool responses_end(choice *c, struct evbuffer *out);
/* Notes a piece, which the choice has kept, of an answer that is not streamed. */
void responses_note(choice *c, const answer_piece *piece);

#endif
