# SPDX-License-Identifier: Apache-2.0
"""Writes grammar_regex.txt: patterns, and the texts that they match according to Python's re; and grammar_schemas.txt:
schemas, and the instances that they accept according to jsonschema (4.26).

    python3 make_grammar.py [--out DIR]

A line has a mode, a pattern, and matching and non-matching texts, as JSON: {"whole": true, "pattern": ..., "yes": [...],
"no": [...]}. If `whole` is set, the pattern has to match the whole text, else any part of it. Texts are random: characters
of the pattern, other characters, and pieces of matching texts.

    {"schema": ..., "valid": [text, ...], "invalid": [text, ...]}

Instances are generated at random from the schema and then changed. Members follow the order of the schema, then others.
"""
import argparse
import json
import os
import random
import re

PATTERNS = r"""
a|abc
a*b+c?
(ab|a)(bc|c)
[a-c]{2,4}
[^a-c]{2}
a{3}
a{2,}
(a|b)*abb
x{0}
(|a)+b
\d{3}-\d{4}
\w+@\w+\.com
\s*\S+\s*
[\d.]+
[\w-]+
[a\-c]+
[-ac]+
[ac-]+
[\]\[]+
\x41\u0042
.+
a.c
ü+ß?
[ä-ü]{2}
[^ä-ü]
日本|日曜
😀{2}
(?:ab)+
(?P<name>a)b
a*?b
a+?
(a+)+b
((a|b)(c|d)){1,3}
(0|[1-9][0-9]*)(\.[0-9]+)?
-?(0|[1-9]\d*)
(red|green|blue)(, (red|green|blue))*
\{\}
a\{2\}
\(\)\|\*\+\?\.\\
[0-9a-fA-F]{8}-[0-9a-fA-F]{4}
(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}
(a?){3}a{3}
(a|ab|abc|abcd)*
^abc$
^a
c$
^(a|b)
(^a|b)c
a($|b)
^$
$
^a|b$
x*
(?:^|,)a
\t|\n
[\n\t ]+
a|b|
""".strip("\n").split("\n")


def pieces(pattern):
    """Returns the characters and words from which texts are built."""
    plain = re.sub(r"\\[dwsxu]|[\\^$.|?*+(){}\[\]]", " ", pattern)
    words = [w for w in re.split(r"\s+", plain) if w]
    return words + list("abcxyz019.-, \n@ABüäß日😀_") + list("".join(words))


def texts(pattern, rng):
    words, out = pieces(pattern), {""}
    for _ in range(400):
        out.add("".join(rng.choice(words) for _ in range(rng.randrange(1, 7))))
    return sorted(out)


def case(pattern, whole, rng):
    # as in ECMAScript: $ matches only at the end, and . matches no line terminator
    p = re.compile(pattern.replace("$", r"\Z") if "[$" not in pattern else pattern, re.ASCII)
    find = p.fullmatch if whole else p.search
    yes, no = [], []
    grown = texts(pattern, rng)
    for text in list(grown):  # texts around a match
        m = p.search(text)
        if m and m.group(0):
            grown += [m.group(0), m.group(0) * 2, "a" + m.group(0)]
    for text in dict.fromkeys(grown):
        if "\r" in text or "\u2028" in text:
            continue
        (yes if find(text) else no).append(text)
    rng.shuffle(yes), rng.shuffle(no)
    return {"whole": whole, "pattern": pattern, "yes": yes[:12], "no": no[:12]}


# ---- schemas ------------------------------------------------------------------------------------

NAMES = ["a", "b", "name", "x1", "city", "ß", "q\"t"]


def obj(required=None, additional=False, **properties):
    out = {"type": "object", "properties": properties}
    if required is not None:
        out["required"] = required
    if additional is not True:
        out["additionalProperties"] = additional
    return out


def schemas():
    s, n, i, b = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
    yield from ({}, True, s, n, i, b, {"type": "null"}, {"type": "array"}, {"type": "object"})
    yield from ({"type": ["string", "null"]}, {"type": ["integer", "boolean"]}, {"type": ["number", "array", "null"]})
    # strings
    for least, most in ((0, 0), (1, 3), (2, None), (None, 4), (5, 5)):
        out = {"type": "string"}
        if least is not None:
            out["minLength"] = least
        if most is not None:
            out["maxLength"] = most
        yield out
    for pattern in ("^a+$", "b", "^x|y$", "^[A-Z]{2}[0-9]*$", "^\\S+@\\S+$", "^.{3}$", "\\d", "^(foo|bar)?$", "[äß]",
                    "^\"q\\\\$"):
        yield {"type": "string", "pattern": pattern}
    yield {"type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 4}
    yield {"type": "string", "pattern": "a", "allOf": [{"pattern": "b"}], "maxLength": 5}
    for name in ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "duration", "uri"):
        yield {"type": "string", "format": name}
    # numbers
    for least, most in ((0, 10), (-5, 5), (7, 7), (-100, -17), (95, 1234), (0, None), (None, 0), (None, -3), (1000, None)):
        for kind in ("integer", "number"):
            out = {"type": kind}
            if least is not None:
                out["minimum"] = least
            if most is not None:
                out["maximum"] = most
            yield out
    for least, most in ((0, 1), (-1.5, 2.25), (0.125, 3), (-0.5, -0.25), (99.9, 100.1)):
        yield {"type": "number", "exclusiveMinimum": least, "exclusiveMaximum": most}
        yield {"type": "number", "minimum": least, "maximum": most}
    yield {"type": "integer", "exclusiveMinimum": 3, "maximum": 12}
    yield {"type": "integer", "minimum": 0.5, "maximum": 9.5}
    for m in (1, 2, 7, 10, 25):
        yield {"type": "integer", "multipleOf": m}
    yield {"type": "integer", "multipleOf": 5, "minimum": -20, "maximum": 120}
    # fixed values
    yield from ({"const": 1}, {"const": None}, {"const": "a\"b\\c\n"}, {"const": {"a": [1, True, None], "b": {}}},
                {"const": []}, {"enum": ["red", "green", "blue"]}, {"enum": [1, "1", None, False, 2.5]},
                {"enum": [[1, 2], {"k": "v"}, "x"]}, {"type": "string", "enum": ["a", 1, "b"]},
                {"enum": ["aa", "b", "ccc"], "minLength": 2}, {"enum": [1, 5, 9], "maximum": 6},
                {"enum": ["ab", "abc", "b"], "pattern": "^a"}, {"enum": [1, 2, 3], "const": 2}, {"enum": ["ü", "日本", "😀"]})
    # objects
    yield obj()
    yield obj(a=s)
    yield obj(["a"], a=s)
    yield obj(["a", "b"], a=i, b=b)
    yield obj(["b"], a=i, b=b)
    yield obj(["b"], a=i, b=b, c=s, d={"type": "null"})
    yield obj([], a=i, b=b, c=s)
    yield obj(["c"], True, a=i, b=b, c=n)
    yield obj(["z"], True, a=i)
    yield obj(["z", "a"], {"type": "integer"}, a=b)
    yield obj([], {"type": "string"}, a=i, ab=b)
    yield obj([], {"type": ["integer", "null"]})
    yield obj(["x", "y"], x=obj(["p"], p=i), y={"type": "array", "items": obj(["q"], q=b)})
    yield {"properties": {"a": i}}
    yield {"type": "object", "properties": {"a": i, "b": False}}
    yield {"type": "object", "properties": {"a": True}, "required": ["a"], "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^n_": i, "_s$": s}, "additionalProperties": False}
    yield {"type": "object", "patternProperties": {"^n": i}, "properties": {"na": {"minimum": 3}, "b": s}}
    yield {"type": "object", "patternProperties": {"^a": {"minimum": 0}, "b$": {"maximum": 9}},
           "additionalProperties": {"type": "boolean"}}
    yield {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": i}
    yield {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": b}
    yield {"type": "object", "propertyNames": {"maxLength": 2}, "properties": {"a": i, "long": i}}
    for least, most in ((1, None), (None, 2), (1, 1), (0, 0)):
        out = {"type": "object", "additionalProperties": i}
        if least is not None:
            out["minProperties"] = least
        if most is not None:
            out["maxProperties"] = most
        yield out
    for least, most in ((2, None), (None, 1), (2, 2), (3, 3)):
        out = obj([], a=i, b=i, c=i)
        if least is not None:
            out["minProperties"] = least
        if most is not None:
            out["maxProperties"] = most
        yield out
    yield {**obj(["b"], True, a=i, b=i), "minProperties": 1, "maxProperties": 3}
    # arrays
    for item in (s, i, b, {"enum": ["x", "y"]}, obj(["a"], a=i)):
        yield {"type": "array", "items": item}
    for least, most in ((1, None), (None, 2), (2, 3), (3, 3), (0, 0)):
        out = {"type": "array", "items": i}
        if least is not None:
            out["minItems"] = least
        if most is not None:
            out["maxItems"] = most
        yield out
    yield {"type": "array", "prefixItems": [s, i]}
    yield {"type": "array", "prefixItems": [s, i], "items": False}
    yield {"type": "array", "prefixItems": [s, i], "items": False, "minItems": 2}
    yield {"type": "array", "prefixItems": [b], "items": n, "minItems": 1, "maxItems": 4}
    yield {"type": "array", "items": {"type": "array", "items": i}}
    yield {"type": "array", "items": False}
    yield {"items": i, "uniqueItems": False}
    yield {"type": "array", "minItems": 2, "maxItems": 2}
    yield {"type": "array", "allOf": [{"items": {"minimum": 2}}, {"items": i}]}
    # alternatives and conjunctions
    yield {"anyOf": [s, i]}
    yield {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "pattern": "^abc"}, {"type": "null"}]}
    yield {"anyOf": [obj(["a"], a=i), obj(["b"], b=s)]}
    yield {"anyOf": [obj(["a"], a=i), obj(["a", "b"], a=i, b=s)]}
    yield {"anyOf": [obj([], True, a=i), obj(["b"], True, b=s)]}
    yield {"oneOf": [s, i, {"type": "null"}]}
    yield {"oneOf": [obj(["kind", "r"], kind={"const": "circle"}, r=n), obj(["kind", "w"], kind={"const": "box"}, w=n)]}
    yield {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 10}]}
    yield {"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}, {"type": "integer"}]}
    yield {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]}
    yield {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 4}]}
    yield {"oneOf": [obj(["a"], a=i), obj(["b"], b=i)]}
    yield {"allOf": [obj(["a"], True, a=i), obj(["b"], True, b=s)]}
    yield {"allOf": [{"type": "integer"}, {"minimum": 4}, {"maximum": 8}]}
    yield {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}
    yield {"allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"type": "integer"}}}], "type": "object",
           "required": ["a"]}
    yield {"type": "object", "properties": {"a": {"anyOf": [i, s]}, "b": {"anyOf": [b, {"type": "null"}]}},
           "required": ["a"], "additionalProperties": False, "allOf": [{"properties": {"a": {"type": ["string", "null"]}}}]}
    yield {"anyOf": [{"type": "integer"}, {"type": "string"}], "enum": [1, "a", None]}
    yield {"type": "integer", "anyOf": [{"minimum": 100}, {"maximum": 3}], "minimum": 0}
    # references
    yield {"$ref": "#/$defs/p", "$defs": {"p": i}}
    yield {"$defs": {"a/b": s, "c~d": i, "e f": b}, "type": "object", "additionalProperties": False, "required": ["x"],
           "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}, "z": {"$ref": "#/$defs/e%20f"}}}
    tree = obj(["v"], v=i, left={"$ref": "#"}, right={"$ref": "#"})
    yield tree
    yield {"$defs": {"node": obj(["v"], v=i, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})},
           "$ref": "#/$defs/node"}
    yield {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "additionalProperties": False}
    yield {"$defs": {"e": {"anyOf": [n, obj(["op", "l", "r"], op={"enum": ["+", "*"]}, l={"$ref": "#/$defs/e"},
                                            r={"$ref": "#/$defs/e"})]}}, "$ref": "#/$defs/e"}
    yield {"$defs": {"p": {"minimum": 3}}, "type": "integer", "allOf": [{"$ref": "#/$defs/p"}, {"maximum": 9}]}
    yield {"definitions": {"x": s}, "type": "array", "items": {"$ref": "#/definitions/x"}, "maxItems": 2}
    yield {"$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}, "$ref": "#/$defs/l"}
    # schemas as in agents
    yield obj(["location"], location=s, unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
    yield obj(["name", "age", "email"], name={"type": "string", "minLength": 1}, age={"type": "integer", "minimum": 0,
              "maximum": 150}, email={"type": "string", "format": "email"})
    yield obj(["steps", "answer"], steps={"type": "array", "items": obj(["explanation", "output"], explanation=s, output=s)},
              answer=s)
    yield obj(["title", "tags", "rating"], title=s, tags={"type": "array", "items": s, "minItems": 1, "maxItems": 3},
              rating={"type": "number", "minimum": 0, "maximum": 5})
    yield obj(["action"], action={"anyOf": [obj(["type", "query"], type={"const": "search"}, query=s),
                                            obj(["type", "x", "y"], type={"const": "click"}, x=i, y=i)]})
    yield obj(["id", "when"], id={"type": "string", "format": "uuid"}, when={"type": "string", "format": "date-time"},
              note={"type": ["string", "null"]})
    yield {"title": "T", "description": "d", "type": "object", "properties": {"a": {"type": "integer", "title": "A", "default": 3}},
           "required": ["a"], "additionalProperties": False, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    rng = random.Random(11)
    for _ in range(50):
        yield random_schema(rng, 3)


def random_schema(rng, depth):
    kind = rng.choice(["string", "integer", "number", "enum", "boolean"] + ["object", "array", "any"] * (depth > 0))
    if kind == "string":
        return rng.choice([{"type": "string"}, {"type": "string", "maxLength": rng.randrange(4)},
                           {"type": "string", "pattern": rng.choice(["^[ab]*$", "x", "^a.b$"])}])
    if kind in ("integer", "number"):
        low = rng.randrange(-50, 50)
        return {"type": kind, "minimum": low, "maximum": low + rng.randrange(40)}
    if kind == "enum":
        return {"enum": rng.sample(["a", "ab", 1, 2.5, None, True, "ü"], rng.randrange(1, 4))}
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "any":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(2)]}
    if kind == "array":
        return {"type": "array", "items": random_schema(rng, depth - 1), "maxItems": rng.randrange(1, 4)}
    names = rng.sample(NAMES, rng.randrange(1, 4))
    return {"type": "object", "properties": {k: random_schema(rng, depth - 1) for k in names},
            "required": [k for k in names if rng.random() < 0.5],
            "additionalProperties": rng.choice([False, False, True, {"type": "integer"}])}


# ---- instances ----------------------------------------------------------------------------------

TEXTS = ["", "a", "ab", "abc", "b", "xy", "foo", "bar", "AB12", "a@b.c", "äß", "q\"\\", "日本", "long text", "a\nb", "aXb", "x",
         "red", "green", "aa", "ccc", "\"q\\", "1", "y", "click", "box", "circle"]
FORMATS = {"date": ["2024-02-29", "2023-02-29", "2024-13-01", "1999-12-31", "2024-1-1"],
           "time": ["12:00:00Z", "23:59:59+02:00", "24:00:00Z", "12:00"],
           "date-time": ["2024-05-06T07:08:09Z", "2024-05-06T07:08:09.123-01:30", "2024-05-06 07:08:09Z", "2024-05-06"],
           "email": ["me@example.org", "a.b+c@x.y", "nobody", "at x"],
           "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000", "123e4567"],
           "ipv4": ["127.0.0.1", "256.1.1.1", "1.2.3", "0.0.0.0"],
           "ipv6": ["::1", "::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::2::3", "12345::"],
           "hostname": ["example.org", "a-b.c", "-a.b", "a..b"], "duration": ["P3DT4H", "PT5M", "P1W", "P", "3D"],
           "uri": ["https://x.org/a?b=c#d", "mailto:me@x.org", "no uri", "://x"]}


def follow(root, ref):
    at = root
    for token in ref.lstrip("#").split("/")[1:]:
        at = at[token.replace("%20", " ").replace("~1", "/").replace("~0", "~")]
    return at


class Maker:
    """Makes instances that match a schema or nearly do."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng

    def any(self, depth):
        kinds = [None, True, False, 0, 1, -3, 2.5, 12, "a", "text"]
        if depth > 0:
            kinds += [[], {}, [1], {"a": 1}, [self.any(depth - 1), self.any(depth - 1)], {"k": self.any(depth - 1)}]
        return self.rng.choice(kinds)

    def make(self, schema, depth=4):
        rng = self.rng
        if not isinstance(schema, dict) or rng.random() < 0.04 or depth < 0:
            return self.any(2)
        schema = dict(schema)
        if "$ref" in schema:
            schema = {**follow(self.root, schema["$ref"]), **{k: v for k, v in schema.items() if k != "$ref"}}
        for key in ("anyOf", "oneOf"):
            if key in schema:
                schema = {**schema, **rng.choice(schema.pop(key))}
        for part in schema.pop("allOf", []):
            if "$ref" in part:
                part = follow(self.root, part["$ref"])
            for k, v in part.items():
                both = isinstance(v, dict) and isinstance(schema.get(k), dict)
                schema[k] = {**schema[k], **{x: y for x, y in v.items() if x not in schema[k]}} if both else v
        if "$ref" in schema:
            return self.make(schema, depth - 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = rng.choice(kind)
        if kind is None:
            kind = "object" if {"properties", "patternProperties"} & set(schema) else "array" if "items" in schema else None
        return getattr(self, "make_" + kind, self.make_null)(schema, depth) if kind else self.any(2)

    def make_null(self, schema, depth):
        return None

    def make_boolean(self, schema, depth):
        return self.rng.random() < 0.5

    def make_integer(self, schema, depth):
        least = schema.get("minimum", schema.get("exclusiveMinimum", -20))
        most = schema.get("maximum", schema.get("exclusiveMaximum", max(least, 0) + 150))
        n = self.rng.randint(int(least) - 2, int(max(most, least)) + 2)
        return n - n % schema.get("multipleOf", 1) if self.rng.random() < 0.7 else n

    def make_number(self, schema, depth):
        least = schema.get("minimum", schema.get("exclusiveMinimum", -20))
        most = schema.get("maximum", schema.get("exclusiveMaximum", max(least, 0) + 150))
        if self.rng.random() < 0.3:
            return self.rng.choice([least, most, int(least), int(most)])
        n = self.rng.uniform(least - 1, most + 1)
        return round(n, self.rng.randrange(4)) if self.rng.random() < 0.7 else int(n)

    def make_string(self, schema, depth):
        if "format" in schema:
            return self.rng.choice(FORMATS[schema["format"]])
        text = self.rng.choice(TEXTS)
        least, most = schema.get("minLength", 0), schema.get("maxLength", 99)
        if self.rng.random() < 0.5:
            text = (text + "abcdefgh"[:least])[:most]
        return text

    def make_array(self, schema, depth):
        prefix = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        count = self.rng.randint(max(least - 1, 0), min(schema.get("maxItems", least + 2) + 1, least + 4))
        rest = schema.get("items", True)
        return [self.make(prefix[k] if k < len(prefix) else rest, depth - 1) for k in range(count)]

    def make_object(self, schema, depth):
        rng, out = self.rng, {}
        needed = schema.get("required", [])
        for k, v in schema.get("properties", {}).items():
            if rng.random() < (0.93 if k in needed else 0.5):
                out[k] = self.make(v, depth - 1)
        for k in needed:
            if k not in out and k not in schema.get("properties", {}) and rng.random() < 0.9:
                out[k] = self.make(schema.get("additionalProperties", True), depth - 1)
        patterns = schema.get("patternProperties", {})
        while rng.random() < (0.5 if schema.get("additionalProperties") is not False or patterns else 0.15):
            k = rng.choice(["n_a", "n_s", "_s", "nb", "ab", "a1", "zb", "other", "n", "long", "ü", "a\"b", "", "aa"] + NAMES)
            value = schema.get("additionalProperties", True)
            for p, v in patterns.items():
                value = v if re.search(p, k) else value
            if k not in schema.get("properties", {}) and k not in needed:
                out[k] = self.make(value, depth - 1)
        return out


def write(value, rng):
    how = rng.randrange(3)
    if how == 0:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2 if how == 1 else None)


def schema_case(schema, rng):
    import jsonschema
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    maker = Maker(schema, rng)
    found = {True: {}, False: {}}
    for _ in range(300):
        value = maker.make(schema)
        text = json.dumps(value, ensure_ascii=False)
        if "e-" in text or "e+" in text:
            continue
        found[checker.is_valid(value)].setdefault(text, write(value, rng))
    take = lambda texts: [texts[k] for k in sorted(texts, key=lambda k: (len(k) > 200, rng.random()))[:14]]
    return {"schema": schema, "valid": take(found[True]), "invalid": take(found[False])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    out = parser.parse_args().out
    with open(os.path.join(out, "grammar_schemas.txt"), "w", encoding="utf-8") as file:
        file.write("# as make_grammar.py says\n")
        rng = random.Random(3)
        for schema in schemas():
            file.write(json.dumps(schema_case(schema, rng), ensure_ascii=False) + "\n")
    rng = random.Random(7)
    with open(os.path.join(out, "grammar_regex.txt"), "w", encoding="utf-8") as file:
        file.write("# as make_grammar.py says\n")
        for pattern in PATTERNS:
            for whole in (True, False):
                file.write(json.dumps(case(pattern, whole, rng), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
