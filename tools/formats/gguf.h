/* SPDX-License-Identifier: Apache-2.0 */
/* Models in GGUF files. */
#ifndef SLUICE_TOOLS_FORMATS_GGUF_H
#define SLUICE_TOOLS_FORMATS_GGUF_H

#include "tools/formats/pretrained.h"

/* Sets the model's options from the file's keys and tensors, if its architecture is known. Sets the
 * text's tokenizer to the file's, if it has one and the user gave none. Errors are those of
 * huggingface_read(). */
sl_status gguf_read(const char *path, pretrained *p);

/* Returns the shipped model of a file. SL_E_INPUT names what is unknown. */
sl_status gguf_model(const char *path, const char **out);

/* Writes the file's tokenizer in the format of a Hugging Face folder, if its type is known. SL_E_IO
 * names the file that cannot be written. */
sl_status gguf_save_tokenizer(const char *path, const char *folder);

#endif
