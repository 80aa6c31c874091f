#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that options which tools and models look up by name exist with that kind, and that lookups.py detects a wrong
# name or kind.
# labels: unthreaded outside smoke
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
python3 "$SLUICE_SOURCE/tests/tree/lookups.py" "$SLUICE_SOURCE"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for folder in tools models graph include serve rollouts; do cp -r "$SLUICE_SOURCE/$folder" "$copy"; done
sed -i 's/sl_arg_int(s->run, "steps")/sl_arg_int(s->run, "stepz")/' "$copy"/tools/actorrun/settings.c
sed -i 's/sl_arg_flag(s->run, "resume")/sl_arg_int(s->run, "resume")/' "$copy"/tools/actorrun/*.c
! python3 "$SLUICE_SOURCE/tests/tree/lookups.py" "$copy" 2>"$copy/said" || { echo "wrong names pass"; exit 1; }
grep -q 'settings.c:.*"stepz", which is in no table' "$copy/said" || { cat "$copy/said"; exit 1; }
grep -q 'sl_arg_int of "resume", which is FLAG' "$copy/said" || { cat "$copy/said"; exit 1; }
