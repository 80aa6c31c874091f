/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for keys of foreign JSON objects. Tables list the supported keys. Any other key is
 * rejected with an error that names it and its value, unless the value means "off". */
#ifndef SLUICE_IO_KEYS_H
#define SLUICE_IO_KEYS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/base.h"

typedef struct sli_key {
  const char *name; /* key, or with a trailing star a prefix */
  /* accepted values as JSON, besides null; none: read elsewhere, or irrelevant */
  const char *values[5];
} sli_key;

/* Returns whether a value means "off": null, false, {} or []. */
bool sli_key_off(const cJSON *item);
/* Checks all members of an object, including duplicates. SL_E_INPUT names the wrong member. Tables
 * end with {0}, their list with NULL. */
sl_status sli_keys_check(const char *path, const cJSON *object, const sli_key *const *tables);

#endif
