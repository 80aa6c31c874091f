/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of the shared options' texts. */
#ifndef SLUICE_TOOLS_CLI_TEXTS_H
#define SLUICE_TOOLS_CLI_TEXTS_H

#include "tools/cli/settings.h"

/* Parses the options into what is planned; messages name the option. */
sl_status texts_read(settings *s);

#endif
