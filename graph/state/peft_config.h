/* SPDX-License-Identifier: Apache-2.0 */
/* Settings in the adapter_config.json of an adapter folder. */
#ifndef SLUICE_GRAPH_STATE_PEFT_CONFIG_H
#define SLUICE_GRAPH_STATE_PEFT_CONFIG_H

#include <cjson/cJSON.h>
#include <sluice/graph.h>

typedef struct sli_peft_config {
  char *path;
  cJSON *root;
} sli_peft_config;

/* Reads the settings. SL_E_INPUT: the error names a key that is not understood. Call
 * sli_peft_config_fini() even on failure. */
sl_status sli_peft_config_read(const char *dir, sli_peft_config *out);
void sli_peft_config_fini(sli_peft_config *c);

/* Sets *out to the alpha of a module whose matrices have rank `rank`; their product is scaled by
 * alpha / rank. */
sl_status sli_peft_alpha(const sli_peft_config *c, const char *module, int64_t rank, double *out);

#endif
