# SPDX-License-Identifier: Apache-2.0
"""References for clips, in plain Python: the passes of a queue on stages, and the frames of a small dit."""
import csv
import json
import math
import struct

# ---- the queue on stages -------------------------------------------------------------------------


def passes_of(stages, steps, blocks, context, first=1):
    """Returns the ends of passes on the first stage's clock: (idle passes, end, first block out). Passes of the
    first block, which has no context, take `first`."""
    out, free = {}, [0] * stages
    for iteration in range(blocks + steps - 1):
        for step in range(steps):  # newest first
            block = iteration - step
            if not 0 <= block < blocks:
                continue
            ready = out.get((block, step - 1), 0)
            if context and block:  # the block before, as the last iteration left it
                ready = max(ready, out[(block - 1, step)])
            for stage in range(stages):
                free[stage] = ready = max(ready, free[stage]) + (1 if block else first)
            out[(block, step)] = ready
    end = max(out.values())
    return end - steps * (blocks - 1 + first), end, out[(0, steps - 1)]


def check_idle(path, stages, steps, blocks, frames, context, unit):
    rows = [row for row in csv.DictReader(open(path), delimiter="\t") if row["class"] == "F"]
    lines = {}
    for row in rows:
        start, end = int(row["start_ns"]), int(row["end_ns"])
        if end - start > unit / 4:
            lines.setdefault(int(row["device"].split(":")[-1]), []).append((start, end))
    idle, _, _ = passes_of(stages, steps, blocks, context > 0, frames / (frames + context))
    # The least that the order of a queue allows: see docs/loops.md.
    least = stages**2 - 1 if context else (stages - 1) ** 2
    assert abs(idle - least) < 1e-9, (idle, stages)
    begin, end = min(l[0][0] for l in lines.values()), max(l[-1][1] for l in lines.values())
    for device, line in lines.items():
        line.sort()
        assert len(line) == steps * blocks, (device, len(line))
        gaps = [line[0][0] - begin] + [b[0] - a[1] for a, b in zip(line, line[1:])] + [end - line[-1][1]]
        passes = sum(gaps) / unit if context else sum(round(gap / unit) for gap in gaps)
        assert abs(passes - idle) < 1e-6, f"device {device} is idle for {passes} passes, not {idle}"


# ---- sizes of stages -----------------------------------------------------------------------------


def whole_lines(*counts):
    """Returns the bytes of f32 parameters, each of which begins at a multiple of 64 bytes."""
    return sum(-(-4 * count // 64) * 64 for count in counts)


def check_sizes(path, o):
    """Checks a dit on N stages: each has 1 / N of the transformer's weights beside the first and the last map, and a
    hop carries ways (frames + context) P C numbers in each tick."""
    c, stages, ways = o["width"], o["stages"], o["ways"]
    block = [6 * c * c, 6 * c, c, c, c, c, c // o["heads"], c // o["heads"]]  # modulation, norms
    block += 4 * [c * c, c] + [4 * c * c, 4 * c, 4 * c * c, c]
    first = [11 * c, 11 * c, 32 * c, c, c * c, c, 4 * c, c]  # classes, noise level, patches
    last = [2 * c * c, 2 * c, c, c, 4 * c, 4]
    report = json.load(open(path))
    weights = [d["bytes"]["parameters"] for d in report["devices"]]
    want = [o["layers"] // stages * whole_lines(*block) for _ in range(stages)]
    want[0] += whole_lines(*first)
    want[-1] += whole_lines(*last)
    assert weights == want, (weights, want)
    rows, tick = o["side"] ** 2 // 4, 45 * 4
    seen = [o["frames"] + (o["context"] if b else 0) for b in range(o["blocks"])]
    hops = sum(ways * n * rows * c * 4 + ways * c * 4 + tick for n in seen)  # rows, condition, words of the tick
    back = sum(n * rows * 4 * 4 for n in seen)
    moved = o["steps"] * ((stages - 1) * hops + (back if stages > 1 else 0))
    assert report["pipeline_bytes"] == moved, (report["pipeline_bytes"], moved)


# ---- a stream on two devices ---------------------------------------------------------------------


def check_stream(path, report, steps, frames, most):
    """Checks the first frame and the rate against the times of passes: U of the network, V of the decoder. Returns both."""
    network, decoder = {}, {}
    for row in csv.DictReader(open(path), delimiter="\t"):
        if row["class"] == "F":
            times = decoder if row["device"].endswith("1") else network
            block = int(row["microbatch"]) // steps
            times[block] = times.get(block, 0) + (int(row["end_ns"]) - int(row["start_ns"])) * 1e-9
    blocks = json.load(open(report))["clips"][0]["blocks"]
    first, last = blocks[0], blocks[-1]
    wait = network[0] + decoder[0]
    pace = frames / max(network[3], decoder[3])
    rate = (last["frame"] - blocks[3]["frame"]) / (last["seconds"] - blocks[3]["seconds"])
    assert abs(first["seconds"] / wait - 1) < most, (first, wait)
    assert abs(rate / pace - 1) < most, (rate, pace)
    return wait, pace


# ---- noise ---------------------------------------------------------------------------------------


def philox(counter, key):
    c, k0, k1 = list(counter), key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def noises(seed, blocks, frames, context, size):
    """Yields the noise frames of each block."""
    pool = []
    for i in range((frames + context) * size):
        words = philox([i, 0, 0x6E6F6973, 0], seed)
        u = (words[0] + 1) * 2.0**-32
        pool.append(math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * words[1] * 2.0**-32))
    pool = [pool[i * size : (i + 1) * size] for i in range(frames + context)]
    for block in range(blocks):
        if block:
            order = list(range(frames))
            for i in range(frames - 1, 0, -1):
                other = philox([i, block - 1, 0x73687566, 0], seed)[0] % (i + 1)
                order[i], order[other] = order[other], order[i]
            pool = pool[frames:] + [pool[i] for i in order]
        yield [list(frame) for frame in pool[-frames:]]


# ---- the network ---------------------------------------------------------------------------------


def read_weights(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head, out = json.loads(data[8 : 8 + size]), {}
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin : 8 + size + end])
        if len(entry["shape"]) == 2:
            n = entry["shape"][1]
            numbers = [numbers[i : i + n] for i in range(0, len(numbers), n)]
        out[name] = numbers
    return out


def dense(w, name, x):
    return [sum(a * b for a, b in zip(row, x)) + bias for row, bias in zip(w[name + ".weight"], w[name + ".bias"])]


def silu(x):
    return [v / (1 + math.exp(-v)) for v in x]


def gelu(x):  # tanh form, as GPT-2's
    return [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x]


def layernorm(w, name, x):
    mean = sum(x) / len(x)
    scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-6)
    return [(v - mean) * scale * g + b for v, g, b in zip(x, w[name + ".weight"], w[name + ".bias"])]


def modulate(x, scale, shift):
    return [v * (1 + a) + b for v, a, b in zip(x, scale, shift)]


def turn(x, gain, place):
    """Norms a head and rotates it to its (frame, row, column)."""
    half = len(x) // 2
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + 1e-5)
    x = [v * scale * g for v, g in zip(x, gain)]
    third = half // 3
    counts = [half - 2 * third, third, third]
    angles = [p * 100 ** (-i / n) for p, n in zip(place, counts) for i in range(n)]
    u, v = x[:half], x[half:]
    return [a * math.cos(t) - b * math.sin(t) for a, b, t in zip(u, v, angles)] + [
        b * math.cos(t) + a * math.sin(t) for a, b, t in zip(u, v, angles)
    ]


class Network:
    def __init__(self, weights, layers, heads, across, context):
        self.w, self.layers, self.heads, self.across, self.context = weights, layers, heads, across, context

    def condition(self, level, label):
        half = 16
        angles = [1000 * level * 10000 ** (-i / half) for i in range(half)]
        x = [math.cos(a) for a in angles] + [math.sin(a) for a in angles]
        t = dense(self.w, "time.1", silu(dense(self.w, "time.0", x)))
        return silu([a + b for a, b in zip(t, self.w["class.weight"][label])])

    def place(self, token, first):
        area = self.across**2
        return token // area + first, token % area // self.across, token % self.across

    def __call__(self, tokens, seen, level, label, kept):
        """Returns v of the tokens of a tick, and keys and values by layer; `kept`: those ahead, by layer."""
        w, width = self.w, len(self.w["patches.weight"])
        condition, first = self.condition(level, label), self.context - seen
        x = [[a + b for a, b in zip(dense(w, "patches", t), w["class.token.weight"][label])] for t in tokens]
        made = []
        for layer in range(self.layers):
            h = f"h.{layer}."
            m = dense(w, h + "modulation", condition)
            m = [m[i * width : (i + 1) * width] for i in range(6)]
            y = [modulate(layernorm(w, h + "norm1", t), m[0], m[1]) for t in x]
            q, k, v = ([dense(w, h + n, t) for t in y] for n in "qkv")
            made.append((k, v))
            y = self.attend(h, q, k + kept[layer][0], v + kept[layer][1], first)
            x = [[a + b * c for a, b, c in zip(t, dense(w, h + "out", o), m[2])] for t, o in zip(x, y)]
            y = [modulate(layernorm(w, h + "norm2", t), m[3], m[4]) for t in x]
            y = [dense(w, h + "down", gelu(dense(w, h + "up", t))) for t in y]
            x = [[a + b * c for a, b, c in zip(t, o, m[5])] for t, o in zip(x, y)]
        m = dense(w, "head.modulation", condition)
        y = [dense(w, "head.out", modulate(layernorm(w, "head.norm", t), m[:width], m[width:])) for t in x]
        return y, made

    def attend(self, h, q, k, v, first):
        dim = len(q[0]) // self.heads
        out = [[] for _ in q]
        for head in range(self.heads):
            cut = slice(head * dim, (head + 1) * dim)
            keys = [turn(x[cut], self.w[h + "k_norm.weight"], self.place(i, first)) for i, x in enumerate(k)]
            for i, x in enumerate(q):
                query = turn(x[cut], self.w[h + "q_norm.weight"], self.place(i, first))
                scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(dim) for key in keys]
                most = max(scores)
                weights = [math.exp(s - most) for s in scores]
                whole = sum(weights)
                out[i] += [sum(p * x[cut][d] for p, x in zip(weights, v)) / whole for d in range(dim)]
        return out


def ticks_of(order, steps, blocks):
    """Yields (block, step), and the block that ran just before in the same iteration."""
    if order == "stream":
        yield from ((b, s, None) for b in range(blocks) for s in range(steps))
        return
    for iteration in range(blocks + steps - 1):
        before = None
        for step in range(steps):
            block = iteration - step
            if 0 <= block < blocks:
                yield block, step, before
                before = block


def frames_of(net, o):
    frames, context, steps, area = o["frames"], o["context"], o["steps"], net.across**2
    blocks = -(-o["length"] // frames)
    own = [min(frames, o["length"] - b * frames) for b in range(blocks)]
    noise = noises(o["seed"], blocks, frames, context, area * 4)
    flat = [[f[i : i + 4] for f in n[-m:] for i in range(0, area * 4, 4)] for n, m in zip(noise, own)]
    state, ahead, seen = {}, None, {}
    for block, step, before in ticks_of(o["order"], steps, blocks):
        count = min(context, own[block - 1]) if block else 0
        if count and (o["order"] == "queue" or not step):
            seen[block] = state[block - 1][-count * area :]
        tokens = seen.get(block, []) + (state[block] if step else flat[block])
        level, after, v = 1 - step / steps, 1 - (step + 1) / steps, []
        ways, kept = [o["label"], 10][: 2 if o["guidance"] != 1 else 1], []
        for way, label in enumerate(ways):
            use = ahead[way] if before == block + 1 and context else [([], [])] * net.layers
            y, made = net(tokens, count, level, label, use)
            v.append(y)
            n = min(context, own[block]) * area
            kept.append([(k[count * area :][:n], x[count * area :][:n]) for k, x in made])
        ahead = kept
        if len(v) > 1:
            v = [[u + o["guidance"] * (c - u) for c, u in zip(a, b)] for a, b in zip(*v)]
        else:
            v = v[0]
        moved = [[x + (after - level) * d for x, d in zip(t, dv)] for t, dv in zip(tokens, v)]
        state[block] = moved[count * area :]
    return [t for b in range(blocks) for t in state[b]]


def read_npy(path):
    data = open(path, "rb").read()
    size = struct.unpack("<H", data[8:10])[0]
    shape = eval(data[10 : 10 + size].decode())["shape"]
    return shape, struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size :])


def check_frames(weights, path, **options):
    """Computes the frames of a file and compares them."""
    o = {"steps": 3, "frames": 1, "context": 0, "length": 1, "seed": 0, "label": 0, "guidance": 1, "order": "queue",
         "layers": 1, "heads": 2, "side": 8, **options}
    across = o["side"] // 2
    want = frames_of(Network(read_weights(weights), o["layers"], o["heads"], across, o["context"]), o)
    shape, got = read_npy(path)
    assert shape == (o["length"], o["side"], o["side"]), shape
    worst = 0
    for i, number in enumerate(got):
        frame, row, column = i // o["side"] ** 2, i // o["side"] % o["side"], i % o["side"]
        token = frame * across**2 + row // 2 * across + column // 2
        worst = max(worst, abs(number - want[token][row % 2 * 2 + column % 2]))
    assert worst < 2e-4, f"frames differ by {worst}"

