# SPDX-License-Identifier: Apache-2.0
"""Checks all look-ups of options by name in the tools and models: each name must have a row in a table of
options, of the kind that the look-up reads.

    lookups.py SOURCE
"""
import collections
import os
import re
import sys

NAME = r'"([a-z0-9-]+)"'
ROWS = [re.compile(r"\{[\s\\]*%s,[\s\\]*SL_OPTION_(\w+)" % NAME), re.compile(r"^\s*(INT|FLOAT|FLAG|TEXT)\(%s," % NAME, re.M)]
LOOKUP = re.compile(r"\b(sl_arg_(?:int|float|text|flag|given|set)|sl_args_set|settings_text|numbers_read|texts_of)"
                    r"\(\s*[\w>.&-]+,\s*%s" % NAME)
READS = {"sl_arg_int": {"INT"}, "sl_arg_float": {"FLOAT"}, "sl_arg_flag": {"FLAG"}, "sl_arg_text": {"TEXT", "LIST"},
         "settings_text": {"TEXT", "LIST"}}


def sources(root):
    for folder in ("tools", "models", "graph", "include", "pytorch", "serve", "rollouts"):
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".cpp")):
                    path = os.path.join(at, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, root), file.read()


def main():
    texts = list(sources(sys.argv[1]))
    kinds, wrong, count = collections.defaultdict(set), 0, 0
    for _, text in texts:
        for name, kind in ROWS[0].findall(text):
            kinds[name].add(kind)
    for kind, name in ROWS[1].findall(dict(texts)["graph/compile/fields.c"]):
        kinds[name].add(kind)
    for path, text in texts:
        for match in LOOKUP.finditer(text):
            function, name = match[1], match[2]
            count += 1
            if kinds[name] & READS.get(function, kinds[name]):
                continue
            line = text.count("\n", 0, match.start()) + 1
            said = "is %s" % " or ".join(sorted(kinds[name])) if kinds[name] else "is in no table of options"
            print("%s:%d: %s of \"%s\", which %s" % (path, line, function, name, said), file=sys.stderr)
            wrong += 1
    if count < 200:
        sys.exit("lookups: only %d look-ups found" % count)
    return 1 if wrong else 0


sys.exit(main())
