/* SPDX-License-Identifier: Apache-2.0 */
/* Saves models as GGUF files: --save FILE.gguf[:TYPE]. */
#ifndef SLUICE_TOOLS_COMMON_GGUF_SAVE_H
#define SLUICE_TOOLS_COMMON_GGUF_SAVE_H

#include "tools/common/settings.h"

/* Says whether the text of --save names a GGUF file; and the file, the caller's to free(). */
bool gguf_is_wanted(const char *path);
char *gguf_file_of(const char *path);

/* Checks that the model can be written with tensors of the type. SL_E_USAGE says why it cannot. */
sl_status gguf_check(const char *path, const settings *s, int processes);
/* Writes the model, adapters merged, with the tokenizer that it was read with. SL_E_IO names the
 * file; SL_E_UNSUPPORTED a tokenizer or angles that such files do not have. */
sl_status gguf_save(const char *path, const settings *s, const sl_lowered *lowered, sl_runtime *rt);

#endif
