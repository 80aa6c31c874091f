/* Files of JSON (base/json.h). Inline, as the parser is. */
#ifndef SLUICE_IO_JSON_H
#define SLUICE_IO_JSON_H

#include <stdlib.h>

#include "base/json.h"
#include "io/file.h"

/* SL_E_INPUT names the file. */
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
