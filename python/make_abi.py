# SPDX-License-Identifier: Apache-2.0
"""Generates from the C headers: sluice/_abi.py, with every type, constant and function, so that the package follows the
library automatically; sluice/_words.py, with the headers' text for each function; and sluice/_statuses.py, with an
exception for each status.

    make_abi.py INCLUDE PACKAGE [CC]"""
import os
import re
import subprocess
import sys

import cffi

OPTIONAL = ("b", "bias", "ids", "like", "weights")  # tensors that may be absent from a call
NOT_C = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\b(__extension__|static inline)\b")


def preprocessed(include, cc):
    """Returns our headers as the compiler sees them, without the system's."""
    source = "".join("#include <sluice/%s.h>\n" % name for name in ("sluice", "cuda", "shipped", "pytorch"))
    run = subprocess.run([*cc.split(), "-E", "-I", include, "-x", "c", "-"], input=source,
                         capture_output=True, text=True, check=True)
    ours, lines = False, []
    for line in run.stdout.splitlines():
        mark = re.match(r'# \d+ "(.*?)"', line)
        if mark:
            ours = "/sluice/" in mark[1] and mark[1].startswith(include)
        elif ours:
            lines.append(line)
    return "\n".join(lines)


def declarations(text):
    text = NOT_C.sub("", text)
    text = re.sub(r"^(\s*\w[^;{}()]*\([^;{}]*\))\s*\{.*?^\}", "", text, flags=re.S | re.M)  # inline
    text = re.sub(r"\b_Bool\b", "bool", text)
    return "typedef struct _IO_FILE FILE;\n" + text


def written(include):
    """{function or op: (its parameters, the comment above it)}."""
    found = {}
    folder = os.path.join(include, "sluice")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        for match in re.finditer(r"\b(sl_\w+)\(([^;{}()]*(?:\([^()]*\)[^;{}()]*)*)\)[^;{}()]*"
                                 r"(?:\(\([^;]*\)\))?;", NOT_C.sub("", text)):
            params = [" ".join(p.split()) for p in match[2].split(",")]
            found[match[1]] = (params, comment_above(text, match[1]))
        for comment, ops in re.findall(r"/\*((?:(?!\*/).)*)\*/\s*extern const sl_op ([^;]*);", text,
                                       re.S):
            found.update((op.strip(), ([], plain(comment))) for op in ops.split(","))
    for op, params in macros(folder):
        found[op] = (params, found.get(op, ([], ""))[1])
    return found


def macros(folder):
    """(op, names of its inputs) of the calls that are macros: ("sl_op_swiglu", ["gate", "up"])."""
    with open(os.path.join(folder, "graph.h"), encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    for params, op, inputs in re.findall(r"#define sl_\w+\(g, ([\w, ]+)\)\s+sl_op\d_at\(SL_HERE, g, &(sl_op_\w+), NULL, "
                                         r"([\w, ]+)\)", text):
        if params == inputs:
            yield op, params.split(", ")


def plain(comment):
    return re.sub(r"\s*\n \* ?", "\n", comment).strip()


def comment_above(text, function):
    """The comment whose paragraph first has the function, or its macro."""
    name = re.escape(re.sub(r"_at$", "", function))
    for match in re.finditer(r"/\*(?! ----)(.*?)\*/((?:(?!\n\n|/\*).)*)", text, re.S):
        if re.search(r"\b%s(_at)?\(" % name, match[2]):
            return plain(match[1])
    return ""


def statuses(include):
    """[(name, text)] of the table in status.h: ("SHAPE", "shapes or types do not fit")."""
    with open(os.path.join(include, "sluice", "status.h"), encoding="utf-8") as file:
        return re.findall(r'X\(E_(\w+), *\d+, *"(.*?)"\)', file.read())


def write_statuses(include, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write('"""Made by make_abi.py."""\nfrom . import errors\n')
        for name, text in statuses(include):
            base = "errors.Budget" if name == "BUDGET" else "errors.Error"
            doc = '    """%s."""\n' % (text[0].upper() + text[1:]) if base == "errors.Error" else "    __doc__ = errors.Budget.__doc__\n"
            file.write('\n\nclass %sError(%s):\n%s    __module__ = "sluice"\n    status = "SL_E_%s"\n' % (
                name.capitalize(), base, doc, name))
        file.write("\n\n__all__ = [%s]\n" % ", ".join('"%sError"' % n.capitalize() for n, _ in statuses(include)))


def main():
    include, package = os.path.abspath(sys.argv[1]), sys.argv[2]
    cc = sys.argv[3] if len(sys.argv) > 3 else os.environ.get("CC", "cc")
    ffi = cffi.FFI()
    ffi.cdef(declarations(preprocessed(include, cc)))
    ffi.cdef("FILE *open_memstream(char **text, size_t *bytes); int fclose(FILE *file);"
             "void free(void *memory); char *strdup(const char *text);")
    ffi.set_source("sluice._abi", None)
    ffi.emit_python_code(os.path.join(package, "_abi.py"))
    with open(os.path.join(package, "_words.py"), "w", encoding="utf-8") as file:
        file.write('"""Made by make_abi.py."""\nOPTIONAL = %r\nWORDS = {\n' % (OPTIONAL,))
        for function, words in sorted(written(include).items()):
            file.write("    %r: %r,\n" % (function, words))
        file.write("}\n")
    write_statuses(include, os.path.join(package, "_statuses.py"))


main()
