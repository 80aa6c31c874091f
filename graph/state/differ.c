/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/differ.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

char *sli_differ_name(const char *item) {
  const char *dashes = strstr(item, "--");
  if (dashes) item = dashes + 2;
  else if (!strncmp(item, "the ", 4)) item += 4;
  return sli_format("%.*s", (int)strcspn(item, " "), item);
}

static bool is_listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
    const char *word = at + (strncmp(at, "--", 2) ? 0 : 2);
    if (strcspn(word, ",") == n && !memcmp(word, name, n)) return true;
  }
  return false;
}

/* Appends `more` to the list and frees it. */
static void append(char **list, const char *between, char *more) {
  if (!*list) {
    *list = more;
    return;
  }
  char *longer = sli_format("%s%s%s", *list, between, more);
  free(*list);
  free(more);
  *list = longer;
}

void sli_differ(sli_differences *d, const char *name, const char *format, ...) {
  if (is_listed(d->meant, name)) return;
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(NULL, format, args);
  va_end(args);
  append(&d->text, "; ", text);
  if (!is_listed(d->names, name)) append(&d->names, ",", sli_strdup(name));
}

sl_status sli_differ_end(sli_differences *d) {
  sl_status status = SL_OK;
  if (d->text)
    status = sl_fail(SL_E_USAGE, "cannot resume: %s (--resume-with %s if this is intended)",
                     d->text, d->names);
  free(d->text);
  free(d->names);
  *d = (sli_differences){.meant = d->meant};
  return status;
}
