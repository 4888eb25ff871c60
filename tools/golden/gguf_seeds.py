#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/gguf/*.gguf with the reference writer: fuzz seeds, and fixtures of the
GGUF reader's unit test. Needs numpy and gguf: pip install numpy gguf, in .venv.
"""
import pathlib
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/fuzz/corpus/gguf"
TYPES = [
    "F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4",
]


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata() -> None:
    w = gguf.GGUFWriter(FOLDER / "metadata.gguf", "test")
    w.add_uint8("u8", 200)
    w.add_int8("i8", -100)
    w.add_uint16("u16", 60000)
    w.add_int16("i16", -30000)
    w.add_uint32("u32", 4000000000)
    w.add_int32("i32", -2000000000)
    w.add_uint64("u64", 2**63 + 5)
    w.add_int64("i64", -(2**62))
    w.add_float32("f32", 0.1)
    w.add_float64("f64", 0.1)
    w.add_bool("yes", True)
    w.add_bool("no", False)
    w.add_string("text", "caf\u00e9\n")
    w.add_array("ints", [3, -1, 2])
    w.add_array("floats", [0.5, -2.25])
    w.add_array("bools", [True, False, True])
    w.add_array("strings", ["a", "", "\u00fcber"])
    finish(w)


def types() -> None:
    w = gguf.GGUFWriter(FOLDER / "types.gguf", "test")
    rng = np.random.default_rng(7)
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        _, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
        data = rng.integers(0, 256, size=(1, block_bytes), dtype=np.uint8)
        w.add_tensor(f"t.{name.lower()}", data, raw_dtype=qtype)
    finish(w)


def shards() -> None:
    w = gguf.GGUFWriter(FOLDER / "split.gguf", "test", split_max_tensors=1)
    w.add_array("strings", ["one", "two"])
    for i in range(3):
        w.add_tensor(f"t{i}", np.full((2, 3), i, dtype=np.float32))
    finish(w)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    metadata()
    types()
    shards()
    sys.exit(0)
