# SPDX-License-Identifier: Apache-2.0
# On grids of devices, a run resumes from its checkpoint bit for bit. On other devices, or with
# another sharding, it resumes with the same losses up to rounding.
# labels: unthreaded outside first
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model="gpt --layers 2 --width 16 --heads 2 --context 16 --batch 8
       --data $reference/tokens.u16"

run() { ends 0 "$actorrun" "${patient[@]}" --microbatches 2 "$@" $model; }

# losses REPORT...: prints step and loss of consecutive reports.
losses() {
  local r
  for r; do grep -oE '"(step|loss_hex)":[^,]*' "$r"; done
}

# near WANTED REPORT: the losses of REPORT have to equal the last ones of WANTED within 1e-5.
near() {
  awk -v count="$(grep -c '"loss":' "$2")" '
    match($0, /"loss":[^,]*/) {
      v = substr($0, RSTART, RLENGTH); sub(/.*:[ \t]*/, "", v)
      if (NR == FNR) want[n++] = v
      else { d = v - want[n - count + m++]; if (d > 1e-5 || d < -1e-5) bad = 1 }
    }
    END { exit bad || !m || m != count }' "$1" "$2"
}

# in_file NAME FILE: the header of the shard has to contain this entry.
in_file() { head -c 60000 "$2" | grep -aqF "\"$1\":{" || fail "$2 has no $1"; }

layouts=("--stages 1" "--data-parallel 2" "--data-parallel 2 --shard optimizer"
         "--data-parallel 2 --stages 2 --shard gradients" "--data-parallel 4 --shard parameters"
         "--tensor 2" "--tensor 2 --data-parallel 2 --shard optimizer"
         "--sequence 2 --shard gradients")

# ---- the same grid ---------------------------------------------------------------------
for i in ${!layouts[@]}; do
  layout=${layouts[i]}
  run $layout --steps 6 --report full$i.json --save full$i.safetensors
  run $layout --steps 4 --report a.json --checkpoint c$i --every 3
  cp -r c$i d
  run $layout --steps 6 --report b.json --save b.safetensors --checkpoint d --resume
  cmp -s <(losses full$i.json) <(losses a.json b.json) || fail "$layout: not the curve"
  cmp -s full$i.safetensors b.safetensors || fail "$layout: not the weights"
  near full0.json full$i.json || fail "$layout: far from one device"
  rm -r d
done

# ---- what is stored --------------------------------------------------------------------
[ "$(ls c1/step-4 | tr '\n' ' ')" = "manifest.json stage-000.rank-000.safetensors " ] ||
  fail "what all have is stored once: $(ls c1/step-4)"
in_file transformer.wte.weight c1/step-4/stage-000.rank-000.safetensors
in_file "transformer.wte.weight:m[256,16][0:128,:]" c2/step-4/stage-000.rank-000.safetensors
in_file "transformer.wte.weight:m[256,16][128:256,:]" c2/step-4/stage-000.rank-001.safetensors
[ "$(ls c3/step-4 | wc -l)" -eq 5 ] || fail "a shard a device: $(ls c3/step-4)"
says '"devices_per_stage":' c3/step-4/manifest.json
grep -q devices_per_stage c0/step-4/manifest.json && fail "without a grid it is as it always was"
[ "$(ls c0/step-4 | tr '\n' ' ')" = "manifest.json stage-000.safetensors " ] || fail "so are files"

# ---- other grids -----------------------------------------------------------------------
for i in ${!layouts[@]}; do
  for k in 0 $(((i + 2) % ${#layouts[@]})); do
    [ $k -eq $i ] && continue
    cp -r c$i d
    run ${layouts[k]} --steps 6 --report b.json --checkpoint d --resume
    says "resuming from d/step-4, written by" out
    near full$i.json b.json || fail "${layouts[i]}, then ${layouts[k]}: far from the curve"
    rm -r d
  done
done
says "of 2 devices" <("$actorrun" --microbatches 2 --steps 4 --checkpoint c1 --resume $model)

# ---- weights ---------------------------------------------------------------------------
for layout in "${layouts[@]}"; do
  run $layout --steps 0 --init full0.safetensors --save b.safetensors
  cmp -s full0.safetensors b.safetensors || fail "$layout: weights as they were read"
done
run ${layouts[4]} --steps 0 --seed 5 --save a.safetensors
run --steps 0 --seed 5 --save b.safetensors
cmp -s a.safetensors b.safetensors || fail "weights begin the same on any devices"
run ${layouts[2]} --steps 1 --init full0.safetensors --generate 5 --prompt 1

# ---- several processes -----------------------------------------------------------------
for i in 1 3 6; do
  run ${layouts[i]} --processes 2 --steps 4 --save a.safetensors --checkpoint d --every 3
  for file in c$i/step-[34]/*.safetensors; do
    cmp -s $file d/${file#c$i/} || fail "${layouts[i]}: $file is another of two processes"
  done
  run ${layouts[i]} --processes 2 --steps 6 --report b.json --save b.safetensors --checkpoint d \
    --resume
  cmp -s full$i.safetensors b.safetensors || fail "${layouts[i]}: not the weights of two processes"
  rm -r d
done
echo "all as it should be"
