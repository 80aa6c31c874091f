#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokenizers/patterns.txt: pieces into which Hugging Face's tokenizers splits texts, by patterns in Oniguruma syntax.

    pip install tokenizers
    python3 make_patterns.py

A line is a JSON array: the pattern, then texts, each followed by its pieces joined with bars.
"""
import json
import os

import tokenizers
from tokenizers import Regex, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


def words(but=""):
    return (r"[^\r\n\p{L}\p{N}]?" + LETTERS % but + "*" + SMALL % but + "+" + ENDINGS + r"?|[^\r\n\p{L}\p{N}]?" +
            LETTERS % but + "+" + SMALL % but + "*" + ENDINGS + "?")


MODELS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",                                       # GPT-2
    ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",                # LLaMA 3
    r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    words() + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",                                        # GPT-4o
    r"[\p{Han}]+|" + words(r"&&[^\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",         # Kimi
    "[\r\n]|\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6]+|\\s?[!-/:-~\uff01-\uff0f\u2018-\u201f\u3000-\u3002]+|\\s+$|[\u4e00-\u9fa5\uac00-\ud7a3]+|\\p{N}+",  # DeepSeek
    r"\p{N}{1,3}|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}]+|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
OTHERS = [
    r"[\p{L}&&[^\p{Han}]]+", r"[a-w&&[^c-g]z]+", r"[^a-z&&[aeiou]]+", r"[a-z&&b-y&&[^m]]+", r"[[^a]&&[^b]]+", r"[\S&&\P{L}]+",
    r"[a[bc]]+", r"[^[a]]+", r"[[:alpha:]]+", r"[[:^alpha:]]+", r"[^[:punct:]]+", r"\h+", r"[\h]+", r"\H+", r"\w+", r"\W+",
    r"\bb", r"\Ba", r"[\w-]+", r"[a-]+", r"[-a]+", r"(?m).+", r".+", r"(?m:.)+", r"^a", r"b$", r"a\Z", r"c\z", r"\Ah", r"\R", r"\v",
    r"[\v]+", r"\e", r"\N+", r"\O+", r"a{2,3}+b", r"a{2}?", r"a{,3}", r"a{b", r"a{,}", r"a++b", r"a**", r"a+*", r"a{1,2}{2}",
    r"a{0,0}b", r"(?>a+)b?", r"(?<x>a)+", r"(?i:abc)", r"(?i)k+", r"(?i)s+", r"(?i:[a-d]+)", r"(?i)[^a]+", r"a(?i)b|c",
    r"(?x) a \  b # c", r"(?#x)a", r"(?<=a)b+", r"(?<!a)b+", r"(?<=a|bc)d", r"\p{Alnum}+", r"\p{^L}+", r"\P{L}+", r"\p{Greek}+",
    r"\p{Cn}", r"\p{C}+", r"[\p{Cn}x]+", r"[^\p{Cn}a]+", r"\p{Mn}+", r"\P{Mn}+", r"\p{lowercase letter}+", r"\p{Letter}+",
    r"\u0041+", r"\x{6f22}+", r"\x41", r"[\b]", r"x*", r"a|", r"(?:a|b)*?c", r"]", r"}", r"{", r"\/", r"\ ", r"[\]\-x]+",
    r"(?:\p{L}\p{M}*)+|\s+"]
TEXTS = ["hello the world ab\u6f22\u5b57def ABCdefGHI", "it's we'RE I'LL don't '\u017f \u212a K ss", "a\nb\n\nc\r\n \t x\x0by\x1b \n", "aaaa bbb aabb ab&cd {a{b a{,}",
         "1234 \u0661\u0662 \u00b2\u00bd \u2167 DEADbeef 0x1F", "foo_bar-baz [x] (z) ^$ |\u00e9 e\u0301 \u0301\u1171e",
         "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8\u3001\u3072\u3089\u304c\u306a\u3002\ud55c\uad6d", "\u041f\u0440\u0438 \u03b1\u03b2 \u00a0\u3000\u180e\u200b \U0001f600\u200d\U0001f469"]


def main():
    with open(os.path.join(HERE, "tokenizers", "patterns.txt"), "w", encoding="utf-8") as out:
        out.write("# tokenizers %s: pattern, texts, pieces\n" % tokenizers.__version__)
        for pattern in MODELS + OTHERS:
            row = [pattern]
            for text in TEXTS:
                pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
                row += [text, "|".join(piece for piece, _ in pieces)]
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
