#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks actorrun's messages for exported programs that it cannot run: damaged archives, other versions, unsupported
# calls, data that does not fit. A pickle in the archive is never opened.
# labels: unthreaded
# needs: libzip
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

tar -xzf "$reference/pytorch/odd.tar.gz"

# refused TEXT WORDS...: checks for status 2 and one line that contains TEXT
refused() {
  ends 2 "$actorrun" --steps 1 "${@:2}"
  says "$1" err
  [ "$(grep -c '^actorrun: ' err)" -eq 1 ] || fail "actorrun ${*:2}: one line says why"
}

# Archives derived from odd/plain.pt2.
python3 - <<'END' || fail "archives"
import json, zipfile

SOURCE = zipfile.ZipFile("odd/plain.pt2")
MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"


def make(name, edit=None, model=None, weights=None):
    with zipfile.ZipFile(name + ".pt2", "w") as out:
        entries = {n.split("/", 1)[1]: SOURCE.read(n) for n in SOURCE.namelist()}
        for entry, change in ((MODEL, model), (WEIGHTS, weights)):
            if change:
                value = json.loads(entries[entry])
                change(value)
                entries[entry] = json.dumps(value).encode()
        if edit:
            edit(entries)
        for entry, data in entries.items():
            out.writestr(name + "/" + entry, data)


def nodes(program):
    return program["graph_module"]["graph"]["nodes"]


def rename(program):
    for node, target in zip(nodes(program), ("aten.airy.default", "aten.bessel.default", "aten.airy.default")):
        node["target"] = "torch.ops." + target
        trace = node["metadata"]["stack_trace"]
        node["metadata"]["stack_trace"] = trace.replace("linear.py", "/lib/site-packages/torch/nn/modules/linear.py")


def size(program):
    sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[1] = {"as_expr": {"expr_str": "Symbol('u0', integer=True)", "hint": None}}


make("calls", model=rename)
make("size", model=size)
make("version", model=lambda p: p["schema_version"].update(major=9))
make("pickled", weights=lambda p: p["config"]["line.weight"].update(use_pickle=True))
def strides(config):
    config["config"]["line.weight"]["tensor_meta"]["strides"].append({"as_int": 1})


def damage(name, offset, value, size):
    """Writes a field of the weight's entry in the directory of plain.pt2."""
    data = bytearray(open("odd/plain.pt2", "rb").read())
    at = data.rindex(b"/data/weights/weight_0")
    at = data.rindex(b"PK\1\2", 0, at)
    data[at + offset:at + offset + size] = value.to_bytes(size, "little")
    open(name + ".pt2", "wb").write(data)


make("strides", weights=strides)
damage("two_sizes", 20, 0, 4)
damage("checksum", 16, 1, 4)
damage("encrypted", 8, 1, 2)
with zipfile.ZipFile("bomb.pt2", "w", zipfile.ZIP_DEFLATED) as out:
    for name in SOURCE.namelist():
        out.writestr(name, SOURCE.read(name) + b" " * ((name.endswith(MODEL)) << 26))
make("shorter", edit=lambda e: e.update({"data/weights/weight_0": b"1234"}))
make("absent", edit=lambda e: e.pop("data/weights/weight_0"))
make("big", edit=lambda e: e.update(byteorder=b"big"))
make("json", edit=lambda e: e.update({MODEL: e[MODEL][:-9]}))
make("other", edit=lambda e: e.pop(MODEL))
make("torch-save", edit=lambda e: (e.pop(MODEL), e.update({"data.pkl": b"\x80"})))
# protocol 0: os.system("touch opened")
make("sample", edit=lambda e: e.update({"data/sample_inputs/model.pt": b"cos\nsystem\n(S'touch opened'\ntR."}))
whole = open("odd/plain.pt2", "rb").read()
open("half.pt2", "wb").write(whole[:len(whole) // 2])
at = whole.index(b'"nodes"') + 9
open("flipped.pt2", "wb").write(whole[:at] + b"!" + whole[at + 1:])
open("text.pt2", "w").write("not an archive\n")


def npy(name, kind, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)
    head += " " * (117 - len(head)) + "\n"
    open(name + ".npy", "wb").write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)


npy("wide", "<f4", (4, 7), bytes(112))
npy("two", "<f4", (2, 6), bytes(48))
npy("eight", "<f4", (8, 6), bytes(192))
npy("long", "<f4", (4, 9, 6), bytes(864))
npy("floats", "<f4", (4,), bytes(16))
END

# ---- archives ------------------------------------------------------------------------------
data=(--input x=odd/plain.x.npy --input y=odd/plain.y.npy)
refused "cannot open nosuch.pt2: No such file" nosuch.pt2
refused "text.pt2: not an archive of torch.export.save" text.pt2
refused "half.pt2: not an archive of torch.export.save" half.pt2
refused "flipped.pt2: models/model.json: truncated or damaged" flipped.pt2
refused "json.pt2: models/model.json: " json.pt2
refused "other.pt2: no exported program: the archive has no models/model.json" other.pt2
refused "torch-save.pt2: pickled weights (torch.save), which are not read; save the program with torch.export.save" torch-save.pt2
refused "version.pt2: schema version 9, and 8 is read; export it again with PyTorch 2.8 or later" version.pt2
refused "big.pt2: byteorder: wanted little, not big" big.pt2
refused "config.line.weight: pickled contents, which are never opened (a tensor subclass?)" pickled.pt2
refused "config.line.weight: data/weights/weight_0 has 4 bytes, fewer than the shape takes" shorter.pt2
refused "config.line.weight.tensor_meta.strides: wanted a stride for each of the 2 dims" strides.pt2
refused "data/weights/weight_0: damaged directory entry: two sizes" two_sizes.pt2
refused "data/weights/weight_0: its numbers do not have the checksum that the archive states: damaged" checksum.pt2 "${data[@]}"
refused "data/weights/weight_0: encrypted" encrypted.pt2
refused "models/model.json: compressed more than a program is" bomb.pt2
mkfifo pipe.pt2
refused "pipe.pt2 is not a regular file" pipe.pt2
refused "config.line.weight: the archive has no entry data/weights/weight_0" absent.pt2
refused "without_weights.pt2: data/weights/model_weights_config.json: config.line.weight: data/weights/weight_0 has no numbers: the module was exported without its weights (fake or meta tensors); load them before the export" odd/without_weights.pt2
ends 0 "$actorrun" --steps 1 sample.pt2 "${data[@]}"
[ -e opened ] && fail "a pickle inside was opened"

# ---- programs ------------------------------------------------------------------------------
refused "calls.pt2 calls what is not supported: aten.airy.default (2 times, first at pytorch_odd.py:43), aten.bessel.default (1 time, first at pytorch_odd.py:" calls.pt2 "${data[@]}"
refused "tensor_values.x.sizes[1]: a size without a number: it depends on data" size.pt2
refused "parameter line.weight is float64; training computes in float32: call module.float() before the export" odd/float64.pt2
refused "aten.view_as_complex.default makes a tensor of complex64 at pytorch_odd.py:74; complex numbers are not supported" odd/complex_inside.pt2
refused "choice.pt2 calls what is not supported: higher_order.cond (1 time" odd/choice.pt2 --input x=odd/plain.x.npy --input y=odd/plain.y.npy
refused "forward() returns no loss, a float without dims, but float32[4, 3]; wrap the module so that its forward() computes the loss" odd/no_loss.pt2 "${data[@]}"

# ---- data ----------------------------------------------------------------------------------
refused "a batch of 4 rows cannot be cut into 3 equal microbatches" --microbatches 3 odd/plain.pt2 "${data[@]}"
refused "no data for input x: --input x=FILE; the inputs are x f32[4, 6], y f32[4, 3]" odd/plain.pt2
refused "no data for input y: --input y=FILE" odd/plain.pt2 --input x=odd/plain.x.npy
refused "--input z=odd/plain.x.npy: wanted NAME=FILE; the inputs are x f32[4, 6], y f32[4, 3]" odd/plain.pt2 --input z=odd/plain.x.npy
refused "--input odd/plain.x.npy: wanted NAME=FILE" odd/plain.pt2 --input odd/plain.x.npy
refused "cannot open nosuch.npy: No such file" odd/plain.pt2 --input x=nosuch.npy --input y=odd/plain.y.npy
refused "wide.npy: its shape is [4, 7]; input x takes rows of [4, 6]" odd/plain.pt2 --input x=wide.npy --input y=odd/plain.y.npy
refused "two.npy: 2 rows, fewer than the 4 of a microbatch" odd/plain.pt2 --input x=two.npy --input y=odd/plain.y.npy
refused "eight.npy has 8 rows, and odd/plain.y.npy 4: they must be as many" odd/plain.pt2 --input x=eight.npy --input y=odd/plain.y.npy
refused "long.npy: its shape is [4, 9, 6]; input x takes rows of [4, 5, 6]" odd/sizes.pt2 --input x=long.npy --input y=odd/sizes.y.npy
refused "floats.npy: it holds floats; input ids takes whole numbers" odd/wide_numbers.pt2 \
  --input x=odd/plain.x.npy --input y=odd/plain.y.npy --input ids=floats.npy
refused "wide_numbers.ids.npy: element 2 is 1099511627776, which does not fit 32 bits" odd/wide_numbers.pt2 \
  --input x=odd/plain.x.npy --input y=odd/plain.y.npy --input ids=odd/wide_numbers.ids.npy
refused "--data is for language models; this one's inputs are x f32[4, 6], y f32[4, 3]: --input NAME=FILE" \
  odd/plain.pt2 --data odd/plain.x.npy

echo "all as it should be"
