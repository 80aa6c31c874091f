/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of Qwen3-Next: which blocks have softmax attention, and which have experts. */
#ifndef SLUICE_TOOLS_FORMATS_QWEN3_NEXT_H
#define SLUICE_TOOLS_FORMATS_QWEN3_NEXT_H

#include "tools/formats/config.h"

/* Sets the options that do not map to a single field. */
sl_status qwen3_next_derive(const config *c);

/* Adds the keys whose values depend on several options, or on defaults of the model. */
void qwen3_next_describe(cJSON *root, const pretrained *p, const sl_lowered *lowered);

#endif
