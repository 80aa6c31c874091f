/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a family as options of its model. */
#ifndef SLUICE_TOOLS_FORMATS_READING_H
#define SLUICE_TOOLS_FORMATS_READING_H

#include "tools/formats/family.h"

/* Sets the model's options from a file of the family. Errors are those of huggingface_read(). */
sl_status family_read(const family *f, const config *c);
/* Returns whether a model only starts from the family's weights and has a different kind of
 * attention. */
bool family_starts(const family *f, const sl_model *model);
#endif
