/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of requests for embeddings: the vectors, and the likeness of texts by them. */
#ifndef SLUICE_TOOLS_ACTORSERVE_EMBEDDINGS_H
#define SLUICE_TOOLS_ACTORSERVE_EMBEDDINGS_H

#include "tools/actorserve/request.h"

/* Appends the answer of /v1/embeddings, /v1/rerank or /v1/score. False: there was no memory. */
bool embeddings_reply(request *r, struct evbuffer *out);

#endif
