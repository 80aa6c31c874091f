# SPDX-License-Identifier: Apache-2.0
"""Tools test their outputs before they start work, where possible: a folder that does not exist ends the tool before the
first step. A later write error, such as a full disk under a file or under standard output, ends it with status 1 and an
error that names the file.

needs: zeromq libevent
"""
import glob
import os
import re
import struct
import subprocess

from serve_client import Client
from tool import (ACTORRUN, ACTORSERVE, ACTORTRACE, ACTORTUNE, PATIENT, SANITIZED, Started, actorrun, ends, fails, read, says,
                  typed_tensors, words, work, write, write_tensors)

TEXT = "--data {reference}/text.txt "
SHAPE = "--layers 2 --width 16 --heads 2 --context 16 "
MODEL, LORA = f"gpt {SHAPE} --batch 4 {TEXT}", "--lora *c_attn*=2 "
for suffix in ("csv", "jsonl", "safetensors"):
    os.symlink("/dev/full", "full." + suffix)


def tried(text, program, options):
    """The command has to fail before the first step."""
    got = fails(text, program, options)
    assert not re.search("^step ", got.stdout, re.M), f"{options}: after steps"


def full(text, program, options):
    fails(text, program, options, 1)


def full_output(program, options):
    with open("/dev/full", "wb") as out:
        got = subprocess.run([program, *words(options)], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert got.returncode == 1, f"{options}: status {got.returncode} with a full standard output"
    says(got.stderr, "writing the standard output failed")


# ---- actorrun --------------------------------------------------------------------------------------------------
for option in "save report trace plan log logprobs checkpoint save-adapter save-paths".split():
    more = "--skip 0.3 --stages 2 --microbatches 4 --steps 0" if option == "save-paths" else ""
    tried(f"--{option}: cannot", ACTORRUN, f"--steps 3 {LORA} {more} --{option} no/such/place {MODEL}")
write("file", "")
for text, options in (
        ("--save: cannot", f"--save no/such/place/ gpt --layers 1 --width 16 --heads 2 --context 16 --batch 4 {TEXT}"),
        ("--save x/: no config.json is possible: no Hugging Face model matches qwen-moe with these options; save the weights "
         "alone (--save FILE.safetensors)",
         "--save x/ qwen-moe --layers 1 --width 32 --heads 4 --context 16 --batch 2 " + TEXT),
        ("--save-adapter: file is not a folder", f"{LORA} --save-adapter file {MODEL}")):
    tried(text, ACTORRUN, "--steps 3 " + options)
for text, output in (*((("writing /dev/full failed", f"--{option} /dev/full") for option in ("report", "trace", "plan"))),
                     ("writing full.safetensors failed", "--save full.safetensors"),
                     ("--log: writing full.csv failed: No space left on device", "--log full.csv"), ("", "--log full.jsonl"),
                     ("--logprobs: writing full.jsonl failed: No space left on device", "--logprobs full.jsonl")):
    full(text, ACTORRUN, f"--steps 1 --quiet {output} {MODEL}")
for options in ("--steps 1 " + MODEL, f"-n 2 --stages 2 --steps 1 {PATIENT} {MODEL}", "--steps 0 --quiet --generate 3 " + MODEL,
                "--dry-run " + MODEL, "--help", "--help all", "status", "status --help"):
    full_output(ACTORRUN, options)

# ---- actortrace, actortune -------------------------------------------------------------------------------------
actorrun(f"--steps 2 --quiet --trace t --report r.json --save w.safetensors {MODEL}")
for command in ("show", "page"):
    full_output(ACTORTRACE, command + " t")
    full("writing /dev/full failed", ACTORTRACE, command + " -o /dev/full t")
full_output(ACTORTRACE, "--help")
TUNE, MODELLED = "--stages 2 --microbatches 2 --points 2 --quiet ", "--devices timed:2 " + MODEL
for option in ("svg", "csv", "json"):
    tried(f"--{option}: cannot", ACTORTUNE, f"{TUNE} --{option} no/such/place {MODELLED}")
    full("writing /dev/full failed", ACTORTUNE, f"{TUNE} --{option} /dev/full {MODELLED}")
tried("cannot write no/such/prefix", ACTORTUNE, f"{TUNE} --keep no/such/prefix {MODELLED}")
full_output(ACTORTUNE, TUNE + MODELLED)

# ---- values that are not finite --------------------------------------------------------------------------------
# They never replace a file, and gradients that are not finite end the run.
rows = typed_tensors("w.safetensors")
name = next(iter(rows))
rows[name] = (*rows[name][:2], struct.pack("<f", float("nan")) + rows[name][2][4:])
write_tensors("nan.safetensors", rows)
write("old.safetensors", "good\n")
for way in ("", f"-n 2 --stages 2 {PATIENT}"):
    full("is not finite: old.safetensors is not written", ACTORRUN,
         f"{way} --steps 0 --init nan.safetensors --save old.safetensors {MODEL}")
assert read("old.safetensors") == b"good\n" and not glob.glob("*.parts*") + glob.glob("*.tmp*"), os.listdir()
write("m.c", r"""#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "`FILE`", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 4), 16, 256, &next);
  sl_tensor *t = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_CONSTANT(0), "t");
  sl_tensor *h = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_CONSTANT(0), "h");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, sl_sqrt(g, sl_embedding(g, ids, t)), h, NULL), next),
           &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(m, "m", options, build);
""")
got = fails("actorrun: the norm of the gradients of step 1 is", ACTORRUN,
            "--steps 1 --checkpoint nanck --save old.safetensors m.c " + TEXT, 1)
says(got.stdout, "step 1/1")
assert read("old.safetensors") == b"good\n" and not os.path.isdir("nanck/step-1"), "a good file was replaced"

# ---- without steps ---------------------------------------------------------------------------------------------
# A checkpoint's weights generate the same text as after training, and all other outputs are written.
HELLO = f"--quiet --generate 20 --prompt hello {MODEL}"
actorrun(f"--steps 2 --quiet --checkpoint gone {MODEL}")
behind = actorrun("--steps 2 --checkpoint gone --resume " + HELLO).stdout
assert actorrun("--steps 0 --checkpoint gone --resume " + HELLO).stdout == behind, "another text than behind training"
actorrun(f"--steps 0 --quiet --checkpoint gone --resume --save now.safetensors --report now.json --trace now.trace {MODEL}")
assert all(os.path.getsize("now." + suffix) for suffix in ("safetensors", "json", "trace"))
assert actorrun("--steps 0 --init now.safetensors " + HELLO).stdout == behind, "what was saved without steps"
actorrun(f"--steps 0 --quiet --checkpoint never --generate 2 {MODEL}")
actorrun(f"--steps 0 --quiet --checkpoint never --resume {MODEL}")
actorrun("--steps 0 --quiet --generate 2 --eval {reference}/text.txt " + MODEL, 2)

# ---- a folder that cannot be synced ----------------------------------------------------------------------------
# The older checkpoint is kept.
if not SANITIZED:
    write("sync.c", r"""#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
  struct stat s;
  if (!fstat(fd, &s) && S_ISDIR(s.st_mode)) return errno = EIO, -1;
  return (int)syscall(SYS_fsync, fd);
}
""")
    ends(0, os.environ.get("CC", "cc"), "-shared -fPIC -o sync.so sync.c")
    CK, PRELOAD = f"--quiet --checkpoint ck --keep 1 {MODEL}", work + "/sync.so"
    actorrun("--steps 2 " + CK)
    fails("Input/output error", ACTORRUN, "--steps 4 --resume " + CK, 1, LD_PRELOAD=PRELOAD)
    assert os.path.isfile("ck/step-2/manifest.json"), "the older checkpoint is gone"
    fails("writing s.safetensors failed: Input/output error", ACTORRUN, f"--steps 1 --quiet --save s.safetensors {MODEL}", 1,
          LD_PRELOAD=PRELOAD)
    actorrun("--steps 4 --resume " + CK)

# Temporary files have unpredictable names, and links in their place are not followed.
with Started("-c 'sleep 100'", "sh") as job:  # the next processes have numbers beyond it
    for i in range(20):
        os.symlink("victim", f"linked.safetensors.tmp.{job.process.pid + i}")
actorrun("--steps 0 --save linked.safetensors " + MODEL)
assert not os.path.exists("victim") and os.path.getsize("linked.safetensors"), "a link was followed"

# A folder is not a list, and a read error is not the end of a file.
for options in (f"--order {work}", f"--paths {work} --stages 2", f"--routing {work} --devices timed:2 --data-parallel 2"):
    fails(f"cannot read {work}: Is a directory", ACTORRUN, f"--steps 1 {options} {MODEL}")

# A server that cannot write its log, trace or report ends with an error that names it.
for option in ("log", "trace", "report", "access-log"):
    serve = f"--port 0 --init w.safetensors --{option} %s gpt {SHAPE}"
    fails(f"--{option}: cannot", ACTORSERVE, serve % "no/such/place")
    with Started(serve % "/dev/full", ACTORSERVE) as job:
        job.until("at http")
        try:
            Client(int(re.search(r":(\d+)/v1", job.out)[1])).ask("POST", "/v1/completions", {"prompt": [1, 2], "max_tokens": 2})
        except ConnectionError:  # it may have ended, if it cannot log
            pass
        assert job.stop() == 1, f"actorserve --{option} /dev/full"
        says(job.err, "/dev/full")
