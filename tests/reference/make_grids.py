#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes io/gguf/grids.c: the points of the lattices of GGUF's IQ types, which are figures of the format, as ggml's Python
package has them (pip install gguf). A point is packed into digits, the first number lowest.

    python3 make_grids.py > ../../io/gguf/grids.c
"""
import gguf.quants as quants

GRIDS = [("iq2_xxs", quants.IQ2_XXS, 2), ("iq2_xs", quants.IQ2_XS, 2), ("iq2_s", quants.IQ2_S, 2), ("iq3_xxs", quants.IQ3_XXS, 3),
         ("iq3_s", quants.IQ3_S, 3), ("iq1", quants.IQ1_S, 2)]
HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Lattices of GGUF's IQ types, made by tests/reference/make_grids.py. A point has its numbers as
 * digits of two or three bits, the first lowest. */
#include "io/gguf/grids.h"
"""


def packed(kind, bits):
    kind.init_grid()
    places = {int(v): i for i, v in enumerate(kind.grid_map)}
    return [sum(places[int(v)] << bits * i for i, v in enumerate(point)) for point in kind.grid.reshape(kind.grid_shape)]


def main():
    print(HEAD, end="")
    print("\n/* clang-format off */")
    for name, kind, bits in GRIDS:
        points = packed(kind, bits)
        print(f"const uint16_t sli_grid_{name}[{len(points)}] = {{")
        for i in range(0, len(points), 13):
            print("    " + " ".join(f"0x{p:04x}," for p in points[i:i + 13]))
        print("};")
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
