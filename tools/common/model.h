/* Finding MODEL. */
#ifndef SLUICE_TOOLS_COMMON_MODEL_H
#define SLUICE_TOOLS_COMMON_MODEL_H

#include <sluice/model.h>

/* A built-in name, FILE.so or FILE.c. What it finds stays for the life of the
 * process. */
bool model_is_shipped(const char *word); /* by its name */
sl_status model_find(const char *word, const sl_model **out);

#endif
