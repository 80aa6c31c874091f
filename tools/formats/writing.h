/* SPDX-License-Identifier: Apache-2.0 */
/* config.json made from the options of a model. */
#ifndef SLUICE_TOOLS_FORMATS_WRITING_H
#define SLUICE_TOOLS_FORMATS_WRITING_H

#include "tools/formats/family.h"

/* Returns the family whose config.json can express a shipped model's options, or NULL if there is
 * none. */
const family *family_written(const pretrained *p);
/* Returns the config.json of the model; the caller deletes it. */
cJSON *family_write(const family *f, const pretrained *p, const sl_lowered *lowered);

#endif
