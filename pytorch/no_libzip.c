/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a build without libzip, which cannot open archives. */
#include "base/left_out.h"
#include "pytorch/archive.h"

sl_status sli_archive_open(const char *path, sli_archive **out) {
  (void)out;
  return SLI_LEFT_OUT(path, "libzip", "LIBZIP", "libzip-dev");
}

void sli_archive_close(sli_archive *a) { (void)a; }
const char *sli_archive_path(const sli_archive *a) { return (void)a, ""; }
int sli_archive_has(const sli_archive *a, const char *name, size_t *bytes) {
  return (void)a, (void)name, (void)bytes, 0;
}

sl_status sli_archive_read(sli_archive *a, const char *name, size_t most, char **out,
                           size_t *bytes) {
  (void)a, (void)most, (void)out, (void)bytes;
  return SLI_LEFT_OUT(name, "libzip", "LIBZIP", "libzip-dev");
}

sl_status sli_archive_part(sli_archive *a, const char *name, size_t first, size_t count,
                           void *out) {
  (void)a, (void)first, (void)count, (void)out;
  return SLI_LEFT_OUT(name, "libzip", "LIBZIP", "libzip-dev");
}

sl_status sli_archive_verify(sli_archive *a, const char *name) {
  (void)a;
  return SLI_LEFT_OUT(name, "libzip", "LIBZIP", "libzip-dev");
}

unsigned sli_archive_checksum(const sli_archive *a, const char *name) {
  return (void)a, (void)name, 0;
}
