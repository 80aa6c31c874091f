/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a build without toml++, which cannot read TOML. */
#include "base/left_out.h"
#include "tools/cli/toml.h"

sl_status toml_read(const char *path, const char *text, size_t bytes, toml_reader *read,
                    void *ctx) {
  (void)text, (void)bytes, (void)read, (void)ctx;
  return SLI_LEFT_OUT(path, "toml++", "TOMLPLUSPLUS", "libtomlplusplus-dev");
}
