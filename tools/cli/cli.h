/* SPDX-License-Identifier: Apache-2.0 */
/* Umbrella header: command lines of tools, their help and their files. */
#ifndef SLUICE_TOOLS_CLI_CLI_H
#define SLUICE_TOOLS_CLI_CLI_H

#include "tools/cli/cost.h"
#include "tools/cli/fingerprint.h"
#include "tools/cli/help.h"
#include "tools/cli/manual.h"
#include "tools/cli/model.h"
#include "tools/cli/options.h"
#include "tools/cli/outputs.h"
#include "tools/cli/settings.h"
#include "tools/cli/texts.h"
#include "tools/cli/words.h"

#endif
