/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of MODEL. */
#ifndef SLUICE_TOOLS_CLI_MODEL_H
#define SLUICE_TOOLS_CLI_MODEL_H

#include <sluice/model.h>

bool model_is_shipped(const char *word);  /* compares names only */
bool model_has_weights(const char *word); /* names a file with a model and its weights */
/* Finds a built-in name, FILE.so or FILE.c. The model stays loaded for the life of the process.
 * `commands` lists other words that could have been meant, for the error message; may be NULL. */
sl_status model_find(const char *word, const char *commands, const sl_model **out);

#endif
