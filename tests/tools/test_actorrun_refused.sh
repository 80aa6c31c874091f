#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests actorrun's help, and the command lines, budgets and files that it rejects.
# labels: unthreaded first smoke
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

small="--layers 2 --width 32 --heads 2 --context 32 --batch 4 --data $reference/tokens.u16"

# run STATUS WORDS...: actorrun has to end with STATUS.
run() { ends "$1" "$actorrun" "${@:2}"; }

# refused STATUS TEXT WORDS...: actorrun has to end with STATUS and one line that contains TEXT.
refused() {
  local status=$1 text=$2
  shift 2
  run "$status" "$@"
  says "$text" err
  [ "$(grep -c '^actorrun: ' err)" -eq 1 ] || fail "actorrun $*: one line says why"
}

# ---- help ------------------------------------------------------------------------------
run 0 --help all
says "--microbatches" out; says "1f1b" out; says "llama" out
run 0 gpt --help
grep -q -- --kv-heads out && fail "gpt has no --kv-heads"
says "--layers" out
run 0 --version

# ---- bad command lines -----------------------------------------------------------------
refused 2 "no MODEL was given"
refused 2 "unknown option --stpes; did you mean --steps?" --stpes 3 gpt
refused 2 "unknown option --layer; did you mean --layers?" gpt --layer 3
refused 2 "unknown option -x" -x gpt
refused 2 "unknown model gtp; did you mean gpt?" gtp
refused 2 "unknown model staus; did you mean status?" staus
refused 2 "actorrun: no/gpt: no such file" no/gpt gpt
refused 2 "actorrun: --init nosuch.gguf: no such file" --init nosuch.gguf --data x
refused 2 ", auto; did you mean 1f1b?" --schedule 1fb1 gpt $small
refused 2 "optimizer, gradients, parameters; did you mean optimizer?" --shard optimiser gpt $small
refused 2 "the model's own; did you mean adam?" --optimizer adma gpt $small
refused 2 "or wsd; did you mean cosine?" --lr-schedule cosin gpt $small
refused 2 "here, here-whole; did you mean h100-sxm-80gb?" --machine h100-sxm-80g gpt $small
refused 2 "or null[:N]; did you mean timed?" --devices tmed:2 gpt $small
refused 2 "load, report, step; did you mean act.b?" --quota act.bb=2 gpt $small
refused 2 "can be moved; did you mean state?" --home sttate=disk gpt $small
refused 2 "not 'dsk'; did you mean disk?" --home state=dsk gpt $small
refused 3 "kv.grad 256 KiB" --pieces 8 --stages 2 --microbatches 4 --schedule seq1f1b --memory 1M \
  gpt $small --context 1024
refused 2 "--steps needs a value" --steps
refused 2 "--steps many: not a whole number" --steps many gpt
refused 2 "--steps -1: must be between" --steps -1 gpt
refused 2 "gpt: no training data; give --data FILE" gpt
refused 2 "--devices gpu" --devices gpu gpt $small
refused 2 "--devices cpu:0" --devices cpu:0 gpt $small
refused 2 "--schedule 2f2b: must be one of" --schedule 2f2b gpt $small
refused 2 "--quota act=0: a register needs at least one slot" --quota act=0 gpt $small
refused 2 "--quota act: must be NAME=N" --quota act gpt $small
refused 2 "atc" --quota atc=1 gpt $small
refused 2 "--quota act=2,,1: the number of slots must be a number" --quota act=2,,1 gpt $small
refused 2 "unknown quota act@2; this plan of 2 stages has param, grad, state, act.b, " --stages 2 --quota act=2,1,1 gpt $small
run 0 --dry-run --stages 4 --microbatches 4 --quota act.b=3,-,1,2 --quota fwd@1=5,4 gpt $small
says "act.b@0=3" out; says "act.b@1=3" out; says "act.b@2=1" out; says "act.b@3=2" out
says "fwd@1=5 " out; says "fwd@2=4 " out
refused 2 "9 stages" --stages 9 gpt $small
refused 2 "--cut odd: must be one of even, balanced" --cut odd gpt $small
refused 2 "pieces asked for" --pieces 4096 gpt $small
refused 3 "waits for" --pieces 3 --quota act=2 gpt $small
refused 2 "is not a multiple of --heads" gpt $small --heads 3
refused 2 "gpt: only one model is allowed, and this is not an option" gpt $small gpt
refused 2 "--memory lots" --memory lots gpt $small
refused 3 "its budget is 64.0 KiB" --memory 64K gpt $small
# Options that the error message suggests make the plan fit, with no other change.
tight="gpt --layers 4 --width 64 --heads 2 --context 64 --batch 16 --data $reference/tokens.u16"
advised() { # MEMORY WORDS...
  local memory=$1 advice
  shift
  refused 3 "these would fit: " --memory "$memory" "$@" $tight
  advice=$(sed -nE 's/.*these would fit: (.*)/\1/p' err | sed -E 's/ \([^)]*\),?/\n/g')
  while read -r words; do
    [ -z "$words" ] || run 0 --dry-run --memory "$memory" "$@" $words $tight
  done <<<"$advice"
}
advised 4M --microbatches 4
advised 5M --data-parallel 4 --microbatches 2
advised 4M --data-parallel 4 --microbatches 2 --recompute full
advised 6M --data-parallel 4 --microbatches 2 --checkpoint points # checkpoint parts take memory too
refused 3 "the smallest plan tried is --recompute full --home act=disk --home state=disk --microbatches 4 (" --memory 64K $tight
# Two quotas that are too small, each alone enough to stop the plan.
refused 3 "the first of several changes that break it: --quota act.w@0=3" --stages 2 --microbatches 4 --pieces 4 \
  --schedule zb-h1 --quota act.w@0=2 --quota act.b@0=3 gpt --layers 4 --width 16 --heads 2 --context 16 --batch 16 \
  --data "$reference/tokens.u16"
# Dropless experts have room for all rows on each device; --expert-rows limits it.
mixture="mixtral --layers 2 --width 32 --heads 2 --context 64 --batch 16 --experts 8 --expert-ffn 256 --data $reference/tokens.u16"
refused 3 "--expert-rows 2 (" --memory 8M --expert-parallel 8 --data-parallel 8 $mixture
# A plan that takes more than the refused one is no advice.
refused 3 "no other options that were tried take less" --memory 64K --recompute full --home act=disk --home state=disk \
  --microbatches 16 $tight
refused 2 "--init: timed devices hold no values" --devices timed:2 --init x gpt $small

# ---- bad files -------------------------------------------------------------------------
refused 2 "nowhere.txt" gpt $small --data nowhere.txt
: >empty.txt
refused 2 "empty.txt" gpt $small --data empty.txt
printf 'abc' >odd.u16
refused 2 "odd.u16" gpt $small --data odd.u16
refused 2 "tokens.u16" gpt $small --vocab 100
refused 2 "nowhere.safetensors" --init nowhere.safetensors gpt $small
head -c 5000 "$reference/hf_gpt2/model.safetensors" >cut.safetensors
refused 2 "cut.safetensors is truncated" --init cut.safetensors gpt $small
refused 2 "transformer.h.2" --init "$reference/hf_gpt2/model.safetensors" gpt $small --layers 3
refused 2 "transformer.wpe.weight is F32[32, 32], but the model needs f32[16, 32]" \
  --init "$reference/hf_gpt2/model.safetensors" gpt $small --context 16
refused 2 "cannot write no/such/folder/w" --save no/such/folder/w gpt $small
refused 2 "cannot write no/such/report" --report no/such/report gpt $small
refused 2 "cannot open nowhere.c" nowhere.c
refused 2 "cannot open nowhere.so" nowhere.so
printf 'int x = ;\n' >bad.c
run 2 bad.c
says "compiling bad.c failed" err; says "bad.c:1" err
# A misspelt function, and an argument of the wrong type.
for mistake in 'sl_gleu(x, x);' 'sl_graph_status(args);' 'const char *name = 3; (void)name;'; do
  printf '#include <sluice/sluice.h>\nstatic int x;\nint f(sl_args *args);\nint f(sl_args *args) {\n  (void)args;\n  %s\n  return x;\n}\n' "$mistake" >bad.c
  run 2 bad.c
  says "compiling bad.c failed" err; says "bad.c:6:" err; says " error: " err
done
# A target that is not a class.
cat >classes.c <<'END'
#include <sluice/sluice.h>
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick;
  for (int i = 0; i < 32 && out[0]; i++) ((float *)out[0])[i] = 1;
  for (int i = 0; i < 4 && out[1]; i++) ((int32_t *)out[1])[i] = i == 2 ? -100 + 112 * CLASS : i;
}
static const sl_type types[] = {{.dtype = SL_F32, .ndim = 2, .dim = {4, 8}}, {.dtype = SL_I32, .ndim = 1, .dim = {4}}};
static const sl_source source = {.nout = 2, .types = types, .fill = fill};
static const sl_option options[] = {{0}};
#define weighted(g, x, y) sl_cross_entropy_with(g, x, y, &(sl_loss){.smoothing = 0.1f})
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  sl_tensor *in[2];
  sl_block(g, "first");
  sl_data(g, &source, in);
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, 8, 8), SL_NORMAL(0.02f), "v");
  sl_tensor *x = sl_linear(g, in[0], v, NULL);
  sl_block(g, "second");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 10, 8), SL_NORMAL(0.02f), "w");
  sl_train(g, LOSS(g, sl_linear(g, sl_gelu(g, x), w, NULL), in[1]), NULL);
  return sl_graph_status(g);
}
SL_MODEL(classes, "ten classes", options, build);
END
CC="cc -DCLASS=1 -DLOSS=sl_cross_entropy" run 2 --steps 1 classes.c
says "step 1, microbatch 0: target 2 is 12, but there are classes 0 to 9" err
CC="cc -DCLASS=0 -DLOSS=sl_cross_entropy" run 2 --steps 1 classes.c
says "step 1, microbatch 0: target 2 is -100, but there are classes 0 to 9" err
CC="cc -DCLASS=1 -DLOSS=weighted" run 2 --steps 1 classes.c
says "step 1, microbatch 0: target 2 is 12, but there are classes 0 to 9" err
CC="cc -DCLASS=0 -DLOSS=weighted" run 0 --steps 1 --quiet classes.c # -100 is ignored
# Each part of a split vocabulary knows the total number of classes.
for loss in sl_cross_entropy weighted; do
  CC="cc -DCLASS=1 -DLOSS=$loss" run 2 --steps 1 --stages 2 --microbatches 2 --vocab-parallel classes.c
  says "cross_entropy_part), run by actor F" err; says "microbatch 0: target 2 is 12, but there are classes 0 to 9" err
done
CC="cc -DCLASS=0 -DLOSS=weighted" run 0 --steps 1 --quiet --stages 2 --microbatches 2 --vocab-parallel classes.c
# On GPUs --check-finite checks targets as well.
emulated=$SLUICE_BUILD/tests/emulated_actorrun
if [[ -x $emulated ]]; then
  CC="cc -DCLASS=1 -DLOSS=sl_cross_entropy" ends 1 "$emulated" --steps 1 --devices cuda classes.c
  says "nan (--check-finite says where it comes from)" err
  CC="cc -DCLASS=1 -DLOSS=sl_cross_entropy" ends 2 "$emulated" --steps 1 --devices cuda --check-finite classes.c
  says "step 1, microbatch 0: target 2 is 12, but there are classes 0 to 9" err
fi
# A model compiled against another minor version.
cat >version.c <<'END'
#include <sluice/sluice.h>
static sl_status build(sl_graph *g, const sl_args *args) { (void)g, (void)args; return SL_OK; }
static const sl_option options[] = {{0}};
const sl_model sl_model_export = {ABI, "m", "", options, build};
END
for abi in "300:was built for Sluice 0.3, and this program is" "10100:was built for Sluice 1.1, and this" \
           "2:was built for an earlier version than this program's"; do
  cc -shared -fPIC "-DABI=${abi%%:*}" -I"$SLUICE_SOURCE/include" version.c -o version.so || fail "a shared object"
  refused 2 "version.so ${abi#*:}" version.so
done
printf 'int x;\n' >nothing.c
refused 2 "nothing.c exports no model" nothing.c
CC="no-such-compiler" refused 2 "cannot run the compiler no-such-compiler" nothing.c
[ -z "$(find . -name '*.tmp.*')" ] || fail "temporaries are left"

echo "all as it should be"
