#!/usr/bin/env python3
"""Writes tests/unit/weights/data/<type>.bin: random blocks and what the reference decodes from them.

Layout of a file: n blocks, then n * block_elements little-endian f32. n follows from the size.
Needs numpy and gguf (the reference decoder): pip install numpy gguf, in .venv.
"""
import pathlib
import sys

import gguf
import numpy as np

# Byte offsets of the f16 fields. They are set to chosen finite values: with random bits some would
# be infinite or NaN, and the bits of a computed NaN differ between machines.
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "MXFP4": [], "NVFP4": [], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82],
    "Q3_K": [108], "IQ4_XS": [0], "BF16": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
    "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [],
}
# One for each block in turn: ordinary, negative, subnormal, zero, largest.
HALVES = np.array([0.0123, -0.75, 3e-6, 0.0, 65504.0], dtype=np.float16)


def random_blocks(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, size=(n, block_bytes), dtype=np.uint8)
    for i in range(n):
        for k, offset in enumerate(HALF_FIELDS[name]):
            half = HALVES[(i + k) % len(HALVES)]
            blocks[i, offset:offset + 2] = np.frombuffer(half.tobytes(), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = np.resize([0, 1, 2, 117, 127, 200, 254, 255], n)
    if name == "NVFP4":
        blocks[0, :4] = [0x00, 0x7F, 0x01, 0x07]
        blocks[1, :4] = [0x08, 0x38, 0x7E, 0xFF]
    if name == "IQ1_M":  # a nibble of the scale in each of four words
        for i in range(n):
            half = int(HALVES[i % len(HALVES)].view(np.uint16))
            for k in range(4):
                blocks[i, 49 + 2 * k] = (blocks[i, 49 + 2 * k] & 15) | ((half >> (4 * k)) & 15) << 4
    if name == "BF16":  # no NaN or infinity
        blocks[:, 1] &= 0xBF
    return blocks


def main() -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    folder = root / "tests/unit/weights/data"
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(HALF_FIELDS):
        elements, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        n = 5 if elements == 256 else 64 if elements == 1 else 8
        blocks = random_blocks(name, n, np.random.default_rng(seed))
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
        assert values.dtype == np.float32 and values.size == n * elements
        (folder / f"{name.lower()}.bin").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    sys.exit(main())
