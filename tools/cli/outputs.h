/* SPDX-License-Identifier: Apache-2.0 */
/* Output files of tools, checked before the work and reported at the end. */
#ifndef SLUICE_TOOLS_CLI_OUTPUTS_H
#define SLUICE_TOOLS_CLI_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include <sluice/model.h>

/* An option whose values name output files or folders. */
typedef struct output {
  const char *option;
  /* says whether a value is a folder; NULL: it is always a file */
  bool (*is_folder)(const char *path);
} output;

/* Checks that all given outputs can be written, so that no long run is lost to a missing folder.
 * SL_E_USAGE names the option. "-" means the standard output if `dash` is set. */
sl_status outputs_try(const sl_args *args, const output *list, size_t n, bool dash);
bool output_in_folder(const char *path); /* returns true */

/* Ends a tool: reports what went wrong, including a failed write to standard output. Returns the
 * exit status of `status`, or else `exit_status`. */
int outputs_end(const char *tool, sl_status status, int exit_status);

#endif
