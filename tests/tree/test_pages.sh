#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that pages render: each table has a header and equally many cells in each row, and links lead to an existing
# page and heading.
# labels: unthreaded outside smoke
set -u
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 - "$SLUICE_SOURCE" <<'P'
import pathlib, re, sys

root = pathlib.Path(sys.argv[1])
pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
wrong = []


def prose(text):
    """Lines without what stands in fences, which is as it is; (number, line)."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def cells(line):
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def anchors(page):
    heads = [re.sub(r"^#+ ", "", line) for _, line in prose(page.read_text()) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def check_tables(page):
    block = []
    for number, line in [*prose(page.read_text()), (0, "")]:
        if line.startswith("|"):
            block.append((number, line))
            continue
        if block and (len(block) < 2 or not re.fullmatch(r"[|: -]+", block[1][1])):
            wrong.append(f"{page.name}:{block[0][0]}: a row without a table")
        wrong.extend(f"{page.name}:{n}: {cells(row)} cells in a table of {cells(block[0][1])}" for n, row in block
                     if cells(row) != cells(block[0][1]))
        block = []


def check_links(page):
    text = "\n".join(line for _, line in prose(page.read_text()))
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if re.match(r"\w+:", link):
            continue
        to = page.parent / link if link else page
        if not to.exists():
            wrong.append(f"{page.name}: {link} is not there")
        elif anchor and anchor not in anchors(to):
            wrong.append(f"{page.name}: {link} has no heading {anchor}")


for page in pages:
    check_tables(page)
    check_links(page)
print(*wrong, sep="\n")
sys.exit(bool(wrong))
P
