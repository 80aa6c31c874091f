/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a GGUF file as the config.json of its family. */
#ifndef SLUICE_TOOLS_FORMATS_GGUF_CONFIG_H
#define SLUICE_TOOLS_FORMATS_GGUF_CONFIG_H

#include <cjson/cJSON.h>

#include <sluice/ops.h>

#include "io/gguf/gguf.h"
#include "io/rows.h"

/* Makes config.json by the row of the file's architecture in architectures.json, of which
 * docs/families.md describes the members. *out is NULL if there is no row. `names` gets the file's
 * keys by those of config.json, if not NULL. SL_E_INPUT names a key that is unknown, missing, or
 * has an unsupported value. The caller frees both. */
sl_status gguf_config(const char *path, const sli_gguf *file, cJSON **out, cJSON **names);
/* Opens a file and does the same. *out is NULL for files in other formats. */
sl_status gguf_config_of(const char *path, cJSON **out);

/* Makes config.json again of an architecture's keys, without their prefix, that were made of
 * `root`. What tensors say is taken from `root`. The caller frees *out, which is set on errors,
 * too. */
sl_status gguf_config_again(const char *path, const cJSON *row, const cJSON *own, const cJSON *root,
                            cJSON **out);

/* Returns by how much a rope divides the frequency of each pair of a head; the caller frees it. */
double *gguf_rope_factors(const sl_rope *rope, double theta, int64_t pairs);
/* Returns whether factors of a head's pairs are those of LLaMA 3's rope: all its models share three
 * of its four numbers, and the last pair's factor is the fourth. */
bool gguf_is_llama3(double theta, const float *factors, int64_t pairs, double *factor);

/* Computes an entry of a row's `formulas`. Returns the formula that it used, or NULL if none has
 * all its keys. */
const cJSON *gguf_formula(const cJSON *entry, const sli_formula_keys *keys, double *out);

#endif
