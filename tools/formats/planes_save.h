/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a model whose experts are in nested bit planes: --save FILE --planes A..B. */
#ifndef SLUICE_TOOLS_FORMATS_PLANES_SAVE_H
#define SLUICE_TOOLS_FORMATS_PLANES_SAVE_H

#include "tools/formats/pretrained.h"

/* Reads "A..B", or "B" for A = B: bits of the base, and of all planes. *routed: what follows
 * ",routed", NULL if that does not follow. SL_E_USAGE says what is understood. */
sl_status planes_read(const char *text, int *base, int *width, const char **routed);
/* Writes the weights, adapters merged, to a safetensors file. The matrices of experts are written
 * as graph/state/stored_planes.h says, all others as usual. SL_E_UNSUPPORTED: there are no experts.
 */
sl_status planes_save(const char *path, int base, int width, const sl_lowered *lowered,
                      sl_runtime *rt);

#endif
