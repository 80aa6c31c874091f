# SPDX-License-Identifier: Apache-2.0
"""Every message that docs/messages.md explains is one that the sources print: what stands between
its dots is found in a text of theirs."""
import re
import subprocess
import sys

LEAST = 6  # characters of a fragment that are worth looking for


def texts(root):
    names = subprocess.check_output(["git", "-C", root, "ls-files", "actors", "base", "comm", "graph", "io",
                                     "kernels", "models", "ops", "placement", "serve", "tools"], text=True).split()
    for name in names:
        if name.endswith((".c", ".h")):
            with open(root + "/" + name, encoding="utf-8") as file:
                yield re.sub(r'"\s*\n\s*"', "", file.read()).replace('\\"', '"').replace("\\n", "\n")


def messages(root):
    with open(root + "/docs/messages.md", encoding="utf-8") as file:
        for line in file:
            found = re.match(r"\| `([^`]*)` \|", line)
            if found:
                yield found.group(1)


def main(root):
    everything = "\n".join(texts(root))
    count, missing = 0, []
    for message in messages(root):
        parts = [part.strip() for part in message.split("…")]
        found = [part for part in parts if len(part) >= LEAST]
        count += 1
        if not found:
            missing.append("`%s` has nothing to look for" % message)
        missing += ["`%s`: no source says \"%s\"" % (message, part) for part in found if part not in everything]
    for line in missing:
        print("docs/messages.md: " + line)
    if not count:
        print("docs/messages.md explains nothing")
    raise SystemExit(1 if missing or not count else 0)


main(sys.argv[1])
