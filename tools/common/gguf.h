/* Models as GGUF files hold them. */
#ifndef SLUICE_TOOLS_COMMON_GGUF_H
#define SLUICE_TOOLS_COMMON_GGUF_H

#include "tools/common/settings.h"

/* Sets the model's options from the file's keys and tensors, if the model is of an architecture that
 * is known, and text's tokenizer, unless there is one already, if the file has one. Otherwise as
 * huggingface_read(). */
sl_status gguf_read(const char *path, settings *s);

/* Writes the tokenizer of a file as a Hugging Face folder has it, if the file has one that is known.
 * SL_E_IO names what cannot be written. */
sl_status gguf_save_tokenizer(const char *path, const char *folder);

#endif
