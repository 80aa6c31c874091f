#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tools test their outputs before they start work, where possible: a folder that does not exist ends
# the tool before the first step. A later write error, such as a full disk under a file or under
# standard output, ends it with status 1 and an error that names the file.
# needs: zeromq libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need curl

model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
lora=(--lora '*c_attn*=2')
for suffix in csv jsonl safetensors; do ln -s /dev/full "full.$suffix"; done

# tried TEXT COMMAND...: the command has to fail with TEXT before the first step.
tried() {
  local text=$1
  shift
  ends 2 "$@"
  says "$text" err
  ! grep -q '^step ' out || fail "$*: after steps"
}
# full WHAT COMMAND...: the command has to end with status 1 and report that writing WHAT failed.
full() {
  local what=$1
  shift
  ends 1 timeout 60 "$@"
  says "writing $what failed" err
}
# full_output COMMAND...: the same for standard output.
full_output() {
  local got=0
  timeout 60 "$@" >/dev/full 2>err || got=$?
  ((got == 1)) || fail "$*: status $got with a full standard output"
  says "writing the standard output failed" err
}

for option in save report trace plan log logprobs checkpoint save-adapter save-paths; do
  more=()
  [ $option != save-paths ] || more=(--skip 0.3 --stages 2 --microbatches 4 --steps 0)
  tried "--$option: cannot" "$actorrun" --steps 3 "${lora[@]}" "${more[@]}" "--$option" no/such/place "${model[@]}"
done
tried "--save: cannot" "$actorrun" --steps 3 --save no/such/place/ gpt --layers 1 "${model[@]:3}"
tried "--save x/: no config.json is possible: no Hugging Face model matches qwen-moe with these options; save the weights alone (--save FILE.safetensors)" "$actorrun" --steps 3 --save x/ qwen-moe \
  --layers 1 --width 32 --heads 4 --context 16 --batch 2 --data "$reference/text.txt"
: >file
tried "--save-adapter: file is not a folder" "$actorrun" --steps 3 "${lora[@]}" --save-adapter file "${model[@]}"

for option in report trace plan; do
  full /dev/full "$actorrun" --steps 1 --quiet "--$option" /dev/full "${model[@]}"
done
full full.safetensors "$actorrun" --steps 1 --quiet --save full.safetensors "${model[@]}"
ends 1 "$actorrun" --steps 1 --quiet --log full.csv "${model[@]}"
says "--log: writing full.csv failed: No space left on device" err
ends 1 "$actorrun" --steps 1 --quiet --log full.jsonl "${model[@]}"
ends 1 "$actorrun" --steps 1 --quiet --logprobs full.jsonl "${model[@]}"
says "--logprobs: writing full.jsonl failed: No space left on device" err
full_output "$actorrun" --steps 1 "${model[@]}"
full_output "$actorrun" -n 2 --stages 2 --steps 1 "${patient[@]}" "${model[@]}"
full_output "$actorrun" --steps 0 --quiet --generate 3 "${model[@]}"
full_output "$actorrun" --dry-run "${model[@]}"
full_output "$actorrun" --help
full_output "$actorrun" --help all
full_output "$actorrun" status
full_output "$actorrun" status --help

ends 0 "$actorrun" --steps 2 --quiet --trace t --report r.json --save w.safetensors "${model[@]}"
for command in show page path json csv; do
  "$bin/actortrace" $command t >/dev/null 2>&1 || continue
  full_output "$bin/actortrace" $command t
  full /dev/full "$bin/actortrace" $command -o /dev/full t
done
full_output "$bin/actortrace" --help

tune=("$bin/actortune" --stages 2 --microbatches 2 --points 2 --quiet)
modelled=(--devices timed:2 "${model[@]}")
for option in svg csv json; do
  tried "--$option: cannot" "${tune[@]}" "--$option" no/such/place "${modelled[@]}"
  full /dev/full "${tune[@]}" "--$option" /dev/full "${modelled[@]}"
done
tried "cannot write no/such/prefix" "${tune[@]}" --keep no/such/prefix "${modelled[@]}"
full_output "${tune[@]}" "${modelled[@]}"

# Values that are not finite never replace a file, and gradients that are not finite end the run.
cat >burst.py <<'END2'
import struct, sys
data = bytearray(open("w.safetensors", "rb").read())
header = 8 + struct.unpack("<Q", data[:8])[0]
data[header:header + 4] = struct.pack("<f", float(sys.argv[1]))
open(sys.argv[2], "wb").write(data)
END2
need python3
python3 burst.py nan nan.safetensors
echo good >old.safetensors
ends 1 "$actorrun" --steps 0 --init nan.safetensors --save old.safetensors "${model[@]}"
says "is not finite: old.safetensors is not written" err
ends 1 "$actorrun" -n 2 --stages 2 --steps 0 --init nan.safetensors --save old.safetensors "${patient[@]}" "${model[@]}"
says "is not finite: old.safetensors is not written" err
[[ $(cat old.safetensors) == good && -z $(ls | grep '\.parts\|\.tmp') ]] || fail "a good file was replaced"
cat >m.c <<'END2'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "`FILE`", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 4), 16, 256, &next);
  sl_tensor *t = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_CONSTANT(0), "t");
  sl_tensor *h = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_CONSTANT(0), "h");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, sl_sqrt(g, sl_embedding(g, ids, t)), h, NULL), next),
           &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(m, "m", options, build);
END2
ends 1 "$actorrun" --steps 1 --checkpoint nanck --save old.safetensors m.c --data "$reference/text.txt"
says "actorrun: the norm of the gradients of step 1 is" err
says "step 1/1" out
[[ $(cat old.safetensors) == good && ! -d nanck/step-1 ]] || fail "a good file was replaced"

# Without steps, a checkpoint's weights generate the same text as after training, and all other
# outputs are written.
plain=("${model[@]}")
ends 0 "$actorrun" --steps 2 --quiet --checkpoint gone "${plain[@]}"
ends 0 "$actorrun" --steps 2 --quiet --checkpoint gone --resume --generate 20 --prompt hello "${plain[@]}"
cp out behind
ends 0 "$actorrun" --steps 0 --quiet --checkpoint gone --resume --generate 20 --prompt hello "${plain[@]}"
cmp out behind || fail "another text than behind training"
ends 0 "$actorrun" --steps 0 --quiet --checkpoint gone --resume --save now.safetensors --report now.json --trace now.trace \
  "${plain[@]}"
[[ -s now.safetensors && -s now.json && -s now.trace ]] || fail "without steps something is not written"
ends 0 "$actorrun" --steps 0 --quiet --init now.safetensors --generate 20 --prompt hello "${plain[@]}"
cmp out behind || fail "what was saved without steps writes another text"
ends 0 "$actorrun" --steps 0 --quiet --checkpoint never --generate 2 "${plain[@]}"
ends 0 "$actorrun" --steps 0 --quiet --checkpoint never --resume "${plain[@]}"
ends 2 "$actorrun" --steps 0 --quiet --generate 2 --eval "$reference/text.txt" "${plain[@]}"

# If a folder cannot be synced, the older checkpoint is kept.
if ! grep -q 'SLUICE_SANITIZE:[A-Z]*=.' "$SLUICE_BUILD/CMakeCache.txt"; then
  cat >sync.c <<'END2'
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
  struct stat s;
  if (!fstat(fd, &s) && S_ISDIR(s.st_mode)) return errno = EIO, -1;
  return (int)syscall(SYS_fsync, fd);
}
END2
  "${CC:-cc}" -shared -fPIC -o sync.so sync.c
  ends 0 "$actorrun" --steps 2 --quiet --checkpoint ck --keep 1 "${model[@]}"
  ends 1 env LD_PRELOAD="$PWD/sync.so" "$actorrun" --steps 4 --quiet --checkpoint ck --keep 1 --resume "${model[@]}"
  says "Input/output error" err
  [[ -f ck/step-2/manifest.json ]] || fail "the older checkpoint is gone"
  ends 1 env LD_PRELOAD="$PWD/sync.so" "$actorrun" --steps 1 --quiet --save s.safetensors "${model[@]}"
  says "writing s.safetensors failed: Input/output error" err
  ends 0 "$actorrun" --steps 4 --quiet --checkpoint ck --keep 1 --resume "${model[@]}"
fi

# Temporary files have unpredictable names, and links in their place are not followed.
for ((i = 0; i < 20; i++)); do ln -sf victim "linked.safetensors.tmp.$((BASHPID + i))"; done
ends 0 "$actorrun" --steps 0 --save linked.safetensors "${model[@]}"
[[ ! -e victim && -s linked.safetensors ]] || fail "a link was followed"

# A folder is not a list, and a read error is not the end of a file.
for words in "--order $work" "--paths $work --stages 2" "--routing $work --devices timed:2 --data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 2 "$actorrun" --steps 1 $words "${model[@]}"
  says "cannot read $work: Is a directory" err
done

# A server that cannot write its log, trace or report ends with an error that names it.
served=(gpt --layers 2 --width 16 --heads 2 --context 16)
for option in log trace report access-log; do
  ends 2 "$bin/actorserve" --port 0 --init w.safetensors "--$option" no/such/place "${served[@]}"
  says "--$option: cannot" err
  background "$bin/actorserve" --port 0 --init w.safetensors "--$option" /dev/full "${served[@]}"
  for ((i = 0; i < 1000; i++)); do ! grep -q "at http" out || break; sleep 0.01; done
  port=$(grep -o ':[0-9]*/v1' out | tr -dc '0-9\n' | head -1)
  curl -s "http://127.0.0.1:${port%1}/v1/completions" -d '{"prompt": [1, 2], "max_tokens": 2, "model": "w"}' >answer || :
  kill -INT "$pid" 2>/dev/null || : # it may have ended, if it cannot log
  got=0
  wait $pid || got=$?
  ((got == 1)) || fail "actorserve --$option /dev/full: status $got"
  says "/dev/full" err
done
