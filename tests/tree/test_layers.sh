#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An include points down the list of layers or into its own folder, and public
# headers know nothing but public headers.
# labels: unthreaded smoke
set -euo pipefail
cd "$SLUICE_SOURCE"

layers=(base io ops kernels placement actors comm graph serve rollouts)
wrong=0

# folder, and the folders it may include from
check() {
  local folder=$1 line target
  shift
  while IFS= read -r line; do
    target=${line#*\"}
    [[ $target == */* ]] || continue # beside it
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
