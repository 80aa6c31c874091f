/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that are ignored, and keys that must have the value implemented here. Keys
 * that are read are listed where they are read. */
#ifndef SLUICE_TOOLS_FORMATS_CONFIG_KEYS_H
#define SLUICE_TOOLS_FORMATS_CONFIG_KEYS_H

#include "io/keys.h"

extern const sli_key config_keys_common[];     /* keys of every config.json */
extern const sli_key config_keys_dual_chunk[]; /* keys of dual_chunk_attention_config */
extern const sli_key config_keys_rope[];       /* keys of rope_parameters */
/* partial_rotary_factor: 1 only, or any value */
extern const sli_key config_keys_rope_whole[], config_keys_rope_part[];

#endif
