/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/adapters.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct adapters {
  const engine *engine;
  const char *below; /* folder of the adapters that clients may load; NULL: none */
  pthread_mutex_t lock;
  size_t count, room;
  struct named_adapter {
    char name[ADAPTER_NAME];
    int number;
  } * items;
};

static void add(adapters *a, const char *name, int number) {
  SLI_GROW(a->items, a->count, a->room);
  a->items[a->count].number = number;
  snprintf(a->items[a->count++].name, ADAPTER_NAME, "%s", name);
}

adapters *adapters_create(const engine *e, const char *below, int count, const char *const *names) {
  adapters *a = sli_calloc(1, sizeof *a);
  a->engine = e;
  a->below = below;
  pthread_mutex_init(&a->lock, NULL);
  for (int i = 0; i < count; i++) add(a, names[i], i + 1);
  return a;
}

void adapters_destroy(adapters *a) {
  if (!a) return;
  pthread_mutex_destroy(&a->lock);
  free(a->items);
  free(a);
}

static struct named_adapter *find(const adapters *a, const char *name) {
  for (size_t i = 0; i < a->count; i++)
    if (!strcmp(a->items[i].name, name)) return &a->items[i];
  return NULL;
}

int adapters_find(adapters *a, const char *name) {
  pthread_mutex_lock(&a->lock);
  const struct named_adapter *found = find(a, name);
  int number = found ? found->number : 0;
  pthread_mutex_unlock(&a->lock);
  return number;
}

bool adapters_name(adapters *a, int i, char out[ADAPTER_NAME]) {
  pthread_mutex_lock(&a->lock);
  bool there = i < (int)a->count;
  if (there) memcpy(out, a->items[i].name, ADAPTER_NAME);
  pthread_mutex_unlock(&a->lock);
  return there;
}

/* Finds the folder that a client names, which must be below --adapter-dir, links resolved. Folders
 * elsewhere are all refused alike, so that a client cannot learn which exist. */
static sl_status find_folder(const adapters *a, const char *path, char **out) {
  char *base = realpath(a->below, NULL), *named = NULL, *real = NULL;
  if (base) named = *path == '/' ? sli_strdup(path) : sli_format("%s/%s", base, path);
  if (named) real = realpath(named, NULL);
  size_t n = base ? strlen(base) : 0;
  bool below = real && !strncmp(real, base, n) && (real[n] == '/' || !strcmp(base, "/"));
  free(base);
  free(named);
  *out = below ? real : NULL;
  if (below) return SL_OK;
  free(real);
  return sl_fail(SL_E_USAGE, "there is no adapter %.200s below the server's --adapter-dir", path);
}

sl_status adapters_load(adapters *a, const char *name, const char *path) {
  const engine *e = a->engine;
  int number = 0;
  char *folder;
  if (!a->below)
    return sl_fail(SL_E_USAGE, "the server loads no adapters by path (--adapter-dir DIR)");
  if (!e->load_adapter)
    return sl_fail(SL_E_USAGE, "the server has no room for adapters (--adapter-places)");
  if (!*name || strlen(name) >= ADAPTER_NAME)
    return sl_fail(SL_E_USAGE, "lora_name must have 1 to %d bytes", ADAPTER_NAME - 1);
  if (adapters_find(a, name)) return sl_fail(SL_E_USAGE, "the model %s already exists", name);
  sl_status status = find_folder(a, path, &folder);
  if (status) return status;
  status = e->load_adapter(e->self, folder, &number);
  free(folder);
  if (status) return status;
  pthread_mutex_lock(&a->lock);
  add(a, name, number);
  pthread_mutex_unlock(&a->lock);
  return SL_OK;
}

sl_status adapters_unload(adapters *a, const char *name) {
  const engine *e = a->engine;
  pthread_mutex_lock(&a->lock);
  struct named_adapter *found = find(a, name);
  int number = found ? found->number : 0;
  if (found) *found = a->items[--a->count];
  pthread_mutex_unlock(&a->lock);
  if (number) return e->unload_adapter(e->self, number);
  return sl_fail(SL_E_USAGE, "there is no adapter %.80s", name);
}
