#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokenizers/: small tokenizers of every kind that sli_tokenizer_open supports, and the tokens
that Hugging Face's `tokenizers` gives for many texts.

    python3 make_tokenizers.py [--out DIR]

tokenizers/NAME.json is a tokenizer.json trained on text.txt and the texts below. NAME.txt has one
line per text: the text, its tokens (with those added around a text), and the decoded text with and
without special tokens, each as JSON, separated by tabs.
"""
import argparse
import json
import os
import random
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))

TEXTS = [
    "", " ", "a", "Hello, world!", "Hello  world", "   three spaces before", "behind   ", "\n", "\n\n\n", "\t\ttabs\there",
    "line\nline\r\nline\rline", "I'm you're he'll they'd we've it's DON'T IT'S 'S 's's", "don\u2019t \u017f '\u017f",
    "0 1 12 123 1234 12345 1234567890", "3.14159 1,000,000 -5e-10 0x1F \u0661\u0662\u0663 \u00bd \u2167 \u00b2", "a1b2c3 abc123def",
    "snake_case camelCase kebab-case SCREAMING_CASE", "for (int i = 0; i < n; i++) { x[i] += y[i]; }\n",
    "def f(x):\n    if x:\n        return x ** 2\n\n\n    return None\n", "https://example.org/a/b?c=d&e=%20#f", "<p class=\"x\">&amp;</p>",
    "!!! ??? ... --- *** ///", "a\u00a0b\u2003c\u3000d\u200be\ufefff\u180eg\u0085h\u2028i", "\u0000\u0001\u007f\u0080\u009f",
    "Stra\u00dfe na\u00efve caf\u00e9 cafe\u0301 \u00c5 A\u030a \u212b \u1e9b\u0323", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03ba\u03b1\u03af \u039b\u03ac\u03b8\u03bf\u03c2",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442, \u0443\u043a\u0440\u0430\u0457\u043d\u0441\u044c\u043a\u0430", "\u4e2d\u6587\u6587\u672c\uff0c\u6ca1\u6709\u7a7a\u683c\u3002\u7b2c\u4e8c\u53e5\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 \u1112\u1161\u11ab", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0646\u064e\u0635\u0651\u064c",
    "\u05e2\u05d1\u05e8\u05d9\u05ea \u05e0\u05b4\u05e7\u05d5\u05bc\u05d3", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092a\u093e\u0920 \u0967\u0968\u0969", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e44\u0e21\u0e48\u0e21\u0e35\u0e0a\u0e48\u0e2d\u0e07\u0e27\u0e48\u0e32\u0e07",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "\U00010348\U0001d54f\U0001d7d9 \U0002070e \U000e0001",
    "<s>begin</s>", "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start", "<|endoftext|><|endoftext|>",
    "x <mask> y<mask>z  <mask>  w", "wordmark markword mark mark.", "\u2581mark\u2581of a space\u2581", "\u2581\u2581\u2581 \u2581", "    indented\n        more\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 60, "The quick brown fox jumps over the lazy dog. " * 3,
    " leading", "trailing ", "  two", "\u00e9", "e\u0301", "\u00e9e\u0301", "\u1100\u1161\u11a8", "\ufb01 \ufb00 \u2460 \u00bc", "\u0345\u0301", "\u202e\u2066x",
]


def random_texts(count, seed):
    """Yields strings of characters that tokenizers split in surprising ways."""
    rng = random.Random(seed)
    words = ["the", " and", "'s", "'LL", " ", "  ", "\n", "\t", "7", "42", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600", ".", "--", "<|endoftext|>", "<mask>",
             "\u2581", "\u00a0", "mark", "_", "</s>", "\u0660", "\u1680", "\r\n", "'", "\u017f", "\u200d", "A", "Z"]
    for _ in range(count):
        n = rng.randrange(1, 14)
        yield "".join(rng.choice(words) if rng.random() < 0.85 else chr(rng.choice([rng.randrange(32, 0x300), rng.randrange(0x300, 0xd800),
                                                                             rng.randrange(0xe000, 0x13000)])) for _ in range(n))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
UPPER, LOWER, SHORT = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
            r"\s*[\r\n]+|\s+(?!\S)|\s+"]


def train(pre, vocab, specials, corpus):
    """Returns a byte-level BPE tokenizer with pre-tokenizer `pre`, as a dict."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, show_progress=False,
                                                      initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return t


def bytes_after(*steps):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(corpus):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 700, ["<|endoftext|>"], corpus)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("mark", single_word=True, normalized=True)])
    return t


def roberta(corpus):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=True), 500, ["<|endoftext|>"], corpus)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    return t


def smollm(corpus):
    t = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
              700, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], corpus)
    t.decoder = decoders.ByteLevel()
    return t


def llama3(corpus):
    t = train(bytes_after(pre_tokenizers.Split(Regex(LLAMA3), "isolated")), 900, [], corpus)
    t.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "<|im_start|>"])
    t.decoder = decoders.ByteLevel()
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", begin)])])
    data = json.loads(t.to_str())
    data["model"]["ignore_merges"] = True
    for word in ["\u0120together", "\u0120whole"]:  # tokens that no merges produce
        data["model"]["vocab"][word] = 2000 + len(word)
    return Tokenizer.from_str(json.dumps(data))


def qwen2(corpus):
    t = train(bytes_after(pre_tokenizers.Split(Regex(QWEN2), "isolated")), 700, [], corpus)
    t.normalizer = normalizers.NFC()
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.decoder = decoders.ByteLevel()
    return t


def cut_by(patterns, corpus, normalizer=None):
    t = train(bytes_after(*(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns)), 500, [], corpus)
    if normalizer:
        t.normalizer = normalizer
    t.add_special_tokens(["<|endoftext|>"])
    t.decoder = decoders.ByteLevel()
    return t


def qwen35(corpus):
    return cut_by([QWEN35], corpus, normalizers.NFC())


def o200k(corpus):
    return cut_by([O200K], corpus)


def deepseek(corpus):
    return cut_by(DEEPSEEK, corpus)


def cuts(corpus):
    """Returns a tokenizer with every behavior of Split."""
    t = train(bytes_after(pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Split(Regex("[.,]"), "merged_with_next"),
                          pre_tokenizers.Split(Regex("[!?]"), "contiguous"), pre_tokenizers.Split(Regex(r"\S+|\s+"), "removed", invert=True)),
              500, ["<|endoftext|>"], corpus)
    t.decoder = decoders.ByteLevel()
    return t


def characters(corpus, vocab):
    """Returns a character BPE with marks for spaces and byte tokens, like LLaMA 2's."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, special_tokens=first, limit_alphabet=90, show_progress=False))
    data = json.loads(t.to_str())
    data["model"].update(byte_fallback=True, fuse_unk=True)
    data["added_tokens"] = [a for a in data["added_tokens"] if a["id"] < 3]
    data["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def llama2(corpus):
    t = characters(corpus, 800)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def mistral(corpus):
    t = characters(corpus, 600)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def metaspace(corpus):
    t = characters(corpus, 600)
    data = json.loads(t.to_str())
    data["model"].update(byte_fallback=False, fuse_unk=False)
    t = Tokenizer.from_str(json.dumps(data))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def unigram(corpus):
    """Returns a unigram tokenizer like T5's: separate words, one token for everything unknown."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
                                                          show_progress=False, initial_alphabet=[]))
    data = json.loads(t.to_str())
    data["model"]["vocab"] = [w for w in data["model"]["vocab"] if "\0" not in w[0]]
    t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A $B", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def pieces(corpus):
    """Returns a unigram tokenizer as SentencePiece trains it for LLaMA-like models: whole texts, byte fallback."""
    data = json.loads(unigram(corpus).to_str())
    words = [w for w in data["model"]["vocab"] if len(w[0]) > 1 or ord(w[0]) < 0x250 or w[0] == "\u2581"]
    data["model"]["vocab"] = words[:3] + [[f"<0x{b:02X}>", 0.0] for b in range(256)] + words[3:]
    data["model"].update(byte_fallback=True, unk_id=0)
    data["normalizer"] = None
    data["pre_tokenizer"] = data["post_processor"] = None
    t = Tokenizer.from_str(json.dumps(data))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def bert(corpus):
    """Returns a WordPiece tokenizer like BERT's."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                            limit_alphabet=120, show_progress=False))
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


KINDS = [gpt2, roberta, smollm, llama3, qwen2, qwen35, o200k, deepseek, cuts, llama2, mistral, metaspace, unigram, pieces, bert]


def is_newer(c):
    """Returns whether c is a mark or punctuation added after Unicode 8, which BERT's parts in `tokenizers` do not know."""
    category = unicodedata.category(c)
    bare = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    apart = len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{c}b")) == 3
    return (category == "Mn") != (bare.normalize_str(f"a{c}") == "a") or (category[0] == "P" and not apart)


def texts_of(kind):
    texts = [*TEXTS, *random_texts(150, kind.__name__)]
    return [t for t in texts if kind is not bert or not any(map(is_newer, t))]


def line_of(t, text):
    ids = t.encode(text).ids
    return "\t".join(json.dumps(x) for x in (text, ids, t.decode(ids, skip_special_tokens=False), t.decode(ids)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(HERE, "tokenizers"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(HERE, "text.txt"), encoding="utf-8", errors="replace") as f:
        corpus = [f.read(), *TEXTS]
    for kind in KINDS:
        t = kind(corpus)
        path = os.path.join(out, kind.__name__)
        with open(path + ".json", "w", encoding="utf-8") as f:
            json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        with open(path + ".txt", "w", encoding="utf-8") as f:
            f.write(f"# tokenizers={tokenizers.__version__}\n")
            f.writelines(line_of(t, text) + "\n" for text in texts_of(kind))


if __name__ == "__main__":
    main()
