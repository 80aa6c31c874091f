/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of MODEL. */
#ifndef SLUICE_TOOLS_COMMON_MODEL_H
#define SLUICE_TOOLS_COMMON_MODEL_H

#include <sluice/model.h>

/* Finds a built-in name, FILE.so or FILE.c. The model stays loaded for the life of the process. */
bool model_is_shipped(const char *word); /* tested by name */
sl_status model_find(const char *word, const sl_model **out);

#endif
