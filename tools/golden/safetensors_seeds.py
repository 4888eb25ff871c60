#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/safetensors/: seeds of the safetensors and config.json fuzzer, by the
reference writer. Needs numpy and safetensors: pip install numpy safetensors, in .venv.
"""
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/fuzz/corpus/safetensors"

CONFIG = {
    "model_type": "test",
    "layer_types": ["full", "linear"],
    "eos_token_id": [1, 2],
    "limits": [0.0, float("inf")],
    "rope": {"theta": 1e7, "type": None, "flags": [True, False]},
    "mixed": [1, {"a": "b"}, []],
    "quantization": {"group_size": 64, "bits": 4, "mode": "affine", "m": {"bits": 8}},
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file(
        {
            "m.weight": np.zeros((2, 16), dtype=np.uint32),
            "m.scales": np.zeros((2, 1), dtype=np.float16),
            "m.biases": np.zeros((2, 1), dtype=np.float16),
            "norm": np.ones(3, dtype=np.float32),
            "scalar": np.array(5, dtype=np.int64),
        },
        FOLDER / "module.safetensors",
        metadata={"format": "mlx"},
    )
    (FOLDER / "config.json").write_text(json.dumps(CONFIG))


if __name__ == "__main__":
    sys.exit(main())
