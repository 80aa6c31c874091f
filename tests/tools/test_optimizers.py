# SPDX-License-Identifier: Apache-2.0
"""Every optimizer, including a user's own, trains to the same losses on one device, over stages, grids with sharded state,
processes and emulated GPUs. It resumes from checkpoints bit for bit, and keeps exactly the state that its row declares.
Frozen parameters do not change and have no state.

labels: outside more
needs: zeromq
"""
import glob
import os
import struct

from tool import ACTORRUN, EMULATED, LONG, Runs, differ, ends, fails, near, same_bits, tensors, write

write("own.c", r"""#include <math.h>
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
""")
ends(0, "cc", "-O1 -shared -fPIC -I{source}/include -o own.so own.c -lm")  # compiled once for all runs
DATA = " --data {reference}/tokens.u16"
GPT, CLOSE = "gpt --layers 2 --width 16 --heads 2 --context 16 --batch 8 --vocab 259" + DATA, 1e-5
OPTIONS = "--microbatches 2 --steps 6 "
gpt, own, gpus = Runs(GPT, OPTIONS), Runs("./own.so" + DATA, OPTIONS), Runs(GPT, OPTIONS, EMULATED)
emulated = os.access(EMULATED, os.X_OK)
folders = iter(range(1000))


def bytes_of(report, what):
    return report.whole["devices"][0]["peak_bytes"][what]


def grids(run, options=""):
    """Compares an optimizer on grids and resumed with one device."""
    one = run(options)
    same_bits(one, run(options + " --stages 2 -n 2 --schedule zb-h1"))
    for how in ("--data-parallel 2 --shard parameters", "--tensor 2"):
        near(one, run(f"{options} {how}"), CLOSE)
    for how, alike in (("--data-parallel 2 --shard optimizer", near), ("", lambda a, b, _: same_bits(a, b))):
        # saved with sharded state, resumed without sharding
        at = f"{options} --checkpoint c{next(folders)} "
        alike(one, run(f"{at} {how} --steps 3 --every 3").then(run(at + "--resume --stages 2")), CLOSE)


for optimizer, states in (("adamw", 2), ("adam", 2), ("sgd", 0), ("sgd:momentum=0.9,nesterov", 1), ("lion:lr=3e-4", 1)):
    how = "--optimizer " + optimizer
    if optimizer == "adam" or LONG and optimizer != "adamw":
        grids(gpt, how)
    if emulated and optimizer != "adamw":
        near(gpt(how), gpus(f"{how} --devices cuda"), CLOSE)
    assert bytes_of(gpt(how), "optimizer") == states * bytes_of(gpt(), "parameters"), optimizer
grids(own)
same_bits(gpt(), gpt("--optimizer adamw"))
same_bits(own(), own("--optimizer adagrad"))
differ(own(), own("--optimizer sgd"))
gpt("--dtype bf16 --optimizer lion")

# ---- optimizer state -------------------------------------------------------------------------------------------
own("--steps 2 --checkpoint states --every 2")
raw = tensors(*glob.glob("states/step-2/*.safetensors"))["table:sum"]
values = struct.unpack(f"<{len(raw) // 4}f", raw)
assert min(values) == 0.5 < max(values), (min(values), max(values))
own.refused("--optimizer is sgd, but", "--steps 4 --checkpoint states --resume --optimizer sgd")

# ---- frozen ----------------------------------------------------------------------------------------------------
FREEZE = "--freeze wte --freeze wpe --freeze h.0 "
grids(gpt, FREEZE)
one, six = ({} for _ in range(2))
for steps, found in ((1, one), (6, six)):
    gpt(f"{FREEZE} --steps {steps} --save {steps}.safetensors")
    found.update(tensors(f"{steps}.safetensors"))
for name in one:
    frozen = any(part in name for part in (".wte.", ".wpe.", ".h.0."))
    assert (one[name] == six[name]) == frozen, name
assert bytes_of(gpt(FREEZE), "optimizer") * 2 < bytes_of(gpt(), "optimizer"), "frozen parameters have a state"
if emulated:
    near(gpt(FREEZE), gpus(FREEZE + "--devices cuda:0,0 --stages 2 --checkpoint gpus --every 3"), CLOSE)
# A stage without trained parameters has no backward pass, and another stage reads the table that it shares.
same_bits(gpt(FREEZE + "--freeze h.1"), gpt(FREEZE + "--freeze h.1 --stages 3 -n 3"))

# ---- groups and schedules --------------------------------------------------------------------------------------
WSD = "--lr-schedule wsd:warmup=2,decay-begin=3,decay-steps=6 "
for how in ("--group ln_*:lr=1e-2,decay=0.3 --group h.1:lr-scale=0.5", WSD):
    near(gpt(how), gpt(how + " --stages 2 --data-parallel 2 --shard parameters"), CLOSE)
    differ(gpt(how), gpt())
# Groups and schedules in bf16, with evaluations, across an interruption.
BOTH = (f"--dtype bf16 {WSD} --group h.*.ln*:lr=1e-4,decay=0 --group wte:lr-scale=0.1 --freeze wpe "
        "--eval {reference}/text.txt --eval-every 2 ")
for run, how in ((gpt, "cpu --optimizer adam"), (gpt, "cpu --optimizer sgd:momentum=0.9"), (gpt, "cpu --optimizer lion:lr=3e-4"),
                 (gpus, "cuda --optimizer lion:lr=3e-4")):
    if run is gpt or emulated:
        at = f"{BOTH} --checkpoint b{next(folders)} --every 2 --devices {how} "
        whole = run(f"{BOTH} --devices {how}", SLUICE_CPU_BF16="1")
        parts = run(at + "--steps 4", SLUICE_CPU_BF16="1").then(run(at + "--resume --stages 2", SLUICE_CPU_BF16="1"))
        same_bits(whole, parts)
        assert whole.evaluations and whole.evaluations == parts.evaluations, (how, whole.evaluations, parts.evaluations)
fails("optimizer lamb: must be one of adamw, adam, sgd, lion, muon, or the model's own", ACTORRUN, "--optimizer lamb " + GPT)
fails("freeze nothing: matches no parameter", ACTORRUN, "--freeze nothing " + GPT)
