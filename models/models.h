/* The models that the tools have built in. */
#ifndef SLUICE_MODELS_H
#define SLUICE_MODELS_H

#include <sluice/model.h>

/* Ends with NULL. */
extern const sl_model *const sli_models[];

#endif
