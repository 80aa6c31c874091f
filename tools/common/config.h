/* Model options as a file of metadata says them: config.json, or the keys of a GGUF file. Which key is
 * which option is a table. */
#ifndef SLUICE_TOOLS_COMMON_CONFIG_H
#define SLUICE_TOOLS_COMMON_CONFIG_H

#include <cjson/cJSON.h>

#include "io/keys.h"
#include "tools/common/settings.h"

typedef struct config {
  const char *path;  /* of the file, for messages */
  const cJSON *root; /* what it says, by key */
  const settings *s;
} config;

typedef struct config_field {
  const char *key, *option;
  const char *missing; /* the option where the key is not; NULL: it must be there */
  const char *also;    /* how some call the key; NULL: none do */
  const char *null;    /* the option where the key is null; NULL: as where it is not */
} config_field;

/* What the file says; NULL where it says nothing, or null. */
const cJSON *config_at(const cJSON *from, const char *key);
/* Gives an option the value that the file has; one that was given must say the same, or SL_E_USAGE
 * names both. */
sl_status config_set(const config *c, const char *key, const char *option, const char *value);
/* All of a table that ends with {0}; then rows are no longer than the model was made for. */
sl_status config_apply(const config *c, const config_field *fields);
/* That each key is understood: by the fields, or by a list of tables that ends with NULL. */
sl_status config_check_keys(const config *c, const config_field *fields, const sli_key *const *tables);
/* A number as an option says it, or a flag; NULL: it is neither. The caller's to free(). */
char *config_option_text(const cJSON *item);
/* SL_E_INPUT, naming the file, if a text of --rope is none. */
sl_status config_check_rope(const config *c, const char *text);

/* Writes it as text. SL_E_IO names the file. */
sl_status config_write(const char *path, const cJSON *root);

/* One of models/, of which it is known what its options are called. */
bool config_is_shipped(const sl_model *model);

#endif
