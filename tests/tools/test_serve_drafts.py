# SPDX-License-Identifier: Apache-2.0
"""actorserve --speculate gives the same answers as without: greedy, sampled, with penalties and with a grammar. Repetitive
texts need fewer ticks. Drafts are counted, logged and replayed. Invalid settings are rejected with an error that names
them. The same holds for drafts of a smaller model, whose acceptance follows from its share of correct tokens.

labels: outside
needs: libevent
"""
import json
import re
import shutil
import sys

from tool import ACTORSERVE, PLACES, Server, actorrun, at_once, fails, parse, read, write

sys.path.insert(0, PLACES["reference"])
from model_folder import write_folder  # pylint: disable=wrong-import-position

TEXT = "--data {reference}/text.txt "
TRAIN = TEXT + "--batch 4 --lr 1e-2 --warmup 0 "
SHAPE = "gpt --layers 2 --width 32 --heads 2 --context 256 "
MODEL = "--init bytes.safetensors " + SHAPE
actorrun(f"--quiet --steps 20 --save bytes.safetensors {SHAPE} {TRAIN}")
actorrun(f"--quiet --steps 20 --save small/ gpt --layers 1 --width 16 --heads 2 --context 128 {TRAIN}")
CAT, A = "the cat and the dog, the cat and the ", "aaaaaaaaaaaa"
BODIES = [dict(prompt=CAT, max_tokens=120, temperature=0, logprobs=3), dict(prompt=CAT, max_tokens=80, temperature=1.2, seed=7),
          dict(prompt=A, max_tokens=80, temperature=0.8, seed=7, repetition_penalty=1.1, frequency_penalty=0.1),
          dict(prompt=A, max_tokens=80, temperature=0.8, seed=8, guided_regex="(ab[a-f]c|xyz){8,20}"),
          dict(prompt="one two one two one ", max_tokens=100, temperature=0, stop=["zzz"], n=2)]


def answers(options, together=False):
    """Returns the answers to all bodies, without fields that differ between runs, of a server that has ended."""
    with Server(options) as server:
        def ask(body):
            status, said, _ = server.client.ask("POST", "/v1/completions", body)
            return status, {key: value for key, value in said.items() if key not in ("id", "created")}
        got = at_once(ask, BODIES) if together else list(map(ask, BODIES))
        for kind in ("draft_rounds", "drafts_accepted", "drafted"):
            counted[kind] = server.client.metric(kind + "_total") if "always" in options else None
    answers.said = server.err
    return got


def repeats(want, speculate, model):
    """Checks answers of drafts that are always taken, and of a replay of their ticks. Returns the report."""
    assert answers(f"--speculate {speculate},always --log ticks --report report.json {model}") == want, speculate
    ticks, said = read("ticks"), answers.said
    assert answers(f"--speculate {speculate},always --replay ticks --log again {model}") == want, f"{speculate}: replayed"
    assert ticks == read("again"), f"{speculate}: ticks differ when they are replayed"
    return parse("report.json"), said


counted = {}
want = answers("--report plain.json " + MODEL)
assert all(status == 200 for status, _ in want), want
plain = parse("plain.json")
drafts, _ = repeats(want, "ngram:tokens=5,match=2", MODEL)
assert counted["draft_rounds"] > 10 and counted["drafts_accepted"] <= counted["drafted"], counted
assert drafts["drafts_accepted"] > 50 and drafts["tokens"] == plain["tokens"] and not plain["drafted"], drafts
assert drafts["ticks"] < plain["ticks"] - drafts["drafts_accepted"] / 2, (plain, drafts)
assert re.search(r"^1:[0-9]+\+1 1~[1-5]$", read("ticks").decode(), re.M), "drafts are not in the log"
assert answers("--speculate ngram " + MODEL) == want, "answers differ where drafts must pay"

# ---- a smaller model drafts ------------------------------------------------------------------------------------
model, said = repeats(want, "draft:small/:tokens=4", MODEL)
assert re.search("draft model small/: weights [0-9.]+ KiB, context 128 tokens, KV cache [0-9]+ pages; ", said), said
right, rounds = model["drafts_accepted"], model["draft_rounds"]
a = right / model["drafts_checked"]
expected = sum(a**g for g in range(5))
assert model["tokens"] == plain["tokens"] and model["drafted"] <= 4 * rounds, model
assert a > 0.2 and abs((1 + right / rounds) / expected - 1) < 0.2, (a, 1 + right / rounds, expected)
assert model["draft"]["tokens"] >= model["drafted"] and model["draft"]["pages_used"] == 0, model["draft"]
print(f"--speculate draft: {a:.0%} right, {1 + right / rounds:.2f} tokens a round of 4, expected {expected:.2f}")
assert answers("--speculate draft:small/:tokens=4,always " + MODEL, True) == want, "all at once"
assert answers("--speculate draft:small/ -n 2 --stages 2 " + MODEL, True) == want, "where a draft model must pay"
actorrun(f"--quiet --steps 1 --save states/ mamba2 {TEXT} --layers 1 --width 32 --head-dim 16 --groups 1 --state 8 --context 64")
assert answers("--speculate draft:states/:tokens=4,always " + MODEL) == want, "a draft model that has states"

# ---- a block that predicts ahead, of a model with states -------------------------------------------------------
write_folder(PLACES["reference"] + "/models/ahead_qwen3_5_text.json", "random")
actorrun(f"--quiet --init random --steps 60 --save own/ decoder {TEXT} --context 64 --batch 8 --lr 3e-3 --warmup 0 --ahead 1")
own = answers("own/")
ahead, said = repeats(own, "ahead:tokens=3", "own/")
assert re.search("states [0-9.]+ KiB of each answer, times 4; ", said), said
print(f"--speculate ahead: {1 + ahead['drafts_accepted'] / ahead['draft_rounds']:.2f} tokens a round")
assert ahead["drafts_accepted"] >= ahead["draft_rounds"] / 10, ahead
assert answers("--speculate ahead -n 2 --stages 2 own/", True) == own, "a block that predicts ahead, over processes"

# ---- refusals --------------------------------------------------------------------------------------------------
write("arrivals", '{"time": 0, "prompt": 10, "answer": 5}\n')
actorrun(f"--quiet --steps 1 --save other/ gpt {TEXT} --layers 1 --width 16 --heads 2 --vocab 300")
# Two tokenizers of the same size, in which two tokens are swapped.
TOKENIZER = PLACES["reference"] + "/tokenizers/smollm.json"
for name in ("words", "others"):
    actorrun(f"--quiet --steps 1 --tokenizer {TOKENIZER} --save {name}/ llama {TEXT} --layers 1 --width 16 --heads 2 "
             "--context 32 --batch 2 --vocab 768")
    shutil.copy(TOKENIZER, name + "/tokenizer.json")
text = parse(TOKENIZER)
vocab = text["model"]["vocab"]
first, second = sorted(vocab, key=vocab.get)[300:302]
vocab[first], vocab[second] = vocab[second], vocab[first]
write("others/tokenizer.json", json.dumps(text))
LIMIT = "always G must be 1 to 16"
for text, options, model in (
        ("ahead: needs the folder or GGUF file", "ahead", MODEL), ("ahead: ", "ahead", "small/"),
        ("in ahead:tokens=G,always G must be 1 to 16", "ahead:tokens=17", "own/"),
        ("magic: must begin with ngram, ahead or draft:PATH", "magic", MODEL), ("draft:PATH names the draft model", "draft", MODEL),
        ("not supported on devices that compute nothing",
         "draft:small/ --clock virtual --arrivals arrivals --machine a100-sxm-80gb", MODEL),
        *((LIMIT, how, MODEL) for how in ("draft:small/:tokens=0", "draft:small/:match=3", "draft:small/:tokens=2,soon",
                                          "ngram:tokens=17", "ngram:tokens=4,soon")),
        *((f"--speculate draft:{path}: it is neither a Hugging Face folder nor a GGUF file", "draft:" + path, MODEL)
          for path in ("nowhere", "bytes.safetensors")),
        ("the draft model: the vocabularies differ: model gpt has 300 tokens, model gpt has 256", "draft:other/:always", MODEL),
        ("--speculate draft:others/: token 300 is", "draft:others/", "words/")):
    fails(text, ACTORSERVE, f"--speculate {options} {model}")
fails("the draft model: device cpu:0 needs", ACTORSERVE,
      f"--speculate draft:small/ --memory 350K --rows 8 --sequences 1 --quota kv=4 {MODEL}", 3)
with Server("--speculate draft:words/:always words/") as server:  # a model that drafts for itself
    assert server.client.complete(prompt="one two", max_tokens=20)["usage"]["completion_tokens"] == 20
