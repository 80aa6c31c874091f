#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every optimizer, including a user's own, trains to the same losses on one device, over stages,
# grids with sharded state, processes and emulated GPUs. It resumes from checkpoints bit for bit,
# and keeps exactly the state that its row declares. Frozen parameters do not change and have no
# state.
# labels: outside more
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >own.c <<'END'
#include <math.h>
#include <sluice/sluice.h>

/* AdaGrad, with an accumulator that starts at 0.5. */
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = out[1] = in[1];
  return SL_OK;
}

static void update(const sl_call *call) {
  const sl_optimizer *o = call->attrs->user;
  float *p = call->out[0], *sum = call->out[1], lr = sl_optimizer_lr(o, call->tick.step);
  for (int64_t i = 0; i < sl_type_elements(&call->out_type[0]); i++) {
    float g = 0;
    for (int part = 1; part < call->nin; part++) g += ((const float *)call->in[part])[i];
    g *= *(const float *)call->in[0];
    sum[i] += g * g;
    p[i] -= lr * g / (sqrtf(sum[i]) + o->eps);
  }
}

static const sl_update adagrad_update = {.states = {{"sum", 0.5f}}, .nstates = 1,
                                         .defaults = {.lr = 0.01f}};
static const sl_op adagrad = {.name = "adagrad", .min_in = 2, .max_in = -1, .nout = 2,
                              .infer = infer, .kernels = SL_CPU_KERNEL(update), .memory = &(const sl_op_memory){.updates = 3},
                              .hash = sl_optimizer_hash, .update = &adagrad_update};

static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE` to learn", 0, 0}, {0}};

static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 8), 16, 256,
                                    &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, 16), SL_NORMAL(0.1f), "table");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 32, 16), SL_NORMAL(0.1f), "h.0.fc.weight");
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, 32), SL_CONSTANT(0), "h.0.fc.bias");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, 32), SL_NORMAL(0.1f), "head");
  sl_tensor *x = sl_embedding(g, ids, table);
  sl_block(g, "h.0");
  x = sl_gelu(g, sl_linear(g, x, w, b));
  sl_block(g, "head");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next),
           &(sl_optimizer){.rule = &adagrad, .lr = 0.05f});
  return sl_graph_status(g);
}
SL_MODEL(own, "a model with its own optimizer", options, build);
END

cc -O1 -shared -fPIC -I"$SLUICE_SOURCE/include" -o own.so own.c -lm # compiled once for all runs

run() { ends 0 "$actorrun" --quiet "${patient[@]}" --microbatches 2 "$@" --data "$reference/tokens.u16"; }
# near WANTED REPORT: the losses have to be equal within 1e-5, relatively.
near() {
  paste <(grep -o '"loss":[^,]*' "$1") <(grep -o '"loss":[^,]*' "$2") |
    awk -F'[:\t]' '{ d = $2 - $4; n++; if (d > 1e-5 * $2 || -d > 1e-5 * $2) bad = 1 }
                   END { exit bad || !n }' || fail "$1 and $2 are far from each other"
}
# memory REPORT WHAT: prints a figure of the first device.
memory() { grep -oE "\"$2\":[[:space:]]*[0-9]+" "$1" | head -1 | grep -oE '[0-9]+$'; }

gpt=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 8 --vocab 259)
emulated=$SLUICE_BUILD/tests/emulated_actorrun

try() { # NAME MODEL...
  local name=$1
  shift
  run --steps 6 --report "$name.json" "$@"
  run --steps 6 --report other.json --stages 2 -n 2 --schedule zb-h1 "$@"
  cmp <(hexes "$name.json") <(hexes other.json) || fail "$name: stages or processes change the losses"
  run --steps 6 --report other.json --data-parallel 2 --shard parameters "$@"
  near "$name.json" other.json
  run --steps 6 --report other.json --tensor 2 "$@"
  near "$name.json" other.json
  # saved with sharded state, resumed without sharding
  run --steps 3 --report a.json --checkpoint c --every 3 --data-parallel 2 --shard optimizer "$@"
  run --steps 6 --report b.json --checkpoint c --resume --stages 2 "$@"
  near "$name.json" <(cat a.json b.json)
  rm -rf c
  run --steps 3 --report a.json --checkpoint c --every 3 "$@"
  run --steps 6 --report b.json --checkpoint c --resume --stages 2 "$@"
  cmp <(hexes "$name.json") <(hexes a.json; hexes b.json) ||
    fail "$name: a resumed run has other losses"
  rm -rf c
}

for optimizer in adam sgd sgd:momentum=0.9,nesterov lion:lr=3e-4; do
  if [[ $optimizer == adam || ${SLUICE_LONG-} ]]; then try "$optimizer" --optimizer "$optimizer" "${gpt[@]}"
  else run --steps 6 --report "$optimizer.json" --optimizer "$optimizer" "${gpt[@]}"; fi
  if [[ -x $emulated ]]; then
    "$emulated" --quiet --devices cuda --microbatches 2 --steps 6 --report other.json \
      --optimizer "$optimizer" "${gpt[@]}" --data "$reference/tokens.u16"
    near "$optimizer.json" other.json
  fi
done
try own ./own.so
run --steps 6 --report adamw.json "${gpt[@]}"
run --steps 6 --report by_name.json --optimizer adamw "${gpt[@]}"
cmp <(hexes adamw.json) <(hexes by_name.json) || fail "adamw by name is another"
run --steps 6 --report by_name.json --optimizer adagrad ./own.so
cmp <(hexes own.json) <(hexes by_name.json) || fail "the model's own by its name is another"
run --steps 6 --report other.json --optimizer sgd ./own.so
cmp -s <(hexes own.json) <(hexes other.json) && fail "--optimizer changes nothing"
run --steps 6 --dtype bf16 --optimizer lion --report other.json "${gpt[@]}" || : # needs bf16

# ---- optimizer state ---------------------------------------------------------------------
parameters=$(memory adamw.json parameters)
for case in adamw:2 adam:2 sgd:0 sgd:momentum=0.9,nesterov:1 lion:lr=3e-4:1; do
  states=${case##*:}
  [[ $(memory "${case%:*}.json" optimizer) == $((states * parameters)) ]] ||
    fail "$case: $(memory "${case%:*}.json" optimizer) bytes of state beside $parameters"
done
run --steps 2 --checkpoint c --every 2 ./own.so
python3 - c/step-2/*.safetensors <<'END' || fail "a state has its row's name, and began at 0.5"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8:8 + n])["table:sum"]["data_offsets"]
values = struct.unpack("<%df" % ((end - begin) // 4), data[8 + n + begin:8 + n + end])
assert min(values) == 0.5 and max(values) > 0.5, (min(values), max(values))
END
ends 2 "$actorrun" --steps 4 --checkpoint c --resume --microbatches 2 --optimizer sgd ./own.so \
  --data "$reference/tokens.u16"
says "--optimizer is sgd, but" err
rm -rf c

# ---- frozen ------------------------------------------------------------------------------
run --steps 6 --save all.safetensors --report all.json "${gpt[@]}"
freeze=(--freeze wte --freeze wpe --freeze h.0)
try frozen "${freeze[@]}" "${gpt[@]}"
run --steps 1 --save one.safetensors "${freeze[@]}" "${gpt[@]}"
run --steps 6 --save six.safetensors "${freeze[@]}" "${gpt[@]}"
python3 - <<'END' || fail "frozen parameters moved, or others did not"
import json, struct
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
            for k, v in head.items() if k != "__metadata__"}
one, six = read("one.safetensors"), read("six.safetensors")
for name in one:
    frozen = any(part in name for part in (".wte.", ".wpe.", ".h.0."))
    assert (one[name] == six[name]) == frozen, name
END
optimizer=$(memory frozen.json optimizer) whole=$(memory all.json optimizer)
((optimizer * 2 < whole)) || fail "frozen parameters have a state: $optimizer of $whole bytes"
if [[ -x $emulated ]]; then
  "$emulated" --quiet --devices cuda:0,0 --stages 2 --microbatches 2 --steps 6 --report other.json \
    --checkpoint c --every 3 "${freeze[@]}" "${gpt[@]}" --data "$reference/tokens.u16"
  near frozen.json other.json
  rm -rf c
fi
# A stage without trained parameters has no backward pass, and another stage reads the table that it
# shares.
run --steps 6 --report a.json --freeze h.0 --freeze wpe --freeze wte --freeze h.1 "${gpt[@]}"
run --steps 6 --report b.json --stages 3 -n 3 --freeze h.0 --freeze wpe --freeze wte --freeze h.1 "${gpt[@]}"
cmp <(hexes a.json) <(hexes b.json) || fail "frozen stages change the losses"

# ---- groups and schedules ------------------------------------------------------------------
for what in "--group ln_*:lr=1e-2,decay=0.3 --group h.1:lr-scale=0.5" \
  "--lr-schedule wsd:warmup=2,decay-begin=3,decay-steps=6"; do
  run --steps 6 --report a.json $what "${gpt[@]}"
  run --steps 6 --report b.json --stages 2 --data-parallel 2 --shard parameters $what "${gpt[@]}"
  near a.json b.json
  cmp -s <(hexes a.json) <(hexes all.json) && fail "$what changes nothing"
done
# Groups and schedules in bf16, with evaluations, across an interruption.
both=(--dtype bf16 --lr-schedule wsd:warmup=2,decay-begin=3,decay-steps=6 --group 'h.*.ln*:lr=1e-4,decay=0'
      --group wte:lr-scale=0.1 --freeze wpe --eval "$reference/text.txt" --eval-every 2)
evals() { grep -o '"eval_hex":[^,]*' "$1"; }
for case in "cpu adam" "cpu sgd:momentum=0.9" "cpu lion:lr=3e-4" "cuda lion:lr=3e-4"; do
  on=${case% *} tool=$actorrun
  [[ $on == cpu ]] || tool=$emulated
  [[ -x $tool ]] || continue
  for part in "whole --steps 6" "begun --steps 4 --checkpoint c --every 2" \
              "done --steps 6 --checkpoint c --every 2 --resume --stages 2"; do
    # shellcheck disable=SC2086
    SLUICE_CPU_BF16=1 actorrun=$tool run --report ${part%% *}.json ${part#* } --devices $on --optimizer "${case#* }" \
      "${both[@]}" "${gpt[@]}"
  done
  cmp <(hexes whole.json; evals whole.json) <(hexes begun.json; hexes done.json; evals begun.json; evals done.json) ||
    fail "$case in bf16: a resumed run is another"
  rm -rf c
done
ends 2 "$actorrun" --optimizer lamb "${gpt[@]}" --data "$reference/tokens.u16"
says "optimizer lamb: must be one of adamw, adam, sgd, lion, muon, or the model's own" err
ends 2 "$actorrun" --freeze nothing "${gpt[@]}" --data "$reference/tokens.u16"
says "freeze nothing: matches no parameter" err
