/* SPDX-License-Identifier: Apache-2.0 */
/* Table of the models built into the tools. */
#ifndef SLUICE_MODELS_MODELS_H
#define SLUICE_MODELS_MODELS_H

#include <sluice/model.h>

/* NULL-terminated. */
extern const sl_model *const sli_models[];

/* Options of the model `decoder`; ends with {0}. */
extern const sl_option sli_decoder_options[];
/* Builds a decoder from these options, for a model that calls some otherwise: `called` has words
 * NAME>OPTION. Errors name `model` and what its users call options. */
sl_status sli_decoder_build(sl_graph *g, const sl_args *args, const char *model,
                            const char *called);

#endif
