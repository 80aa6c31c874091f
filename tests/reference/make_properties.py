#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes text/tokenizer/properties.c: character classes of Hugging Face's tokenizers, expressed for PCRE2; and
properties.txt, the members of each class, for a test.

    pip install tokenizers
    python3 make_properties.py

The script tests each class with the library on all Unicode characters. It tests PCRE2 as well, with a program that it
compiles (gcc, libpcre2-dev), and writes the difference after PCRE2's class, because their Unicode versions differ.
"""
import os
import subprocess
import tempfile

import tokenizers
from tokenizers import Regex, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CHARACTERS))

CATEGORIES = {
    "L": "Letter", "Lu": "Uppercase_Letter", "Ll": "Lowercase_Letter", "Lt": "Titlecase_Letter", "LC": "Cased_Letter",
    "Lm": "Modifier_Letter", "Lo": "Other_Letter", "M": "Mark", "Mn": "Nonspacing_Mark", "Mc": "Spacing_Mark",
    "Me": "Enclosing_Mark", "N": "Number", "Nd": "Decimal_Number", "Nl": "Letter_Number", "No": "Other_Number",
    "P": "Punctuation", "Pc": "Connector_Punctuation", "Pd": "Dash_Punctuation", "Ps": "Open_Punctuation",
    "Pe": "Close_Punctuation", "Pi": "Initial_Punctuation", "Pf": "Final_Punctuation", "Po": "Other_Punctuation",
    "S": "Symbol", "Sm": "Math_Symbol", "Sc": "Currency_Symbol", "Sk": "Modifier_Symbol", "So": "Other_Symbol",
    "Z": "Separator", "Zs": "Space_Separator", "Zl": "Line_Separator", "Zp": "Paragraph_Separator", "C": "Other",
    "Cc": "Control", "Cf": "Format", "Cn": "Unassigned", "Co": "Private_Use"}
SCRIPTS = ("Arabic Armenian Balinese Bengali Bopomofo Braille Cherokee Common Cyrillic Devanagari Ethiopic Georgian Greek "
           "Gujarati Gurmukhi Han Hangul Hebrew Hiragana Inherited Javanese Kannada Katakana Khmer Lao Latin Malayalam "
           "Mongolian Myanmar Oriya Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Yi").split()
OTHERS = ("Alphabetic Lowercase Uppercase White_Space Emoji Emoji_Presentation Extended_Pictographic Ideographic "
          "Any").split()
SPACE = (r"\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}")
WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
POSIX = {"alnum": r"\p{Alphabetic}\p{Nd}", "alpha": r"\p{Alphabetic}", "blank": r"\p{Zs}\x{9}", "digit": r"\p{Nd}",
         "lower": r"\p{Lowercase}", "punct": r"\p{P}\p{S}", "space": SPACE, "upper": r"\p{Uppercase}", "word": WORD,
         "xdigit": "0-9A-Fa-f", "cntrl": r"\p{Cc}"}

PROGRAM = r"""
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  static unsigned char text[5 << 20];
  size_t n = fread(text, 1, sizeof text, stdin), at = 0, *ends;
  int error;
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)argv[argc - 1], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
  if (!code) return 1;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
  ends = pcre2_get_ovector_pointer(match);
  for (at = 0; pcre2_match(code, text, n, at, PCRE2_NO_UTF_CHECK, match, NULL) >= 0; at = ends[1]) printf("%zu %zu\n", ends[0], ends[1]);
  return 0;
}
"""


def of_library(regex):
    """Returns the characters of a class as a set, or None if the library has no such class."""
    try:
        pieces = pre_tokenizers.Split(Regex("(?:%s)+" % regex), "removed").pre_tokenize_str(TEXT)
    except Exception:
        return None
    found, at = set(), 0
    for _, (begin, end) in pieces:
        found.update(CHARACTERS[at:begin])
        at = end
    found.update(CHARACTERS[at:])
    return found


class Pcre:
    def __init__(self, folder):
        self.program, self.text = os.path.join(folder, "program"), TEXT.encode()
        source = self.program + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        subprocess.run(["gcc", "-O2", source, "-lpcre2-8", "-o", self.program], check=True)
        self.places, at = {}, 0
        for i, c in enumerate(CHARACTERS):
            self.places[at] = i
            at += 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
        self.places[at] = len(CHARACTERS)

    def set_of(self, members):
        out = subprocess.run([self.program, "[%s]+" % members], input=self.text, capture_output=True, check=True).stdout
        found = set()
        for line in out.splitlines():
            begin, end = map(int, line.split())
            found.update(CHARACTERS[self.places[begin]:self.places[end]])
        return found


def ranges(characters):
    out = []
    for c in sorted(characters):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def members(characters):
    return "".join("\\x{%x}" % a + ("-\\x{%x}" % b if b > a else "") for a, b in ranges(characters))


def quoted(text):
    lines, text = [], text.replace("\\", "\\\\")
    while len(text) > 100:
        cut = text.rindex("\\\\", 0, 100) if text.rfind("\\\\", 0, 100) > 0 else 100
        if text[cut - 1] == "-":
            cut -= 1
        lines.append(text[:cut])
        text = text[cut:]
    return ("\n     ").join('"%s"' % line for line in lines + [text])


def checksum(characters):
    """Returns FNV-1a over the ends of the ranges, as UTF-32."""
    value = 0xCBF29CE484222325
    for pair in ranges(characters):
        for c in pair:
            for byte in c.to_bytes(4, "little"):
                value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def classes():
    """Yields (name, the library's regular expression, PCRE2's members)."""
    for short, name in CATEGORIES.items():
        base = r"\p{Lu}\p{Ll}\p{Lt}" if short == "LC" else r"\p{%s}" % short
        yield short.lower(), r"\p{%s}" % short, base
        yield name.lower().replace("_", ""), r"\p{%s}" % name, base
    for name in SCRIPTS:
        yield name.lower(), r"\p{%s}" % name, r"\p{sc:%s}" % name
    for name in OTHERS:
        yield name.lower().replace("_", ""), r"\p{%s}" % name, r"\p{%s}" % name
    for name, base in POSIX.items():
        yield name, "[[:%s:]]" % name, base
    yield r"\d", r"\d", r"\p{Nd}"
    yield r"\h", r"\h", "0-9A-Fa-f"
    yield r"\s", r"\s", SPACE
    yield r"\w", r"\w", WORD
    yield r"[\w", r"[\w]", WORD


def main():
    rows, sums = [], []
    with tempfile.TemporaryDirectory() as folder:
        pcre, cache = Pcre(folder), {}
        for name, regex, base in classes():
            want = of_library(regex)
            if want is None:
                print("not in the library:", name)
                continue
            if base not in cache:
                cache[base] = pcre.set_of(base)
            more, less = want - cache[base], cache[base] - want
            rows.append((name, base + members(more), members(less)))
            sums.append((name, len(want), checksum(want)))
    with open(os.path.join(ROOT, "io", "tokenizer", "properties.c"), "w", encoding="utf-8") as out:
        out.write("/* Made by tests/reference/make_properties.py: classes of characters as Hugging Face's tokenizers has them,\n"
                  " * in the words of PCRE2. Members behind the names are of newer versions of Unicode. */\n"
                  '#include "text/tokenizer/pattern.h"\n\n#include <stddef.h>\n\nconst property sli_properties[] = {\n')
        for name, has, lacks in rows:
            out.write('    {"%s",\n     %s' % (name.replace("\\", "\\\\"), quoted(has)))
            out.write(',\n     %s},\n' % quoted(lacks) if lacks else ", NULL},\n")
        out.write("    {NULL, NULL, NULL}};\n")
    with open(os.path.join(HERE, "properties.txt"), "w", encoding="utf-8") as out:
        out.write("# tokenizers %s: class, how many characters it has, FNV-1a of the ends of its ranges\n" % tokenizers.__version__)
        for name, count, value in sums:
            out.write("%s %d %016x\n" % (name, count, value))


if __name__ == "__main__":
    main()
