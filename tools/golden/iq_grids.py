#!/usr/bin/env python3
"""Writes src/weights/gen/iq_grids.h: the grids of the IQ block types as sets.

A grid is a list of points with 8 or 4 digits each, ordered by the number that the digits make (first digit lowest). So a bit
for each possible number says all. The points are those of the ggml project; they are read from its Python package.
Needs numpy and gguf: pip install numpy gguf, in .venv.
"""
import pathlib
import sys

import gguf.quants
import numpy as np

HEADER = """// Written by tools/golden/iq_grids.py: the points of the grids of the IQ block types, which the
// ggml project chose. Bit n of a set: the point whose digits, the first one lowest, make the number
// n is in the grid (weights/iq_blocks.h).
#pragma once

#include <cstdint>

namespace kapitsa::weights {

// clang-format off
"""
WORDS_PER_LINE = 8


def words(grid_type) -> list[int]:
    grid_type.init_grid()
    values = list(grid_type.grid_map)
    points = grid_type.grid.reshape(grid_type.grid_shape)
    n_digits = points.shape[1]
    numbers = [sum(values.index(int(v)) * len(values) ** i for i, v in enumerate(point)) for point in points]
    assert np.all(np.diff(numbers) > 0), "the order must follow from the points"
    bits = sum(1 << number for number in numbers)
    n_words = (len(values) ** n_digits + 31) // 32
    return [(bits >> (32 * i)) & 0xFFFFFFFF for i in range(n_words)]


def main() -> None:
    text = HEADER
    for name in ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]:
        listed = [f"0x{word:08x}" for word in words(getattr(gguf.quants, name))]
        text += f"inline constexpr uint32_t k{name.title().replace('_', '')}Grid[] = {{\n"
        for at in range(0, len(listed), WORDS_PER_LINE):
            text += "    " + ", ".join(listed[at : at + WORDS_PER_LINE]) + ",\n"
        text += "};\n"
    text += "// clang-format on\n\n}  // namespace kapitsa::weights\n"
    root = pathlib.Path(__file__).resolve().parents[2]
    (root / "src/weights/gen/iq_grids.h").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
