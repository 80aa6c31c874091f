/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a row beyond fields: lists of layers, and formulas over several keys. */
#ifndef SLUICE_TOOLS_FORMATS_LAYERS_H
#define SLUICE_TOOLS_FORMATS_LAYERS_H

#include "tools/formats/family.h"

/* Sets the options of a row's "formulas" and "lists", and checks its "checks". SL_E_INPUT names the
 * key. */
sl_status layers_read(const config *c, const family *f);
/* Returns whether a row sets an option by a formula or a list. */
bool layers_set(const family *f, const char *option);

#endif
