#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that header, library, tools, CMake, pkg-config, the Python package and CHANGELOG.md have the same version.
# labels: unthreaded outside
# needs: everything
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }

header=$SLUICE_SOURCE/include/sluice/version.h
version=$(sed -n 's/^#define SLUICE_VERSION "\(.*\)"$/\1/p' "$header")
[[ $version =~ ^([0-9]+)[.]([0-9]+)[.]([0-9]+)$ ]] || fail "version.h: SLUICE_VERSION is '$version'"
major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]} patch=${BASH_REMATCH[3]}

for part in major minor patch; do
  grep -qx "#define SLUICE_VERSION_${part^^} ${!part}" "$header" || fail "version.h: SLUICE_VERSION_${part^^} is not ${!part}"
done
is() { [[ $2 == "$3" ]] || fail "$1: '$2', not '$3'"; }
is CMake "$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$SLUICE_BUILD/CMakeCache.txt")" "$version"
is pkg-config "$(sed -n 's/^Version: //p' "$SLUICE_BUILD/sluice.pc")" "$version"
is CHANGELOG.md "$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' "$SLUICE_SOURCE/CHANGELOG.md" | head -1)" "$version"
for tool in actorrun actortrace actortune actorserve; do
  [[ ! -x $SLUICE_BUILD/bin/$tool ]] || is "$tool --version" "$("$SLUICE_BUILD/bin/$tool" --version)" "$tool $version"
done

# pyproject.toml takes the version from a file by a regular expression.
if command -v python3 >/dev/null; then
  is pyproject.toml "$(python3 - "$SLUICE_SOURCE" <<'END'
import re, sys
text = open(sys.argv[1] + "/pyproject.toml").read().split("[tool.scikit-build.metadata.version]")[1]
where, how = (re.search(r"^%s = ([\"'])(.*)\1$" % key, text, re.M)[2] for key in ("input", "regex"))
print(re.search(how, open(sys.argv[1] + "/" + where).read(), re.M)["value"])
END
  )" "$version"
fi

# Until 1.0 each minor version has a separate soname, as docs/library.md says.
soname=libsluice.so.$major.$minor
((major == 0)) || soname=libsluice.so.$major
library=$(find "$SLUICE_BUILD" -maxdepth 3 -name "libsluice.so.$version")
[[ $library ]] || fail "there is no libsluice.so.$version"
is soname "$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')" "$soname"
