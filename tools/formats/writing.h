/* SPDX-License-Identifier: Apache-2.0 */
/* config.json made from the options of a model. */
#ifndef SLUICE_TOOLS_FORMATS_WRITING_H
#define SLUICE_TOOLS_FORMATS_WRITING_H

#include "tools/formats/family.h"

/* Returns the config.json of a shipped model, of the first family that can express its options, or
 * NULL if there is none. The caller deletes it. */
cJSON *family_config(const pretrained *p);
/* Returns the first option in which two models of this kind differ, or NULL. Options of a run, such
 * as its data, do not count; a 0 is the value that it stands for. */
const char *family_differs(const sl_model *model, const sl_args *a, const sl_args *b);

#endif
