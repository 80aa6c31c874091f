/* SPDX-License-Identifier: Apache-2.0 */
/* Models in GGUF files. */
#ifndef SLUICE_TOOLS_FORMATS_GGUF_H
#define SLUICE_TOOLS_FORMATS_GGUF_H

#include "tools/formats/pretrained.h"

struct config_field;

/* Sets the model's options from the file's keys and tensors, if its architecture is known. Sets the
 * text's tokenizer to the file's, if it has one and the user gave none. Errors are those of
 * huggingface_read(). */
sl_status gguf_read(const char *path, pretrained *p);

/* Returns the shipped model of a file. SL_E_INPUT names what is unknown. */
sl_status gguf_model(const char *path, const char **out);

/* Returns the GGUF architecture of a model_type and its two tables of keys, shared and specific,
 * which end with {0}. Returns NULL if there is none. */
const char *gguf_architecture(const char *model_type, const struct config_field *tables[2]);

/* Returns the query scalar that readers of a GGUF file derive from the model's options. */
int64_t gguf_query_scalar(const pretrained *p);

/* Writes the file's tokenizer in the format of a Hugging Face folder, if its type is known. SL_E_IO
 * names the file that cannot be written. */
sl_status gguf_save_tokenizer(const char *path, const char *folder);

#endif
