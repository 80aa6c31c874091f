# SPDX-License-Identifier: Apache-2.0
"""Checks that the sources print every message explained in docs/messages.md. The whole message must appear, in
order, in one text of the sources, or in two of which one is inserted into the other. Where the page has dots, the
text has a conversion or ends."""
import re
import subprocess
import sys

LAYERS = ("actors", "base", "comm", "graph", "io", "kernels", "models", "ops", "placement", "pytorch", "rollouts", "serve", "text", "tools")
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
BETWEEN = r"\s*(?:PRI\w+\s*)?"  # between literals that the compiler joins
JOINED = re.compile(LITERAL + "(?:" + BETWEEN + LITERAL + ")*" + r"(?:\s*PRI\w+)?")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
CONVERSION = re.compile(r"%[-+ #0]*[0-9*]*(?:\.[0-9*]+)?(?:hh|h|ll|l|z|j)?[a-zA-Z%]")
LEAST = 9  # characters that each of two texts must contribute


def texts(root):
    names = subprocess.check_output(["git", "-C", root, "ls-files", *LAYERS], text=True).split()
    for name in names:
        if name.endswith((".c", ".h")):
            with open(root + "/" + name, encoding="utf-8") as file:
                for found in JOINED.finditer(COMMENT.sub(" ", file.read())):
                    literals = re.findall(LITERAL, re.sub(r"\bPRI\w+", '"d"', found.group(0)))
                    yield "".join(literal[1:-1] for literal in literals).replace('\\"', '"').replace("\\n", "\n")


def messages(root):
    """Yields the messages of each table: its first column."""
    with open(root + "/docs/messages.md", encoding="utf-8") as file:
        for line in file:
            if line.startswith("| `"):
                yield from re.findall(r"`([^`]*)`", line.split(" | ")[0])


class Text:
    """A format, split at its conversions into pieces as printed."""

    def __init__(self, text):
        self.pieces = [piece.replace("\0", "%") for piece in CONVERSION.split(text.replace("%%", "\0"))]

    def holds(self, parts):
        """Returns whether these parts of a message occur here in order, with a conversion between any two."""
        at = 0
        for part in parts:
            while at < len(self.pieces) and not self.is_in(part, self.pieces[at]):
                at += 1
            if at == len(self.pieces):
                return False
            at += 1
        return True

    @staticmethod
    def is_in(part, piece):
        """Returns whether the text occurs, as whole words."""
        found = piece.find(part)
        before, after = piece[:found][-1:], piece[found + len(part):][:1]
        return found >= 0 and not (before.isalnum() and part[0].isalnum() or after.isalnum() and part[-1].isalnum())


def split(message):
    """Returns the texts between the dots. A culprit before the first colon may come from another text."""
    message = re.sub(r"^(--)?…: ", "…", message)
    return [part.strip() for part in message.split("…") if part.strip()]


def is_printed(message, formats):
    parts = split(message)
    if not parts:
        return False
    if any(text.holds(parts) for text in formats):
        return True
    # one text replaces a conversion of another one, or follows it
    for begin in range(len(parts)):
        for end in range(begin + 1, len(parts) + 1):
            inner, outer = parts[begin:end], parts[:begin] + parts[end:]
            if min(len("".join(inner)), len("".join(outer))) < LEAST:
                continue
            if any(text.holds(inner) for text in formats) and any(text.holds(outer) for text in formats):
                return True
    return False


def options(root):
    """Returns {field of lowering: its option}; tools replace the fields named in messages by these options."""
    with open(root + "/graph/compile/fields.c", encoding="utf-8") as file:
        return {field: "--" + name for name, field in re.findall(r'^ *[A-Z]+\("([a-z-]+)", ([\w.]+)[,)]', file.read(), re.M)}


def main(root):
    named = options(root)
    fields = re.compile(r"(?<![\w./])(%s)(?!\w|\.\w)" % "|".join(map(re.escape, sorted(named, key=len, reverse=True))))
    formats = [Text(fields.sub(lambda match: named[match[1]], text)) for text in {*texts(root)}]
    explained = list(messages(root))
    missing = [message for message in explained if not is_printed(message, formats)]
    for message in missing:
        print("docs/messages.md: no source prints `%s`" % message)
    if len(explained) < 100:
        print("docs/messages.md explains %d messages only" % len(explained))
    raise SystemExit(1 if missing or len(explained) < 100 else 0)


main(sys.argv[1])
