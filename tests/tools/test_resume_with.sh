#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --resume rejects a model that was edited, with an error that names what changed, unless
# --resume-with permits the change. A checkpoint that does not describe its model is resumed with a
# note.
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >m.c <<'END'
#include <sluice/sluice.h>
#include <string.h>
static void twice_cpu(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}
static sl_status twice_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  out[0] = in[0];
  return (void)attrs, (void)nin, SL_OK;
}
static const sl_op twice = {.name = "twice", .min_in = 1, .max_in = 1, .nout = 1,
    .infer = twice_infer, .kernels = SL_CPU_KERNEL(twice_cpu),
    .grad = {{.cls = SL_CLASS_B, .nwrt = 1, .wrt = {0}}}};
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 8), T = 32, C = 16;
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.02f), "table");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.02f), "head");
  sl_tensor *x = sl_gelu(g, sl_embedding(g, ids, table));
  if (OWN) sl_apply(g, &twice, NULL, 1, (sl_tensor *[]){x}, 0, &x);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next),
           &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(bigram, "the next byte from this one", options, build);
END
sed -i 's/OWN/0/' m.c
cp "$reference/text.txt" .

# edited SED: writes an edited model to m2.c. resumes STATUS WORDS...: resumes m.c's checkpoint with
# it.
edited() { sed "$1" m.c >m2.c; }
resumes() {
  local status=$1
  shift
  rm -rf c2
  cp -r c c2
  ends "$status" "$actorrun" --steps 5 --checkpoint c2 --resume "$@" m2.c --data "${data[@]}"
}
refused() { # TEXT WORDS...
  local text=$1
  shift
  resumes 2 "$@"
  says "$text" err
}
data=(text.txt)
begin() { rm -rf c; ends 0 "$actorrun" --steps 3 --quiet --checkpoint c m.c --data text.txt; }
begin

edited ''
resumes 0
says "resuming from c2/step-3" out
edited 's/SL_NORMAL(0.02f)/SL_NORMAL(0.5f)/; s/next byte/byte after it/' # changes without effect on the run
resumes 0
edited 's/sl_gelu/sl_relu/'
refused "cannot resume: the model has main/relu.1 where c2/step-3 has main/gelu.1 (--resume-with graph if"
resumes 0 --resume-with graph
edited 's/sl_gelu(g, \(.*\));/sl_gelu(g, sl_gelu(g, \1));/'
refused "main/gelu.2 where c2/step-3 has main/linear.1"
edited 's/ids, table/ids, head/; s/x, head/x, table/'
refused "main/embedding.1 has other settings or inputs than when c2/step-3 was made"
edited 's/C = 16/C = 24/'
refused "the model has table f32[256, 24] where c2/step-3 has table f32[256, 16]"
resumes 2 --resume-with graph # the stored tensors do not fit
edited 's/1e-3f/1e-2f/'
refused "the optimizer's lr is 0.01, but c2/step-3 was made with 0.001"
resumes 0 --resume-with lr,min-lr
edited ''
refused "--seed is 4, but c2/step-3 was made with 1 (--resume-with microbatches,seed if" --seed 4 \
  --microbatches 2
resumes 0 --seed 4 --microbatches 2 --resume-with --seed,microbatches
refused "--resume-with lrx: no such item" --resume-with seed,lrx
ends 2 "$actorrun" --resume-with seed m.c --data text.txt
says "--resume-with: needs --checkpoint DIR" err

cp text.txt more.txt
data=(text.txt --data more.txt)
refused "--data is text.txt more.txt, but c2/step-3 was made with text.txt"
resumes 0 --resume-with data
data=(text.txt)
sed -i 's/e/a/' text.txt
refused "text.txt holds different data than when c2/step-3 was made"
resumes 0 --resume-with data
cp "$reference/text.txt" .

# All processes of a job reject it.
edited 's/sl_gelu/sl_relu/; s/sl_tensor \*head/sl_block(g, "two"); &/'
refused "the model has" -n 2 --stages 2 "${patient[@]}"

# Only its code identifies a user's own op.
sed -i 's/if (0)/if (1)/' m.c
begin
edited ''
resumes 0
edited 's/bytes(&call->in_type\[0\])/bytes(\&call->out_type[0])/'
refused "m2.c has "
resumes 0 --resume-with code

# A checkpoint of an older release that recorded less.
begin
edited ''
python3 - <<'END'
import json
path = "c/step-3/manifest.json"
manifest = json.load(open(path))
manifest.pop("seal", None)
manifest["checkpoint"].pop("sealed")
about = manifest["checkpoint"]["about"]
for name in "graph", "optimizer", "code":
    about.pop(name, None)
about["terms"].pop("--shuffle")
sum = 14695981039346656037
for byte in json.dumps(manifest["checkpoint"], separators=(",", ":")).encode():
    sum = (sum ^ byte) * 1099511628211 % 2**64
manifest["fnv1a64"] = "%016x" % sum
json.dump(manifest, open(path, "w"))
END
resumes 0
says "an older release wrote it: cannot check whether the model is the same" out
refused "--shuffle is 3, but c2/step-3 was made with 0" --shuffle 3

# The checkpoint records the parameter slots of the plan, with the blocks of each stage, so the
# wording of --quota does not matter.
edited 's/  sl_train/  sl_block(g, "two");\n&/'
cp m2.c two.c
kept() { # WORDS...: trains two.c and leaves its checkpoint in c
  rm -rf c
  ends 0 "$actorrun" --steps 3 --quiet --checkpoint c "$@" two.c --data text.txt
}
two() { # STATUS WORDS...
  local status=$1
  shift
  rm -rf c2
  cp -r c c2
  ends "$status" "$actorrun" --steps 5 --checkpoint c2 --resume "$@" two.c --data text.txt
}
kept --stages 2 --quota param@0=2 --quota param@1=1
two 2 --stages 2
says "--quota param is 1, but c2/step-3 was made with 2,1 of main | two" err
two 2
two 2 --stages 2 --quota param=1,2
two 0 --stages 2 --quota param=2,1
two 0 --stages 2 --resume-with quota
kept --stages 2 --quota param=2
two 0 --quota param=2
two 2 --quota param@0=2 --stages 2

# The checkpoint also records which library computes matrix products.
export SLUICE_CPU_LEVEL=1
SLUICE_CPU_FP32=library ends 0 "$actorrun" --steps 0 --report r.json m.c --data text.txt
if grep -q '"products_library":.*oneDNN' r.json; then
  kept
  SLUICE_CPU_FP32=library two 2
  says "the library of products is oneDNN" err
  says "was made with vectors" err
  SLUICE_CPU_FP32=library two 0 --resume-with library
fi
unset SLUICE_CPU_LEVEL
