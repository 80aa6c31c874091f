#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that includes point down the list of layers or into the same folder, and that public headers include only
# public headers.
# labels: unthreaded smoke
set -euo pipefail
cd "$SLUICE_SOURCE"

layers=(base io text ops kernels placement actors comm graph serve rollouts)
wrong=0

# each folder with the folders from which it may include
check() {
  local folder=$1 line target
  shift
  while IFS= read -r line; do
    target=${line#*\"}
    [[ $target == */* ]] || continue # in the same folder
    target=${target%%/*}
    [[ " $* " == *" $target "* ]] && continue
    echo "$line" >&2
    wrong=1
  done < <(grep -rHn '^ *# *include *"' "$folder" --include='*.[ch]' || true)
}

allowed=()
for layer in "${layers[@]}"; do
  allowed+=("$layer")
  check "$layer" "${allowed[@]}"
done
check models "${layers[@]}" models
check tools "${layers[@]}" models tools
check include

if ((wrong)); then
  echo "the includes above point up or sideways" >&2
  exit 1
fi
