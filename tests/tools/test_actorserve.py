# SPDX-License-Identifier: Apache-2.0
"""actorserve returns what actorrun --generate and --chat write, for a Hugging Face folder and for weights in a file.
Whatever cannot be served is rejected with an error that names it.

labels: outside
needs: libevent pcre2 utf8proc
"""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess

from serve_client import Client, text_of
from tool import (ACTORRUN, ACTORSERVE, ACTORTRACE, PATIENT, PLACES, Server, Started, actorrun, ends, fails, parse, read,
                  says, words, write)

SMALL, TEXT = "--layers 1 --width 16 --heads 2 --context 64", "--data {reference}/text.txt "
TOKENIZER = "{reference}/tokenizers/smollm.json"
actorrun(f"--quiet --steps 10 --tokenizer {TOKENIZER} --save model/ llama {TEXT} {SMALL} --vocab 700 --lr 1e-2 --warmup 0")
shutil.copy(words(TOKENIZER)[0], "model/tokenizer.json")
row = next(t for t in parse(PLACES["reference"] + "/chats.json")["templates"] if t["name"] == "chatml")
write("model/tokenizer_config.json", json.dumps({"bos_token": {"content": row["begin"]}, "eos_token": row["end"],
                                                 "chat_template": row["template"]}))
actorrun(f"--quiet --steps 10 --save bytes.safetensors gpt {TEXT} {SMALL} --lr 1e-2")
BYTES = f"--init bytes.safetensors gpt {SMALL}"


def written(options):
    """Returns the text of a greedy run of 9 tokens."""
    return actorrun(f"--quiet --steps 0 --generate 9 --temperature 0 {options}").stdout.rstrip("\n")


GREEDY = dict(max_tokens=9, temperature=0)
HELLO = dict(prompt="Hello 12", **GREEDY)
CHAT = dict(messages=[{"role": "user", "content": "Hi"}], **GREEDY)


def continues(server, want, **how):
    got = "Hello 12" + server.text(**HELLO, **how)
    assert got.rstrip("\n") == want, (got, want)


def chat(server, **how):
    status, said, _ = server.client.ask("POST", "/v1/chat/completions", {**CHAT, **how})
    return said["choices"][0]["message"]["content"] if status == 200 else said["error"]["message"]


# ---- completions and chats, whole and streamed -----------------------------------------------------------------
continued = written("--init model --prompt 'Hello 12' llama --context 64")
chatted = written("--init model --chat Hi llama --context 64")
os.mkdir("model/additional_chat_templates")
TOOL = "additional_chat_templates/tool_use.jinja"
write("model/" + TOOL, "{{ tools[0].function.name }} {{ messages[0].content }}")
actorrun("--quiet --init model --steps 0 --save kept/ llama --context 64")
assert read("model/" + TOOL) == read("kept/" + TOOL), "a template for tools is not saved"
with Server("--log ticks --trace ran.trace --report ran.json --access-log access model") as server:
    client, ask = server.client, server.client.complete
    continues(server, continued, model="model")
    assert chat(server).rstrip("\n") == chatted
    assert text_of(client.stream("/v1/chat/completions", **CHAT)).rstrip("\n") == chatted
    assert chat(server, tools=[{"type": "function", "function": {"name": "look"}}]) == \
        server.text(prompt="look Hi", **GREEDY), "the template for tools is not taken"
    assert ask(prompt=[1, 2], max_tokens=3, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"][2] < 0
    seeded = [ask(prompt="a", seed=5, max_tokens=9)["choices"] for _ in range(2)]
    assert seeded[0] == seeded[1], "the same seed has other answers"

    # Penalties, biases and the best of several.
    LONG = dict(prompt=[1, 2], max_tokens=24, ignore_eos=True)
    plain = server.text(**LONG, temperature=0)
    for change in ({"repetition_penalty": 50}, {"frequency_penalty": 2, "presence_penalty": 2}):
        assert server.text(**LONG, temperature=0, **change) != plain, change
    only = server.text(prompt=[1, 2], max_tokens=5, temperature=1, logit_bias={"65": 100}, ignore_eos=True, seed=3)
    assert len(set(only)) == 1, only
    assert server.text(**LONG, temperature=1, seed=4, min_p=1) == plain, "min_p 1 leaves more than the likeliest"
    several = dict(prompt=[1, 2], max_tokens=8, temperature=1, seed=7)

    def mean(choice):
        logprobs = choice["logprobs"]["token_logprobs"]
        return sum(logprobs) / len(logprobs)
    four = ask(**several, n=4, logprobs=0)["choices"]
    best = ask(**several, n=2, best_of=4, logprobs=0)["choices"]
    order = [c["text"] for c in sorted(four, key=mean, reverse=True)]
    assert [c["text"] for c in best] == order[:2] and [c["index"] for c in best] == [0, 1], (four, best)
    assert server.text(**several, best_of=4) == order[0]
    says(client.refused(400, "700", prompt=[700])[0]["message"], "700.*vocabulary of 700")
    assert "ok" in str(client.ask("GET", "/health")[1])
    assert client.metric('ended_total{end="length"}') >= 1
    got = fails("", ACTORSERVE, f"--port {server.port} model", 1)
    says(got.stderr, f"--host 127.0.0.1 --port {server.port}: cannot listen:")
log = read("access").decode()
for line in (r'^[0-9-]+T[0-9:]+Z 127.0.0.1 "POST /v1/completions" 200 [0-9.]+$', r'"POST /v1/completions" 400 ',
             r'"GET /health" 200 '):
    assert re.search(line, log, re.M), (line, log[:300])

# ---- names of models, adapters ---------------------------------------------------------------------------------
with Server("--served-model-name first,second model") as server:
    ask = server.client.ask
    assert ask("GET", "/v1/models")[1]["data"][1]["id"] == "second"
    for name in ("first", "second"):
        assert server.client.complete(model=name, prompt=[1], max_tokens=1)["model"] == "first"
        assert ask("GET", "/v1/models/" + name)[1]["id"] == name
    assert ask("POST", "/v1/completions", {"model": "model", "prompt": [1]})[1]["error"]["code"] == "model_not_found"
assert re.search("sluice: first: weights [0-9.]+ [KM]iB, context 64 tokens, KV cache [0-9]+ pages", server.err), server.err

# With an adapter the server writes what the model writes with that adapter.
LORA = f"--lora model.layers.*.mlp.up_proj=2 --save-adapter %s llama {TEXT} --context 64"
actorrun(f"--quiet --init model --steps 9 {LORA % 'low'} --lr 0.3 --warmup 0")
adapted = written("--init model --adapter low --prompt 'Hello 12' llama --context 64")
assert adapted != continued, "the adapter says nothing"
with Server("--adapter low model") as server:
    continues(server, adapted)
actorrun(f"--quiet --steps 1 {LORA % 'other'} --layers 1 --width 32 --heads 2")

# ---- traces, reports, prefixes ---------------------------------------------------------------------------------
ran = parse("ran.json")
assert ran["ticks"] > 0 and ran["rows"] > ran["tokens"] and ran["devices"][0]["peak_bytes"]["parameters"] > 0, ran
assert len(ends(0, ACTORTRACE, "rows ran.trace").stdout.splitlines()) > 10

# Prompts that share a prefix share its whole pages, and get the same answers as without sharing.
ids = [i * i % 700 for i in range(130)]
LONGER = "--init model/model.safetensors llama --layers 1 --width 16 --heads 2 --context 256 --positions 256 --vocab 700"
TWICE = dict(prompt=ids, max_tokens=3, n=2, seed=4)


def cached(said):
    return said["usage"]["prompt_tokens_details"]["cached_tokens"]


with Server("--prefix-caching off --report apart.json " + LONGER) as server:
    alone = server.client.complete(**TWICE)["choices"]
    assert cached(server.client.complete(**TWICE)) == 0, "something is shared where that is off"
with Server("--report shared.json " + LONGER) as server:
    assert cached(server.client.complete(**TWICE)) == 0
    again = server.client.complete(**TWICE)
    assert cached(again) == 128 and again["choices"] == alone, (again, alone)
    assert server.client.metric("rows_shared_total") == 384, "three of four share two pages"
apart, shared = parse("apart.json"), parse("shared.json")
assert apart["rows_shared"] == 0 and shared["rows_shared"] == 384 and shared["pages_shared"] == 6, (apart, shared)
assert shared["rows"] == apart["rows"] - 384, (apart, shared)

# Requests with different cache salts do not share prefixes.
with Server(LONGER) as server:
    got = [cached(server.client.complete(prompt=ids, max_tokens=1, cache_salt=s)) for s in ("a", "b", "a", None, "b", None)]
    assert got == [0, 0, 128, 0, 128, 128], got

# ---- replays ---------------------------------------------------------------------------------------------------
# --log records the ticks, and --replay repeats them: the prompt, a row per tick, then one token at a time.
first, second = read("ticks").decode().splitlines()[:2]
assert (n := re.match(r"1:0\+(\d+)$", first)[1]) and second == f"1:{n}+1", (first, second)
n = int(n)
slowly = "".join(f"1:{i}+1\n" for i in range(n))
write("slowly", slowly)
with Server("--replay slowly --log again model") as server:
    continues(server, continued)
    assert read("again").decode().startswith(slowly), read("again")

# A replay repeats disconnects, though no client hangs up now, and then answers the next request.
left = f"1:0+{n}\n1:{n}+1\n1:{n + 1}+1\nx1:{n + 2} 2:0+{n}\n2:{n}+1\nx2:{n + 1} 3:0+{n}\n"
write("left", left)
with Server("--prefix-caching off --replay left --log again model") as server:
    _, answer = server.client.open("POST", "/v1/completions", dict(HELLO, stream=True))
    try:
        pieces = answer.read()
        raise AssertionError("the replay does not hang up on a stream")
    except http.client.IncompleteRead as error:
        pieces = error.partial
    assert pieces.count(b'"text":') == 2 and b"DONE" not in pieces, pieces
    try:
        server.client.ask("POST", "/v1/completions", HELLO)
        raise AssertionError("the replay does not hang up on a request")
    except http.client.RemoteDisconnected:
        pass
    continues(server, continued)
    assert server.client.metric("hung_up_total") == 2
    assert read("again").decode().startswith(left), read("again")

# A replay fails on a line that cannot belong to the run.
for line in ("1:5+3", "1:-4+2"):
    write("wrong", line + "\n")
    with Started("--port 0 --replay wrong model", ACTORSERVE) as job:
        job.until("\n")
        try:
            client = Client(int(re.search(r":(\d+)/", job.out)[1]))
            said = client.ask("POST", "/v1/completions", {"prompt": "Hello 12", "max_tokens": 2})[1]
            assert "error" in said, said
        except (http.client.HTTPException, ConnectionError):  # it has ended
            pass
        assert job.process.wait(60), "a model that has failed ends well"
        says(job.err, f"wrong: line 1 takes {line[-1]} rows")
write("wrong", "0:0+1\n")
fails("wrong: line 1 takes 1 rows from row 0 of request 0", ACTORSERVE, "--port 0 --replay wrong model")

# ---- several devices -------------------------------------------------------------------------------------------
# One token at a time, with pages for one sequence only, under concurrent requests.
with Server("--stages 2 --rows 3 --groups 2 --sequences 2 --quota kv=1 --queue 8 --context 64 model") as server:
    for choice in server.client.complete(**HELLO, n=5)["choices"]:
        assert ("Hello 12" + choice["text"]).rstrip("\n") == continued
# With tensor parallelism each device holds the pages of its heads and its rows of all weights.
with Server("--stages 2 --tensor 2 --report shared.json model") as server:
    continues(server, continued)
assert parse("shared.json")["devices"][1]["peak_bytes"]["parameters"] < ran["devices"][0]["peak_bytes"]["parameters"] // 3

# Two processes: the first one listens, and the trace covers both. Each reports the status of both, and can lower the
# number of pages in use.
with Server(f"-n 2 {PATIENT} --stages 2 --trace both.trace model") as server:
    continues(server, continued)
    pid = server.process.pid
    status = json.loads(actorrun(f"status --json {pid}").stdout)
    assert status["serving"]["tokens"] == 9, status
    said = actorrun(f"status {pid}").stdout
    assert re.search("^0 of 64 pages used on each of 2 stages; .* 9 tokens", said, re.M), said
    says(actorrun(f"ctl {status['processes'][1]['pid']} quota kv=1").stdout, "kv=1")
    said = actorrun(f"ctl {pid} quota").stdout
    assert re.search("^kv  *1 of at most 64 pages on each stage", said, re.M), said
    fails("quota kv=65: pages=65: must be from 1 to 64", ACTORRUN, f"ctl {pid} quota kv=65")
    fails("quota act=2: kv=N, rows=N", ACTORRUN, f"ctl {pid} quota act=2")
    continues(server, continued)
picture = ends(0, ACTORTRACE, "svg --step 0 --steps 9 both.trace").stdout
assert re.search(">rows, max [1-9]", picture), "the figure lacks rows"
rows = [line.split("\t")[1:4] for line in ends(0, ACTORTRACE, "rows both.trace").stdout.splitlines()]
assert ["0", "F", "0"] in rows and ["1", "F", "1"] in rows, "the trace lacks passes of a process"

# ---- weights on disk -------------------------------------------------------------------------------------------
# All but one block at a time, and the table, are there: the server needs less memory and gives the same text.
DEEP = "--devices cpu:1x1 --sequences 2 --rows 8 --quota kv=2 --init deep.safetensors "
WORDS = "gpt --layers 8 --width 32 --heads 4 --context 64 "
actorrun(f"--quiet --steps 1 --save deep.safetensors {WORDS} {TEXT}")
with Server(DEEP + WORDS) as server:
    text = server.text(**HELLO)
fails("needs", ACTORSERVE, f"--port 0 {DEEP} --memory 500K {WORDS}", 3)
with Server(f"{DEEP} --memory 500K --weights disk --quota weights=1 {WORDS}") as server:
    assert server.text(**HELLO) == text
# The sizes that would fit do, alone, and the next larger ones do not.
LOOP = "--quiet --lengths 4,2 --concurrency 1 --requests 1 --memory 400K "
advice = re.search(r"these would fit: --quota kv=(\d+), --sequences (\d+)", ends(3, ACTORSERVE, LOOP + BYTES).stderr)
for more in (0, 1):
    for size in (f"--quota kv={int(advice[1]) + more}", f"--sequences {int(advice[2]) + more}"):
        ends(3 * more, ACTORSERVE, f"{LOOP} {size} {BYTES}")

# ---- other models ----------------------------------------------------------------------------------------------
# The states of a custom recurrent op are stored in pages, which are shared, evicted and recomputed.
DECAY = "{source}/examples/decay.c " + TEXT
actorrun(f"--quiet --steps 10 --save decay.safetensors {DECAY} --lr 3e-3")
prompt = re.sub("[^A-Za-z0-9]", " ", read(PLACES["reference"] + "/text.txt")[:100].decode())
want = actorrun(f"--quiet --init decay.safetensors --steps 0 --generate 20 --temperature 0 --prompt '{prompt}' {DECAY}").stdout
with Server(f"--rows 5 --sequences 4 --quota kv=2 --init decay.safetensors {DECAY}") as server:
    got = {c["text"] for c in server.client.complete(prompt=prompt, max_tokens=20, temperature=0, n=4)["choices"]}
    assert {text.rstrip("\n") for text in got} == {want[100:].rstrip("\n")}, (got, want)
# A model without a tokenizer takes bytes as tokens.
want = written(f"--init bytes.safetensors --prompt 'And the' gpt {SMALL}")
with Server(BYTES) as server:
    assert "And the" + server.text(prompt="And the", **GREEDY) == want
    says(chat(server), "no tokenizer")

# ---- what cannot be served -------------------------------------------------------------------------------------
os.mkdir("empty")
actorrun(f"--quiet --steps 1 --save long/ gpt --layers 1 --width 8 --heads 1 --context 256 {TEXT}")
write("key", "se-cret\n")
write("nokey", "")
write("spaces", "a b\n")
for text, options in (
        ("gpt: needs weights: give --init FILE", "gpt"), ("actorserve: nosuch.gguf: no such file", "nosuch.gguf"),
        ("kv=2 is too small: one sequence of 256 tokens needs kv=4; a context of 128 would fit", "--quota kv=2 long/"),
        ("--chat-template: the model has no tokenizer", "--chat-template chatml " + BYTES), ("empty/config.json", "empty"),
        ("nowhere", f"{DEEP} --weights disk --disk nowhere {WORDS}")):
    fails(text, ACTORSERVE, "--port 0 " + options)
for text, options in (
        ("nowhere/adapter_config.json", "--adapter nowhere"),
        ("up_proj.lora_A.weight is F32[2, 32], but the model needs f32[2, 16]", "--adapter other"),
        ("matches no weight of a linear map", "--adapter {reference}/lora_gpt2"), ("prefix-caching", "--prefix-caching maybe"),
        ("--quota weights=1: needs --weights disk", "--quota weights=1"),
        ("--home act: a server can move only weights, those of experts, and tables, off the device", "--home act=disk"),
        ("--init x: model has weights of its own", "--init x"), ("unknown option --microbatches", "--microbatches 2"),
        ("unknown option --steps", "--steps 2"),
        ("--chat-template klingon: must be a file, or one of chatml, ", "--chat-template klingon"),
        ("--served-model-name a,,b: a name is empty", "--served-model-name a,,b"),
        ("--access-log: cannot write /no/such/log: No such file", "--access-log /no/such/log"),
        ("--tool-parser klingon: must be auto, none, or one of gpt-oss, qwen3-coder, hermes", "--tool-parser klingon"),
        ("reasoning-parser", "--reasoning-parser klingon"), ("cannot open nothing", "--replay nothing"),
        ("--memory lots: not a size", "--memory lots"),
        ("--devices null:1: these devices hold no values", "--devices null:1"),
        ("--quota act.b=2: a server has only the quotas", "--quota act.b=2"),
        ("--admit sometimes: must be one of reserve, recompute", "--admit sometimes"),
        ("--host nowhere.invalid", "--host nowhere.invalid"), ("api-key-file", "--api-key-file nokey"),
        ("api-key-file", "--api-key-file spaces"), ("api-key-file", "--api-key-file nowhere"),
        ("api-key-file", "--api-key-file key --api-key k"), ("request-memory", "--request-memory 1M"),
        ("cors", "--cors nothing"), ("cors", "--cors http://a/b")):
    fails(text, ACTORSERVE, f"--port 0 {options} model")
fails("budget is 10.0 KiB", ACTORSERVE, "--port 0 --memory 10K model", 3)

# ---- outputs that cannot be written ----------------------------------------------------------------------------
write("one.jsonl", '{"time": 0, "prompt": 3, "answer": 4}\n')
for output in ("log", "trace", "report"):
    with Started(f"--port 0 --{output} /dev/full model", ACTORSERVE) as job:
        job.until("\n")
        try:
            Client(int(re.search(r":(\d+)/", job.out)[1])).ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2})
        except (http.client.HTTPException, ConnectionError):
            pass
        assert job.stop(signal.SIGINT), f"--{output} /dev/full ends well"
        says(job.err, "/dev/full")
    fails("/dev/full", ACTORSERVE,
          f"--quiet --clock virtual --tick 1e-3,0,0,0 --arrivals one.jsonl --{output} /dev/full model", 1)
with open("/dev/full", "wb") as full:
    got = subprocess.run([ACTORSERVE, "--port", "0", "model"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
assert got.returncode == 1 and "standard output" in got.stderr, got

# ---- keys ------------------------------------------------------------------------------------------------------
# The key comes from a file or a variable, and requests need it. A server that listens on other interfaces without a key
# warns.
with Server("--api-key-file key --host 127.0.0.1 model") as server:
    assert server.client.ask("GET", "/v1/models")[0] == 401
    assert Client(server.port, "se-cret").ask("GET", "/v1/models")[0] == 200
    assert b"se-cret" not in read(f"/proc/{server.process.pid}/cmdline"), "the key is told to others"
with Server("--host 0.0.0.0 model", SLUICE_API_KEY="other") as server:
    assert server.client.ask("GET", "/v1/models")[0] == 401
    assert "warning" not in server.err, server.err
with Server("--host 0.0.0.0 model") as server:
    pass
says(server.err, "warning: --host 0.0.0.0 without a key")
