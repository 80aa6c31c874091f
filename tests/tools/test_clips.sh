#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A diffusion transformer learns digits that move, and generates clips of them. Frames are those of a
# plain computation (clips.py), and have the same bits on any number of stages, with any timing and
# beside other clips. On N stages, devices of a queue of blocks are idle for (N - 1)^2 passes, on the
# virtual clock and on the real one. A looped gpt learns the same on any number of stages. actorserve
# streams clips to clients, and cancels them. Bad options are rejected.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
check=("python3" "$SLUICE_SOURCE/tests/tools/clips.py")
data=$SLUICE_SOURCE/examples/digits.u8

# A looped gpt: h.1 and h.2 three times.
gpt=(gpt --layers 4 --width 16 --heads 2 --context 16 --batch 6 --loop 1-2x3 --data "$reference/text.txt")
ends 0 "$actorrun" --quiet --steps 3 --microbatches 3 --report one.json "${gpt[@]}"
for stages in "2 --schedule zb-h1" "3 --schedule gpipe" "4 --recompute full"; do
  # shellcheck disable=SC2086
  ends 0 "$actorrun" --quiet --steps 3 --microbatches 3 --stages $stages --report loop.json "${gpt[@]}"
  cmp <(hexes one.json) <(hexes loop.json) || fail "a loop on $stages stages learns otherwise"
done
for wrong in 1-4x2 2-1x2 1-2x0 1-2; do
  ends 2 "$actorrun" --steps 1 "${gpt[@]}" --loop "$wrong"
  says "gpt: --loop $wrong: must be FIRST-LASTxTIMES" err
done

# Training, which stages do not change.
dit=(dit --layers 2 --width 16 --heads 2 --frames 3 --context-frames 1)
train=(--batch 4 --lr 0.02 --data "$data")
ends 0 "$actorrun" --quiet --steps 30 --microbatches 2 --save w.safetensors --report a.json "${dit[@]}" "${train[@]}"
ends 0 "$actorrun" --quiet --steps 30 --microbatches 2 --stages 3 --report b.json "${dit[@]}" "${train[@]}"
cmp <(hexes a.json) <(hexes b.json) || fail "stages change what dit learns"
python3 - a.json <<'P' || fail "dit does not learn"
import json, sys
loss = [s["loss"] for s in json.load(open(sys.argv[1]))["steps"]]
assert sum(loss[-5:]) < 0.8 * sum(loss[:5]), loss
P

# clips STAGES FILE WORDS...: generates on so many stages.
clips() {
  local stages=$1 file=$2
  shift 2
  ends 0 env SLUICE_CHECK=slots "$actorrun" --quiet --devices "cpu:${stages}x1" --stages "$stages" --init w.safetensors \
    --denoise 3 --video "$file" "$@" "${dit[@]}"
}
for order in queue stream; do
  clips 1 one.npy --clips 3x8@5 --guidance 2 --clip-order $order
  "${check[@]}" frames w.safetensors one.npy frames=3 context=1 length=8 seed=5 label=3 guidance=2 order=$order layers=2 \
    || fail "frames of a $order"
  for stages in 2 3 4; do
    clips $stages more.npy --clips 3x8@5 --guidance 2 --clip-order $order --jitter 1000
    cmp one.npy more.npy || fail "$stages stages change the frames of a $order"
  done
  clips 2 beside.npy --clips 7x4@1,3x8@5 --guidance 2 --clip-order $order
  cmp <(tail -c $((8 * 64 * 4)) one.npy) <(tail -c $((8 * 64 * 4)) beside.npy) || fail "clips change each other ($order)"
done
clips 2 first.npy --clips nonex7@2 --first-frames 1 --clip-order stream
clips 1 video.y4m --clips 3x2
(($(wc -c <video.y4m) == 35 + 2 * (6 + 64))) || fail "a video of $(wc -c <video.y4m) bytes"

# The same with convolutions, whose clips are images of several channels.
unet=(unet --width 8 --frames 3 --context-frames 1)
ends 0 "$actorrun" --quiet --steps 20 --save u.safetensors --report a.json "${unet[@]}" --batch 8 --lr 0.01 --data "$data"
ends 0 "$actorrun" --quiet --steps 20 --stages 2 --report b.json "${unet[@]}" --batch 8 --lr 0.01 --data "$data"
cmp <(hexes a.json) <(hexes b.json) || fail "stages change what unet learns"
for stages in 1 3; do
  ends 0 "$actorrun" --quiet --devices "cpu:${stages}x1" --stages $stages --init u.safetensors --denoise 3 --guidance 2 \
    --clips 3x7@2 --video u$stages.npy "${unet[@]}"
done
cmp u1.npy u3.npy || fail "stages change the frames of unet"

# Each stage has 1 / N of the weights, and hops carry no more than the rows of a tick. Stages, frames, context, guidance.
for row in "1 3 1 2" "2 3 1 2" "2 5 2 1" "4 3 0 2" "4 4 3 1"; do
  read -r n frames context guidance <<<"$row"
  sized=(dit --layers 8 --width 16 --heads 2 --frames "$frames" --context-frames "$context")
  [[ -e x.safetensors ]] || ends 0 "$actorrun" --quiet --steps 1 --save x.safetensors "${sized[@]}" "${train[@]}"
  ends 0 "$actorrun" --quiet --devices "cpu:${n}x1" --stages "$n" --init x.safetensors --denoise 3 --guidance "$guidance" \
    --clips "3x$((2 * frames))" --report v.json "${sized[@]}"
  "${check[@]}" sizes v.json stages="$n" layers=8 width=16 heads=2 side=8 frames="$frames" context="$context" \
    ways="$guidance" blocks=2 steps=3 || fail "sizes of $row"
done

# Idle passes: stages, steps, blocks, frames, context.
still=(dit --layers 8 --width 16 --heads 2)
every 3 "2 2 2 2 0" "2 5 7 4 1" "3 3 3 2 0" "3 7 5 3 2" "4 8 8 2 0" "4 8 8 4 1" "5 5 6 2 0" "7 8 7 2 0" "8 8 9 7 3"
for row in "${some[@]}"; do
  read -r n steps blocks frames context <<<"$row"
  ends 0 "$actorrun" --quiet --clock virtual --devices "timed:$n" --stages "$n" --cost F=1 --clips "3x$((frames * blocks))" \
    --denoise "$steps" --trace v.trace --report v.json "${still[@]}" --frames "$frames" --context-frames "$context"
  "$bin/actortrace" rows v.trace >rows
  "${check[@]}" idle rows "$n" "$steps" "$blocks" "$frames" "$context" 1e9 || fail "idle passes of $row"
  read -r _ end first < <("${check[@]}" passes "$n" "$steps" "$blocks" "$context" \
    "$(python3 -c "print($frames / ($frames + $context))")")
  python3 - v.json "$end" "$first" "$((context > 0))" <<'P' || fail "blocks of $row come at other times"
import json, sys
blocks = json.load(open(sys.argv[1]))["clips"][0]["blocks"]
want = [float(sys.argv[3]), float(sys.argv[2])]
slack = float(sys.argv[4])  # short passes of a first block without context are caught between longer ones
assert -1e-6 <= blocks[0]["seconds"] - want[0] <= slack + 1e-6 and abs(blocks[-1]["seconds"] - want[1]) < 1e-6, (blocks, want)
P
done
# The same in a trace of a run, whose passes take 80 ms. A busy machine may start a pass late, so it has three tries.
for try in 1 2 3; do
  sanitized && break
  ends 0 "$actorrun" --quiet --devices timed:3 --stages 3 --cost F=0.08 --clips 3x6 --denoise 3 --trace r.trace "${still[@]}" \
    --frames 2
  "$bin/actortrace" rows r.trace >rows
  "${check[@]}" idle rows 3 3 3 2 0 8e7 2>late && break
  ((try < 3)) || fail "idle passes on the real clock: $(tail -1 late)"
done

# A stream on two devices: network and decoder. A short first block shortens the wait, and frames come at the predicted
# rate and no faster. Steps, frames of a block, of the first, times of the stages.
stream=(--quiet --clock virtual --devices timed:2 --stages 2 --clip-order stream)
apart=(dit --layers 2 --width 16 --heads 2 --context-frames 1 --context clean --decoder 32 --decoder-apart)
every 2 "4 6 2 0.01:0.03" "4 6 6 0.01:0.05" "2 5 1 0.02:0.01" "3 7 3 0.01:0.07"
for row in "${some[@]}"; do
  read -r steps frames short times <<<"$row"
  # with RATE WAIT: plays at a rate, from a moment on
  with() {
    ends 0 "$actorrun" "${stream[@]}" --cost "F=$times" --clips "3x$((short + 8 * frames))" --denoise "$steps" \
      --first-frames "$short" --frame-rate "$1" --frame-wait "$2" --report s.json --trace s.trace "${apart[@]}" \
      --frames "$frames"
  }
  late() { grep -q '"late_frames":.*[1-9]' s.json; }
  with 0 0
  "$bin/actortrace" rows s.trace >rows
  figures=$("${check[@]}" stream rows s.json "$steps" "$frames" 0.01) || fail "a stream of $row"
  read -r wait pace <<<"$figures"
  # The player begins when the second block is as late as it can be.
  begin=$(python3 -c "print($wait + $frames / $pace + $wait)")
  with "$(python3 -c "print($pace * 0.999)")" "$begin"
  late && fail "frames of $row are late at the predicted rate"
  with "$(python3 -c "print($pace * 4)")" "$begin"
  late || fail "frames of $row keep up with more than the predicted rate"
done

ends 0 "$actorrun" --dry-run --clips 3x7 --denoise 4 "${dit[@]}"
says "12 ticks of at most 4 frames; the plan finishes" out

# Bad options.
refuse() {
  local words=$1
  shift
  ends 2 "$actorrun" "$@"
  says "$words" err
}
refuse "must be CLASS[xFRAMES][@SEED]" --clips 3y "${dit[@]}"
refuse "class 11: must be from 0 to 9" --clips 11 "${dit[@]}"
refuse "--video: needs --clips" --video x.y4m "${dit[@]}"
refuse "--save: not with --clips" --clips 3 --save x.safetensors "${dit[@]}"
refuse "--video: timed devices hold no values" --clips 3 --devices timed:1 --video x.y4m "${dit[@]}"
refuse "a first block of 4 frames" --clips 3x5 --first-frames 4 "${dit[@]}"
refuse "does not generate frames" --clips 3 gpt
refuse "--decoder-apart: needs --decoder and --stages 2" --clips 3 "${apart[@]}"
refuse "a block has only --frames 3" --clips 3 "${dit[@]}" --context-frames 4
# A queue deeper than its delay: the proof names the loop.
ends 3 "$actorrun" --clips 3x9 --denoise 3 --quota delay=2 "${dit[@]}"
says "waits for a free slot of register delay:latents (quota delay = 2)" err
says "the smallest change that breaks it: --quota delay@0=4" err

# A server of clips.
background "$bin/actorserve" --port 0 --denoise 3 --guidance 2 --devices cpu:2x1 --stages 2 --init w.safetensors "${dit[@]}"
for _ in $(seq 600); do grep -q http out && break; sleep 0.1; done
url=$(grep -o 'http://[^ ]*' out)
clips 1 one.npy --clips 3x8@5 --guidance 2
python3 - "$url" one.npy <<'P' || fail "the server of clips"
import base64, http.client, json, sys, urllib.parse
url = urllib.parse.urlparse(sys.argv[1])

def ask(body, method="POST", path=url.path):
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    c.request(method, path, body if body is None or isinstance(body, str) else json.dumps(body))
    return c, c.getresponse()

_, r = ask({"class": 3, "frames": 8, "seed": 5, "format": "jsonl", "rate": 1e-3})
lines = [json.loads(l) for l in r.read().splitlines()]
assert [l["frame"] for l in lines[:-1]] == list(range(8)), lines
assert lines[-1]["end"] == "done" and lines[-1]["frames"] == 8, lines[-1]
import struct
raw = open(sys.argv[2], "rb").read()[-8 * 64 * 4:]
want = [min(max((v + 1) * 127.5, 0), 255) for v in struct.unpack(f"<{8 * 64}f", raw)]
got = b"".join(base64.b64decode(l["pixels"]) for l in lines[:-1])
assert len(got) == len(want) and all(abs(a - b) <= 0.51 for a, b in zip(got, want))
assert lines[0]["late"] is True, "a frame that was due at once is late"
_, r = ask({"class": 3, "frames": 2})
head = r.read()
assert r.getheader("Content-Type") == "video/x-yuv4mpeg" and head.startswith(b"YUV4MPEG2 W8 H8"), head[:20]
for body in ({"class": 12}, {"frames": 0}, {"clas": 1}, {"format": "gif"}, "[", {"seed": -1}, {"first_frames": 9}):
    _, r = ask(body)
    assert r.status == 400 and "message" in json.load(r)["error"], (body, r.status)
assert ask(None, "GET")[1].status == 405 and ask(None, "DELETE", "/v1/videos/99")[1].status == 404
long, r = ask({"class": 1, "frames": 100000, "format": "jsonl"})
number = r.getheader("Clip-Id")
json.loads(r.readline())
_, d = ask(None, "DELETE", f"/v1/videos/{number}")
assert d.status == 200, d.status
try:
    last = r.read().splitlines()[-1]
except http.client.IncompleteRead as e:
    last = e.partial.splitlines()[-1]
assert json.loads(last)["end"] == "cancelled", last
gone, r = ask({"class": 1, "frames": 100000, "format": "raw"})
r.read(64)
gone.close()
r.close()
_, r = ask({"class": 2, "frames": 3, "format": "raw"})  # has its turn
assert len(r.read()) == 3 * 64
_, r = ask(None, "GET", "/metrics")
counts = dict(l.split() for l in r.read().decode().splitlines())
assert counts["sluice_clips_cancelled_total"] == "2" and counts["sluice_clips_running"] == "0", counts
P
kill -TERM "$pid"
wait "$pid" || fail "the server ends with status $?"
to_end=()
echo "clips are right"
