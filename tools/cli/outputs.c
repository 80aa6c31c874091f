/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/outputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/atomic.h"
#include "tools/cli/options.h"

bool output_in_folder(const char *path) { return path != NULL; }

static sl_status try_one(const output *o, const char *path) {
  bool folder = o->is_folder && o->is_folder(path);
  sl_status status = folder ? sli_atomic_check_folder(path) : sli_atomic_check(path);
  return status ? sl_fail(status, "--%s: %s", o->option, sl_detail()) : SL_OK;
}

sl_status outputs_try(const sl_args *args, const output *list, size_t n, bool dash) {
  sl_status status = SL_OK;
  for (size_t i = 0; i < n; i++) {
    const char *path;
    for (int k = 0; !status && (path = sl_arg_given(args, list[i].option, k)); k++)
      if (*path && !(dash && !strcmp(path, "-"))) status = try_one(&list[i], path);
  }
  return status;
}

int outputs_end(const char *tool, sl_status status, int exit_status) {
  char *detail = options_named(status ? sl_detail() : "");
  if (status) fprintf(stderr, "%s: %s\n", tool, detail);
  free(detail);
  errno = 0;
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (lost && !status)
    fprintf(stderr, "%s: writing the standard output failed%s%s\n", tool, errno ? ": " : "",
            errno ? strerror(errno) : "");
  if (status) return sl_status_exit(status);
  return lost && !exit_status ? sl_status_exit(SL_E_IO) : exit_status;
}
