/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to embedding requests: the vectors, or similarity scores computed from them. */
#ifndef SLUICE_TOOLS_ACTORSERVE_EMBEDDINGS_H
#define SLUICE_TOOLS_ACTORSERVE_EMBEDDINGS_H

#include "tools/actorserve/request.h"

/* Appends the answer of /v1/embeddings, /v1/rerank or /v1/score. Returns false if memory ran
 * out. */
bool embeddings_reply(request *r, struct evbuffer *out);

#endif
