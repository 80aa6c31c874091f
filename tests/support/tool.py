# SPDX-License-Identifier: Apache-2.0
"""Functions for the tests of tools that are written in Python.

A test works in a temporary folder, without the user's settings, and fails by an exception. Options are text, which is
split as by a shell; {reference}, {source} and {build} in it stand for folders.

    run = Runs("gpt --layers 2 --data {reference}/tokens.u16", "--microbatches 2 --steps 4")
    for how in ("--stages 2", "--tensor 2"):
        near(run(), run(how), 1e-6)                  # run() is a report; equal calls run once
    run.refused("pieces is 0", "--pieces 0")
    fails("unknown model gtp", ACTORRUN, "gtp")
"""
import atexit
import concurrent.futures
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from serve_client import Client

BUILD, SOURCE = os.environ["SLUICE_BUILD"], os.environ["SLUICE_SOURCE"]
PLACES = {"build": BUILD, "source": SOURCE, "reference": SOURCE + "/tests/reference"}
ACTORRUN, ACTORSERVE, ACTORTRACE, ACTORTUNE = (f"{BUILD}/bin/actor{name}" for name in ("run", "serve", "trace", "tune"))
EMULATED = BUILD + "/tests/emulated_actorrun"
LONG = os.environ.get("SLUICE_LONG")
with open(BUILD + "/CMakeCache.txt", encoding="utf-8") as cache:
    SANITIZED = bool(re.search(r"^SLUICE_SANITIZE:\w+=.", cache.read(), re.M))
BRIEF = SANITIZED and not LONG  # the test does less
PATIENT = "--heartbeat-timeout 30 "  # of jobs that must not lose a process: a busy machine may stall one for seconds

work = tempfile.mkdtemp()
atexit.register(shutil.rmtree, work, ignore_errors=True)
os.environ.update(HOME=work, TMPDIR=work)
for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
    os.environ.pop(name, None)
os.chdir(work)


def every(n, rows):
    """Returns every n-th row if the test is brief, else all."""
    return rows[::n] if BRIEF else rows


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def need_emulated():
    """Skips the test if the build has no emulated GPUs."""
    if not os.access(EMULATED, os.X_OK):
        skip("this build has no emulated GPU (with CUDA, or the thread sanitizer)")


def words(options):
    """Splits options. A list is taken as it is."""
    return options if isinstance(options, list) else shlex.split(options.format(**PLACES))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def tensors(path):
    """Returns the tensors of a safetensors file, as bytes."""
    data = read(path)
    begin = 8 + int.from_bytes(data[:8], "little")
    return {name: data[begin + row["data_offsets"][0]:begin + row["data_offsets"][1]]
            for name, row in json.loads(data[8:begin]).items() if name != "__metadata__"}


def write_tensors(path, rows):
    """Writes a safetensors file of rows name: (dtype, shape, bytes)."""
    head, at = {}, 0
    for name, (dtype, shape, raw) in rows.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(raw for _, _, raw in rows.values()))


def typed_tensors(path):
    """Returns the tensors of a safetensors file, as (dtype, shape, bytes)."""
    data = read(path)
    head = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return {name: (head[name]["dtype"], head[name]["shape"], raw) for name, raw in tensors(path).items()}


def parse(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def copy_model(source, path, gone=(), **keys):
    """Copies a model's folder with other keys in its config.json."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    config = {**parse(path + "/config.json"), **keys}
    write(path + "/config.json", json.dumps({key: value for key, value in config.items() if key not in gone}))


def ends(status, program, options, limit=None, **environment):
    """Checks that a program ends with a status. Returns what it wrote, as .stdout and .stderr. `limit` bounds the bytes of
    a file."""
    limited = limit and (lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                  resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
    got = subprocess.run([program, *words(options)], capture_output=True, text=True, check=False,
                         errors="replace", env={**os.environ, **environment}, preexec_fn=limited)
    assert got.returncode == status, (f"{program} {options}: status {got.returncode}, not {status}\n"
                                      f"{got.stdout[-2000:]}\n{got.stderr[-2000:]}".rstrip())
    return got


def actorrun(options, status=0, **more):
    return ends(status, ACTORRUN, options, **more)


def says(said, *texts):
    """Checks that something that was written has these texts. What follows .* in one comes later."""
    for text in texts:
        assert re.search(".*".join(map(re.escape, text.split(".*"))), said, re.S), f'"{text}" is not in: {said[-3000:]}'


def fails(text, program, options, status=2, **more):
    """Checks that a program ends with an error that has this text, as in `says`. Returns what it wrote."""
    got = ends(status, program, options, **more)
    try:
        says(got.stderr, text)
    except AssertionError as error:
        raise AssertionError(f"{options}: {error}") from error
    return got


def until(what, condition, seconds=60):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(.01)


class Report:
    """A report of a run: its losses as numbers and with all bits, and the parsed file."""

    def __init__(self, call, whole):
        self.call, self.whole = call, whole
        steps = [s for s in whole["steps"] if "loss" in s]  # a virtual clock computes none
        self.losses, self.bits = [s["loss"] for s in steps], [s["loss_hex"] for s in steps]
        self.evaluations = [e["loss"] for e in whole.get("evaluations", [])]

    @staticmethod
    def read(path, call=""):
        with open(path, encoding="utf-8") as file:
            return Report(call, json.load(file))

    def moved(self, kind):
        """Returns the bytes that a step moved."""
        return self.whole["runtime"]["moved_bytes_per_step"][kind]

    def last(self, steps):
        """Returns the report of the last steps alone."""
        return Report(self.call, {"steps": self.whole["steps"][-steps:]})

    def first(self, steps):
        """Returns the report of the first steps alone."""
        return Report(self.call, {"steps": self.whole["steps"][:steps]})

    def then(self, later):
        """Returns the report of two runs of which the second resumed the first."""
        return Report(f"{self.call}; {later.call}", {
            name: self.whole.get(name, []) + later.whole.get(name, []) for name in ("steps", "evaluations")})


def published(path):
    """Returns the report of a file with a step and a loss on each line."""
    rows = [line.split() for line in read(path.format(**PLACES)).decode().splitlines() if line[0] != "#"]
    return Report(path, {"steps": [{"loss": float(loss), "loss_hex": loss} for _, loss, *_ in rows]})


class Runs:
    """Runs of a model. `options` are those of all runs; each run adds its own, and settings of the environment."""

    def __init__(self, model, options="", program=ACTORRUN):
        self.model, self.options, self.program, self.done = model, options, program, {}

    def __call__(self, options="", **environment):
        call = f"--quiet {PATIENT}{self.options} {options} --report report.json {self.model}"
        key = (call, *sorted(environment.items()))
        if key not in self.done:
            ends(0, self.program, call, **environment)
            self.done[key] = Report.read("report.json", call)
        return self.done[key]

    def refused(self, text, options="", status=2):
        """Checks that a run ends with an error that has this text. What follows .* in it comes later."""
        fails(text, self.program, f"--quiet {self.options} {options} {self.model}", status)


class Started:
    """A program that runs in the background, and is killed at the end of a `with` block."""

    count = 0

    def __init__(self, options, program=ACTORRUN, **environment):
        self.call, self.environment = [program, *words(options)], environment

    def __enter__(self):
        Started.count += 1
        self.name = f"started.{Started.count}"
        with open(self.name + ".out", "wb") as out, open(self.name + ".err", "wb") as err:
            self.process = subprocess.Popen(self.call, stdout=out, stderr=err, env={**os.environ, **self.environment})
        return self

    @property
    def out(self):
        return read(self.name + ".out").decode()

    @property
    def err(self):
        return read(self.name + ".err").decode()

    def until(self, text):
        """Waits until the program has written a text."""
        while text not in self.out:
            assert self.process.poll() is None, (self.call, self.process.returncode, self.out, self.err)
            time.sleep(.01)

    def stop(self, by=signal.SIGINT):
        """Ends the program by a signal and returns its status."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        return self.process.wait()

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)


class MadeUp(Started):
    """A server of a made-up model. Its arguments are those of programs/serve_made_up.c."""

    def __init__(self, *arguments, files="$(ulimit -n)"):
        limited = f'ulimit -n {files} && exec "$@"'
        super().__init__(["-c", limited, "-", BUILD + "/tests/serve_made_up", *map(str, arguments)], "bash")

    def __enter__(self):
        super().__enter__()
        self.until("\n")
        self.port = int(self.out.split()[0])
        self.client = Client(self.port)
        return self

    def __exit__(self, kind, *_):
        status = self.stop()
        assert kind or not status, (self.call, status, self.err)


class Server(Started):
    """A server, from its start to the end of a `with` block, where it has to end with status 0. `client` asks it."""

    def __init__(self, options, program=ACTORSERVE, **environment):
        super().__init__("--port 0 " + options, program, **environment)

    def __enter__(self):
        super().__enter__()
        self.until("\n")
        self.url = self.out.split()[-1]
        self.port = int(self.url.split(":")[-1].split("/")[0])
        self.client = Client(self.port)
        return self

    def ask(self, path, **body):
        """Returns the parsed answer to a request."""
        with urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode())) as answer:
            return json.load(answer)

    def text(self, **body):
        """Returns the text of a completion."""
        return self.client.complete(**body)["choices"][0]["text"]

    def __exit__(self, kind, *_):
        status = self.stop()
        assert kind or not status, (self.call, status, self.err)


def script(name, *arguments, status=0, python=sys.executable):
    """Runs a script of tests/support. Returns what it wrote."""
    return ends(status, python, ["-B", f"{SOURCE}/tests/support/{name}.py", *map(str, arguments)])


def at_once(function, items):
    """Calls a function of each item in a thread of its own and returns the results."""
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items))


def exact_grids(model, options, *grids):
    """Checks that runs with --exact have the same losses, parameters and optimizer state on all grids."""
    actorrun(f"--quiet --exact {options} --certify exact.jsonl {model}")
    for grid in grids:
        actorrun(f"--quiet --exact {options} {PATIENT} {grid} --recheck exact.jsonl {model}")


def near(one, other, most):
    """Checks that losses, and those of evaluations, differ by at most this share."""
    pairs = [(a.losses + a.evaluations) for a in (one, other)]
    assert one.losses and len(pairs[0]) == len(pairs[1]), (one.call, other.call, *pairs)
    assert all(abs(x - y) <= most * abs(x) for x, y in zip(*pairs)), (one.call, other.call, *pairs)


def same_bits(one, other):
    assert one.bits and one.bits == other.bits, (one.call, other.call, one.losses, other.losses)


def differ(one, other):
    assert one.bits and one.bits != other.bits, (one.call, other.call, "have the same losses")
