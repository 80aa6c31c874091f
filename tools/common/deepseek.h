/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of DeepSeek-V3: experts for all tokens, angles, and the scale of scores. */
#ifndef SLUICE_TOOLS_COMMON_DEEPSEEK_H
#define SLUICE_TOOLS_COMMON_DEEPSEEK_H

#include "tools/common/config.h"

/* Sets the options that no field of its own maps to, after its rope. */
sl_status deepseek_derive(const config *c, const cJSON *rope);

/* Says whether config.json can have these options. */
bool deepseek_fits(const sl_args *args);

/* Adds the keys whose values follow from several options, or from defaults of the model. */
void deepseek_describe(cJSON *root, const settings *s, const sl_lowered *lowered);

#endif
