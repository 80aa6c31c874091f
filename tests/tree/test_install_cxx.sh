#!/bin/bash
# The installed headers are C++ as well: a program in C++ builds against them and runs.
# labels: unthreaded
set -euo pipefail
type -P c++ >/dev/null || { echo "skipped: c++ is not installed"; exit 77; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sanitize=$(sed -n 's/^SLUICE_SANITIZE:STRING=//p' "$SLUICE_BUILD/CMakeCache.txt")

cmake --install "$SLUICE_BUILD" --prefix "$scratch" >/dev/null
cat >"$scratch/user.cc" <<'END'
#include <sluice/sluice.h>
int main() {
  sl_plan *plan = sl_plan_create(4, 1);
  sl_device device = {};
  device.name = "null:0";
  device.kind = "null";
  bool first = sl_plan_add_device(plan, device) == 0;
  sl_plan_destroy(plan);
  return first ? 0 : 1;
}
END
PKG_CONFIG_PATH=$(find "$scratch" -name sluice.pc -printf '%h\n')
export PKG_CONFIG_PATH
read -ra flags <<<"$(pkg-config --cflags --libs sluice)"
c++ ${sanitize:+"-fsanitize=$sanitize"} -Wall -Wextra -Werror "$scratch/user.cc" "${flags[@]}" \
  -o "$scratch/user"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir sluice) "$scratch/user"
