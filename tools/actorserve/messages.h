/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/messages, in Anthropic's format: translates its bodies to those of /v1/chat/completions, and
 * formats its answers. */
#ifndef SLUICE_TOOLS_ACTORSERVE_MESSAGES_H
#define SLUICE_TOOLS_ACTORSERVE_MESSAGES_H

#include "tools/actorserve/request.h"

/* Translates a body; the caller frees *out. `counts`: tokens are only counted, so that max_tokens
 * may be missing. SL_E_USAGE names a field that is wrong or not supported; *param is then its name,
 * or NULL. */
sl_status messages_translate(const char *body, size_t bytes, bool counts,
                             const sli_allowance *allowance, char **out, const char **param);

/* Returns {"type": "error", ...}; the caller frees it. */
char *messages_error(int status, const char *text);
/* Appends the answer to a request that counts tokens. This and the following functions append to
 * `out` and return false if memory ran out. */
bool messages_count(const request *r, struct evbuffer *out);
bool messages_event_error(const char *text, struct evbuffer *out);
/* Appends an unstreamed answer. */
bool messages_whole(request *r, struct evbuffer *out);
/* Append the events at the beginning of a stream; for a piece, which the choice has kept; and at
 * the end. */
bool messages_begin(choice *c, struct evbuffer *out);
bool messages_piece(choice *c, const answer_piece *piece, struct evbuffer *out);
bool messages_end(choice *c, struct evbuffer *out);

#endif
