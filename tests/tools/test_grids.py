# SPDX-License-Identifier: Apache-2.0
"""Stages on grids of devices as a user meets them: the same losses with any number of processes, reported traffic, status
and traces, a user's own model, and error messages for impossible grids.

labels: outside
needs: zeromq
"""
from tool import ACTORRUN, ACTORTRACE, Runs, Started, actorrun, ends, fails, near, same_bits, says, until, write

DATA = "--data {reference}/tokens.u16"
GPT = "gpt --layers 2 --width 16 --heads 4 --context 12 --batch 12 " + DATA
LLAMA = "llama --layers 2 --width 24 --heads 6 --kv-heads 3 --ffn 40 --context 12 --batch 12 " + DATA
gpt, llama = Runs(GPT, "--microbatches 2 --steps 4"), Runs(LLAMA, "--microbatches 2 --steps 4")

# ---- losses in one process and in several, beside those of one device ------------------------------------------
for run, processes, grid in (
        (gpt, "23", "--data-parallel 3 --shard parameters"),
        (gpt, "24", "--stages 2 --tensor 2 --data-parallel 2 --shard gradients --schedule zb-v"),
        (gpt, "4", "--tensor 4 --pieces 2 --schedule seq1f1b"), (gpt, "2", "--parallel 2 --stages 2"),
        (llama, "2", "--tensor 3 --pieces 2 --schedule seq1f1b"),
        (llama, "24", "--stages 2 --tensor 2 --data-parallel 2 --shard optimizer --schedule zb-h1")):
    near(run("--pieces 2" if "pieces" in grid else ""), run(grid), 1e-5)
    for n in processes:
        same_bits(run(grid), run(f"-n {n} {grid}"))

# ---- traffic ---------------------------------------------------------------------------------------------------
report = gpt("--tensor 2 --data-parallel 2 --stages 2")
assert all(report.moved(kind) for kind in ("pipeline", "tensor", "data", "aside")), report.whole["runtime"]
assert "sent_bytes" not in str(report.whole), "one process sends something"
report = gpt("-n 4 --data-parallel 4")
sent = report.whole["runtime"]["sent_bytes_per_step"]
assert report.moved("pipeline") == report.moved("tensor") == 0
assert report.moved("data") < sent < 1.5 * report.moved("data"), "sent is not what is moved, and alignment"

# ---- status and traces -----------------------------------------------------------------------------------------
GRID = "--data-parallel 2 --tensor 2 --shard parameters "
with Started(f"--quiet --steps 1000000 --microbatches 2 {GRID} {GPT}") as job:
    pid = job.process.pid

    def status():
        try:
            return "loss" in actorrun(f"status {pid}").stdout
        except AssertionError:  # it begins
            return False
    until("a loss", status)
    says(actorrun(f"status {pid}").stdout, "gpt  1f1b, 4 devices", *(f"cpu:{d} " for d in range(4)))
    actorrun(f"ctl {pid} quota act.b=2")
    says(actorrun(f"ctl {pid} quota").stdout, "act.b@0#3    2 of at most")
    fails("no quota gather", ACTORRUN, f"ctl {pid} quota gather=3")
    assert job.stop() == 1
gpt(GRID + "--trace t.trace")
shown = {command: ends(0, ACTORTRACE, command + " t.trace").stdout
         for command in ("show", "page", "svg", "rows", "reasons", "chrome", "perfetto")}
assert all(shown.values()), {command: len(said) for command, said in shown.items()}
# the slot needs a replay of the plan, including its lanes
says(shown["show"], "4 steps of 2 microbatches", "One more slot would save")
says(shown["rows"], "\tjoin", "\tsum", "\tupdate")
assert {line.split("\t")[1] for line in shown["rows"].splitlines()[1:]} >= set("0123"), "not four devices"
gpt("-n 2 --data-parallel 2 --trace u.trace")
ends(0, ACTORTRACE, "show u.trace")
says(ends(0, ACTORTRACE, "rows u.trace").stdout, "send:")

# ---- a user's own model ----------------------------------------------------------------------------------------
OWN = r"""#include <sluice/sluice.h>
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void twice(const sl_call *call) {
  const float *x = call->in[0];
  float *y = call->out[0];
  for (int64_t i = 0; i < sl_type_elements(&call->in_type[0]); i++) y[i] = 2 * x[i];
}
/* y = 2 x: its row promises PROMISE */
static const sl_op op_twice = {
    .name = "twice", .min_in = 1, .max_in = 1, .nout = 1, .infer = infer, .kernels = SL_CPU_KERNEL(twice),
    .cut = &(const sl_op_cut){.pieces = PROMISE},
    .grad = {{.op = &op_twice, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  float *x = out[0];
  int32_t *y = out[1];
  for (int i = 0; x && i < 6 * 6; i++) x[i] = (float)((i * 7 + (int)tick->number) % 5);
  for (int i = 0; y && i < 6; i++) y[i] = i % 3;
}
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  static sl_type types[2];
  static sl_source source;
  types[0] = SL_TYPE(SL_F32, 6, 6), types[1] = SL_TYPE(SL_I32, 6);
  source = (sl_source){.nout = 2, .types = types, .fill = fill};
  sl_tensor *data[2];
  sl_block(g, "all");
  sl_data(g, &source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 16, 6), SL_NORMAL(0.1f), "w1");
  sl_tensor *v = sl_param(g, SL_TYPE(SL_F32, 3, 16), SL_NORMAL(0.1f), "w2");
  sl_tensor *h = sl_linear(g, data[0], w, NULL), *t = NULL;
  sl_apply(g, &op_twice, NULL, 1, &h, 0, &t);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, t, v, NULL), data[1]), NULL);
  return sl_graph_status(g);
}
SL_MODEL(own, "a linear map, an op of one's own, another", NULL, build);
"""
write("silent.c", OWN.replace("PROMISE", "SL_PIECES_REFUSED"))
write("open.c", OWN.replace("PROMISE", "SL_PIECES_ELEMENTS"))
silent, open_ = (Runs(name, "--microbatches 2 --steps 4") for name in ("silent.c", "open.c"))
near(silent(), silent("--tensor 2"), 1e-5)
silent.refused("silent.c:36: op all/twice.1 (twice) has no rule for 2 data-parallel devices that have", "--data-parallel 2")
for grid in ("--data-parallel 2", "--data-parallel 3 --tensor 2 --shard parameters", "--tensor 3"):
    near(silent(), open_(grid), 1e-5)

# ---- impossible grids ------------------------------------------------------------------------------------------
PACKED = "--tensor 5 --sbp h.0/attention_packed.1=-,S2"
for text, options in (
        ("cannot be split over 7 devices: its output 0, i32[6, 12], has too few rows", "--data-parallel 7"),
        ("h.0/attention_packed.1", PACKED), ("4 units", PACKED),
        ("transformer.wte.weight", "--tensor 300 --sbp transformer.wte.weight=-,S0"),
        ("256 units", "--tensor 300 --sbp transformer.wte.weight=-,S0"),
        ("--shard optimizer: needs several devices per stage, by --data-parallel or --sequence", "--shard optimizer"),
        ("--shard half: must be one of nothing, optimizer", "--data-parallel 2 --shard half"),
        ("--recompute all: must be one of none, selective, full, whole", "--recompute all"),
        ("--grain fine: must be one of pass, layer", "--tensor 2 --grain fine"),
        ("no parameter or op is called transformer.wtf.weight; the nearest are transformer.wte",
         "--tensor 2 --sbp transformer.wtf.weight=-,S0"),
        ("no parameter or op is called h.9/add.1", "--data-parallel 2 --sbp h.9/add.1=S0,-"),
        ("not NAME=DATA,TENSOR", "--tensor 2 --sbp transformer.wte.weight=S0"),
        ("not NAME=DATA,TENSOR", "--tensor 2 --sbp transformer.wte.weight=-,X"),
        ("transformer.wte.weight f32[256, 16] cannot lie as P", "--tensor 2 --sbp transformer.wte.weight=-,P"),
        ("a stage has one device along the tensor axis (--tensor)", "--data-parallel 2 --sbp transformer.wte.weight=-,S0"),
        ("a stage has one device along the data axis (--data-parallel)", "--tensor 2 --sbp h.0/add.1=S0,-"),
        ("h.0/add.1 lies as S0 along the data axis, and cannot as S1", "--data-parallel 2 --sbp h.0/add.1=S1,-"),
        ("--shard decides how parameters lie", "--data-parallel 2 --sbp transformer.wte.weight=S0,-"),
        ("3 cpu devices were given, but 1 pipeline stages of 2 devices each need 2", "--devices cpu:3 --tensor 2"),
        ("4 cpu devices were given, but 2 pipeline stages of 4 devices each need 8",
         "--devices cpu:4 --tensor 2 --data-parallel 2 --stages 2"),
        ("5 processes are too many for 4 pipeline devices", "-n 5 --tensor 2 --stages 2"),
        ("--data-parallel 0: must be between 1 and", "--data-parallel 0"),
        ("at most 65536 devices can share a stage", "--data-parallel 65536 --tensor 65536"),
        ("devices each are more than the maximum of 65536 devices", "--data-parallel 65536 --stages 65536"),
        ("--parallel 2 replaces --data-parallel and --tensor: give one or the other", "--parallel 2 --tensor 2")):
    more = "--microbatches 2" if "parallel 7" in options else ""
    err = fails(text, ACTORRUN, f"--quiet --steps 1 {more} {options} {GPT}").stderr
    assert err.count("\n") == 1, f"{options}: more than one line: {err}"
