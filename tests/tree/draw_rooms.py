# SPDX-License-Identifier: Apache-2.0
"""Draws the source tree for docs/story.md: a bar for each layer, a room for each of its subfolders, as wide as it has
lines, and the way of a model through them.

    draw_rooms.py > docs/pictures/rooms.svg
"""
import collections
import html
import os
import subprocess

LAYERS = [("tools", "the four programs"), ("models", "shipped models, as a user writes them"),
          ("rollouts", "answers of the model under training"), ("serve", "sessions: a plan that answers"),
          ("pytorch", "programs of torch.export"), ("graph", "a model's graph becomes a plan"),
          ("comm", "processes of a job"), ("actors", "the runtime: any plan runs"),
          ("placement", "cores, caches, GPUs"), ("kernels", "arithmetic, queues, teams"),
          ("ops", "shapes, costs, gradients, facets"), ("text", "tokenizers, grammars, chats"),
          ("io", "files"), ("base", "memory, errors, numbers")]
# Stops of the way of a model, by room: the numbers of docs/story.md.
STOPS = {"tools/actorrun": "1", "models": "2", "graph/build": "4", "graph/passes": "5", "graph/sharding": "6",
         "graph/lower": "7", "actors/prove": "8", "actors/run": "9", "kernels/cpu": "10", "ops": "3"}
ENDS = (".c", ".h", ".cu", ".cuh", ".cpp", ".def")
LEFT, WIDTH, HEIGHT, GAP = 150, 760, 40, 7


def lines_by_room():
    rooms = collections.defaultdict(collections.Counter)
    for name in subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split():
        parts = name.split("/")
        if parts[0] in dict(LAYERS) and name.endswith(ENDS) and os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                rooms[parts[0]]["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += sum(1 for _ in file)
    return rooms


def text(x, y, words, size, more=""):
    return '<text x="%.1f" y="%.1f" font-size="%g" %s>%s</text>' % (x, y, size, more, html.escape(words))


def bar(y, layer, said, rooms, most):
    """Yields one layer: its name and purpose, then its rooms. All bars have one scale, the square root of lines."""
    total = sum(rooms.values())
    yield text(LEFT - 10, y + 18, layer, 14, 'text-anchor="end" font-weight="600"')
    yield text(LEFT - 10, y + 33, "{:,} lines".format(total), 10, 'text-anchor="end" class="soft"')
    width, x = WIDTH * (total / most) ** 0.5, LEFT
    roots = {room: lines ** 0.5 for room, lines in rooms.items()}
    for room in sorted(rooms, key=lambda r: (r == layer, -rooms[r])):
        w = width * roots[room] / sum(roots.values())
        stop = STOPS.get(room)
        yield '<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" class="%s"/>' % (x, y, w - 2, HEIGHT, "on" if stop else "room")
        label = room.split("/")[-1] if room != layer else ""
        if label and w > 8 * len(label):
            yield text(x + 6, y + 16, label, 11)
        if stop:
            yield '<circle cx="%.1f" cy="%d" r="9" class="stop"/>' % (x + w - 15, y + HEIGHT - 13)
            yield text(x + w - 15, y + HEIGHT - 9, stop, 11, 'text-anchor="middle" class="number"')
        x += w
    yield text(LEFT + width + 8, y + 25, said, 11, 'class="soft"')


def main():
    rooms = lines_by_room()
    most = max(sum(r.values()) for r in rooms.values())
    height = len(LAYERS) * (HEIGHT + GAP) + 20
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1130 %d" font-family="sans-serif">' % height)
    print("<!-- SPDX-License-Identifier: Apache-2.0 -->")
    print("<style>.room{fill:#dfe6ee}.on{fill:#b9d3f0}.stop{fill:#1f4e8c}.number{fill:#fff;font-weight:600}"
          "text{fill:#1c2733}.soft{fill:#5c6b7a}</style>")
    print('<rect width="1130" height="%d" fill="#fff"/>' % height)
    for i, (layer, said) in enumerate(LAYERS):
        for part in bar(10 + i * (HEIGHT + GAP), layer, said, rooms[layer], most):
            print(part)
    print("</svg>")


if __name__ == "__main__":
    main()
