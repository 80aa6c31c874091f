#include "tools/common_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

sl_status file_read(const char *path, char **out) {
  FILE *file = fopen(path, "rb");
  if (!file) return sl_fail(SL_E_INPUT, "%s: %m", path);
  char *text = NULL;
  size_t size = 0, got;
  do {
    text = sli_realloc(text, size + 65537, 1);
    got = fread(text + size, 1, 65536, file);
    size += got;
  } while (got);
  text[size] = 0;
  bool bad = ferror(file);
  fclose(file);
  if (!bad) {
    *out = text;
    return SL_OK;
  }
  free(text);
  return sl_fail(SL_E_INPUT, "%s: cannot be read", path);
}
