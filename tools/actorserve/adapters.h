/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters that clients select as models. Any thread may call these functions. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ADAPTERS_H
#define SLUICE_TOOLS_ACTORSERVE_ADAPTERS_H

#include "tools/actorserve/engine.h"

enum { ADAPTER_NAME = 128 };

typedef struct adapters adapters;
/* `names`: [count] adapters that the engine has loaded with numbers 1, 2, ...; `below`: folder of
 * those that clients may load, NULL: none. */
adapters *adapters_create(const engine *e, const char *below, int count, const char *const *names);
void adapters_destroy(adapters *a);
/* Returns the engine's number of an adapter, or 0 if no adapter has this name. */
int adapters_find(adapters *a, const char *name);
/* Copies the name of the i-th adapter. Returns false if there are fewer. */
bool adapters_name(adapters *a, int i, char out[ADAPTER_NAME]);
/* Loads a folder under a name and waits for the engine. SL_E_USAGE: the name is in use, or the
 * folder is not below that of the server. */
sl_status adapters_load(adapters *a, const char *name, const char *path);
sl_status adapters_unload(adapters *a, const char *name);

#endif
