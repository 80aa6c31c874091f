/* SPDX-License-Identifier: Apache-2.0 */
/* Models in GGUF files. */
#ifndef SLUICE_TOOLS_COMMON_GGUF_H
#define SLUICE_TOOLS_COMMON_GGUF_H

#include "tools/common/settings.h"

struct config_field;

/* Sets the model's options from the file's keys and tensors, if its architecture is known. Sets
 * the text's tokenizer, unless one was given, if the file has one. Errors are those of
 * huggingface_read(). */
sl_status gguf_read(const char *path, settings *s);

/* Returns the architecture of the models of a model_type, and the tables of its keys, which end
 * with {0}: those of all architectures and its own. NULL: there is none. */
const char *gguf_architecture(const char *model_type, const struct config_field *tables[2]);

/* Writes the file's tokenizer as a Hugging Face folder stores it, if it is of a known type.
 * SL_E_IO names what cannot be written. */
sl_status gguf_save_tokenizer(const char *path, const char *folder);

#endif
