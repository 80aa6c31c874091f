#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --routing: the number of rows of each expert on modelled devices. Under Zipf's law the busiest of
# eight experts takes 8/H(8) = 2.943 times as long as with balanced routing. A file gives the rows
# for all layers or for each layer. Errors name their cause.
# labels: unthreaded
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
cat >machine.json <<'END'
{"name": "arithmetic alone", "source": "none", "flops_per_second": {"f32": 1e12, "bf16": 1e12}, "flops_efficiency": 1,
 "bytes_per_second": 1e18, "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e12, "link_seconds": 0,
 "link_bytes_per_second": 1e18, "devices_per_host": 8, "host_link_seconds": 0, "host_link_bytes_per_second": 1e18,
 "link_efficiency": 1, "copy_bytes_per_second": 1e18, "host_memory_bytes_per_second": 1e18,
 "disk_read_bytes_per_second": 1e12, "disk_write_bytes_per_second": 1e12}
END
model=(mixtral --layers 1 --width 32 --heads 2 --context 1024 --batch 8 --experts 8 --top-k 1 --aux-loss 0
  --data "$reference/tokens.u16")
# Prints the nanoseconds of each device's experts in a pass.
experts() { # ROUTING MODEL-OPTIONS...
  ends 0 "$actorrun" --quiet --clock virtual --devices timed:8 --machine machine.json --data-parallel 8 \
    --expert-parallel 8 --routing "$1" --steps 2 --trace r.trace "${model[@]}" "${@:2}"
  "$bin/actortrace" rows r.trace | awk '$1 == 1 && $3 == "F" && $11 != "-" && $9 > $8 { print $9 - $8 }' | sort -rn
}
even=$(experts balanced | sort -u)
[ "$(wc -l <<<"$even")" = 1 ] || fail "experts with as many rows take as long: $even"
[ "$(experts learned | sort -u)" = "$even" ] || fail "where nothing is learned all have as many"
experts zipf:1 >zipf
[ "$(wc -l <zipf)" = 8 ] || fail "eight devices have experts: $(cat zipf)"
awk -v e="$even" 'NR == 1 { exit !($1 / e > 2.94 && $1 / e < 2.946) }' zipf ||
  fail "the busiest takes $(head -1 zipf) ns, an even share $even"
echo "2048 1024 1024 1024 1024 1024 1024 0 # of 8192" >file
experts file >given
[ "$(wc -l <given)" = 7 ] || fail "the expert without rows takes no time: $(cat given)"
awk -v e="$even" 'NR == 1 { exit !($1 / e > 1.99 && $1 / e < 2.01) }' given || fail "twice the rows take twice as long"

# One line per layer: the first layer is balanced, the second gives its first expert twice as many
# rows.
printf '%s\n' "1024 1024 1024 1024 1024 1024 1024 1024" "" "2048 1024 1024 1024 1024 1024 1024 0 # the second" >layers
experts layers --layers 2 >given
[ "$(wc -l <given)" = 15 ] || fail "eight experts have rows, and seven: $(cat given)"
awk -v e="$even" '{ n[$1 / e > 1.99 && $1 / e < 2.01 ? 2 : 1]++ } END { exit !(n[2] == 1 && n[1] == 14) }' given ||
  fail "one expert of one layer has twice the rows: $(cat given)"

# With tensor parallelism too, exchanges include what a forward pass keeps for weight gradients.
ends 0 "$actorrun" --quiet --dry-run --clock virtual --machine h100-sxm-80gb --stages 2 --tensor 2 --microbatches 2 \
  --schedule zb-h1 mixtral --layers 2 --width 128 --heads 4 --context 256 --batch 32 --experts 8 --vocab 256

# ---- errors ----------------------------------------------------------------------------------------------
refuse() { # WORDS OPTIONS...
  ends 2 "$actorrun" "${@:2}" "${model[@]}"
  says "$1" err
}
modelled=(--clock virtual --devices timed:8 --data-parallel 8 --expert-parallel 8)
echo "2048 1024 1024 1024 1024 1024 1024 1" >wrong
refuse "routing wrong: 8193 rows go to the experts of layer 0, but the tokens of a microbatch have 8192" "${modelled[@]}" --routing wrong
echo "4096 4096" >wrong
refuse "routing wrong has rows for 2 experts, but the model has 8" "${modelled[@]}" --routing wrong
refuse "routing layers has 2 lines, but the model has 1 layers with experts: must be one line per layer, or one for all" "${modelled[@]}" \
  --routing layers
printf '%s\n' "4096 4096" "8192" >wrong
refuse "routing wrong: its 2 lines must each have 8 numbers" "${modelled[@]}" --routing wrong
echo "4096 many" >wrong
refuse "routing wrong:1: must be the numbers of rows" "${modelled[@]}" --routing wrong
refuse "routing zipf:x: the S of zipf:S must be from 0 to 100" "${modelled[@]}" --routing zipf:x
refuse "routing nowhere: must be learned, balanced, zipf:S or a file" "${modelled[@]}" --routing nowhere
refuse "on cpu devices the model routes the rows" --data-parallel 8 --expert-parallel 8 --routing zipf:1
refuse "needs --expert-parallel" --clock virtual --devices timed:8 --data-parallel 8 --routing zipf:1
