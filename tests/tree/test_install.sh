#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that `cmake --install` is complete: a program outside the tree builds against the installation with CMake
# and with pkg-config, and the installed tools run, also after the installation has been moved. Documentation is
# installed with working links, and uninstall removes everything.
# labels: unthreaded
set -euo pipefail
export CMAKE_GENERATOR=Ninja # make may not be there
. "$SLUICE_SOURCE/tests/support/install.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "$*" >&2; exit 1; }

sanitize=$(sed -n 's/^SLUICE_SANITIZE:STRING=//p' "$SLUICE_BUILD/CMakeCache.txt")
export CFLAGS=${sanitize:+-fsanitize=$sanitize}

install_build "$scratch/first"
mv "$scratch/first" "$scratch/prefix"
prefix=$scratch/prefix
config=$(find "$prefix" -name sluice.pc -printf '%h\n')
[[ -n $config ]] || fail "sluice.pc is not installed"

# ---- a program outside the tree -------------------------------------------------

mkdir "$scratch/user"
cat >"$scratch/user/user.c" <<'END'
#include <stdio.h>
#include <sluice/sluice.h>
int main(void) {
  sl_plan *plan = sl_plan_create(4, 1);
  sl_device device = {0};
  device.name = "null:0";
  device.kind = "null";
  sl_queue queue = {0};
  queue.name = "null:0";
  queue.device = sl_plan_add_device(plan, device);
  queue.ops = &sl_queue_null;
  queue.run_ahead = 1;
  sl_actor actor = {0};
  actor.name = "source";
  actor.queue = sl_plan_add_queue(plan, queue);
  actor.stage = actor.chunk = SL_NONE;
  actor.ticks = sl_plan_map_each(plan);
  actor.firings_per_step = 4;
  actor.source = true;
  sl_plan_add_actor(plan, actor);
  sl_status status = sl_plan_finish(plan);
  if (!status) status = sl_plan_prove(plan);
  if (status) fprintf(stderr, "%s: %s\n", sl_status_text(status), sl_detail());
  sl_plan_destroy(plan);
  return sl_status_exit(status);
}
END
cat >"$scratch/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(User LANGUAGES C)
find_package(Sluice 0.2 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE Sluice::sluice)
END

cmake -S "$scratch/user" -B "$scratch/user/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/user/build" >/dev/null
"$scratch/user/build/user" || fail "the program that CMake built does not run"

cmake -S "$SLUICE_SOURCE/examples/embed" -B "$scratch/embed" -DCMAKE_PREFIX_PATH="$prefix" \
  >/dev/null
cmake --build "$scratch/embed" >/dev/null
"$scratch/embed/parity" >"$scratch/parity.log" || fail "the example does not run"

# ---- several processes with the library alone, without a tool -------------------------------

resume=$scratch/embed/resume
# in_processes N DIR STEPS: runs N processes; process 0 prints the losses.
in_processes() (
  export SLUICE_KEY=0123456789abcdefghij0123456789abcdefghij HOME=$scratch
  export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT
  MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
  others=()
  for ((i = 1; i < $1; i++)); do
    RANK=$i LOCAL_RANK=$i "$resume" "${@:2}" & others+=($!)
  done
  RANK=0 LOCAL_RANK=0 "$resume" "${@:2}"
  for pid in "${others[@]}"; do wait "$pid"; done
)
"$resume" "$scratch/whole" 20 >"$scratch/whole.log" || fail "the example does not run in one process"
[[ $(wc -l <"$scratch/whole.log") == 20 ]] || fail "a loss for every step"
in_processes 2 "$scratch/parts" 12 >"$scratch/parts.log" || fail "it does not run in two processes"
cp -r "$scratch/parts" "$scratch/parts1"
in_processes 2 "$scratch/parts" 20 >"$scratch/second.log" || fail "it does not go on in two"
"$resume" "$scratch/parts1" 20 >"$scratch/alone.log" || fail "it does not go on in one"
cmp "$scratch/second.log" "$scratch/alone.log" || fail "one process and two go on differently"
cat "$scratch/second.log" >>"$scratch/parts.log"
cmp "$scratch/whole.log" "$scratch/parts.log" || fail "a resumed run has other losses"

export PKG_CONFIG_PATH=$config
version=$(sed -n 's/^#define SLUICE_VERSION "\(.*\)"$/\1/p' "$prefix/include/sluice/version.h")
[[ $version && $(pkg-config --modversion sluice) == "$version" ]] || fail "pkg-config does not know the version"
read -ra flags <<<"$(pkg-config --cflags --libs sluice)"
# shellcheck disable=SC2086
cc $CFLAGS -Wall -Wextra -Werror "$scratch/user/user.c" "${flags[@]}" -o "$scratch/user/by_pc"
"$scratch/user/by_pc" || fail "the program that pkg-config built does not run"

# An installed program finds the library, too.
echo 'install(TARGETS user)' >>"$scratch/user/CMakeLists.txt"
cmake -S "$scratch/user" -B "$scratch/user/build" >/dev/null && cmake --build "$scratch/user/build" >/dev/null
cmake --install "$scratch/user/build" --prefix "$scratch/theirs" >/dev/null
"$scratch/theirs/bin/user" || fail "the program that CMake installed does not run"

# ---- the tools and the models ----------------------------------------------------

for tool in actorrun actortrace; do
  "$prefix/bin/$tool" --help >/dev/null || fail "the installed $tool does not run"
done
for model in gpt decoder; do
  [[ -s $prefix/share/sluice/models/$model.c ]] || fail "the model $model is not installed"
done
cp "$prefix/share/sluice/models/gpt.c" "$scratch/mine.c"
"$prefix/bin/actorrun" --dry-run "$scratch/mine.c" --layers 1 --width 32 --heads 2 --context 16 \
  --data "$SLUICE_SOURCE/tests/reference/text.txt" >/dev/null ||
  fail "the installed actorrun does not compile a model"

# ---- messages ----------------------------------------------------------------------------

# Messages name source files relative to the top of the sources, in any build.
strings -d "$prefix"/bin/actor* "$(find "$prefix" -name libsluice.so)" >"$scratch/strings"
grep -qx 'graph/[a-z/]*[.]c' "$scratch/strings" || fail "no name of a file of ours in the library"
if [[ ! ${UBSAN_OPTIONS-}${TSAN_OPTIONS-} ]]; then # sanitizers keep the paths of sources for their reports
  grep -F "$SLUICE_SOURCE/" "$scratch/strings" && fail "paths of the build"
  grep -E '^([.]{1,2}/)+[a-z].*[.][ch]$' "$scratch/strings" && fail "paths from the build"
fi

# ---- pages ----------------------------------------------------------------------------

doc=$prefix/share/doc/sluice
cmp "$SLUICE_SOURCE/LICENSE" "$doc/LICENSE" || fail "no licence"
python3 - "$doc" <<'END' || fail "links of the pages lead nowhere"
import pathlib, re, sys
pages = [*pathlib.Path(sys.argv[1]).glob("**/*.md")]
dead = [(page.name, link) for page in pages for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()]
print(*dead, sep="\n", file=sys.stderr)
sys.exit(bool(dead) or len(pages) < 20)
END

# ---- uninstall ------------------------------------------------------------------------------

mine=$scratch/sluice/prefix # a parent folder has the same name
mkdir -p "$mine/bin" "$mine/share/sluice/models" "$mine/lib"
touch "$mine/share/sluice/models/mine.c"
install_build "$mine"
find "$mine" ! -type d ! -name mine.c >"$scratch/manifest" # not the shared one of the build, which other tests write
uninstall() { cmake -DMANIFEST="$scratch/manifest" -P "$SLUICE_SOURCE/cmake/uninstall.cmake" 2>&1; }
uninstall | grep -q 'removed [1-9]' || fail "uninstall says what it did"
[[ $(find "$mine" ! -type d) == "$mine/share/sluice/models/mine.c" ]] || fail "uninstall left or took: $(find "$mine")"
[[ ! -e $mine/include/sluice && ! -e $mine/share/doc/sluice && -d $mine/bin && -d $mine/lib ]] ||
  fail "uninstall's folders: $(find "$mine")"
uninstall | grep -q 'removed 0 ' || fail "a second uninstall"
rm "$scratch/manifest"
said=$(uninstall) && fail "uninstall of what was not installed"
[[ $said == *'has installed nothing'* ]] || fail "uninstall of what was not installed: $said"
cmake --build "$SLUICE_BUILD" --target help | grep uninstall >"$scratch/target" || fail "there is no target uninstall"
