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

/* Returns whether a text of --rope is dual chunk attention. */
bool rope_is_chunked(const char *rope);
/* Returns a text of --rope as an object, or as null if nothing is stretched. */
cJSON *rope_json(const char *text);
/* Writes the rope, or dual chunk attention, under its key. */
void rope_put(cJSON *root, const char *text);
/* Writes what families with such keys say beside the rope: the original context, and the part of a
 * head that is rotated. */
void rope_put_above(cJSON *root, const char *text);
/* Writes rope_parameters explicitly, for a family whose default rope is another one. */
void rope_put_parameters(cJSON *root, const sl_args *args);

#endif
