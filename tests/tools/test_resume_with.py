# SPDX-License-Identifier: Apache-2.0
"""--resume rejects a model that was edited, with an error that names what changed, unless --resume-with permits the change.
A checkpoint that does not describe its model is resumed with a note.

needs: zeromq
"""
import json
import re
import shutil

from tool import ACTORRUN, PATIENT, PLACES, actorrun, fails, parse, read, says, write

SOURCE = r"""#include <sluice/sluice.h>
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
  if (0) sl_apply(g, &twice, NULL, 1, (sl_tensor *[]){x}, 0, &x);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next),
           &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(bigram, "the next byte from this one", options, build);
"""
TEXT = read(PLACES["reference"] + "/text.txt").decode()
DATA, BLOCKS = "--data text.txt", {"  sl_train": '  sl_block(g, "two");\n  sl_train'}


def edited(source, edits):
    for old, new in edits.items():
        assert old in source, old
        source = source.replace(old, new)
    return source


def begin(source=SOURCE, options=""):
    """Leaves a checkpoint of step 3 in c."""
    shutil.rmtree("c", ignore_errors=True)
    write("m.c", source)
    actorrun(f"--steps 3 --quiet --checkpoint c {options} m.c {DATA}")


def resumes(options="", edits=(), status=0, data=DATA, source=SOURCE, **more):
    """Resumes a copy of the checkpoint with an edited model."""
    shutil.rmtree("c2", ignore_errors=True)
    shutil.copytree("c", "c2")
    write("m2.c", edited(source, dict(edits)))
    return actorrun(f"--steps 5 --checkpoint c2 --resume {options} m2.c {data}", status, **more)


def refused(text, options="", edits=(), **more):
    says(resumes(options, edits, 2, **more).stderr, text)


write("text.txt", TEXT)
write("more.txt", TEXT)
begin()
says(resumes().stdout, "resuming from c2/step-3")
resumes("", {"SL_NORMAL(0.02f)": "SL_NORMAL(0.5f)", "next byte": "byte after it"})  # changes without effect on the run
RELU = {"sl_gelu": "sl_relu"}
refused("cannot resume: the model has main/relu.1 where c2/step-3 has main/gelu.1 (--resume-with graph if", "", RELU)
resumes("--resume-with graph", RELU)
refused("main/gelu.2 where c2/step-3 has main/linear.1", "",
        {"sl_gelu(g, sl_embedding(g, ids, table))": "sl_gelu(g, sl_gelu(g, sl_embedding(g, ids, table)))"})
refused("main/embedding.1 has other settings or inputs than when c2/step-3 was made", "",
        {"ids, table": "ids, head", "x, head": "x, table"})
refused("the model has table f32[256, 24] where c2/step-3 has table f32[256, 16]", "", {"C = 16": "C = 24"})
resumes("--resume-with graph", {"C = 16": "C = 24"}, 2)  # the stored tensors do not fit
RATE = {"1e-3f": "1e-2f"}
refused("the optimizer's lr is 0.01, but c2/step-3 was made with 0.001", "", RATE)
resumes("--resume-with lr,min-lr", RATE)
refused("--seed is 4, but c2/step-3 was made with 1 (--resume-with microbatches,seed if", "--seed 4 --microbatches 2")
resumes("--seed 4 --microbatches 2 --resume-with --seed,microbatches")
refused("--resume-with lrx: no such item", "--resume-with seed,lrx")
fails("--resume-with: needs --checkpoint DIR", ACTORRUN, f"--resume-with seed m.c {DATA}")
MORE = DATA + " --data more.txt"
refused("--data is text.txt more.txt, but c2/step-3 was made with text.txt", data=MORE)
resumes("--resume-with data", data=MORE)
write("text.txt", "\n".join(line.replace("e", "a", 1) for line in TEXT.split("\n")))
refused("text.txt holds different data than when c2/step-3 was made")
resumes("--resume-with data")
write("text.txt", TEXT)
# All processes of a job reject it.
refused("the model has", "-n 2 --stages 2 " + PATIENT, {**RELU, "sl_tensor *head": 'sl_block(g, "two"); sl_tensor *head'})

# Only its code identifies a user's own op.
OWN = edited(SOURCE, {"if (0)": "if (1)"})
begin(OWN)
resumes(source=OWN)
BYTES = {"bytes(&call->in_type[0])": "bytes(&call->out_type[0])"}
refused("m2.c has ", "", BYTES, source=OWN)
resumes("--resume-with code", BYTES, source=OWN)

# A checkpoint of an older release that recorded less.
begin(OWN)
manifest = parse("c/step-3/manifest.json")
manifest.pop("seal", None)
manifest["checkpoint"].pop("sealed")
about = manifest["checkpoint"]["about"]
for name in ("graph", "optimizer", "code"):
    about.pop(name, None)
about["terms"].pop("--shuffle")
total = 14695981039346656037
for byte in json.dumps(manifest["checkpoint"], separators=(",", ":")).encode():
    total = (total ^ byte) * 1099511628211 % 2**64
manifest["fnv1a64"] = f"{total:016x}"
write("c/step-3/manifest.json", json.dumps(manifest))
says(resumes(source=OWN).stdout, "an older release wrote it: cannot check whether the model is the same")
refused("--shuffle is 3, but c2/step-3 was made with 0", "--shuffle 3", source=OWN)

# The checkpoint records the parameter slots of the plan, with the blocks of each stage, so the wording of --quota does not
# matter.
TWO = edited(OWN, BLOCKS)
begin(TWO, "--stages 2 --quota param@0=2 --quota param@1=1")
refused("--quota param is 1, but c2/step-3 was made with 2,1 of main | two", "--stages 2", source=TWO)
for status, options in ((2, ""), (2, "--stages 2 --quota param=1,2"), (0, "--stages 2 --quota param=2,1"),
                        (0, "--stages 2 --resume-with quota")):
    resumes(options, status=status, source=TWO)
begin(TWO, "--stages 2 --quota param=2")
resumes("--quota param=2", source=TWO)
resumes("--quota param@0=2 --stages 2", status=2, source=TWO)

# The checkpoint also records which library computes matrix products.
LEVEL = {"SLUICE_CPU_LEVEL": "1"}
LIBRARY = {**LEVEL, "SLUICE_CPU_FP32": "library"}
actorrun(f"--steps 0 --report r.json m.c {DATA}", **LIBRARY)
if re.search('"products_library":.*oneDNN', read("r.json").decode()):
    shutil.rmtree("c")
    actorrun(f"--steps 3 --quiet --checkpoint c m.c {DATA}", **LEVEL)
    says(resumes(status=2, source=TWO, **LIBRARY).stderr, "the library of products is oneDNN", "was made with vectors")
    resumes("--resume-with library", source=TWO, **LIBRARY)
