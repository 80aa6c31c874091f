/* SPDX-License-Identifier: Apache-2.0 */
/* JSON files (base/json.h). Inline, like the parser. */
#ifndef SLUICE_IO_JSON_H
#define SLUICE_IO_JSON_H

#include <stdlib.h>

#include "base/json.h"
#include "base/json_text.h"
#include "io/atomic.h"
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

/* Writes a JSON file. Frees the value. SL_E_IO names the file. */
static inline sl_status sli_json_write(const char *path, cJSON *root) {
  char *text = sli_json_mend(cJSON_Print(root));
  cJSON_Delete(root);
  if (!text) return sl_fail(SL_E_MEMORY, "no memory to write %s", path);
  sl_status status = sli_atomic_text(path, text);
  free(text);
  return status;
}

#endif
