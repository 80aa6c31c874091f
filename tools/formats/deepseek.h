/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of DeepSeek-V3: shared experts, rope, and the scale of scores. */
#ifndef SLUICE_TOOLS_FORMATS_DEEPSEEK_H
#define SLUICE_TOOLS_FORMATS_DEEPSEEK_H

#include "tools/formats/config.h"

/* Sets the options that do not map to a single field. Call it after the rope is set. */
sl_status deepseek_derive(const config *c, const cJSON *rope);

/* Returns whether config.json can express these options. */
bool deepseek_fits(const sl_args *args);

/* Adds the keys whose values depend on several options, or on defaults of the model. */
void deepseek_describe(cJSON *root, const pretrained *p, const sl_lowered *lowered);

#endif
