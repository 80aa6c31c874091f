/* Models as Hugging Face's folders hold them: config.json, weights, tokenizer.json. */
#ifndef SLUICE_TOOLS_COMMON_HUGGINGFACE_H
#define SLUICE_TOOLS_COMMON_HUGGINGFACE_H

#include "tools/common/settings.h"

/* A folder that is there, or a name that ends in a slash. */
bool huggingface_is_folder(const char *path);
/* A file of the folder; the caller's to free. */
char *huggingface_file(const char *folder, const char *name);

/* The shipped model that the folder's config.json is of. SL_E_INPUT: it has none, or of a model_type that
 * is not known. */
sl_status huggingface_model(const char *folder, const char **out);

/* Sets the model's options from the folder's config.json, if it has one and the model is of a
 * family that is known. SL_E_USAGE names an option that was given otherwise, and both values;
 * SL_E_INPUT what the model cannot be. */
sl_status huggingface_read(const char *folder, const settings *s);

/* SL_E_USAGE: there would be no config.json in the folder, or it could not say the model's options. */
sl_status huggingface_check(const char *folder, const settings *s);
/* Writes config.json beside saved weights: that of `from` (NULL: none), or one made of the model's
 * options; and copies what else lies there but weights. SL_E_IO names the file. */
sl_status huggingface_save(const char *folder, const char *from, const settings *s,
                           const sl_lowered *lowered);

#endif
