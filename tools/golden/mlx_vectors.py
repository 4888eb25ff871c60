#!/usr/bin/env python3
"""Writes tests/unit/weights/data/mlx_<mode>_<bits>_<group>.bin: one row of random codes and what MLX
decodes from it.

Layout of a file, for a row of 256 values: the codes, the scales, the biases (affine only), then 256
little-endian f32. Scales and biases are f16 for affine, bytes otherwise.
Needs numpy and mlx, whose CPU build runs on Linux: pip install numpy "mlx[cpu]", in .venv.
"""
import pathlib
import sys

import mlx.core as mx
import numpy as np

VALUES = 256
CASES = [
    ("affine", 2, 64), ("affine", 3, 32), ("affine", 4, 64), ("affine", 5, 128), ("affine", 6, 64),
    ("affine", 8, 128), ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16),
]


def scale_bytes(mode: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Bytes that decode to finite numbers: the bits of a computed NaN differ between machines."""
    if mode == "nvfp4":
        scales = rng.integers(0, 0x7F, size=n, dtype=np.uint8)
        scales[:4] = [0x00, 0x01, 0x07, 0x7E]
    else:
        scales = rng.integers(0, 200, size=n, dtype=np.uint8)
        scales[:4] = [0, 1, 127, 200]
    return scales


def main() -> None:
    folder = pathlib.Path(__file__).resolve().parents[2] / "tests/unit/weights/data"
    for seed, (mode, bits, group) in enumerate(CASES):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2**32, size=VALUES * bits // 32, dtype=np.uint32)
        if mode == "mxfp8":  # no NaN codes
            codes = (codes.view(np.uint8) & 0xF7).view(np.uint32)
        n = VALUES // group
        settings = {"group_size": group, "bits": bits, "mode": mode}
        if mode == "affine":
            scales = rng.standard_normal(n).astype(np.float16)
            biases = rng.standard_normal(n).astype(np.float16)
            extra = [mx.array(x.astype(np.float32).reshape(1, n)) for x in (scales, biases)]
            stored = scales.tobytes() + biases.tobytes()
        else:
            scales = scale_bytes(mode, n, rng)
            extra = [mx.array(scales.reshape(1, n))]
            stored = scales.tobytes()
            settings["dtype"] = mx.float32
        row = mx.dequantize(mx.array(codes.reshape(1, -1)), *extra, **settings)
        values = np.array(row).ravel()
        assert values.dtype == np.float32 and values.size == VALUES
        name = f"mlx_{mode}_{bits}_{group}.bin"
        (folder / name).write_bytes(codes.tobytes() + stored + values.tobytes())


if __name__ == "__main__":
    sys.exit(main())
