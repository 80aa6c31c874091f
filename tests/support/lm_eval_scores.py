# SPDX-License-Identifier: Apache-2.0
"""Compares the log-probabilities of lm-eval's samples with actorrun --logprobs: lm_eval_scores.py RESULTS ACTORRUN."""
import array
import glob
import json
import subprocess
import sys

from tokenizers import Tokenizer

results, actorrun = sys.argv[1:]
tokenizer = Tokenizer.from_file("model/tokenizer.json")


def score(ids):
    """Returns the log-probability of each token from the second on."""
    array.array("H", ids).tofile(open("row.u16", "wb"))
    subprocess.run([actorrun, "--exact", "--quiet", "--init", "model", "--steps", "1", "--logprobs", "row.jsonl", "llama", "--data", "row.u16",
                    "--context", str(len(ids) - 1), "--batch", "1"], check=True)
    return json.loads(open("row.jsonl").readline())["logprobs"]


compared = 0
for name in glob.glob(results + "/**/samples_*.jsonl", recursive=True):
    for line in open(name):
        sample = json.loads(line)
        for asked, found in zip(sample["arguments"].values(), sample["resps"]):
            context, answer = asked["arg_0"], asked["arg_1"]
            whole, begin = tokenizer.encode(context + answer).ids, len(tokenizer.encode(context).ids)
            want = sum(score(whole)[begin - 1:])
            assert abs(float(found[0][0]) - want) < 1e-4, (context, answer, found, want)
            compared += 1
assert compared >= 18, compared
print("%d log-probabilities are the same" % compared)
