#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

sl_status sli_file_read(const char *path, char **out) {
  FILE *file = fopen(path, "rb");
  if (!file) return sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
  char *text = NULL;
  size_t size = 0, got;
  do {
    text = sli_realloc(text, size + 65537, 1);
    got = fread(text + size, 1, 65536, file);
    size += got;
  } while (got);
  text[size] = 0;
  int error = ferror(file) ? errno : 0;
  fclose(file);
  if (!error) {
    *out = text;
    return SL_OK;
  }
  free(text);
  return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(error));
}
