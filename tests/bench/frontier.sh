#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows the trade-off between memory and bubble: --schedule auto against the named
# schedules, for budgets from a third of 1F1B's activations up to all of them.
#
#   frontier.sh ACTORRUN [SVG]
#
# Prints a table (schedule, activations allowed and held, bubble in %) and draws it to SVG.
# Schedules that hold more activations than 1F1B appear in the table only. The runs have 8
# devices and 24 microbatches. Durations are those of the first row of table 9 of the Zero
# Bubble paper (arXiv 2401.10241), in seconds for all of a device's layers.
set -euo pipefail

run=$1 svg=${2:-}
p=8 m=24 F=.018522 B=.018086 W=.009337 comm=.000601
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints two values of the report: the most activations any device held, and the bubble in %.
figures() {
  awk -F: '/"bubble_fraction"/ && !bubble { bubble = $2 + 0 }
           /"peak_activations"/ { if ($2 + 0 > peak) peak = $2 + 0 }
           END { printf "%.3f\t%.2f\n", peak, 100 * bubble }' "$scratch/report.json"
}

# share CHUNKS OPTION...: runs once, with the costs divided by the chunks per device.
share() {
  local cost
  cost=$(awk -v v="$1" -v F=$F -v B=$B -v W=$W -v comm=$comm \
    'BEGIN { printf "F=%.9f,B=%.9f,W=%.9f,comm=%s", F / v, B / v, W / v, comm }')
  "$run" --devices timed:$p --clock virtual --stages $p --microbatches $m --cost "$cost" \
    --steps 3 --quiet --report "$scratch/report.json" "${@:2}" pipeline
}

{
  printf 'schedule\tallowed\theld\tbubble\n'
  for row in 1f1b:1 zb-h1:1 interleaved:2 interleaved:3 zb-v:2 v-half:2 v-min:2; do
    share "${row#*:}" --schedule "${row%:*}" --chunks "${row#*:}"
    printf '%s\t-\t%s\n' "$row" "$(figures)"
  done
  for budget in 2.667 3 3.5 4 4.5 5 5.5 6 6.5 7 7.5 8; do
    share 1 --schedule auto --activations $budget
    name=$(sed -n 's/.*"schedule":.*"auto (\(.*\))".*/\1/p' "$scratch/report.json" | head -1)
    printf 'auto (%s)\t%s\t%s\n' "$name" "$budget" "$(figures)"
  done
} | tee "$scratch/table"

[ -n "$svg" ] || exit 0
awk -F'\t' -v p=$p '
  function x(held) { return 70 + (held / p - 0.3) / 0.72 * 490 }
  function y(bubble) { return 330 - bubble / 60 * 290 }
  function dot(at_x, at_y, r, fill) {
    return sprintf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n", at_x, at_y, r, fill)
  }
  function text(at_x, at_y, anchor, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", at_x, at_y, anchor, words
  }
  BEGIN {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 390\" width=\"640\"" \
          " font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">"
    print "<rect width=\"640\" height=\"390\" fill=\"#fff\"/>"
    for (b = 0; b <= 60; b += 10) {
      printf "<path d=\"M70 %.1fH560\" stroke=\"#ddd\"/>\n", y(b)
      text(62, y(b) + 4, "end", b " %")
    }
    for (i = 2; i <= 6; i++) {
      share = i / 6
      text(x(share * p), 350, "middle",
           i == 6 ? "1" : i == 3 ? "1/2" : i % 2 ? i "/6" : i / 2 "/3")
      printf "<path d=\"M%.1f 330v5\" stroke=\"#999\"/>\n", x(share * p)
    }
    text(315, 374, "middle", "activations of the fullest device, 1 = those of 1F1B")
    text(62, 24, "end", "bubble")
  }
  NR == 1 { next }
  /^auto/ { line = line (line ? "L" : "M") sprintf("%.1f %.1f", x($2), y($4))
            dots = dots dot(x($2), y($4), 3, "#1a7f5a")
            next }
  { split($1, part, ":")
    label = part[1] (part[1] == "interleaved" ? " x" part[2] : "")
    if ($3 > p) next
    named = named dot(x($3), y($4), 4, "#c2541b") \
            sprintf("<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x($3) + 9, y($4) + 4, label) }
  END {
    printf "<path d=\"%s\" fill=\"none\" stroke=\"#1a7f5a\" stroke-width=\"2\"/>\n", line
    printf "%s%s%s%s", dots, named, dot(420, 58, 3, "#1a7f5a"), dot(420, 76, 4, "#c2541b")
    text(430, 62, "start", "--schedule auto")
    text(430, 80, "start", "named schedules")
    print "</svg>"
  }' "$scratch/table" > "$svg"
