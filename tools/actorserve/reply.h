/* Answers as OpenAI's JSON. Texts are the caller's to free(). */
#ifndef SLUICE_TOOLS_ACTORSERVE_REPLY_H
#define SLUICE_TOOLS_ACTORSERVE_REPLY_H

#include "tools/actorserve/request.h"

/* {"error": {...}}; param and code may be NULL. */
char *reply_error(int status, const char *param, const char *code, const char *text);
/* {"object": "list", "data": [...]}, or the one of that list. */
char *reply_models(const char *model, bool list);

/* All answers. */
char *reply_whole(const request *r);
/* Events of a stream, from "data: " to the empty line. A piece of an answer's text, and its tokens of
 * before `end`, which are given with that (drops them); finish: NULL, or why it is the last. */
char *reply_piece(choice *c, const char *text, size_t bytes, const char *finish);
/* The first of a chat's answer. */
char *reply_role(const choice *c);
/* How many tokens there were. */
char *reply_usage(const request *r);
char *reply_event_error(const char *text);

#endif
