"""Writes tiny random checkpoints of Qwen3.5, Qwen3.5-MoE and Qwen3-Next, and what transformers computes for them.

Usage: python tools/golden/tiny_hybrid.py --llama-cpp DIR [--out tests/golden/data] [--only NAME]
As tiny_folders.py, whose tools it uses. Qwen3.5 folders are laid out as the released ones: a multimodal config, the text
model below model.language_model, joined experts, a multi-token-prediction head below mtp. The converters of MLX and
llama.cpp read these folders. What they changed is undone here (MLX), or checked tensor by tensor (GGUF).
"""

import argparse
import dataclasses
import json
import pathlib
import tempfile

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import MtpLayer

import checkpoint_reference as reference
import exact
import tiny_folders
import tiny_llama

N_LAYERS, INTERVAL = 3, 2  # delta rule, attention, delta rule
MTP_NAMES = {
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "eh_proj": "mtp.fc",
    "post_norm": "mtp.norm",
    "mtp_block": "mtp.layers.0",
}
ARCHITECTURES = {
    "qwen3_5_text": ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
}
# Of the text config, beside sizes of heads, layers and experts.
KEPT_KEYS = {
    "attn_output_gate",
    "bos_token_id",
    "eos_token_id",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "model_type",
    "moe_intermediate_size",
    "mtp_num_hidden_layers",
    "rms_norm_eps",
    "rope_parameters",
    "shared_expert_intermediate_size",
    "tie_word_embeddings",
    "vocab_size",
}
# GGUF name inside a block -> transformers name inside a layer, where tiny GGUF files of Qwen3 do not have it.
GGUF_NAMES = reference.QWEN3_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}


@dataclasses.dataclass
class Model(tiny_folders.Model):
    n_k: int = 2
    n_v: int = 4
    dk: int = 16
    dv: int = 16
    salt: str = ""  # other weights, where a choice of experts would hang on rounding


EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 16}
WIDE = {"hidden": 64, "width": 64}
MODELS = [
    Model("qwen3_5_hf", "qwen3_5_text", tied=False, gguf=True),
    Model("qwen3_5_mlx", "qwen3_5_text", **WIDE, mlx={"q_group_size": 32}),
    Model("qwen3_5_moe_hf", "qwen3_5_moe_text", width=16, tied=False, config=EXPERTS, gguf=True),
    Model("qwen3_5_moe_mlx", "qwen3_5_moe_text", **WIDE, config=EXPERTS, mlx={"q_group_size": 32}, salt="2/"),
    Model("qwen3_next_hf", "qwen3_next", width=16, tied=False, config=EXPERTS, gguf=True),
]


def config_of(model):
    sizes = {"vocab_size": len(tiny_llama.vocabulary()[0]), "max_position_embeddings": 256}
    if "num_experts" in model.config:
        sizes["moe_intermediate_size"] = model.width
    else:
        sizes["intermediate_size"] = model.width
    return AutoConfig.for_model(
        model.model_type,
        **sizes,
        **model.config,
        hidden_size=model.hidden,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=model.n_head,
        num_key_value_heads=model.n_head_kv,
        head_dim=model.head_dim,
        full_attention_interval=INTERVAL,
        linear_num_key_heads=model.n_k,
        linear_num_value_heads=model.n_v,
        linear_key_head_dim=model.dk,
        linear_value_head_dim=model.dv,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        tie_word_embeddings=model.tied,
        bos_token_id=1,
        eos_token_id=2,
    )


def random_parameter(model, name, shape):
    """As in tiny_folders.py. One-plus norms lie around zero; states remember tens of tokens."""
    state = tiny_llama.random_state(model, model.salt + name)
    if name.endswith("linear_attn.norm.weight"):
        return torch.from_numpy(1.0 + tiny_llama.uniform(state, shape, 0.25))
    if "norm" in name:
        return torch.from_numpy(tiny_llama.uniform(state, shape, 0.25))
    if name.endswith("A_log"):
        return torch.from_numpy(tiny_llama.uniform(state, shape, 0.7)) - 2.5
    if name.endswith("dt_bias"):
        return torch.from_numpy(tiny_llama.uniform(state, shape, 0.5))
    if name.endswith("conv1d.weight"):
        return torch.from_numpy(tiny_llama.uniform(state, shape, 0.6))
    return tiny_folders.random_parameter(model, model.salt + name, shape)


def fill(model, module, prefix=""):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(random_parameter(model, prefix + name, tuple(parameter.shape)))


def make_mtp(network):
    """The head as transformers builds it: its layer is one of full attention."""
    layer, norm = network.model.layers[INTERVAL - 1], network.model.norm
    return MtpLayer(network.config, type(layer), type(norm), INTERVAL - 1)


def mtp_name(name):
    first, _, rest = name.partition(".")
    return f"{MTP_NAMES[first]}.{rest}"


def write_source(folder, model):
    network = AutoModelForCausalLM.from_config(config_of(model))
    fill(model, network)
    if model.model_type not in ARCHITECTURES:
        network.to(model.dtype).save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text()) | {"full_attention_interval": INTERVAL}
    else:
        head = make_mtp(network)
        fill(model, head, "mtp.")
        state = {}
        for name, values in network.state_dict().items():
            if not (model.tied and name == "lm_head.weight"):
                state[name.replace("model.", "model.language_model.", 1)] = values
        state |= {mtp_name(name): values for name, values in head.state_dict().items()}
        kept = {name: v if name.endswith("A_log") else v.to(model.dtype) for name, v in state.items()}
        save_file({name: v.contiguous() for name, v in kept.items()}, folder / "model.safetensors", {"format": "pt"})
        model_type, architecture = ARCHITECTURES[model.model_type]
        text = json.loads(network.config.to_json_string(use_diff=False))
        text |= {"full_attention_interval": INTERVAL, "mtp_num_hidden_layers": 1, "attn_output_gate": True}
        text = {key: value for key, value in text.items() if key in KEPT_KEYS or key.startswith(("linear_", "num_"))}
        config = {"architectures": [architecture], "model_type": model_type, "text_config": text}
        config["tie_word_embeddings"] = model.tied
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tiny_folders.write_tokenizer(folder)


def read_text(folder):
    """(config, state, state of the head) of the text model, as transformers wants them."""
    config, state = reference.read_folder(folder)
    config = config.get("text_config", config)
    text, head = {}, {}
    converted = any(name.startswith("language_model.") for name in state)
    for name, values in state.items():
        if name.startswith("mtp."):
            first = next(key for key, own in MTP_NAMES.items() if name.startswith(own + "."))
            head[name.replace(MTP_NAMES[first], first, 1)] = values
            continue
        name = name.replace("language_model.", "", 1)
        if converted and "norm" in name and not name.endswith("linear_attn.norm.weight"):
            values = values - 1.0
        if converted and name.endswith("conv1d.weight"):
            values = values.transpose(1, 2).contiguous()
        text[name] = values
    if config["tie_word_embeddings"]:
        text.pop("lm_head.weight", None)
    return config, text, head


def mtp_logits(config, head, tokens):
    """Logits of the head at the last four rows that have a next token, after the trunk's normed hidden states."""

    @torch.no_grad()
    def compute(network):
        layer = make_mtp(network)
        layer.load_state_dict(head)
        layer = layer.to(network.dtype).eval()
        rows = []
        hook = network.model.norm.register_forward_hook(lambda _module, _args, output: rows.append(output))
        network(torch.tensor([tokens]), use_cache=False)
        hook.remove()
        with exact.double_precision(network):
            following = torch.tensor([tokens[1:]])
            positions = torch.arange(following.shape[1])[None]
            embedded = network.model.embed_tokens(following)
            mask = torch.full((following.shape[1],) * 2, float("-inf"), dtype=network.dtype).triu(1)[None, None]
            out = layer(
                embedded,
                rows[0][:, :-1],
                position_embeddings=network.model.rotary_emb(embedded, positions),
                attention_mask=mask,
                position_ids=positions,
                cache=None,
            )
            return {"mtp.logits": network.lm_head(out)[0, -4:]}

    return compute if head else lambda model: {}


def tiled(values, model, dim, axis=0):
    """Value heads of `dim` elements along an axis, from the order of their key heads to every n_k-th."""
    axis %= values.ndim
    shape = values.shape
    split = values.reshape(*shape[:axis], model.n_k, model.n_v // model.n_k, dim, *shape[axis + 1 :])
    return split.transpose(axis, axis + 1).reshape(shape)


def expected_in_gguf(model, kind, values, n_dims=None):
    """A tensor of the Hugging Face folder as the GGUF file has to hold it."""
    if kind.endswith("norm") and kind != "ssm_norm":
        return values + 1.0
    if kind == "ssm_conv1d":
        values = values[:, 0]
    if kind == "ffn_gate_inp_shexp":
        return values[0] if n_dims == 1 else values
    if model.model_type == "qwen3_next":
        return values
    keys = 2 * model.n_k * model.dk
    if kind in ("attn_qkv", "ssm_conv1d"):
        return torch.cat([values[:keys], tiled(values[keys:], model, model.dv)])
    if kind in ("attn_gate", "ssm_beta", "ssm_alpha", "ssm_a", "ssm_dt"):
        return tiled(values, model, model.dv if kind == "attn_gate" else 1)
    return tiled(values, model, model.dv, axis=1) if kind == "ssm_out" else values


def joined_qkvz(model, qkv, z):
    """Rows q | k | v and z, back in the order of Qwen3-Next: q | k | v | z of each key head."""
    keys = model.n_k * model.dk
    parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], z)
    return torch.cat([part.reshape(model.n_k, -1, part.shape[-1]) for part in parts], dim=1).reshape(-1, qkv.shape[-1])


def check_gguf(path, model, state, head):
    """Every tensor of the GGUF file is the one of the folder, converted as published."""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        found[tensor.name] = torch.from_numpy(np.array(values, dtype=np.float32))
    for name, values in found.items():
        if name in reference.TOP_NAMES:
            other = state[reference.TOP_NAMES[name]]
            assert torch.equal(values, other + 1.0 if "norm" in name else other), name
            continue
        _, layer, kind = name.split(".")[:3]
        source, prefix = (head, "mtp_block.") if int(layer) == N_LAYERS else (state, f"model.layers.{layer}.")
        if kind == "nextn":
            own = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "post_norm"}
            kind = name.split(".")[3]
            other = source[own[kind] + ".weight"]
            assert torch.equal(values, other if kind == "eh_proj" else other + 1.0), name
        elif kind == "ssm_a":
            other = expected_in_gguf(model, kind, -source[prefix + "linear_attn.A_log"].double().exp())
            assert torch.allclose(values.double(), other, rtol=1e-6), name
        elif kind == "ssm_dt":
            assert torch.equal(values, expected_in_gguf(model, kind, source[prefix + "linear_attn.dt_bias"])), name
        elif kind.endswith("_exps"):
            experts = prefix + "mlp.experts."
            if experts + "down_proj" in source:
                gate, up = source[experts + "gate_up_proj"].chunk(2, dim=1)
                other = {"ffn_gate_exps": gate, "ffn_up_exps": up}.get(kind, source[experts + "down_proj"])
            else:
                own = prefix + GGUF_NAMES[kind] + ".weight"
                other = torch.stack([source[own.format(e)] for e in range(len(values))])
            assert torch.equal(values, other), name
        elif kind == "attn_qkv" and model.model_type == "qwen3_next":
            joined = joined_qkvz(model, values, found[f"blk.{layer}.attn_gate.weight"])
            assert torch.equal(joined, source[prefix + "linear_attn.in_proj_qkvz.weight"]), name
        elif not (kind == "attn_gate" and model.model_type == "qwen3_next"):
            other = source[f"{prefix}{GGUF_NAMES[kind]}.weight"]
            assert torch.equal(values, expected_in_gguf(model, kind, other, values.ndim)), name
    print(f"{path}: {len(found)} tensors are as expected")


def write(model, out, llama_cpp, work):
    source, folder = work / model.name, out / model.name
    source.mkdir()
    write_source(source, model)
    if model.mlx is not None:
        tiny_folders.convert_to_mlx(source, work / "mlx", model)
    tiny_folders.keep(source if model.mlx is None else work / "mlx", folder)
    config, state, head = read_text(folder)
    if model.gguf:
        path = out / f"{model.model_type.removesuffix('_text')}_bf16.gguf"
        tiny_folders.convert_to_gguf(llama_cpp, source, path, [] if head else ["--no-mtp"])
        check_gguf(path, model, state, head)
    tokens = tiny_folders.long_tokens()
    if "num_experts" in model.config:
        network = reference.make_model(config, state, torch.float64)
        tokens = tiny_folders.clear_tokens(model, lambda tokens: tiny_folders.expert_leads(network, tokens), 1e-3)
    metadata = {"model": model.name, "prompt_text": tiny_llama.PROMPT}
    for path in sorted(folder.glob("*.safetensors")):
        metadata["model_sha256." + path.name] = exact.sha256_of(path)
    golden = out / f"{model.name}.golden.gguf"
    make_model = lambda dtype: reference.make_model(config, state, dtype)  # noqa: E731
    more = mtp_logits(config, head, tokens)
    exact.write_expected(golden, make_model, tiny_folders.prompt_tokens(), tokens, metadata, more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default="tests/golden/data")
    parser.add_argument("--only", choices=[model.name for model in MODELS])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for model in MODELS:
        if args.only in (None, model.name):
            with tempfile.TemporaryDirectory() as work:
                write(model, args.out, args.llama_cpp, pathlib.Path(work))


if __name__ == "__main__":
    main()
