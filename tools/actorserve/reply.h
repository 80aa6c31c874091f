/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as OpenAI's JSON. The caller frees returned texts. */
#ifndef SLUICE_TOOLS_ACTORSERVE_REPLY_H
#define SLUICE_TOOLS_ACTORSERVE_REPLY_H

#include "tools/actorserve/errors.h"
#include "tools/actorserve/request.h"

/* Returns {"object": "list", "data": [...]}, or only the model with one of the server's names. */
char *reply_models(const serving *s, const char *model);

/* Appends text unchanged. */
bool reply_put(struct evbuffer *out, const char *text);
/* Append a JSON string: one that may contain zero bytes, and one that does not. */
bool reply_put_text(struct evbuffer *out, const char *text, size_t bytes);
bool reply_put_string(struct evbuffer *out, const char *text);
/* Returns the name of the model that answers. */
const char *reply_model_name(const request *r);

/* Appends the whole answer, with all choices. This and the following functions append to `out` and
 * return false if memory ran out. */
bool reply_whole(request *r, struct evbuffer *out);
/* Appends a stream event, from "data: " to the empty line: a piece of the answer (NULL: none) with
 * the tokens that are ready, which are freed. finish is the reason for the end in the last event,
 * otherwise NULL. */
bool reply_piece(choice *c, const answer_piece *piece, const char *finish, struct evbuffer *out);
/* Writes the id of a tool call in an answer, by the index of the call. */
void reply_call_id(const choice *c, int call, char *out);
/* Appends the first event of a chat answer. */
bool reply_role(const choice *c, struct evbuffer *out);
/* Appends the token counts. */
bool reply_usage(const request *r, struct evbuffer *out);
/* Appends the answers to /tokenize and to /detokenize. */
bool reply_tokens(const request *r, struct evbuffer *out);
bool reply_text(const request *r, struct evbuffer *out);
/* Appends the answer to a request that changes the server. */
bool reply_done(const request *r, struct evbuffer *out);
bool reply_event_error(const char *text, struct evbuffer *out);

#endif
