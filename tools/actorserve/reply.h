/* Answers as OpenAI's JSON. Texts are the caller's to free(). */
#ifndef SLUICE_TOOLS_ACTORSERVE_REPLY_H
#define SLUICE_TOOLS_ACTORSERVE_REPLY_H

#include "tools/actorserve/request.h"

/* {"error": {...}}; param and code may be NULL. */
char *reply_error(int status, const char *param, const char *code, const char *text);
/* {"object": "list", "data": [...]}, or the one of that list. */
char *reply_models(const char *model, bool list);

/* Those below are added to `out`; false: there was no memory for them. All answers: */
bool reply_whole(request *r, struct evbuffer *out);
/* Events of a stream, from "data: " to the empty line. A piece of an answer's text, and its tokens of
 * before `end`, which are given with that (drops them); finish: NULL, or why it is the last. */
bool reply_piece(choice *c, const char *text, size_t bytes, const char *finish, struct evbuffer *out);
/* The first of a chat's answer. */
bool reply_role(const choice *c, struct evbuffer *out);
/* How many tokens there were. */
bool reply_usage(const request *r, struct evbuffer *out);
bool reply_event_error(const char *text, struct evbuffer *out);

#endif
