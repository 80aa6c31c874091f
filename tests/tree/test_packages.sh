#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the Debian packages of the build: names, dependencies, and that each file is in exactly one of them.
# tests/portable/packages checks that they work once installed.
# labels: unthreaded outside
# needs: onednn libevent
set -euo pipefail
. "$SLUICE_SOURCE/tests/support/install.sh"
fail() { echo "$*" >&2; exit 1; }
for program in cpack dpkg-deb dpkg-shlibdeps; do
  type -P "$program" >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cpack --config "$SLUICE_BUILD/CPackConfig.cmake" -B "$scratch/packages" >"$scratch/log" 2>&1 ||
  fail "cpack: $(cat "$scratch/log")"
version=$(sed -n 's/^#define SLUICE_VERSION "\(.*\)"$/\1/p' "$SLUICE_SOURCE/include/sluice/version.h")
library=libsluice${version%.*}
for package in "$library" sluice libsluice-dev; do
  deb=("$scratch/packages/${package}_${version}_"*.deb)
  [[ ${#deb[@]} == 1 && -s ${deb[0]} ]] || fail "no $package: $(ls "$scratch/packages")"
  dpkg-deb -x "${deb[0]}" "$scratch/$package"
  dpkg-deb -e "${deb[0]}" "$scratch/$package.control"
  [[ -s $scratch/$package/usr/share/doc/$package/copyright ]] || fail "$package: no copyright"
done

# field PACKAGE NAME
field() { sed -n "s/^$2: //p" "$scratch/$1.control/control"; }
for package in sluice libsluice-dev; do
  [[ ", $(field "$package" Depends)," == *", $library (= $version),"* ]] ||
    fail "$package goes with any library: $(field "$package" Depends)"
done
[[ $(field "$library" Depends) =~ libc6\ \(.*libhwloc15 ]] ||
  fail "the library's dependencies are not found: $(field "$library" Depends)"
[[ $(field sluice Recommends) == *libsluice-dev*gcc* ]] || fail "nothing to compile a model with"
grep -q "^libsluice ${version%.*} $library (>= $version)$" "$scratch/$library.control/shlibs" ||
  fail "what programs depend on that link the library: $(cat "$scratch/$library.control/shlibs")"
[[ $(field "$library" Recommends) =~ libdnnl[0-9] ]] || fail "oneDNN, which is loaded at run time, is not recommended"

# Each file of an installation is in exactly one package.
install_build "$scratch/all"
list() { (cd "$1" && find . ! -type d -printf '%f\n' | sed 's/[.]gz$//' | grep -vx copyright | sort); }
list "$scratch/all" >"$scratch/installed"
for package in "$library" sluice libsluice-dev; do list "$scratch/$package"; done | sort >"$scratch/packed"
diff "$scratch/installed" "$scratch/packed" >&2 || fail "what is installed and what is packed differ"
find "$scratch/$library" -type f -name '*.so.*' | grep -q . || fail "no library in $library"
find "$scratch/libsluice-dev" -name libsluice.so | grep -q . || fail "programs cannot link the library"
for tool in actorrun actorserve actortrace actortune; do
  [[ -x $scratch/sluice/usr/bin/$tool && -s $scratch/sluice/usr/share/man/man1/$tool.1.gz &&
    -s $scratch/sluice/usr/share/bash-completion/completions/$tool ]] || fail "not all of $tool is in sluice"
done
[[ -s $scratch/sluice/usr/share/sluice/models/gpt.c ]] || fail "no models in sluice"
