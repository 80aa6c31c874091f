/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines in files: --config reads one, --print-config writes one. */
#ifndef SLUICE_TOOLS_COMMON_CONFIG_FILE_H
#define SLUICE_TOOLS_COMMON_CONFIG_FILE_H

#include "tools/common/settings.h"

/* Reads the file of --config and gives its options of the tool, except those that the command line
 * has. *model: the MODEL that it names, or NULL. SL_E_USAGE names file, line and key. */
sl_status config_file_read(settings *s, const char **model);
/* Gives the file's options of the model, likewise. */
sl_status config_file_model(settings *s);
/* Prints the command line as such a file. SL_E_USAGE: a value is no text in UTF-8. */
sl_status config_file_print(const settings *s);

#endif
