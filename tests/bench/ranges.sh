#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Table 3 and the search of NanoFlow (Zhu et al., arXiv 2408.12757): a tick of LLaMA-2-70B on eight
# A100s, from shapes and from the times measured there, by number of ranges, and a picture of two
# layers.
#
#   ranges.sh BIN [SVG]      BIN: folder of actortune and actortrace
set -euo pipefail

bin=$1 svg=${2-}
trap 'rm -f "$trace"' EXIT
trace=$(mktemp)
model=(llama --width 8192 --heads 64 --kv-heads 8 --ffn 28672 --vocab 32000 --context 2048 --batch 1)

# measured LAYERS: seconds of so many of the 80 layers
measured() {
  awk -v n="$1" 'BEGIN { f = "%s=%.8f"; n /= 80
    printf f "," f "," f "," f "," f "," f "," f, "q+k+v", .01608 * n, "o", .01601 * n, "gate+up", .06992 * n,
      "down", .03496 * n, "attention", .0356 * n, "prompts", .00456 * n, "exchange", .04792 * n }'
}
ranges() {
  local layers=$1
  shift
  "$bin/actortune" ranges --devices timed:8 --machine a100-sxm-80gb-nanoflow --dtype bf16 --rows 2048 \
    --prompt 512 --answer 1024 "$@" "${model[@]}" --layers "$layers"
}

ranges 80 --effort 0 --parts 1 | sed '/^$/,$d'
for parts in 1 2 3 4 8; do
  printf '%d ranges: ' $parts
  ranges 80 --effort 0 --parts $parts --measured "$(measured 80)" | grep 'A tick takes'
done
ranges 80 --measured "$(measured 80)"
[ -n "$svg" ] || exit 0
ranges 2 --effort 0 --parts 3 --measured "$(measured 2)" --trace "$trace" > /dev/null
"$bin/actortrace" svg "$trace" -o "$svg"
sed -i 's|<title>[^<]*|<title>ranges|' "$svg"
