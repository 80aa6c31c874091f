/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of parameter names: a run of a name's components, with *, ? and [..]. "h.*.attn" matches
 * "transformer.h.3.attn.c_attn.weight"; "h.1" does not match "h.10.ln_1". */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build/build.h"

/* Replaces '.' by '/', which * does not match in fnmatch(). */
static char *as_path(const char *name) {
  char *path = sli_strdup(name);
  for (char *at = path; *at; at++)
    if (*at == '.') *at = '/';
  return path;
}

bool sli_pattern_finds(const char *pattern, const char *name) {
  char *wanted = as_path(pattern), *path = as_path(name);
  bool found = false;
  for (const char *at = path; at && !found; at = strchr(at, '/')) {
    at += *at == '/';
    found = !fnmatch(wanted, at, FNM_PATHNAME | FNM_LEADING_DIR);
  }
  free(wanted);
  free(path);
  return found;
}
