/* SPDX-License-Identifier: Apache-2.0 */
/* Saves models as GGUF files: --save FILE.gguf[:TYPE]. */
#ifndef SLUICE_TOOLS_FORMATS_GGUF_SAVE_H
#define SLUICE_TOOLS_FORMATS_GGUF_SAVE_H

#include "tools/formats/pretrained.h"

/* gguf_is_wanted() says whether the text of --save names a GGUF file. gguf_file_of() returns the
 * file's path, which the caller frees. */
bool gguf_is_wanted(const char *path);
char *gguf_file_of(const char *path);

/* Checks that the model can be written with tensors of the type. SL_E_USAGE says why it cannot. */
sl_status gguf_check(const char *path, const pretrained *p, int processes);
/* Writes the model, adapters merged, with the tokenizer it was loaded with. SL_E_IO names the file;
 * SL_E_UNSUPPORTED names a tokenizer or rope that GGUF cannot express. */
sl_status gguf_save(const char *path, const pretrained *p, const sl_lowered *lowered,
                    sl_runtime *rt);

#endif
