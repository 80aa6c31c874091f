# SPDX-License-Identifier: Apache-2.0
"""Training on chats learns their answers. Packed rows give the losses of one chat per row, on any grid and across a
resume. A line that is not a chat is rejected with its number.

labels: numbers long
needs: pcre2
"""
import json
import math
import os
import random
import re
import shutil

from tool import (ACTORRUN, PLACES, Report, Runs, actorrun, fails, near, parse, read, same_bits, says, write)

os.mkdir("model")
shutil.copy(PLACES["reference"] + "/tokenizers/smollm.json", "model/tokenizer.json")
row = next(t for t in parse(PLACES["reference"] + "/chats.json")["templates"] if t["name"] == "chatml")
write("model/tokenizer_config.json", json.dumps({"eos_token": row["end"], "chat_template": row["template"]}))
random.seed(5)


def digits(n):
    return "".join(random.choice("0123456789") for _ in range(n))


def chat(*texts):
    return {"messages": [{"role": "assistant" if i % 2 else "user", "content": t} for i, t in enumerate(texts)]}


def write_chats(name, chats):
    write(name, "".join(json.dumps(c) + "\n" for c in chats))


write_chats("even.jsonl", [chat(digits(3), digits(5)) for _ in range(24)])
write_chats("chats.jsonl", [chat(*(digits(random.randint(1, 9)) for _ in range(2 * random.randint(1, 3)))) for _ in range(48)])
write_chats("held.jsonl", [chat(digits(3), digits(random.randint(1, 9))) for _ in range(10)])
write_chats("facts.jsonl", [chat(f"What is {i}?", f"It is {i}{i}.") for i in range(1, 9)])
SIZE = "--layers 2 --width 32 --heads 4 --vocab 700 --lr 3e-3 --warmup 0 "
TOKENS = "--tokenizer model/tokenizer.json "
CLOSE = 2e-6


def four(model, options=""):
    """Returns the report of four steps."""
    report = Runs(f"{model} {SIZE}", TOKENS + "--steps 4")(options)
    assert len(report.losses) == 4, (model, options)
    return report


# A mixture with a balance loss learns chats, and reports its cross entropy without that loss.
once = Runs(f"mixtral --data even.jsonl --context 64 --batch 4 {SIZE}", TOKENS + "--steps 1")
assert '"cross-entropy"' in json.dumps(once("--eval held.jsonl --eval-every 1").whole)

# ---- packed rows and one chat per row --------------------------------------------------------------------------
# All chats have the same number of tokens, so a context has room for exactly one or four.
said = actorrun(f"{TOKENS} --show-data llama --data even.jsonl --context 256 {SIZE}").stdout
one = int(re.search(r"chat 1: (\d+) tokens", said)[1]) - 1
assert one >= 20, said
for model in ("gpt", "llama", "llama --kv-heads 2 --window 9", "mixtral --aux-loss 0"):
    model += " --data even.jsonl --positions 256"
    alone = four(f"{model} --context {one} --batch 8")
    near(alone, four(f"{model} --context {4 * one} --batch 2"), CLOSE)
    near(alone, four(f"{model} --context {4 * one + 7} --batch 2"), CLOSE)  # padding at the end of a row
# Block-sparse attention would choose blocks of other chats, so each chat has its own row.
model = "llama --attend-blocks 0.5 --data even.jsonl --batch 8 --context "
near(four(model + str(one)), four(model + str(3 * one)), CLOSE)

# With --exact, any grid has the same bits.
EXACT, CHATS = f"--quiet {TOKENS} --exact --exact-leaf 32 --steps 3 ", "llama --data chats.jsonl --context 128 --batch 4 " + SIZE
actorrun(f"{EXACT} --certify exact.jsonl {CHATS}")
for grid in ("--data-parallel 2 --microbatches 2", "--sequence 2 --sequence-attention ring", "--pieces 2 --tensor 2"):
    actorrun(f"{EXACT} --recheck exact.jsonl {grid} {CHATS}")

# The loss is the mean over answer tokens: the answer and its end, here 7 tokens of each chat and the newline.
loss, = Runs(f"llama --data even.jsonl --context 100 --batch 3 {SIZE}", TOKENS + "--steps 1")("--logprobs probs.jsonl").losses
values = [v for line in read("probs.jsonl").decode().splitlines()
          for v in json.loads(re.sub("nan", "NaN", line, flags=re.I))["logprobs"] if v is not None and math.isfinite(v)]
assert values and abs(loss + sum(values) / len(values)) < 1e-4 * loss, (loss, values)

# A token has the same weight in any microbatch, also where held-out chats do not fill one.
DATA = "llama --data chats.jsonl --context 72 --batch 12"
for many in (2, 3, 6, 12):
    near(four(DATA), four(DATA, f"--microbatches {many}"), CLOSE)


def held(batch, options=""):
    run = Runs(f"llama --data chats.jsonl --lr 1e-12 --context 40 --batch {batch} --layers 2 --width 32 --heads 4 --vocab 700 "
               "--warmup 0", TOKENS + "--steps 1 --eval held.jsonl --eval-every 1")
    report = run(options)
    assert len(report.evaluations) == 1, report.call
    return Report(report.call, {"steps": [{"loss": report.evaluations[0], "loss_hex": ""}]})


near(held(1), held(4), CLOSE)
near(held(1), held(5, "--data-parallel 5"), CLOSE)
near(held(1, "--eval-rows 3"), held(2, "--eval-rows 3"), CLOSE)

# ---- grids -----------------------------------------------------------------------------------------------------
DATA = "--data chats.jsonl --context 72 --batch 8 "
for model in ("gpt ", "llama --kv-heads 2 "):
    plain = four(model + DATA, "--microbatches 4")
    for how in ("--stages 2 --schedule zb-h1", "--recompute full", "-n 2 --stages 2"):
        same_bits(plain, four(model + DATA, "--microbatches 4 " + how))
    for how in ("--data-parallel 2", "--tensor 2", "--pieces 3", "--sequence 2", "--data-parallel 2 --shard parameters",
                "--stages 2 --pieces 2 --schedule seq1f1b --tensor 2"):
        near(plain, four(model + DATA, "--microbatches 4 " + how), CLOSE)

# ---- learning --------------------------------------------------------------------------------------------------
actorrun(f"--quiet {TOKENS} --steps 0 --save model/ llama {SIZE} --context 72 --batch 8")
said = actorrun("--init model --steps 150 --report report.json llama --data facts.jsonl --batch 2 --context 64 --lr 1e-2 "
                "--warmup 0").stdout
says(said, "; 8 chats of ")
losses = Report.read("report.json").losses
assert losses[0] > 5 and losses[-1] < 0.5, (losses[0], losses[-1])

# An epoch covers all rows, in a new order each time. A resumed run has the same losses.
run = Runs("llama " + DATA, "--init model --epochs 3 --shuffle 7 --every 2 ")
CONSTANT = "--lr-schedule constant "
run("--checkpoint run1 --eval held.jsonl --eval-every 2")
run("--checkpoint run2 --epochs 0 --steps 2 " + CONSTANT)
first, second = run("--checkpoint run3 " + CONSTANT), run("--checkpoint run2 --resume " + CONSTANT)
assert len(first.bits) > 4
same_bits(first.last(len(first.bits) - 2), second)
run.refused("--learn", f"--checkpoint run2 --resume {CONSTANT} --learn all")
kept = read("chats.jsonl").decode()
write("chats.jsonl", "\n".join(line.replace("1", "2", 1) for line in kept.split("\n")))
run.refused("chats.jsonl", "--checkpoint run2 --resume " + CONSTANT)
write("chats.jsonl", kept)


# ---- lengths and samples ---------------------------------------------------------------------------------------
def show(options, data="--data chats.jsonl"):
    return actorrun(f"{TOKENS} --show-data {options} llama {data} {SIZE}").stdout


said = show("", "--data chats.jsonl --context 256")
says(said, "48 chats of ", "what stands in ⟦⟧ is learned", "<|im_start|>assistant")
assert len(re.findall("^── chat", said, re.M)) == 3, said
marked = re.findall("⟦(.*?)⟧", said.split("is learned\n")[1], re.S)
wanted = [m["content"] + "<|im_end|>\n" for line in kept.splitlines()[:3] for m in json.loads(line)["messages"]
          if m["role"] == "assistant"]
assert marked == wanted, (marked, wanted)
says(show("", "--data chats.jsonl --context 30"), " longer than --context cut")
says(show("--long-chats drop", "--data chats.jsonl --context 30"), " left out")
show("--learn all", "--data chats.jsonl --context 256")
says(show("--chat-template zephyr", "--data chats.jsonl --context 256"), "<|assistant|>")
os.mkdir("folder")
for name, copy in (("chats.jsonl", "folder/a.jsonl"), ("held.jsonl", "folder/b.jsonl"), ("chats.jsonl", "table.csv"),
                   ("chats.jsonl", "list.json")):
    shutil.copy(name, copy)
says(show("", "--data folder --context 256"), "58 chats of ")

# ---- rejected chats --------------------------------------------------------------------------------------------
write("own.jinja", '{% for m in messages %}{% if m.content == "boom" %}{{ raise_exception("not this") }}{% endif %}'
      '{{ m.content }}{% endfor %}')
good = "".join(line + "\n" for line in kept.splitlines()[:6])
for text, line, options in (
        ("", '{"messages": [', ""), ('unknown role "usr"', '{"messages": [{"role": "usr", "content": "a"}]}', ""),
        ("the answer is empty", json.dumps(chat("a", "")), ""),
        ('it has "instruction", "output"', '{"instruction": "a", "output": "b"}', ""),
        ("each line must be an object, but this is a text", '"text"', ""),
        ("it says: not this", json.dumps(chat("boom", "b")), "--chat-template own.jinja")):
    write("bad.jsonl", good + line + "\n")
    err = fails("bad.jsonl:7: ", ACTORRUN, f"{TOKENS} {options} --steps 1 llama --data bad.jsonl --context 72 {SIZE}").stderr
    says(err, text)
TEXT, ONE = "--data {reference}/text.txt ", f"--quiet {TOKENS} --steps 1 "
for text, options in (
        ("tokens, but a row has room for 30 and the target after it (--context); use --long-chats cut or drop",
         f"{TOKENS} --show-data --long-chats refuse llama --data chats.jsonl --context 30"),
        ("no chat is left to learn", f"{TOKENS} --show-data --long-chats drop llama --data chats.jsonl --context 10"),
        ("chats need the model's tokenizer", "--steps 1 llama --data chats.jsonl"),
        ("either all or none are of chats", f"{ONE} llama --data chats.jsonl {TEXT}"),
        ("both must be chats, or neither", ONE + "--steps 100 --eval {reference}/text.txt llama --data chats.jsonl --context 72"),
        ("not with chats, each of which is a document already", f"{ONE} llama --data chats.jsonl --document-end 3"),
        ("--learn: needs chats:", f"{ONE} --learn all llama {TEXT}"),
        ("--learn some: must be one of answers, all", f"{ONE} --learn some llama {TEXT}"),
        ("--show-data: needs chats:", f"{TOKENS} --show-data llama {TEXT}"),
        (".csv files are not read", f"{ONE} llama --data table.csv"),
        (".json files are not read", f"{ONE} llama --data list.json")):
    fails(text, ACTORRUN, f"{options} {SIZE}")
fails("the model reads texts only", ACTORRUN, ONE + "{source}/examples/decay.c --data chats.jsonl")
