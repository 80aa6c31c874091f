#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Draws a step of each schedule, with 4 devices, 8 microbatches and no latency. F, B and W take
# 1 s each for all of a device's layers.
#
#   schedules.sh BIN FOLDER      BIN: folder of actorrun and actortrace
set -euo pipefail

bin=$1 folder=$2
mkdir -p "$folder"
trap 'rm -f "$folder/trace"' EXIT
for row in gpipe:1 1f1b:1 eager-1f1b:1 interleaved:2 zb-h1:1 zb-h2:1 zb-v:2 dualpipev:2 v-half:2 v-min:2 \
           seq1f1b:1; do
  name=${row%:*} chunks=${row#*:} pieces=1
  [ "$name" = seq1f1b ] && pieces=2
  pass=$(awk -v v="$chunks" 'BEGIN { print 1 / v }')
  "$bin/actorrun" --devices timed:4 --clock virtual --stages 4 --microbatches 8 \
    --chunks "$chunks" --pieces $pieces --schedule "$name" --cost "F=$pass,B=$pass,W=$pass" \
    --steps 3 --quiet --trace "$folder/trace" pipeline
  "$bin/actortrace" svg "$folder/trace" -o "$folder/$name.svg"
  sed -i "s|<title>[^<]*|<title>$name|" "$folder/$name.svg"
done
