/* Models that lie ready: a Hugging Face folder, or a GGUF file. */
#ifndef SLUICE_TOOLS_COMMON_PRETRAINED_H
#define SLUICE_TOOLS_COMMON_PRETRAINED_H

#include "tools/common/settings.h"

/* Reads what lies in the folder of --init, or in its file, beside weights: the model's options, and
 * its tokenizer where --tokenizer names no other. */
sl_status pretrained_read(settings *s);
/* The shipped model that such a folder or file is of; NULL: it is neither. SL_E_INPUT names what is not
 * known. */
sl_status pretrained_model(const char *path, const char **out);
/* The values that --init, if given, and --adapter have. */
sl_status pretrained_load(const settings *s, const sl_lowered *lowered, sl_runtime *rt);

#endif
