# SPDX-License-Identifier: Apache-2.0
"""--rl: a model learns from answers that a program or a built-in rule rewards, and rewards rise. With --exact the ratio of
each update is 1 for every token. Losses, parameters and answers are the same, bit for bit, on stages, data-parallel
devices, over processes, and after an interruption. Programs that exit, hang or write nonsense end the run with an error
that names them, or discard the answer in question. Errors name the line of a bad prompt, or the bad option.

labels: outside
needs: zeromq
"""
import csv
import json
import math
import re
import struct

from tool import ACTORRUN, BRIEF, PATIENT, actorrun, ends, fails, parse, read, says, typed_tensors, write, write_tensors

write("prompts.jsonl", "".join(json.dumps({"prompt": [i, (i * 7 + 3) % 16, 5], "data": {"wanted": 7}}) + "\n"
                               for i in range(10)))
write("reward.py", """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    words = asked["answer"].split()
    print(sum(word == str(asked["data"]["wanted"]) for word in words) / 6, flush=True)
""")
MODEL = "gpt --layers 2 --width 32 --heads 2 --vocab 16 --context 12 --batch 32 --warmup 0 --lr 3e-3 "
PROMPTS = '--prompts prompts.jsonl --reward "python3 reward.py" --max-tokens 6 '
RL = f"--rl grpo:group=8,kl=0.01 {PROMPTS} --shuffle 3 "


def log(path):
    """Returns the rows of a log, as numbers."""
    with open(path, encoding="utf-8") as file:
        return [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(file)]


def rewarded(program, options="", status=0):
    """Runs two steps with a program for rewards."""
    return ends(status, ACTORRUN, f"--quiet --steps 2 {RL} {options} --reward {json.dumps(program)} {MODEL}")


def lines(path):
    return [json.loads(line) for line in read(path).decode().splitlines()]


# ---- the model learns, and the run reports it ------------------------------------------------------------------
steps = 12 if BRIEF else 40
said = actorrun(f"--steps {steps} {RL} --log log.csv --answers answers.html --save learned.safetensors --report learned.json "
                + MODEL).stdout
says(said, f"step {steps}/{steps}  reward 0.")
rows = log("log.csv")
rewards = [row["reward"] for row in rows]
assert len(rows) == steps and sum(rewards[-3:]) / 3 > 2 * sum(rewards[:3]) / 3 + 0.02, rewards
assert all(abs(row["ratio_off"]) < 1e-5 and row["dropped"] == 0 for row in rows)
assert all(row["answer_tokens"] == 6 and row["truncated"] == 1 for row in rows)
assert rows[0]["kl"] == 0 < rows[-1]["kl"]
says(read("answers.html").decode(), "<h2>Step 1 <small>mean reward")
stored = sum(math.prod(shape) for _, shape, _ in typed_tensors("learned.safetensors").values())
read_by = parse("learned.json")["rollout_weights"]
assert read_by["copied_bytes_per_step"] == 0 and read_by["in_place_bytes"] == 4 * stored, read_by

# The policy of --temperature T is softmax(logits / T): answers, loss and gradients have the bits of a model whose
# classifier is T times smaller (T a power of two), and ratios are 1.
LLAMA = "llama --layers 1 --width 16 --heads 2 --vocab 16 --context 12 --batch 16"
actorrun(f"--quiet --steps 0 {RL} --save plain.safetensors {LLAMA}")
plain = typed_tensors("plain.safetensors")
dtype, shape, raw = plain["lm_head.weight"]
values = struct.unpack(f"<{len(raw) // 4}f", raw)
plain["lm_head.weight"] = dtype, shape, struct.pack(f"<{len(values)}f", *(x / 2 for x in values))
write_tensors("halved.safetensors", plain)
for name, options in (("plain", "--temperature 2"), ("halved", "")):
    actorrun(f"--quiet --exact --steps 1 --rl grpo:group=8,kl=0.5 {PROMPTS} --freeze lm_head --init {name}.safetensors "
             f"{options} --log {name}.csv --answers {name}.jsonl {LLAMA}")
assert read("plain.jsonl") == read("halved.jsonl"), "--temperature 2 does not draw from softmax(logits / 2)"
warm, halved = log("plain.csv")[0], log("halved.csv")[0]
assert warm["ratio_off"] == 0 < warm["grad_norm"], warm
assert all(warm[column] == halved[column] for column in ("loss", "grad_norm", "entropy", "kl")), (warm, halved)

# ---- exact runs are the same on any grid -----------------------------------------------------------------------
EXACT = f"--quiet --exact --steps 4 {RL} {PATIENT} "


def exact(options):
    """Returns the answers of a run with --exact."""
    actorrun(f"{EXACT} {options} --answers other.jsonl {MODEL}")
    return read("other.jsonl")


one = exact("--certify one.jsonl --log one.csv")
assert all(row["ratio_off"] == 0 == row["clipped"] for row in log("one.csv"))
assert one.count(b"\n") == 128, "answers are missing"
# Rollouts of every family have training's numbers: sinks, latents, states, experts.
for family in ("llama --heads 2 --kv-heads 1 --ffn 24", "mixtral --heads 2 --experts 3", "qwen-moe --heads 2 --experts 3",
               "gpt-oss --heads 2 --kv-heads 1 --experts 3",
               "deepseek --heads 2 --experts 3 --latent 8 --nope-dim 8 --rope-dim 4 --value-dim 6",
               "mamba2 --head-dim 8 --state 8", "hybrid --heads 2 --kv-heads 1",
               "qwen3-next --heads 2 --key-dim 8 --value-dim 8 --experts 3"):
    actorrun(f"--quiet --exact --steps 1 {RL} --log family.csv {family} --layers 2 --width 16 --vocab 16 --context 12 --batch 8")
    assert all(row["ratio_off"] == 0 for row in log("family.csv")), family
fails("rollouts do not support op h.0/quantize.1 (quantize), weights rounded to int8", ACTORRUN,
      EXACT + "hybrid --spikes 3 --layers 1 --width 16 --heads 2 --vocab 16 --context 12 --batch 8")
for grid in ("--stages 2", "--microbatches 4 --stages 2 --schedule zb-h1", "--data-parallel 2", "--recompute full --jitter 50",
             "-n 2 --stages 2 --microbatches 2", "--stages 2 --data-parallel 2 --microbatches 2", "-n 2 --data-parallel 2",
             "--tensor 2", "-n 2 --tensor 2 --microbatches 2", "-n 2 --data-parallel 2 --shard parameters"):
    assert exact(f"{grid} --recheck one.jsonl --report other.json") == one, f"{grid}: other answers"
gathered = parse("other.json")["rollout_weights"]  # each device gathers the shards
assert gathered["copied_bytes_per_step"] > 0 == gathered["in_place_bytes"], gathered
# With several updates per rollout, or rollouts ahead of training, ratios move away from 1 as answers age.
for how, young in (("--rl grpo:group=8,kl=0.01,updates=2", [0, 2]), ("--rollout-ahead 1", [0])):
    old = exact(f"{how} --certify old.jsonl --log old.csv")
    assert exact(f"{how} -n 2 --data-parallel 2 --recheck old.jsonl") == old, how
    exact(f"{how} --steps 2 --checkpoint c{len(young)} --every 2")
    assert exact(f"{how} --stages 2 --checkpoint c{len(young)} --resume --recheck old.jsonl") == old, how
    off = [row["ratio_off"] for row in log("old.csv")]
    assert all((value == 0) == (step in young) for step, value in enumerate(off)), (how, off)
# Interrupted, and resumed on another grid.
exact("--steps 2 --checkpoint c --every 1")
assert exact("--stages 2 --checkpoint c --resume --recheck one.jsonl") == one, "a resumed run has other answers"
for text, options in (
        ("--every 3: must be a multiple of the 2 updates per rollout (updates)",
         "--rl grpo:group=8,updates=2 --checkpoint d --every 3"),
        ("not supported with checkpoints, which hold at most two versions of the parameters", "--rollout-ahead 2 --checkpoint d"),
        ("max-tokens", "--checkpoint c --resume --max-tokens 5")):
    fails(text, ACTORRUN, f"{EXACT} {options} {MODEL}")

# With sequence parallelism each device has logits only where its part has answers; the losses agree.
NEAR, WIDE = f"--quiet --steps 3 {RL} --max-tokens 4 ", MODEL + "--context 32"
actorrun(f"{NEAR} --log one.csv {WIDE}")
for how in ("heads", "ring"):
    actorrun(f"{NEAR} --log shared.csv --sequence 2 --sequence-attention {how} {WIDE}")
    for a, b in zip(log("one.csv"), log("shared.csv")):
        assert all(abs(a[x] - b[x]) < 2e-5 * max(1, a["grad_norm"]) for x in ("loss", "grad_norm")), (a, b)
said = actorrun(f"{NEAR} --sequence 2 --print-after shard {WIDE}").stdout
assert re.search(r"linear.*f32\[32, 8, 16\]", said), "no logits of 8 positions a device"
assert "f32[32, 16, 16]" not in said, "logits of all positions"

# ---- texts -----------------------------------------------------------------------------------------------------
# Answers of a byte model are valid UTF-8, whatever bytes it samples, in the file and for the program.
write("texts.jsonl", '{"prompt": "one"}\n{"prompt": [200, 111]}\n')
write("length.py", """import json, sys
for line in sys.stdin.buffer: print(len(json.loads(line.decode())["answer"]), flush=True)
""")
actorrun('--quiet --steps 1 --rl grpo:group=8 --prompts texts.jsonl --max-tokens 8 --answers texts.answers.jsonl '
         '--reward "python3 length.py" gpt --layers 1 --width 8 --heads 1 --context 12 --batch 16')
answers = lines("texts.answers.jsonl")
assert {line["prompt"] for line in answers} == {"one", "\ufffdo"}, answers
assert all(len(line["answer"]) <= 8 for line in answers) and any("\ufffd" in line["answer"] for line in answers), answers
# A stop token that ends a prompt is part of the text of the prompt; one that ends an answer is not.
write("asked.jsonl", '{"prompt": "who?"}\n')
actorrun('--quiet --steps 1 --rl grpo:group=8 --prompts asked.jsonl --stop ? --max-tokens 8 --answers asked.answers.jsonl '
         '--reward "while read -r line; do echo 1; done" gpt --layers 1 --width 8 --heads 1 --context 12 --batch 256')
answers = lines("asked.answers.jsonl")
assert {line["prompt"] for line in answers} == {"who?"}, answers[0]
ended = [line for line in answers if not line["truncated"]]
assert ended and all("?" not in line["answer"] for line in ended), ended[:3]
# Other models, and built-in rewards.
write("texts.jsonl", '{"prompt": "ab", "answer": "b"}\n{"prompt": "ba", "answer": "a"}\n')
for reward, model in (*((reward, "llama") for reward in ("exact", "regex:[a-m]*", "length:2")),
                      ("length:2 --lora layers.*.self_attn=2", "hybrid")):
    actorrun(f"--quiet --steps 2 --rl grpo:group=4 --prompts texts.jsonl --max-tokens 4 --stop '\\n' --reward {reward} {model} "
             "--layers 2 --width 32 --heads 2 --vocab 256 --context 10 --batch 8")

# ---- failing reward programs -----------------------------------------------------------------------------------
READ = "while read -r line; do "
for text, options, program in (
        ("head -3 >/dev/null; exit 4 ended with status 4, for an answer of step 1", "", "head -3 >/dev/null; exit 4"),
        ('wrote "well" instead of a number, for an answer of step 1', "", READ + "echo well; done"),
        ("wrote more numbers than there were answers", "--reward-failed end", READ + "echo 1; echo 0; done"),
        ("wrote more numbers than there were answers", "--reward-failed drop", READ + "echo 1; echo 0; done"),
        ("wrote more numbers than there were answers", "--reward-failed drop", f"echo 2026; {READ} echo 1; done"),
        ("sleep 100 took more than 0.3 seconds, for an answer of step 1", "--reward-seconds 0.3", "sleep 100"),
        ("closed its output and did not end, for an answer of step 1", "", "exec >&-; sleep 100"),
        ("took more than 0.3 seconds", "--reward-seconds 0.3", "exec <&-; sleep 100"),
        ("exit 4 ended with status 4", f"-n 2 --stages 2 {PATIENT}", "exit 4")):
    says(rewarded(program, options, 1).stderr, text)
got = actorrun(f"--quiet --steps 2 {RL} --reward-failed drop --log drop.csv --reward "
               f"'n=0; {READ} n=$((n + 1)); [ $n -lt 9 ] || exit 5; echo $n; done' {MODEL}")
says(got.stderr, "exit 5; echo $n; done ended with status 5: an answer of step 1 is dropped")
assert all(0 < row["dropped"] < 0.2 for row in log("drop.csv"))

# Rollouts start as soon as the parameters are updated, without waiting for the rewards of the previous step. A step has
# time for rollouts and rewards, one after the other. The end of a step may be seen late.
actorrun(f"--quiet --steps 4 {RL} --log slow.csv --reward "
         f"'n=0; {READ} n=$((n + 1)); [ $((n % 32)) != 0 ] || sleep 0.3; echo 1; done' {MODEL}")
answered, rewarding, seconds = (sum(row[name] for row in log("slow.csv")[1:])
                                for name in ("answer_seconds", "reward_seconds", "seconds"))
assert 0 < answered and rewarding > 0.85 and answered + rewarding < seconds + 0.3, (answered, rewarding, seconds)

# ---- invalid options and prompts -------------------------------------------------------------------------------
for text, options in (
        ("--rl ppo: the method must be grpo or distill", "--rl ppo"),
        ("--rl: unknown key groups; the keys are group", "--rl grpo:groups=3"),
        ("--rl: group=1: must be a whole number from 2", "--rl grpo:group=1"),
        ("batch is 32 rows, must be a multiple of group, 5", "--rl grpo:group=5"),
        ("--rl: cannot be combined with --pieces", "--pieces 2"),
        ("--rl: cannot be combined with --eval", "--eval prompts.jsonl"),
        ('--reward exact: prompt 1 has no "answer"', "--reward exact"),
        ("--reward length:x: N in length:N must be a whole number of tokens", "--reward length:x"),
        ("--reward-failed ignore: must be end or drop", "--reward-failed ignore"),
        ("--answers a.txt: must end in .jsonl or .html", "--answers a.txt"),
        ("rollouts: not supported with --vocab-parallel", "--stages 2 --vocab-parallel"),
        ('--stop: "ab" is 2 tokens; it must be a single token', "--stop ab")):
    fails(text, ACTORRUN, f"--steps 1 {RL} {options} {MODEL}")
for text, prompts in (
        ('--prompts bad.jsonl:2: "prompt" has the wrong type', '{"prompt": [1, 2]}\n{"prompt": {}}\n'),
        ("prompt 1 has token 99, but the vocabulary has 16 tokens", '{"prompt": [1, 99]}\n'),
        ("bad.jsonl:1", '{"prompt": [1\n'), ("--prompts bad.jsonl: the file is empty", ""),
        ("prompt 1 has 12 tokens: must have at least 1, and fewer than the context of 12",
         '{"prompt": [1,2,3,4,5,6,7,8,9,10,11,12]}\n'),
        ("messages need a tokenizer and its chat template", '{"messages": [{"role": "user", "content": "a"}]}\n')):
    write("bad.jsonl", prompts)
    fails(text, ACTORRUN, f"--steps 1 {RL} --prompts bad.jsonl {MODEL}")
for alone in ("--rollout-ahead 1", "--prompts prompts.jsonl", "--reward exact", "--answers a.jsonl"):
    fails("needs --rl METHOD", ACTORRUN, f"--steps 1 {alone} {MODEL} --data prompts.jsonl")
fails("--rl: needs --reward PROGRAM", ACTORRUN, f"--steps 1 --rl grpo --prompts prompts.jsonl {MODEL}")
