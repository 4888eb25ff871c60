"""Writes tiny random checkpoints of nemotron_h, muse_glimmer and laguna, and what transformers computes for them.

Usage: python tools/golden/tiny_families.py --llama-cpp DIR [--out tests/golden/data] [--only NAME]
As tiny_folders.py, whose tokenizer and conversions it uses, for models whose layers differ from each other. float64.py
owns the precision. A GGUF file and an MLX folder of plain weights have the expected values of the folder that they were
converted from; a quantised MLX folder has its own.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import checkpoint_reference as reference
import exact
import float64
import modelopt
import tiny_folders
import tiny_llama


# Reads config.json as it is: through transformers, a dense nemotron_h gets the defaults of one with experts.
CONVERTER = tiny_folders.CONVERTER.replace(
    "sys.argv =",
    """import json
from conversion.base import ModelBase
ModelBase.load_hparams = staticmethod(lambda folder, is_mistral_format: json.loads((folder / "config.json").read_text()))
sys.argv =""",
)


@dataclasses.dataclass
class Model:
    name: str
    model_type: str
    config: dict
    gguf: str | None = None  # also as this file
    mlx: dict | None = None  # arguments of mlx_lm.convert; the model is an MLX folder then
    nvfp4: bool = False  # linear layers and experts as ModelOpt quantises them
    # Keys of config.json as publishers wrote them before transformers had the model; None: without the key.
    older: dict = dataclasses.field(default_factory=dict)


NEMOTRON = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 2,
    "chunk_size": 32,
    "intermediate_size": 64,
    # transformers clips time steps from below by it, but not while it decodes; the publisher's code never does.
    "time_step_min": 1e-9,
}
NEMOTRON_EXPERTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 64,
    "routed_scaling_factor": 2.5,
}
NOT_DENSE = dict.fromkeys(
    ("layers_block_type", "layer_types", "num_experts_per_tok", "n_routed_experts", "n_shared_experts", "n_group")
)
MUSE = {
    "text_config": {
        "vocab_size": len(tiny_llama.vocabulary()[0]),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,  # three with a window, one without positions
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 256,
        "sliding_window": 20,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        "output_multiplier": 0.7,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    },
    "vision_config": {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "patch_size": 2,
        "pos_emb_height": 2,
        "pos_emb_width": 2,
        "max_position_embeddings": 4,
    },
    "out_hidden_size": 32,
    "projector_hidden_size": 8,
}
LAGUNA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "num_attention_heads": 2,
    "num_attention_heads_per_layer": [2, 4, 2],
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": 20,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_routed_scaling_factor": 2.5,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 500000.0,
            "partial_rotary_factor": 0.5,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 16.0,
            "beta_slow": 1.0,
            "attention_factor": 1.2079441541679836,  # 0.1 ln(8) + 1, which llama.cpp computes itself
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
}
MODELS = [
    Model(
        "nemotron_h_moe_hf",
        "nemotron_h",
        NEMOTRON
        | NEMOTRON_EXPERTS
        | {"layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "moe"]}
        | {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["full_attention", "moe"]},
        gguf="nemotron_h_moe_bf16.gguf",
    ),
    Model(
        "nemotron_h_hf",
        "nemotron_h",
        NEMOTRON | {"layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"]},
        gguf="nemotron_h_bf16.gguf",
        older=NOT_DENSE | {"hybrid_override_pattern": "M-*-", "num_hidden_layers": 4},
    ),
    Model(
        "nemotron_h_nvfp4",
        "nemotron_h",
        NEMOTRON | NEMOTRON_EXPERTS | {"layers_block_type": ["linear_attention", "moe", "full_attention"]},
        nvfp4=True,
    ),
    Model(
        "nemotron_h_mlx",
        "nemotron_h",
        NEMOTRON
        | NEMOTRON_EXPERTS
        | {"layers_block_type": ["linear_attention", "moe", "full_attention"], "n_group": 4, "topk_group": 2},
        mlx={"quantize": True, "q_group_size": 32},
    ),
    Model("muse_glimmer_hf", "muse_glimmer", MUSE, gguf="muse_glimmer_bf16.gguf"),
    Model("muse_glimmer_mlx", "muse_glimmer", MUSE, mlx={"quantize": True, "q_group_size": 32}),
    Model("laguna_hf", "laguna", LAGUNA, gguf="laguna_bf16.gguf"),
    # mlx-lm quantises the router in groups of 64.
    Model("laguna_mlx", "laguna", LAGUNA | {"hidden_size": 64}, mlx={"quantize": True, "q_group_size": 32}),
]


class NemotronHead(torch.nn.Module):
    """The multi-token-prediction head of 3.5, which transformers leaves out: two of its own blocks, and norms.

    Structure: vLLM, nemotron_h_mtp.py.
    """

    def __init__(self, network):
        super().__init__()
        config, blocks = network.config, network.model.layers
        norm = lambda: type(network.model.norm_f)(config.hidden_size, eps=config.layer_norm_epsilon)  # noqa: E731
        kinds = config.layers_block_type
        self.layers = torch.nn.ModuleList(
            type(blocks[0])(config, kinds.index(kind)) for kind in config.mtp_layers_block_type
        )
        first, last = self.layers
        first.enorm, first.hnorm, last.final_layernorm = norm(), norm(), norm()
        first.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, embedded, hidden, mask):
        first, last = self.layers
        x = first.eh_proj(torch.cat([first.enorm(embedded), first.hnorm(hidden)], dim=-1))
        return last.final_layernorm(last(first(x, attention_mask=mask)))


def head_logits(state, tokens):
    """Logits of the head at the last four rows that have a next token, after the trunk's normed hidden states."""

    @torch.no_grad()
    def compute(network):
        head = NemotronHead(network)
        head.load_state_dict({name.removeprefix("mtp."): values for name, values in state.items()})
        head = float64.widen(head.float().eval())
        rows = []
        hook = network.model.norm_f.register_forward_hook(lambda _module, _args, output: rows.append(output))
        network(torch.tensor([tokens]), use_cache=False)
        hook.remove()
        embedded = network.model.embeddings(torch.tensor([tokens[1:]]))
        mask = torch.full((len(tokens) - 1,) * 2, float("-inf"), dtype=torch.float64).triu(1)[None, None]
        return {"mtp.logits": network.lm_head(head(embedded, rows[0][:, :-1], mask))[0, -4:]}

    return compute if state else lambda network: {}


def auto_class(model_type):
    return AutoModelForImageTextToText if model_type == "muse_glimmer" else AutoModelForCausalLM


def random_values(model, name, shape):
    """Far from the values that hide mistakes: uneven norms and biases, sharp attention, time steps of about one."""
    state = tiny_llama.random_state(model, name)
    leaf, parent = name.split(".")[-1], name.split(".")[-2]
    if leaf == "A_log":
        return np.log(np.float32(0.3) + state.random_sample(shape).astype(np.float32))
    if model.model_type == "muse_glimmer" and parent.endswith("layernorm"):
        return tiny_llama.uniform(state, shape, 0.25)  # stored less one
    if leaf == "D" or "norm" in parent:
        return np.float32(1.0) + tiny_llama.uniform(state, shape, 0.25)
    if leaf == "e_score_correction_bias":
        return tiny_llama.uniform(state, shape, 0.1)
    if leaf in ("bias", "dt_bias"):
        return tiny_llama.uniform(state, shape, 0.5)
    gains = {"embeddings": 2.5, "lm_head": 2.5, "q_proj": 1.4, "k_proj": 1.4, "gate": 2.0, "conv1d": 1.5}
    return tiny_llama.uniform(state, shape, gains.get(parent, 1.0) / shape[-1] ** 0.5)


def separate_experts(state):
    """Joined experts as checkpoints hold them: one tensor per expert."""
    result = {}
    for name, values in state.items():
        if ".experts." in name:
            result |= {name.replace(".experts.", f".experts.{e}.") + ".weight": v.clone() for e, v in enumerate(values)}
        else:
            result[name] = values
    return result


@torch.no_grad()
def write_source(folder, model):
    text = {
        "vocab_size": len(tiny_llama.vocabulary()[0]),
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    }
    config = AutoConfig.for_model(model.model_type, **({} if "text_config" in model.config else text), **model.config)
    network = auto_class(model.model_type).from_config(config)
    for name, values in network.state_dict().items():
        values.copy_(torch.from_numpy(np.array(random_values(model, name, tuple(values.shape)))))
    network.bfloat16().save_pretrained(folder)
    if model.config.get("num_nextn_predict_layers"):
        head = NemotronHead(network)
        for name, values in head.state_dict().items():
            values.copy_(torch.from_numpy(np.array(random_values(model, "mtp." + name, tuple(values.shape)))))
        path = folder / "model.safetensors"
        more = {f"mtp.{name}": tensor for name, tensor in separate_experts(head.bfloat16().state_dict()).items()}
        save_file(load_file(path) | more, path, metadata={"format": "pt"})
    if model.nvfp4:
        path = folder / "model.safetensors"
        kept = {}
        for name, values in load_file(path).items():
            kept |= modelopt.quantise(name, values) if name.endswith("_proj.weight") else {name: values}
        save_file(kept, path, metadata={"format": "pt"})
    if model.mlx is not None:  # mlx-lm knows the text part only
        path = folder / "model.safetensors"
        text = {name: tensor for name, tensor in load_file(path).items() if ".vision_" not in name}
        save_file(text, path, metadata={"format": "pt"})
    tiny_folders.write_tokenizer(folder)
    path = folder / "config.json"
    values = json.loads(path.read_text()) | model.older
    values = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def read_folder(folder):
    """checkpoint_reference.read_folder, and what mlx-lm renames and lays out otherwise undone."""
    config, state = reference.read_folder(folder)
    state = modelopt.dequantised(state)
    if config["model_type"] == "muse_glimmer" and "model.norm.weight" in state:
        config["vision_config"] = MUSE["vision_config"]
        state = {name.replace("model.", "model.language_model.", 1): state[name] for name in state}
    state = {name.replace(".gate.proj.", ".gate."): state[name] for name in state}
    for name in list(state):
        if name.endswith("conv1d.weight") and state[name].shape[-1] == 1:
            state[name] = state[name].transpose(1, 2).contiguous()
        for mlx, own in ((".fc1.weight", ".up_proj.weight"), (".fc2.weight", ".down_proj.weight")):
            if ".experts." in name and name.endswith(mlx):
                state[name.replace(mlx, own)] = state.pop(name)
    return config, state


def joined_experts(state):
    """separate_experts undone."""
    result, experts = {}, {}
    for name, values in state.items():
        parts = re.fullmatch(r"(.*\.experts\.)(\d+)\.(.*)\.weight", name)
        if parts is None:
            result[name] = values
        else:
            experts.setdefault(parts[1] + parts[3], {})[int(parts[2])] = values
    return result | {name: torch.stack([each[e] for e in range(len(each))]) for name, each in experts.items()}


def make_model(config, state, dtype):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        save_file(state, pathlib.Path(folder, "model.safetensors"), metadata={"format": "pt"})
        network, info = auto_class(config["model_type"]).from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    missing = [name for name in info["missing_keys"] if ".vision_" not in name]
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
    network = network.eval()
    return float64.widen(network) if dtype == torch.float64 else network


def expert_leads(network, tokens):
    """For each router, the smallest lead of a chosen expert's score over the best other."""
    leads, hooks = [], []

    def record(module, _args, output):
        logits, _weights, chosen = output
        scores = logits.sigmoid() + module.e_score_correction_bias
        others = scores.scatter(1, chosen, -torch.inf)
        if getattr(module, "num_group", 1) == 1:  # with groups, the best other may be of a dropped one
            leads.append(float((scores.gather(1, chosen).min(1).values - others.max(1).values).min()))

    for module in network.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            hooks.append(module.register_forward_hook(record))
    exact.run(network, tokens)
    for hook in hooks:
        hook.remove()
    return leads


def write(model, out, llama_cpp, work):
    source, folder = work / model.name, out / model.name
    write_source(source, model)
    if model.mlx is not None:
        from mlx_lm import convert

        convert(str(source), str(work / "mlx"), dtype="bfloat16", **model.mlx)
    tiny_folders.keep(source if model.mlx is None else work / "mlx", folder)
    if model.gguf:
        script = CONVERTER.format(folder=str(llama_cpp), model=str(source), out=str(out / model.gguf), options=[])
        subprocess.run([sys.executable, "-c", script], check=True)
    config, state = read_folder(folder)
    head = joined_experts({name: state.pop(name) for name in list(state) if name.startswith("mtp.")})
    double = make_model(config, state, torch.float64)
    tokens = tiny_folders.clear_tokens(model, lambda tokens: expert_leads(double, tokens), 1e-4)
    metadata = {"model": model.name, "prompt_text": tiny_llama.PROMPT}
    for path in sorted(folder.glob("*.safetensors")):
        metadata["model_sha256." + path.name] = exact.sha256_of(path)
    golden = out / f"{model.name}.golden.gguf"
    network = lambda dtype: make_model(config, state, dtype)  # noqa: E731
    more = head_logits(head, tokens)
    exact.write_expected(golden, network, tiny_folders.prompt_tokens(), tokens, metadata, more)


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
