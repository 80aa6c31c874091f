# SPDX-License-Identifier: Apache-2.0
"""Experts on disk on the virtual clock: a server reads, in each tick and layer, the experts that its rows choose evenly,
except the share that is held, at the disk's rate, for whole experts and for planes, and for several rows.

labels: unthreaded
needs: libevent
"""
import json

from tool import ACTORRUN, BUILD, ends, read, write

LAYERS, WIDTH, INNER, EXPERTS, TOP_K, RATE, TOKENS = 3, 128, 256, 16, 2, 50e6, 40
MODEL = (f"mixtral --context 192 --layers {LAYERS} --width {WIDTH} --heads 4 --experts {EXPERTS} --top-k {TOP_K} "
         f"--expert-ffn {INNER}")
write("machine.json", json.dumps({
    "name": "a slow disk", "source": "none", "flops_per_second": {"f32": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e11,
    "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e12, "link_seconds": 0, "link_bytes_per_second": 1e12,
    "devices_per_host": 8, "host_link_seconds": 0, "host_link_bytes_per_second": 1e12, "link_efficiency": 1,
    "copy_bytes_per_second": 1e12, "host_memory_bytes_per_second": 1e12, "disk_read_bytes_per_second": RATE,
    "disk_write_bytes_per_second": RATE}))


def seconds(held, clients, how=""):
    """Returns the time of all answers."""
    share = "" if held is None else f"--experts-held {held}"
    ends(0, BUILD + "/bin/actorserve",
         f"--clock virtual --machine machine.json --concurrency {clients} --requests {clients} --lengths 1,{TOKENS} "
         f"--weights experts {share} --quota kv=64 --report report.json {how} {MODEL}")
    return json.loads(read("report.json"))["seconds"]


def plane_bytes(rows, k):
    return rows * ((k + 31) // 32 + (k + 127) // 128) * 4


whole = 3 * WIDTH * INNER * 4
plane = 2 * plane_bytes(INNER, WIDTH) + plane_bytes(WIDTH, INNER)
for clients in (1, 3):
    wanted = EXPERTS * (1 - (1 - TOP_K / EXPERTS) ** clients)
    rows = clients * TOP_K / wanted
    for how, bytes_each in (("--quota experts=8", whole),
                            ("--quota experts=24 --experts planes:2..4", plane * (2 + 2 * rows / (rows + 1)))):
        more = seconds(0.25, clients, how) - seconds(0.75, clients, how)
        want = TOKENS * LAYERS * wanted * 0.5 * bytes_each / RATE
        assert abs(more / want - 1) < 0.01, (clients, how, more, want)

# Without a share, as much is held as slots hold of all.
assert abs(seconds(None, 1, "--quota experts=8") / seconds(0.5, 1, "--quota experts=8") - 1) < 1e-6
ends(0, ACTORRUN, f"--quiet --steps 0 --save model.safetensors {MODEL}")
err = ends(2, BUILD + "/bin/actorserve", f"--port 0 --init model.safetensors --weights experts --experts-held .5 {MODEL}").stderr
assert "--experts-held 0.5: needs --clock virtual; a real server counts what it holds" in err, err

assert seconds(0, 1) >= seconds(0.001, 1) > seconds(0.5, 1)  # a share of 0 is none held
SERVER = BUILD + "/bin/actorserve"
for how, text in (("--weights tables --experts planes:2..4", "--experts planes:2..4: needs --weights experts"),
                  ("--weights tables --prefetch 1", "--prefetch 1: needs --weights experts"),
                  ("--clock virtual --machine machine.json --concurrency 1 --requests 1 --lengths 1,2 --experts-held 0.3",
                   "--experts-held 0.3: needs --weights experts"),
                  ("--weights experts --experts-held 0.3", "--experts-held 0.3: needs --clock virtual")):
    init = "" if "clock" in how else "--init none.safetensors"
    said = ends(2, SERVER, f"{how} {init} {MODEL}").stderr
    assert text in said, (how, said)
