/* SPDX-License-Identifier: Apache-2.0 */
/* Table of the models built into the tools. */
#ifndef SLUICE_MODELS_MODELS_H
#define SLUICE_MODELS_MODELS_H

#include <sluice/model.h>

/* NULL-terminated. */
extern const sl_model *const sli_models[];

#endif
