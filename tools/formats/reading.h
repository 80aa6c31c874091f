/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a family as options of its model. */
#ifndef SLUICE_TOOLS_FORMATS_READING_H
#define SLUICE_TOOLS_FORMATS_READING_H

#include "tools/formats/family.h"

/* Sets the model's options from a file of the family. Errors are those of huggingface_read(). */
sl_status family_read(const family *f, const config *c);
/* Sets the options that distinguish the family from others of its model. `key` is the key that
 * names the family in the file. */
sl_status family_choose(const config *c, const family *f, const char *key);
/* Returns whether a model only starts from the family's weights and has a different kind of
 * attention. */
bool family_starts(const family *f, const sl_model *model);
/* Returns whether all options that distinguish the family have its values, as `has` says. */
bool family_has_choices(const family *f, const sl_model *model,
                        bool (*has)(const pretrained *p, const char *option, const char *value),
                        const pretrained *p);

#endif
