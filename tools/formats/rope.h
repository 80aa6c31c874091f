/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary angles of config.json as --theta, --rope and --local-theta, and back. */
#ifndef SLUICE_TOOLS_FORMATS_ROPE_H
#define SLUICE_TOOLS_FORMATS_ROPE_H

#include "tools/formats/family.h"

extern const char rope_chunks_key[]; /* key of dual chunk attention */

/* Finds the rope under its new or old key. If both are present they must agree. */
sl_status rope_find(const config *c, const cJSON **out);
/* Sets --theta and --rope from a rope that was found, or finds it first. */
sl_status rope_set(const config *c, const family *f, const cJSON *rope);
sl_status rope_read(const config *c, const family *f);
/* Sets the angles of layers with and without a window, from rope_parameters by kind or from older
 * keys. */
sl_status rope_read_kinds(const config *c, const family *f);
/* Sets dual chunk attention, which excludes any other stretching of angles. */
sl_status rope_read_chunks(const config *c, const family *f, const cJSON *chunks);

/* Sets the angles and the query scalar of latent attention: a key's numbers, divided by the fourth
 * power of the scale of mscale_all_dim. */
sl_status rope_read_mscale(const config *c, const family *f);

/* Writes --rope under a key: as rope_scaling, which names only what stretches angles and may be
 * dual chunk attention instead, or as rope_parameters with their base. */
void rope_put(cJSON *root, const char *key, const pretrained *p);

#endif
