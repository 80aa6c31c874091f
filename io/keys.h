/* Keys of objects that others write. Each that is understood stands in a table; any other is refused, by name
 * and with its value, unless that says that something is off. */
#ifndef SLUICE_IO_KEYS_H
#define SLUICE_IO_KEYS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/base.h"

typedef struct sli_key {
  const char *name;      /* with a star behind it: all that begin so */
  const char *values[5]; /* as JSON, and null; none: it is read elsewhere, or harmless whatever it says */
} sli_key;

/* Does it mean off: null, false, {} or []? */
bool sli_key_off(const cJSON *item);
/* All members of the object, of which none is there twice; SL_E_INPUT names the one that is wrong. Tables end with
 * {0}, their list with NULL. */
sl_status sli_keys_check(const char *path, const cJSON *object, const sli_key *const *tables);

#endif
