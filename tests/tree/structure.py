# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of docs/tree.md.

    structure.py [--source DIR] [--build DIR] [CHECK...]
    structure.py [--source DIR] [--build DIR] --figures

Without CHECK, all checks run:

    circles     no files of a folder call each other in a circle
    rooms       no folders or subfolders call each other in a circle
    faces       a subfolder is entered by the header of its own name
    files       no file is longer than 500 lines (a warning)
    structs     no struct has more than 30 fields (a warning)
    functions   a function has at most 60 lines
    doubles     no sli_ name is defined twice
    enumerators every enumerator is assigned somewhere, not only compared
    exports     every function that a header declares is called from another file, or from its own
                and by tests
    tree        docs/tree.md has a line for every file, and no other lines
    glossary    names of public types consist of words of the glossary (a warning)
    words       words of banned_words.txt do not occur
    skips       a test that is skipped says "skipped: " and why, and ends with 77, which ctest
                counts apart from those that passed
    sanitizers  no function is hidden from a sanitizer
    root        git knows only the expected files in the top folder
    licences    every source file names its licence, in its first line or below "#!"

exceptions.txt in this folder is the only list of exceptions, each with its reason; an exception
that is no longer needed is an error too. A warning is printed and does not fail the run: a file
is as long as its one idea. Calls are read from the object files of a build, everything else from
the sources.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

FOLDERS = "base io text ops kernels placement actors comm graph pytorch serve rollouts models tools".split()
SOURCES = (".c", ".cpp", ".h", ".cu", ".cuh", ".def")
ROOT = ("CMakeLists.txt CMakePresets.json LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md "
        "CODE_OF_CONDUCT.md pyproject.toml .gitignore .editorconfig .clang-format").split()
LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENTED = {**dict.fromkeys("c h cu cuh cpp def css js map".split(), "/* %s */"),
             **dict.fromkeys("py sh cmake".split(), "# %s"), "html": "<!-- %s -->"}
MOST_LINES, MOST_FIELDS = 500, 30
MOST_FUNCTION_LINES = 60
WARNINGS = {"files", "structs", "glossary"}


# ---- reading ----------------------------------------------------------------------------------


class Tree:
    def __init__(self, source, build):
        self.source, self.build = source, build
        self.files = sorted(self.walk())
        self.texts = {name: self.read(name) for name in self.files}
        self.codes = {name: strip(text) for name, text in self.texts.items()}
        self.read_objects = None

    def walk(self):
        for folder in FOLDERS + ["include"]:
            for at, _, names in os.walk(os.path.join(self.source, folder)):
                for name in names:
                    if name.endswith(SOURCES):
                        yield os.path.relpath(os.path.join(at, name), self.source)

    def read(self, name):
        with open(os.path.join(self.source, name), encoding="utf-8") as file:
            return file.read()

    def objects(self):
        """Returns (source, defined symbols, undefined symbols) of every object file of the layers,
        the models and the tools."""
        if self.read_objects is None:
            self.read_objects = list(self.find_objects())
        return self.read_objects

    def find_objects(self):
        sources = {}
        for at, _, names in os.walk(self.build):
            match = re.search(r"/([a-z]+)/CMakeFiles/sluice_[a-z]+\.dir(?:/(.*))?$", at)
            if not match or match[1] not in FOLDERS:
                continue
            for name in names:
                source = "/".join(p for p in (match[1], match[2], name[:-2]) if p)
                if name.endswith(".o") and os.path.exists(os.path.join(self.source, source)):
                    sources[os.path.join(at, name)] = source
        return [(sources[path], *both) for path, both in symbols(list(sources)).items()]


def strip(text):
    """Returns the text without comments and strings, with the same lines."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r'/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', text)


def symbols(paths):
    """Returns {object file: (symbols it defines, symbols it needs)}"""
    found = {path: (set(), set()) for path in paths}
    if not paths:
        return found
    said = subprocess.run(["nm", "-A", *paths], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        path, rest = line.rsplit(".o:", 1)
        kind, name = rest[16:].split()[:2]
        defined, wanted = found[path + ".o"]
        if kind == "U":
            wanted.add(name)
        elif kind.isupper():
            defined.add(name)
    return found


def structs(code):
    """Yields (name, number of fields) of every struct with a body; fields of unnamed members count
    as its own."""
    for match in re.finditer(r"\bstruct(?:\s+\w+)*\s*\{", code):
        begin, end = match.end(), close(code, match.end() - 1)
        if end < 0:
            continue
        tag = re.search(r"(\w+)\s*\{$", match[0])
        after = re.match(r"\s*(\w+)?", code[end + 1:])
        name = (tag[1] if tag and tag[1] != "struct" else None) or (after and after[1]) or "?"
        yield name, fields(code[begin:end])


def close(code, at):
    """Returns the position that closes the brace at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if not depth:
            return i
    return -1


def fields(body):
    count = 0
    while True:
        inner = re.search(r"\{", body)
        if not inner:
            break
        end = close(body, inner.start())
        head = body[:inner.start()].rsplit(";", 1)[-1]
        if re.search(r"\b(struct|union)\b", head) and re.match(r"\s*;", body[end + 1:]):
            count += fields(body[inner.end():end])  # unnamed: its fields count for the outer struct
            body = body[:inner.start()] + " " + body[end + 1:]
            body = re.sub(r"\b(struct|union)\s*;", ";", body, count=1)
        else:
            body = body[:inner.start()] + " " + body[end + 1:]
    for declaration in body.split(";"):
        flat = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "x", declaration))
        if flat.strip() and not flat.strip().startswith(("_Static_assert", "#")):
            count += 1 + flat.count(",")
    return count


def functions(text):
    """Yields (name, lines of the body) of every function in the project's layout: the brace ends a
    line that begins in the first column, or a continuation of it."""
    lines, i = text.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        if line[:1].isalpha() and "(" in line and not line.startswith(("typedef", "struct", "enum", "union")):
            head, j = line, i
            while j + 1 < len(lines) and not re.search(r"[;{}]\s*$", lines[j]):
                j += 1
                head += " " + lines[j].strip()
            if head.rstrip().endswith("{") and "=" not in head:
                end = next((k for k in range(j + 1, len(lines)) if lines[k].startswith("}")), j)
                name = re.search(r"(\w+)\s*\(", head)
                yield name[1], end - j - 1
                i = end
            elif re.search(r"\)\s*\{.*\}\s*$", head):
                yield re.search(r"(\w+)\s*\(", head)[1], 1
                i = j
        i += 1


def circles_of(edges):
    """Returns the strongly connected components of more than one node (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in sorted(edges.get(v, ())):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while True:
                w = stack.pop()
                on.discard(w)
                part.append(w)
                if w == v:
                    break
            if len(part) > 1:
                found.append(sorted(part))

    for v in sorted(edges):
        if v not in index:
            visit(v)
    return found


# ---- checks: each yields (what, message) --------------------------------------------------------


def calls(tree):
    """Returns {file: {file it calls: names}}"""
    objects = tree.objects()
    home = {name: source for source, defined, _ in objects for name in defined}
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, _, wanted in objects:
        edges[source]
        for name in wanted:
            if home.get(name, source) != source:
                edges[source][home[name]].add(name)
    if not edges:
        sys.exit("structure: no object files in %s" % tree.build)
    return edges


def check_circles(tree):
    edges = calls(tree)
    for folder in FOLDERS:
        inside = {a: {b for b in to if b.startswith(folder + "/")}
                  for a, to in edges.items() if a.startswith(folder + "/")}
        for part in circles_of(inside):
            links = ["  %s -> %s: %s" % (a, b, ", ".join(sorted(edges[a][b])[:6]))
                     for a in part for b in sorted(inside[a]) if b in part]
            yield part[0], "%d files call each other in a circle:\n%s" % (len(part), "\n".join(links))


def room_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] + "/."


def inline_calls(tree):
    """Yields (file, header, name) for each use of a header's inline function, which no object file shows."""
    home = {}
    for name, code in tree.codes.items():
        if name.endswith(".h") and not name.startswith("include/"):
            for function in re.findall(r"^static (?:ALWAYS_)?inline\b[^;{(]*?\b(sli_\w+)\(", code, re.M):
                home[function] = name
    for name, code in tree.codes.items():
        for word in set(re.findall(r"\bsli_\w+(?=\()", code)) & set(home):
            yield name, home[word], word


def check_rooms(tree):
    """Subfolders, and the files next to them, call each other in one direction only."""
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for a, to in calls(tree).items():
        for b, names in to.items():
            if room_of(a) != room_of(b):
                edges[room_of(a)][room_of(b)] |= names
    for a, b, name in inline_calls(tree):
        if room_of(a) != room_of(b) and not a.startswith("include/"):
            edges[room_of(a)][room_of(b)].add(name)
    for part in circles_of({a: set(to) for a, to in edges.items()}):
        arrows = ["    %s -> %s: %s" % (a, b, ", ".join(sorted(edges[a][b])[:5]))
                  for a in sorted(part) for b in sorted(edges[a]) if b in part]
        yield min(part), "rooms call each other in a circle:\n" + "\n".join(arrows)


def check_faces(tree):
    for name, text in tree.texts.items():
        for target in re.findall(r'^ *# *include *"([^"]+)"', text, re.M):
            parts = target.split("/")
            # a/b/c.h may be included within a/b/, a/b/c/d.h within a/b/c/
            for depth in range(2, len(parts)):
                room = "/".join(parts[:depth])
                if not name.startswith(room + "/") and target != "%s/%s.h" % (room, parts[depth - 1]):
                    yield "%s %s" % (name, target), "%s includes %s, which is not the face of %s/" % (name, target, room)
                    break


def check_files(tree):
    for name, text in tree.texts.items():
        lines = text.count("\n")
        if lines > MOST_LINES:
            yield name, "%s has %d lines" % (name, lines)


def check_structs(tree):
    for name, code in tree.codes.items():
        for tag, count in structs(code):
            if count > MOST_FIELDS:
                yield tag, "struct %s in %s has %d fields" % (tag, name, count)


def lengths(tree):
    found = collections.defaultdict(list)
    for name, code in tree.codes.items():
        folder = name.split("/")[0]
        if folder != "include" and not name.endswith(".def"):
            found[folder] += [n for _, n in functions(code)]
    return {folder: sorted(n) for folder, n in found.items() if n}


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def check_functions(tree):
    for name, code in tree.codes.items():
        for function, lines in functions(code):
            if lines > MOST_FUNCTION_LINES:
                yield function, "function %s in %s has %d lines" % (function, name, lines)


def check_doubles(tree):
    homes = collections.defaultdict(set)
    for source, defined, _ in tree.objects():
        for name in defined:
            if name.startswith("sli_"):
                homes[name].add(source)
    for name, code in tree.codes.items():
        for tag in re.findall(r"\bstruct\s+(sli_\w+)\s*\{", code):
            homes["struct " + tag].add(name)
        for tag in re.findall(r"^\}\s*(sli_\w+)\s*;", code, re.M):
            homes["typedef " + tag].add(name)
    for name, at in sorted(homes.items()):
        at = {a for a in at if "no_cuda" not in a and "/cuda/" not in a}
        if len(at) > 1:
            yield name, "%s is defined in %s" % (name, " and ".join(sorted(at)))


def enumerators(code):
    """Yields (name, whether it belongs to a type) of all enumerators that zeroed memory does not produce."""
    for match in re.finditer(r"\benum\b([^;{(]*)\{", code):
        end = close(code, match.end() - 1)
        of_type = bool(match[1].strip() or re.match(r"\s*\w", code[end + 1:]))
        for i, item in enumerate(code[match.end():end].split(",")):
            name = re.match(r"\s*(\w+)", item)
            first, valued = i == 0, "=" in item
            # zeroed memory holds a type's first enumerator; without a type an enumerator may be an index
            given = first and not valued if of_type else not valued
            if name and name[1].isupper() and not given and not name[1].endswith("_COUNT"):
                yield name[1], of_type


def check_enumerators(tree):
    defined = {}
    for name, code in tree.codes.items():
        for item, of_type in enumerators(code):
            defined.setdefault(item, (name, of_type))
    everything = "\n".join(tree.codes.values())
    given = collections.Counter()
    for match in re.finditer(r"\b[A-Z][A-Z0-9_]*\b", everything):
        if match[0] in defined:
            before = everything[max(0, match.start() - 40):match.start()]
            asked = re.search(r"(case|==|!=|<=|>=)\s*$", before)
            given[match[0]] += not (asked and defined[match[0]][1])
    for item, (name, _) in sorted(defined.items()):
        if given[item] < 2:  # one occurrence is the definition
            yield item, "%s of %s is given to nothing" % (item, name)


def check_exports(tree):
    word = re.compile(r"\bsli?_\w+")
    declared, where = {}, collections.defaultdict(collections.Counter)
    for name, code in tree.codes.items():
        if name.endswith(".h"):
            declared.update({f: name for f in re.findall(r"\b(sli?_\w+)\s*\([^;{}]*\)\s*;", code)})
        for function in word.findall(code):
            where[function][name] += 1
    # Users call public functions: examples and tests represent them.
    asked = set()
    for folder in ("examples", "tests"):
        for at, _, names in os.walk(os.path.join(tree.source, folder)):
            for file in names:
                if file.endswith((".c", ".h", ".cpp", ".py", ".sh")):
                    with open(os.path.join(at, file), encoding="utf-8") as text:
                        asked |= set(word.findall(text.read()))
    home = {symbol: source for source, defined, _ in tree.objects() for symbol in defined}
    for function, name in sorted(declared.items()):
        if function not in home:
            continue  # inline, a macro, or part of another build
        elsewhere = set(where[function]) - {home[function], name}
        inline = where[function][name] > 1
        at_home = where[function][home[function]] > 1
        if not (elsewhere or inline or function in asked and (at_home or function.startswith("sl_"))):
            yield function, "%s of %s is called from no other file" % (function, name)


def listed(tree):
    """Returns the files that docs/tree.md names."""
    text = tree.read("docs/tree.md")
    block = re.search(r"<!-- tree -->\s*```\w*\n(.*?)```", text, re.S)
    stack, found = [], []
    for line in block[1].split("\n") if block else ():
        match = re.match(r"( *)(\S+)", line)
        if not match:
            continue
        depth = len(match[1]) // 2
        stack[depth:] = [match[2].rstrip("/")]
        if not match[2].endswith("/"):
            found.append(("/".join(stack), line.strip()))
    return found


def check_tree(tree):
    lines = listed(tree)
    have = {name for name in tree.files if not name.startswith("include/")}
    names, exact = collections.Counter(), {name for name, _ in lines} & have
    for name, line in lines:
        stems = [name] if name in have else [f for f in have - exact if f.rsplit(".", 1)[0] == name]
        for stem in stems:
            names[stem] += 1
        if not stems:
            yield name, "docs/tree.md has a line for %s, which is not there" % name
        if len(line.split(None, 1)) < 2:
            yield name, "docs/tree.md says nothing of %s" % name
    for name in sorted(have):
        if names[name] != 1:
            yield name, "docs/tree.md has %d lines for %s" % (names[name], name)


def glossary(tree):
    text = tree.read("docs/design.md")
    part = text.split("\n## Words\n", 1)[-1].split("\n## ", 1)[0]
    words = set()
    for row in re.findall(r"^\| ([^|]+) \|", part, re.M):
        words |= set(re.findall(r"[a-z]+", row.lower()))
    return words


def check_glossary(tree):
    known = glossary(tree) | set(tree.read("tests/tree/plain_words.txt").split())
    for name, code in tree.codes.items():
        if not name.startswith("include/"):
            continue
        types = re.findall(r"\btypedef\b[^;{]*?\b(sl_\w+)\s*[;(]", code) + re.findall(r"\}\s*(sl_\w+)\s*;", code)
        for type_ in types:
            for word in type_.split("_")[1:]:
                if word not in known and word.rstrip("s") not in known:
                    yield type_, "%s of %s: the glossary has no \"%s\"" % (type_, name, word)


def check_words(tree):
    banned = [line.split("\t") for line in tree.read("tests/tree/banned_words.txt").splitlines()
              if line and not line.startswith("#")]
    for name, text in tree.texts.items():
        for word, instead in banned:
            for match in re.finditer(r"(?<![a-zA-Z])(?:%s)(?![a-zA-Z])" % word, text):
                number = text.count("\n", 0, match.start()) + 1
                yield name, "%s:%d: \"%s\"; say %s" % (name, number, word, instead)


def tests(tree):
    for at, _, names in sorted(os.walk(os.path.join(tree.source, "tests"))):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".sh")):
                path = os.path.relpath(os.path.join(at, name), tree.source)
                yield path, tree.read(path).split("\n")


def check_skips(tree):
    says = re.compile(r"""(?:echo|printf)\W+(?:skipped|not run): """)
    skips = re.compile(r"\b(?:exit|return)\b\W*(?:77\b|SKIPPED\b)")
    for name, lines in tests(tree):
        for i, line in enumerate(lines):
            if says.search(line) and not any(map(skips.search, lines[i:i + 3])):
                yield name, "%s:%d: it says that it is skipped, and does not end with 77" % (name, i + 1)
            if skips.search(line) and not any(map(says.search, lines[max(0, i - 2):i + 1])):
                yield name, "%s:%d: it is skipped and does not say why" % (name, i + 1)
    if os.path.exists(os.path.join(tree.source, "tests/CMakeLists.txt")):
        if "SKIP_RETURN_CODE 77" not in tree.read("tests/CMakeLists.txt"):
            yield "SKIP_RETURN_CODE", "tests/CMakeLists.txt: ctest counts what is skipped as passed"


def check_sanitizers(tree):
    for name, code in tree.codes.items():
        for number, line in enumerate(code.split("\n"), 1):
            if re.search(r"\bno_sanitize|\bNO_SANITIZE", line):
                yield name, "%s:%d hides a function from a sanitizer" % (name, number)


def known_files(tree):
    """Returns the existing files that git knows; none without git."""
    if not os.path.exists(os.path.join(tree.source, ".git")):
        return []
    known = subprocess.run(["git", "-c", "safe.directory=*", "-C", tree.source, "ls-files"],
                           capture_output=True, text=True, check=True).stdout
    return [name for name in known.split("\n") if os.path.isfile(os.path.join(tree.source, name))]


def check_root(tree):
    for name in known_files(tree):
        if "/" not in name and name not in ROOT:
            yield name, "%s lies in no folder" % name


def licence_line(name, first):
    """Returns the licence line that a file of this name must have, or None if it is not a source."""
    base = os.path.basename(name)
    suffix = base.rsplit(".", 1)[1] if "." in base else ""
    if suffix in COMMENTED:
        return COMMENTED[suffix] % LICENCE
    if base == "CMakeLists.txt" or not suffix and first.startswith("#!"):
        return "# " + LICENCE
    return None


def check_licences(tree):
    for name in known_files(tree):
        if name.startswith("tests/fuzz/corpus/"):
            continue  # input for parsers
        with open(os.path.join(tree.source, name), "rb") as file:
            lines = [file.readline(200).decode(errors="replace").rstrip("\n") for _ in range(2)]
        wanted = licence_line(name, lines[0])
        below = lines[0].startswith(("#!", "<!doctype"))
        if wanted and lines[below] != wanted:
            yield name, "%s: line %d is not \"%s\"" % (name, below + 1, wanted)


CHECKS = {name[len("check_"):]: function for name, function in list(globals().items())
          if name.startswith("check_")}


# ---- running ------------------------------------------------------------------------------------


def exceptions(tree):
    path = os.path.join(tree.source, "tests/tree/exceptions.txt")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip() and line[0] != "#"]
    return {(check, what): reason for check, what, reason in rows}


def run(tree, names):
    excused, wrong = exceptions(tree), 0
    for check in names:
        needed = set()
        for what, message in CHECKS[check](tree):
            if (check, what) in excused:
                needed.add((check, what))
                continue
            print("%s%s: %s" % ("warning: " if check in WARNINGS else "", check, message), file=sys.stderr)
            wrong += check not in WARNINGS
        for key in excused:
            if key[0] == check and key not in needed:
                print("%s: exceptions.txt excuses %s, which needs none" % key, file=sys.stderr)
                wrong += 1
    return wrong


def figures(tree):
    edges = calls(tree)
    print("folder      files   lines  longest  median  p90  in circles")
    for folder in FOLDERS:
        names = [n for n in tree.files if n.startswith(folder + "/")]
        inside = {a: {b for b in to if b.startswith(folder + "/")}
                  for a, to in edges.items() if a.startswith(folder + "/")}
        n = lengths(tree).get(folder, [0])
        lines = [tree.texts[f].count("\n") for f in names]
        print("%-10s %6d %7d %8d %7d %4d %11d" % (
            folder, len(names), sum(lines), max(lines, default=0), quantile(n, .5), quantile(n, .9),
            sum(len(p) for p in circles_of(inside))))
    large = sorted(((count, tag) for code in tree.codes.values() for tag, count in structs(code)), reverse=True)
    print("largest structs: " + ", ".join("%s %d" % (tag, count) for count, tag in large[:8]))
    for check in ("faces", "files", "structs", "doubles", "enumerators", "exports"):
        print("%-12s %d" % (check, len(list(CHECKS[check](tree)))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default=os.environ.get("SLUICE_SOURCE", "."))
    parser.add_argument("--build", default=os.environ.get("SLUICE_BUILD", "build/release"))
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("checks", nargs="*")
    given = parser.parse_args()
    for check in given.checks:
        if check not in CHECKS:
            sys.exit("structure: there is no check called %s" % check)
    tree = Tree(given.source, given.build)
    if given.figures:
        return figures(tree)
    wrong = run(tree, given.checks or list(CHECKS))
    if wrong:
        print("%d things are not where or as docs/tree.md says" % wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
