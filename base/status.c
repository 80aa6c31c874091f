/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/status.h>

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

static const struct {
  const char *text;
  int exit;
} rows[SL_STATUS_COUNT] = {
#define X(code, exit, text) [SL_##code] = {text, exit},
    SL_STATUS_TABLE(X)
#undef X
};

static _Thread_local char detail[2048];

const char *sl_status_text(sl_status status) {
  return (unsigned)status < SL_STATUS_COUNT ? rows[status].text : "unknown status";
}

int sl_status_exit(sl_status status) {
  return (unsigned)status < SL_STATUS_COUNT ? rows[status].exit : 1;
}

sl_status sl_fail(sl_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char text[sizeof detail]; /* the arguments may point into `detail` */
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  sli_escape(detail, sizeof detail, text); /* names from files and peers are untrusted */
  return status;
}

const char *sl_detail(void) { return detail; }
