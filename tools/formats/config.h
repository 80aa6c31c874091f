/* SPDX-License-Identifier: Apache-2.0 */
/* Model options from a metadata file: config.json, or the keys of a GGUF file. A table maps keys
 * to options. */
#ifndef SLUICE_TOOLS_FORMATS_CONFIG_H
#define SLUICE_TOOLS_FORMATS_CONFIG_H

#include <cjson/cJSON.h>

#include "io/keys.h"
#include "tools/formats/pretrained.h"

typedef struct config {
  const char *path;  /* the file's path, for messages */
  const cJSON *root; /* the file's contents, by key */
  const pretrained *target;
  const cJSON *names; /* what keys are called in the file, if otherwise; NULL: as in `root` */
} config;

typedef struct config_field {
  const char *key, *option;
  const char *missing; /* the option's value if the key is absent; NULL: the key is required */
  const char *also;    /* another name of the key; NULL: none */
  const char *null;    /* the option's value if the key is null; NULL: as if absent */
  const cJSON *words;  /* options' values by the key's; NULL: numbers */
  const char *second;  /* another option, which gets the key's number; NULL: none */
  const char *second_missing; /* its value if the key is absent; NULL: the default */
} config_field;

/* Returns the value of a key, or NULL if it is absent or null. */
const cJSON *config_at(const cJSON *from, const char *key);
/* Gives an option the file's value. An option that the user gave must agree, or SL_E_USAGE names
 * both. */
sl_status config_set(const config *c, const char *key, const char *option, const char *value);
/* Applies a table of fields that ends with {0}, then checks that rows fit the model's context. */
sl_status config_apply(const config *c, const config_field *fields);
/* Checks that each key is understood: by the fields, or by a NULL-terminated list of tables. */
sl_status config_check_keys(const config *c, const config_field *fields,
                            const sli_key *const *tables);
/* Formats a number or a flag as an option's text; returns NULL for any other item. The caller frees
 * it. */
char *config_option_text(const cJSON *item);
/* Returns whether two texts give an option the same value, as far as f32 shows. */
bool config_same(const char *option, const char *a, const char *b);
bool config_near(double a, double b);
/* Checks that a text is a valid --rope. SL_E_INPUT names the file. */
sl_status config_check_rope(const config *c, const char *text);

/* Returns a number with a decimal point or an exponent. Readers with types take 7 for an integer,
 * which is no value of a key of type float. */
cJSON *config_real(double value);
/* Gives numbers of a parsed text that are written as reals the same characters again. */
void config_keep_reals(cJSON *root, const char *text);
/* Adds or replaces a member. */
void config_put(cJSON *root, const char *key, cJSON *value);
/* Writes JSON as text. SL_E_IO names the file. */
sl_status config_write(const char *path, const cJSON *root);

/* Returns whether the model is one of models/, whose option names are known. */
bool config_is_shipped(const sl_model *model);

#endif
