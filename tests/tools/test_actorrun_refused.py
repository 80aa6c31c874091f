# SPDX-License-Identifier: Apache-2.0
"""actorrun's help, and the command lines, budgets and files that it rejects.

labels: unthreaded first smoke
"""
import glob
import os
import re

from tool import ACTORRUN, EMULATED, PLACES, actorrun, ends, fails, read, says, write

DATA = "--data {reference}/tokens.u16 "
GPT = "gpt --layers 2 --width 32 --heads 2 --context 32 --batch 4 " + DATA


def refused(text, options, status=2, **more):
    err = fails(text, ACTORRUN, options, status, **more).stderr
    assert len(re.findall("^actorrun: ", err, re.M)) == 1, f"{options}: not one line says why: {err}"
    return err


# ---- help ------------------------------------------------------------------------------------------------------
says(actorrun("--help all").stdout, "--microbatches", "1f1b", "llama")
said = actorrun("gpt --help").stdout
assert "--layers" in said and "--kv-heads" not in said, said
actorrun("--version")

# ---- bad command lines -----------------------------------------------------------------------------------------
for text, options in (
        ("no MODEL was given", ""), ("unknown option --stpes; did you mean --steps?", "--stpes 3 gpt"),
        ("unknown option --layer; did you mean --layers?", "gpt --layer 3"), ("unknown option -x", "-x gpt"),
        ("unknown model gtp; did you mean gpt?", "gtp"), ("unknown model staus; did you mean status?", "staus"),
        ("actorrun: no/gpt: no such file", "no/gpt gpt"),
        ("actorrun: --init nosuch.gguf: no such file", "--init nosuch.gguf --data x"),
        ("--steps needs a value", "--steps"), ("--steps many: not a whole number", "--steps many gpt"),
        ("--steps -1: must be between", "--steps -1 gpt"), ("gpt: no training data; give --data FILE", "gpt"),
        ("cannot open nowhere.c", "nowhere.c"), ("cannot open nowhere.so", "nowhere.so")):
    refused(text, options)
for text, options in (
        (", auto; did you mean 1f1b?", "--schedule 1fb1"),
        ("optimizer, gradients, parameters; did you mean optimizer?", "--shard optimiser"),
        ("the model's own; did you mean adam?", "--optimizer adma"), ("or wsd; did you mean cosine?", "--lr-schedule cosin"),
        ("here, here-whole; did you mean h100-sxm-80gb?", "--machine h100-sxm-80g"),
        ("or null[:N]; did you mean timed?", "--devices tmed:2"),
        ("load, report, step; did you mean act.b?", "--quota act.bb=2"),
        ("can be moved; did you mean state?", "--home sttate=disk"), ("not 'dsk'; did you mean disk?", "--home state=dsk"),
        ("--devices gpu", "--devices gpu"), ("--devices cpu:0", "--devices cpu:0"),
        ("--schedule 2f2b: must be one of", "--schedule 2f2b"),
        ("--quota act=0: a register needs at least one slot", "--quota act=0"), ("--quota act: must be NAME=N", "--quota act"),
        ("atc", "--quota atc=1"), ("--quota act=2,,1: the number of slots must be a number", "--quota act=2,,1"),
        ("unknown quota act@2; this plan of 2 stages has param, grad, state, act.b, ", "--stages 2 --quota act=2,1,1"),
        ("9 stages", "--stages 9"), ("--cut odd: must be one of even, balanced", "--cut odd"),
        ("pieces asked for", "--pieces 4096"), ("--memory lots", "--memory lots"),
        ("--init: timed devices hold no values", "--devices timed:2 --init x"),
        ("nowhere.safetensors", "--init nowhere.safetensors"),
        ("cannot write no/such/folder/w", "--save no/such/folder/w"), ("cannot write no/such/report", "--report no/such/report")):
    refused(text, f"{options} {GPT}")
for text, options in (
        ("is not a multiple of --heads", "--heads 3"), ("gpt: only one model is allowed, and this is not an option", "gpt"),
        ("nowhere.txt", "--data nowhere.txt"), ("tokens.u16", "--vocab 100")):
    refused(text, f"{GPT} {options}")
said = actorrun(f"--dry-run --stages 4 --microbatches 4 --quota act.b=3,-,1,2 --quota fwd@1=5,4 {GPT}").stdout
says(said, "act.b@0=3", "act.b@1=3", "act.b@2=1", "act.b@3=2", "fwd@1=5 ", "fwd@2=4 ")

# ---- budgets ---------------------------------------------------------------------------------------------------
refused("kv.grad 256 KiB", f"--pieces 8 --stages 2 --microbatches 4 --schedule seq1f1b --memory 1M {GPT} --context 1024", 3)
refused("waits for", "--pieces 3 --quota act=2 " + GPT, 3)
refused("its budget is 64.0 KiB", "--memory 64K " + GPT, 3)
# Options that the error message suggests make the plan fit, with no other change.
TIGHT = "gpt --layers 4 --width 64 --heads 2 --context 64 --batch 16 " + DATA
for options in ("4M --microbatches 4", "5M --data-parallel 4 --microbatches 2",
                "4M --data-parallel 4 --microbatches 2 --recompute full",
                "6M --data-parallel 4 --microbatches 2 --checkpoint points"):  # checkpoint parts take memory too
    err = refused("these would fit: ", f"--memory {options} {TIGHT}", 3)
    for advice in re.split(r" \([^)]*\),?", re.search("these would fit: (.*)", err)[1]):
        if advice.strip():
            actorrun(f"--dry-run --memory {options} {advice} {TIGHT}")
for text, options in (
        ("the smallest plan tried is --recompute full --home act=disk --home state=disk --microbatches 4 (", "--memory 64K " + TIGHT),
        # Two quotas that are too small, each alone enough to stop the plan.
        ("the first of several changes that break it: --quota act.w@0=3",
         "--stages 2 --microbatches 4 --pieces 4 --schedule zb-h1 --quota act.w@0=2 --quota act.b@0=3 gpt --layers 4 --width 16 "
         "--heads 2 --context 16 --batch 16 " + DATA),
        # Dropless experts have room for all rows on each device; --expert-rows limits it.
        ("--expert-rows 2 (", "--memory 8M --expert-parallel 8 --data-parallel 8 mixtral --layers 2 --width 32 --heads 2 "
         "--context 64 --batch 16 --experts 8 --expert-ffn 256 " + DATA),
        # A plan that takes more than the refused one is no advice.
        ("no other options that were tried take less",
         "--memory 64K --recompute full --home act=disk --home state=disk --microbatches 16 " + TIGHT)):
    refused(text, options, 3)

# ---- bad files -------------------------------------------------------------------------------------------------
for name, data in (("empty.txt", b""), ("odd.u16", b"abc")):
    with open(name, "wb") as file:
        file.write(data)
    refused(name, f"{GPT} --data {name}")
with open("cut.safetensors", "wb") as file:
    file.write(read(PLACES["reference"] + "/hf_gpt2/model.safetensors")[:5000])
refused("cut.safetensors is truncated", "--init cut.safetensors " + GPT)
refused("transformer.h.2", f"--init {{reference}}/hf_gpt2/model.safetensors {GPT} --layers 3")
refused("transformer.wpe.weight is F32[32, 32], but the model needs f32[16, 32]",
        f"--init {{reference}}/hf_gpt2/model.safetensors {GPT} --context 16")
# A misspelt function, and an argument of the wrong type.
write("bad.c", "int x = ;\n")
says(actorrun("bad.c", 2).stderr, "compiling bad.c failed", "bad.c:1")
for mistake in ("sl_gleu(x, x);", "sl_graph_status(args);", "const char *name = 3; (void)name;"):
    write("bad.c", "#include <sluice/sluice.h>\nstatic int x;\nint f(sl_args *args);\nint f(sl_args *args) {\n  (void)args;\n"
          f"  {mistake}\n  return x;\n}}\n")
    says(actorrun("bad.c", 2).stderr, "compiling bad.c failed", "bad.c:6:", " error: ")
# A target that is not a class.
write("classes.c", r"""#include <sluice/sluice.h>
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
""")
PLAIN, SPLIT = "--steps 1 classes.c", "--steps 1 --stages 2 --microbatches 2 --vocab-parallel classes.c"


def built(loss, label):
    return f"cc -DCLASS={label} -DLOSS={loss}"


for loss, label, number in (("sl_cross_entropy", 1, 12), ("sl_cross_entropy", 0, -100), ("weighted", 1, 12)):
    says(actorrun(PLAIN, 2, CC=built(loss, label)).stderr,
         f"step 1, microbatch 0: target 2 is {number}, but there are classes 0 to 9")
# Each part of a split vocabulary knows the total number of classes.
for loss in ("sl_cross_entropy", "weighted"):
    says(actorrun(SPLIT, 2, CC=built(loss, 1)).stderr, "cross_entropy_part), run by actor F",
         "microbatch 0: target 2 is 12, but there are classes 0 to 9")
for options in (PLAIN, SPLIT):  # -100 is ignored
    actorrun("--quiet " + options, CC=built("weighted", 0))
# On GPUs --check-finite checks targets as well.
if os.access(EMULATED, os.X_OK):
    for text, options, status in (("nan (--check-finite says where it comes from)", "", 1),
                                  ("step 1, microbatch 0: target 2 is 12, but there are classes 0 to 9", "--check-finite", 2)):
        fails(text, EMULATED, f"--devices cuda {options} {PLAIN}", status, CC=built("sl_cross_entropy", 1))
# A model compiled against another minor version.
write("version.c", """#include <sluice/sluice.h>
static sl_status build(sl_graph *g, const sl_args *args) { (void)g, (void)args; return SL_OK; }
static const sl_option options[] = {{0}};
const sl_model sl_model_export = {ABI, "m", "", options, build};
""")
for abi, text in ((300, "was built for Sluice 0.3, and this program is"), (10100, "was built for Sluice 1.1, and this"),
                  (2, "was built for an earlier version than this program's")):
    ends(0, "cc", f"-shared -fPIC -DABI={abi} -I{{source}}/include version.c -o version.so")
    refused("version.so " + text, "version.so")
write("nothing.c", "int x;\n")
refused("nothing.c exports no model", "nothing.c")
refused("cannot run the compiler no-such-compiler", "nothing.c", CC="no-such-compiler")
assert not glob.glob("**/*.tmp.*", recursive=True), "temporaries are left"
