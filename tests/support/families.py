# SPDX-License-Identifier: Apache-2.0
"""Folders of model families beside what transformers computes with them. A tokenizer in which each token is a letter lets
answers show their tokens."""
import glob
import json
import shutil

from tool import Server, actorrun, at_once, parse, typed_tensors, write


def letters(ids):
    return "".join(chr(256 + i) for i in ids)


def ids(text):
    return [ord(c) - 256 for c in text.split()]


def copy_with_letters(source, folder):
    """Copies a folder and adds the tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "vocab": {chr(256 + i): i for i in range(256)}, "merges": []}
    write(folder + "/tokenizer.json", json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None, "model": model}))


def greedy(folder, model, prompt, answer, options=""):
    """Compares greedy tokens of actorrun."""
    said = actorrun(f"--quiet --init {folder} --steps 0 --generate {len(answer)} --temperature 0 "
                    f"--prompt {letters(prompt)} {options} {model}").stdout
    assert ids(said) == prompt + answer, (folder, options, ids(said), prompt, answer)


def served(folder, prompt, answer, options=""):
    """Compares the answers of actorserve to a prompt, and to the prompt with parts of the answer, all at once."""
    with Server(f"{options} {folder}") as server:
        got = at_once(lambda skipped: ids(server.text(prompt=prompt + answer[:skipped], max_tokens=len(answer) - skipped,
                                                      temperature=0)), range(0, 35, 7))
    assert got == [answer[skipped:] for skipped in range(0, 35, 7)], (folder, got, answer)


def holds(one, other):
    """Checks that two folders have the same tensors, bit for bit, whatever their files and types."""
    found = []
    for folder in (one, other):
        found.append({})
        for path in glob.glob(folder + "/model*.safetensors"):
            for name, (dtype, shape, raw) in typed_tensors(path).items():
                if dtype == "BF16":
                    raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
                found[-1][name] = (shape, raw)
    wrong = [name for name in {**found[0], **found[1]} if found[0].get(name) != found[1].get(name)]
    assert found[0] and not wrong, (one, other, wrong)


def saves(folder, model, options=""):
    """Checks that a folder is saved as it was read."""
    actorrun(f"--quiet --init {folder} --steps 0 --save saved/ {model} {options}")
    holds(folder, "saved")
    before, after = (parse(path + "/config.json") for path in (folder, "saved"))
    shutil.rmtree("saved")
    return before == after
