/* What tools write: tried before the work, and looked at when they end. */
#ifndef SLUICE_TOOLS_COMMON_OUTPUTS_H
#define SLUICE_TOOLS_COMMON_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include <sluice/model.h>

/* An option whose values name what is written. */
typedef struct output {
  const char *option;
  bool (*is_folder)(const char *path); /* NULL: it is always a file */
} output;

/* Tries all that are given, so that an hour of work is not lost to a folder that is not there. SL_E_USAGE names the
 * option. "-" is the standard output where `dash` says so. */
sl_status outputs_try(const sl_args *args, const output *list, size_t n, bool dash);
bool output_in_folder(const char *path); /* always */

/* The end of a tool: says what went wrong, be it only that its standard output could not be written. Returns the exit
 * status: of `status`, or else `exit_status`. */
int outputs_end(const char *tool, sl_status status, int exit_status);

#endif
