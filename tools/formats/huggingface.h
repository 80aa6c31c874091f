/* SPDX-License-Identifier: Apache-2.0 */
/* Models in Hugging Face folders: config.json, weights, tokenizer.json. */
#ifndef SLUICE_TOOLS_FORMATS_HUGGINGFACE_H
#define SLUICE_TOOLS_FORMATS_HUGGINGFACE_H

#include <cjson/cJSON.h>

#include "tools/formats/pretrained.h"

/* Returns whether a path is an existing folder, or ends in a slash. */
bool huggingface_is_folder(const char *path);
/* Returns the path of a file in the folder; the caller frees it. */
char *huggingface_file(const char *folder, const char *name);

/* Prints the families of models that folders may hold, as a table in Markdown. */
void huggingface_print_families(void);
/* Returns the shipped model that the folder's config.json describes. SL_E_INPUT: config.json is
 * missing, or its model_type is unknown. */
sl_status huggingface_model(const char *folder, const char **out);

/* Sets the model's options from the folder's config.json, if it has one and the family is known.
 * SL_E_USAGE names an option for which the user gave another value, and both values. SL_E_INPUT
 * names what is unsupported. */
sl_status huggingface_read(const char *folder, const pretrained *p);

/* Sets the options from a config.json in memory, as huggingface_read() does. It was made of the
 * keys of the file `path`: `names` has the file's keys by those of config.json. */
sl_status huggingface_read_config(const char *path, const cJSON *root, const cJSON *names,
                                  const pretrained *p);
/* Returns the shipped model that a config.json in memory describes. */
sl_status huggingface_model_of(const char *path, const cJSON *root, const char **out);

/* Checks that huggingface_save() can write config.json. SL_E_USAGE: no config.json can express the
 * model's options. */
sl_status huggingface_check(const char *folder, const pretrained *p);
/* Makes config.json from the model's options, or, for a family without a form of its own, copies
 * that of the weights the model was loaded from. *out: NULL if there is none. The caller frees it.
 */
sl_status huggingface_described(const pretrained *p, cJSON **out);
/* Writes config.json beside saved weights: the one of `from`, or if `from` is NULL a new one.
 * Copies the other files of `from` except weights. SL_E_IO names the file. */
sl_status huggingface_save(const char *folder, const char *from, const pretrained *p);

#endif
