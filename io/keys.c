/* SPDX-License-Identifier: Apache-2.0 */
#include "io/keys.h"

#include <stdlib.h>
#include <string.h>

bool sli_key_off(const cJSON *item) {
  bool empty = (cJSON_IsObject(item) || cJSON_IsArray(item)) && !item->child;
  return cJSON_IsNull(item) || cJSON_IsFalse(item) || empty;
}

static bool is_named(const char *name, const char *key) {
  size_t n = strlen(name);
  return name[n - 1] == '*' ? !strncmp(name, key, n - 1) : !strcmp(name, key);
}

static const sli_key *keys_find(const sli_key *const *tables, const char *key) {
  for (; *tables; tables++)
    for (const sli_key *k = *tables; k->name; k++)
      if (is_named(k->name, key)) return k;
  return NULL;
}

static bool says_one_of(const sli_key *key, const char *text) {
  for (const char *const *v = key->values; *v; v++)
    if (!strcmp(*v, text)) return true;
  return false;
}

static sl_status keys_check(const char *path, const cJSON *item, const sli_key *const *tables) {
  const sli_key *key = keys_find(tables, item->string);
  if (key ? !key->values[0] || cJSON_IsNull(item) : sli_key_off(item)) return SL_OK;
  /* The value of an unknown key may be a secret in a file that was named by mistake. */
  bool shown = key || cJSON_IsNumber(item) || cJSON_IsBool(item);
  char *text = shown ? cJSON_PrintUnformatted(item) : sli_strdup("set");
  SLI_CHECK(text, "no memory for the text of %s", item->string);
  sl_status status = SL_OK;
  if (!key)
    status =
        sl_fail(SL_E_INPUT, "%s: %s is %.80s, which is not understood", path, item->string, text);
  else if (!says_one_of(key, text))
    status = sl_fail(SL_E_INPUT, "%s: %s is %.80s; only %s is supported", path, item->string, text,
                     key->values[0]);
  free(text);
  return status;
}

sl_status sli_keys_check(const char *path, const cJSON *object, const sli_key *const *tables) {
  const cJSON *item;
  cJSON_ArrayForEach(item, object) {
    if (cJSON_GetObjectItemCaseSensitive(object, item->string) != item)
      return sl_fail(SL_E_INPUT, "%s: %s appears twice", path, item->string);
    sl_status status = keys_check(path, item, tables);
    if (status) return status;
  }
  return SL_OK;
}
