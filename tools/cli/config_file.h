/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines in files: --config reads one, --print-config writes one. */
#ifndef SLUICE_TOOLS_CLI_CONFIG_FILE_H
#define SLUICE_TOOLS_CLI_CONFIG_FILE_H

#include "tools/cli/settings.h"

/* Reads the --config file and sets the tool's options from it, except those given on the command
 * line. *model is the MODEL it names, or NULL. SL_E_USAGE names file, line and key. */
sl_status config_file_read(settings *s, const char **model);
/* Sets the model's options from the file in the same way. */
sl_status config_file_model(settings *s);
/* Prints the command line as a configuration file. SL_E_USAGE: a value is not valid UTF-8. */
sl_status config_file_print(const settings *s);

#endif
