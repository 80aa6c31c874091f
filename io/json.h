/* SPDX-License-Identifier: Apache-2.0 */
/* JSON files (base/json.h). Inline, like the parser. */
#ifndef SLUICE_IO_JSON_H
#define SLUICE_IO_JSON_H

#include <stdlib.h>

#include "base/json.h"
#include "io/file.h"

/* Reads a JSON file. SL_E_INPUT names the file. */
static inline sl_status sli_json_open(const char *path, sli_json *out) {
  char *text;
  size_t bytes;
  sl_status status = sli_file_read_bytes(path, &text, &bytes);
  if (status) return status;
  status = sli_json_read(path, text, bytes, 0, out);
  free(text);
  return status;
}

#endif
