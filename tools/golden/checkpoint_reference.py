"""The reference for model folders (Hugging Face, MLX) and for Qwen3 GGUF files: their weights in transformers.

Owns reading a checkpoint into transformers' names with every value dequantised, in numpy and by the published
layouts, and the model that transformers makes of it (through a folder of plain float32 weights, so that transformers
reads the checkpoint's own config.json). It shares no code with the engine.
Invariant: every number comes from the files that the engine is given, never from the values quantised into them.
"""

import json
import pathlib
import tempfile

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import exact

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
DEFAULT_GROUPS = {"affine": 64, "mxfp4": 32, "nvfp4": 16}

# GGUF name inside a block -> transformers name inside a layer. "{}" is the expert of a stacked tensor.
QWEN3_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def codes_of(words, bits):
    """Unsigned codes of rows of little-endian u32 words, first code in the lowest bits: [..., words * 32 / bits]."""
    stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    digits = stream.reshape(*words.shape[:-1], -1, bits)
    return digits @ (1 << np.arange(bits))


def e4m3(codes):
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(codes & 128, -value, value)


def dequantise_mlx(tensors, path, settings):
    """The values of a quantised MLX module, float64 [..., out, in]."""
    mode = settings.get("mode", "affine")
    group = settings.get("group_size", DEFAULT_GROUPS[mode])
    codes = codes_of(tensors[path + ".weight"].numpy().view(np.uint32), settings.get("bits", 4))
    scales = tensors[path + ".scales"]
    if mode == "affine":
        biases = tensors[path + ".biases"].double().numpy()
        return codes * scales.double().numpy().repeat(group, -1) + biases.repeat(group, -1)
    scales = scales.numpy().astype(np.int64)
    scales = e4m3(scales) if mode == "nvfp4" else 2.0 ** (scales - 127.0)
    return E2M1[codes] * scales.repeat(group, -1)


def read_folder(folder):
    """(config, state): config.json without quantisation, and float32 weights and integers under transformers' names."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    settings = config.pop("quantization", {})
    config.pop("quantization_config", None)
    state = {}
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        if leaf in ("scales", "biases"):
            continue
        if path + ".scales" in tensors:
            own = settings.get(path)
            tensor = torch.from_numpy(dequantise_mlx(tensors, path, own if isinstance(own, dict) else settings))
        if ".switch_mlp." in name:
            for i, expert in enumerate(tensor):
                state[name.replace("switch_mlp", f"experts.{i}")] = expert.float().contiguous()
        else:
            state[name] = tensor.float() if tensor.is_floating_point() else tensor
    return config, state


def read_qwen3_gguf(path):
    """The state of a Qwen3 or Qwen3-MoE GGUF file, under transformers' names."""
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        values = torch.from_numpy(np.array(values, dtype=np.float32))
        if tensor.name in TOP_NAMES:
            state[TOP_NAMES[tensor.name]] = values
            continue
        _, layer, kind, leaf = tensor.name.split(".")
        target = f"model.layers.{layer}.{QWEN3_NAMES[kind]}.{leaf}"
        if "{}" in target:
            state |= {target.format(i): expert.contiguous() for i, expert in enumerate(values)}
        else:
            state[target] = values
    return state


def make_model(config, state, dtype):
    """The model of config and state in torch.float32 (transformers untouched) or torch.float64 (exact.py)."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        save_file(state, pathlib.Path(folder, "model.safetensors"), metadata={"format": "pt"})
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    frequencies = model.model.rotary_emb.inv_freq.double()
    model = model.eval().to(dtype)
    if dtype == torch.float64 and hasattr(model.config, "linear_num_key_heads"):
        exact.make_double(model)
    elif dtype == torch.float64:
        exact.make_exact(model, frequencies)
    return model
