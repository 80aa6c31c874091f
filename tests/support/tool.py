# SPDX-License-Identifier: Apache-2.0
"""Functions for the tests of tools that are written in Python.

A test works in a temporary folder, without the user's settings, and fails by an exception. Options are text, which is
split as by a shell; {reference}, {source} and {build} in it stand for folders.

    run = Runs("gpt --layers 2 --data {reference}/tokens.u16", "--microbatches 2 --steps 4")
    for how in ("--stages 2", "--tensor 2"):
        near(run(), run(how), 1e-6)                  # run() is a report; equal calls run once
    run.refused("pieces is 0", "--pieces 0")
"""
import atexit
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD, SOURCE = os.environ["SLUICE_BUILD"], os.environ["SLUICE_SOURCE"]
PLACES = {"build": BUILD, "source": SOURCE, "reference": SOURCE + "/tests/reference"}
ACTORRUN, EMULATED = BUILD + "/bin/actorrun", BUILD + "/tests/emulated_actorrun"
PATIENT = "--heartbeat-timeout 30 "  # of jobs that must not lose a process: a busy machine may stall one for seconds

work = tempfile.mkdtemp()
atexit.register(shutil.rmtree, work, ignore_errors=True)
os.environ.update(HOME=work, TMPDIR=work)
for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
    os.environ.pop(name, None)
os.chdir(work)


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def need_emulated():
    """Skips the test if the build has no emulated GPUs."""
    if not os.access(EMULATED, os.X_OK):
        skip("this build has no emulated GPU (with CUDA, or the thread sanitizer)")


def words(text):
    return shlex.split(text.format(**PLACES))


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


def ends(status, program, options, **environment):
    """Checks that a program ends with a status. Returns what it wrote, as .stdout and .stderr."""
    got = subprocess.run([program, *words(options)], capture_output=True, text=True, errors="replace", check=False,
                         env={**os.environ, **environment})
    assert got.returncode == status, (f"{program} {options}: status {got.returncode}, not {status}\n"
                                      f"{got.stdout[-2000:]}\n{got.stderr[-2000:]}".rstrip())
    return got


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

    def then(self, later):
        """Returns the report of two runs of which the second resumed the first."""
        return Report(f"{self.call}; {later.call}", {
            name: self.whole.get(name, []) + later.whole.get(name, []) for name in ("steps", "evaluations")})


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
        err = ends(status, self.program, f"--quiet {self.options} {options} {self.model}").stderr
        assert re.search(".*".join(map(re.escape, text.split(".*"))), err), f"{options}: \"{text}\" is not in: {err}"


class Server:
    """A server, from its start to the end of a `with` block, where it has to end with status 0."""

    def __init__(self, options, program=BUILD + "/bin/actorserve"):
        self.call = [program, "--port", "0", *words(options)]

    def __enter__(self):
        with open("server.out", "wb") as out, open("server.err", "wb") as err:
            self.process = subprocess.Popen(self.call, stdout=out, stderr=err)
        while not (said := read("server.out").decode()).endswith("\n"):
            assert self.process.poll() is None, (self.call, read("server.err").decode())
            time.sleep(.01)
        self.url = said.split()[-1]
        return self

    def ask(self, path, **body):
        """Returns the parsed answer to a request."""
        with urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode())) as answer:
            return json.load(answer)

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait()
        assert kind or not status, (self.call, status, read("server.err").decode())


def near(one, other, most):
    """Checks that losses, and those of evaluations, differ by at most this share."""
    pairs = [(a.losses + a.evaluations) for a in (one, other)]
    assert one.losses and len(pairs[0]) == len(pairs[1]), (one.call, other.call, *pairs)
    assert all(abs(x - y) <= most * abs(x) for x, y in zip(*pairs)), (one.call, other.call, *pairs)


def same_bits(one, other):
    assert one.bits and one.bits == other.bits, (one.call, other.call, one.losses, other.losses)


def differ(one, other):
    assert one.bits and one.bits != other.bits, (one.call, other.call, "have the same losses")
