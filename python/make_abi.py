# SPDX-License-Identifier: Apache-2.0
"""Makes sluice/_abi.py of the C headers: every type, constant and function, so that the package
follows the library by itself; and sluice/_words.py, what the headers say of each function.

    make_abi.py INCLUDE PACKAGE [CC]
"""
import os
import re
import subprocess
import sys

import cffi

NOT_C = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\b(__extension__|static inline)\b")


def preprocessed(include, cc):
    """What the compiler sees of our headers, without the system's."""
    source = "#include <sluice/sluice.h>\n#include <sluice/cuda.h>\n"
    run = subprocess.run([*cc.split(), "-E", "-DSLUICE_NO_OLD_NAMES", "-I", include, "-x", "c", "-"], input=source,
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
    return found


def plain(comment):
    return re.sub(r"\s*\n \* ?", "\n", comment).strip()


def comment_above(text, function):
    """The comment whose paragraph first has the function, or its macro."""
    name = re.escape(re.sub(r"_at$", "", function))
    for match in re.finditer(r"/\*(?! ----)(.*?)\*/((?:(?!\n\n|/\*).)*)", text, re.S):
        if re.search(r"\b%s(_at)?\(" % name, match[2]):
            return plain(match[1])
    return ""


def main():
    include, package = os.path.abspath(sys.argv[1]), sys.argv[2]
    cc = sys.argv[3] if len(sys.argv) > 3 else os.environ.get("CC", "cc")
    ffi = cffi.FFI()
    ffi.cdef(declarations(preprocessed(include, cc)))
    ffi.cdef("FILE *open_memstream(char **text, size_t *bytes); int fclose(FILE *file);"
             "void free(void *memory);")
    ffi.set_source("sluice._abi", None)
    ffi.emit_python_code(os.path.join(package, "_abi.py"))
    with open(os.path.join(package, "_words.py"), "w", encoding="utf-8") as file:
        file.write('"""Made by make_abi.py."""\nWORDS = {\n')
        for function, words in sorted(written(include).items()):
            file.write("    %r: %r,\n" % (function, words))
        file.write("}\n")


main()
