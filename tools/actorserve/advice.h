/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a server that does not fit in its memory. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ADVICE_H
#define SLUICE_TOOLS_ACTORSERVE_ADVICE_H

#include <sluice/session.h>

/* Adds to the current SL_E_BUDGET the options that would fit. `has_context`: the model's context
 * can be chosen. */
void advice_add_sizes(const sl_session_options *options, bool has_context);

#endif
