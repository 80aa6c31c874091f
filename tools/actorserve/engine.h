/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a session that actorserve needs, as a table that tests can replace. They behave
 * as sluice/session.h says. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ENGINE_H
#define SLUICE_TOOLS_ACTORSERVE_ENGINE_H

#include <sluice/session.h>

typedef struct engine {
  void *self;
  int fd; /* readable while there are events */
  int64_t vocabulary, context;
  sl_status (*submit)(void *self, const sl_request *request, uint64_t *id);
  void (*cancel)(void *self, uint64_t id);
  int (*poll)(void *self, sl_session_event *out, int most);
  sl_session_stats (*stat)(void *self);
  sl_status (*status)(void *self);
  /* sl_session_load_adapter, sl_session_unload_adapter; NULL if no adapters can be added */
  sl_status (*load_adapter)(void *self, const char *folder, int *adapter);
  sl_status (*unload_adapter)(void *self, int adapter);
  int64_t width; /* numbers in an embedding; 0 if there are no embeddings */
  bool last;     /* an embedding is the last token's state; otherwise the mean */
} engine;

#endif
