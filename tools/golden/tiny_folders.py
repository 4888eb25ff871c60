"""Writes tiny random checkpoints as the world's own tools write them, and what transformers computes for them.

Usage: python tools/golden/tiny_folders.py --llama-cpp DIR [--out tests/golden/data] [--only NAME]
Owns the models, their weights and the conversions: Hugging Face folders by transformers, MLX folders by mlx-lm, GGUF
files by llama.cpp's converter (DIR holds convert_hf_to_gguf.py). checkpoint_reference.py owns the mathematics. Weights
are uniform numbers seeded by the hash of model and tensor name, as in tiny_llama.py.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import checkpoint_reference as reference
import exact
import tiny_llama

# Sets the name of the pre-tokenizer, which the converter knows only by the hash of a published vocabulary.
CONVERTER = """
import sys
sys.path[:0] = [{folder!r}, {folder!r} + "/gguf-py"]
import convert_hf_to_gguf
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "smollm"
sys.argv = ["convert_hf_to_gguf.py", {model!r}, "--outfile", {out!r}, "--outtype", "bf16", *{options!r}]
convert_hf_to_gguf.main()
"""


@dataclasses.dataclass
class Model:
    name: str
    model_type: str
    hidden: int = 32
    n_head: int = 2
    n_head_kv: int = 1
    head_dim: int = 32
    width: int = 32  # of the MLP, or of one expert
    tied: bool = True
    dtype: torch.dtype = torch.bfloat16
    rope: dict = dataclasses.field(default_factory=lambda: {"rope_type": "default", "rope_theta": 1e6})
    config: dict = dataclasses.field(default_factory=dict)  # more keys of config.json
    older: dict | None = None  # config.json as transformers 4 wrote it, with these keys for those of today
    shards: bool = False
    mlx: dict | None = None  # arguments of mlx_lm.convert; the model is an MLX folder then
    gguf: bool = False  # also as <model_type>_bf16.gguf, with the same expected values


def mixed_precision(path, _module):
    """MLX settings by module path: 8 bits, another group, another mode, none, else the default."""
    if path == "lm_head" or path.endswith("v_proj"):
        return {"group_size": 64, "bits": 8}
    if path.endswith("o_proj"):
        return {"group_size": 32, "bits": 6}
    if path.endswith("down_proj"):
        return {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    return not path.endswith("layers.1.mlp.gate_proj")


LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0} | tiny_llama.LLAMA3
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2}
WIDE = {"hidden": 64, "n_head": 4, "n_head_kv": 2, "width": 64}
MODELS = [
    Model(
        "llama_hf",
        "llama",
        head_dim=16,
        dtype=torch.float16,
        rope={"rope_type": "linear", "rope_theta": 20000.0, "factor": 4.0},
        older={"rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        shards=True,
    ),
    Model("llama_hf_llama3", "llama", n_head=4, n_head_kv=2, tied=False, rope=LLAMA3, config={"attention_bias": True}),
    Model("llama_mlx", "llama", **WIDE, dtype=torch.float16, mlx={}),
    Model("qwen3_hf", "qwen3", tied=False, gguf=True),
    Model("qwen3_mlx_mixed", "qwen3", **WIDE, tied=False, mlx={"quant_predicate": mixed_precision}),
    Model("qwen3_mlx_mxfp4", "qwen3", **WIDE, mlx={"q_mode": "mxfp4"}),
    Model(
        "qwen3_moe_hf",
        "qwen3_moe",
        width=16,
        config=EXPERTS | {"norm_topk_prob": True},
        shards=True,
        gguf=True,
    ),
    Model(
        "qwen3_moe_mlx",
        "qwen3_moe",
        hidden=64,
        n_head=4,
        n_head_kv=2,
        config=EXPERTS | {"norm_topk_prob": False},
        older={"rope_theta": 1e6, "rope_scaling": None, "num_experts": 8},
        mlx={"q_group_size": 32},
    ),
]


def config_of(model):
    width = "moe_intermediate_size" if model.model_type == "qwen3_moe" else "intermediate_size"
    return AutoConfig.for_model(
        model.model_type,
        vocab_size=len(tiny_llama.vocabulary()[0]),
        hidden_size=model.hidden,
        num_hidden_layers=2,
        num_attention_heads=model.n_head,
        num_key_value_heads=model.n_head_kv,
        head_dim=model.head_dim,
        max_position_embeddings=256,
        rope_parameters=dict(model.rope),
        tie_word_embeddings=model.tied,
        bos_token_id=1,
        eos_token_id=2,
        **{width: model.width},
        **model.config,
    )


def random_parameter(model, name, shape):
    """As in tiny_llama.py: attention far from uniform, logits in a realistic range, head norms far from one."""
    state = tiny_llama.random_state(model, name)
    if name.endswith("norm.weight"):
        values = 1.0 + tiny_llama.uniform(state, shape, 0.25)
    elif name.endswith("bias"):
        values = tiny_llama.uniform(state, shape, 0.5)
    else:
        gains = {"embed_tokens": 2.5, "lm_head": 2.5, "q_proj": 1.4, "k_proj": 1.4, "gate_proj": 1.5, "gate": 2.0}
        gain = gains.get(name.split(".")[-2], 1.0)
        values = tiny_llama.uniform(state, shape, gain / shape[-1] ** 0.5)
    return torch.from_numpy(values)


def tokenizer():
    tokens, _ = tiny_llama.vocabulary()
    merges = [tuple(merge.split(" ")) for merge in tiny_llama.MERGES]
    bpe = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tiny_llama.CONTROL_TOKENS])
    return bpe


def prompt_tokens():
    """The prompt as every tiny model of this vocabulary reads it."""
    return tokenizer().encode(tiny_llama.PROMPT).ids


def long_tokens(seed=0):
    return exact.lengthened(prompt_tokens(), tokenizer().get_vocab_size(), seed)


def clear_tokens(model, leads_of, least):
    """Tokens whose choice of experts does not hang on rounding: every chosen expert leads the others by `least`."""
    for seed in range(100):
        tokens = long_tokens(seed)
        lead = min(leads_of(tokens), default=1.0)
        if lead > least:
            print(f"{model.name}: smallest lead of a chosen expert {lead:.1e} (tokens {seed})")
            return tokens
    raise AssertionError(f"{model.name}: the choice of experts hangs on rounding for all tokens that were tried")


def write_tokenizer(folder):
    wrapper = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), bos_token="<|im_start|>", eos_token="<|im_end|>")
    wrapper.chat_template = tiny_llama.CHAT_TEMPLATE
    wrapper.save_pretrained(folder)


def write_source(folder, model):
    """The model as transformers saves it, with the tiny tokenizer beside it."""
    network = AutoModelForCausalLM.from_config(config_of(model))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("experts.gate_up_proj"):
                for e in range(parameter.shape[0]):
                    own = [name.replace("gate_up_proj", f"{e}.{half}_proj.weight") for half in ("gate", "up")]
                    parameter[e] = torch.cat([random_parameter(model, n, (model.width, model.hidden)) for n in own])
            elif name.endswith("experts.down_proj"):
                for e in range(parameter.shape[0]):
                    own = name.replace("down_proj", f"{e}.down_proj.weight")
                    parameter[e] = random_parameter(model, own, (model.hidden, model.width))
            else:
                parameter.copy_(random_parameter(model, name, tuple(parameter.shape)))
    network.to(model.dtype).save_pretrained(folder, **({"max_shard_size": "40KB"} if model.shards else {}))
    write_tokenizer(folder)
    if model.older is not None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["torch_dtype"] = config.pop("dtype")
        del config["rope_parameters"]
        config.pop("num_local_experts", None)
        if model.head_dim * model.n_head == model.hidden:
            del config["head_dim"]
        path.write_text(json.dumps(config | model.older, indent=2, sort_keys=True) + "\n")


def convert_to_mlx(source, out, model):
    from mlx_lm import convert

    convert(str(source), str(out), quantize=True, dtype=str(model.dtype).removeprefix("torch."), **model.mlx)


def convert_to_gguf(llama_cpp, source, out, options=()):
    script = CONVERTER.format(folder=str(llama_cpp), model=str(source), out=str(out), options=list(options))
    subprocess.run([sys.executable, "-c", script], check=True)


def keep(source, out):
    """Copies config.json and the weights."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.name == "config.json" or "safetensors" in path.name:
            shutil.copyfile(path, out / path.name)


def check_same(state, other, name):
    assert state.keys() == other.keys(), (name, state.keys() ^ other.keys())
    for key, values in state.items():
        assert torch.equal(values, other[key]), (name, key)


def expert_leads(network, tokens):
    """For each router, the smallest lead of a chosen expert's logit over the best other."""
    leads, hooks = [], []

    def record(module, _args, output):
        best = output[0].topk(module.top_k + 1).values
        leads.append(float((best[:, -2] - best[:, -1]).min()))

    for module in network.modules():
        if type(module).__name__.endswith("TopKRouter"):
            hooks.append(module.register_forward_hook(record))
    exact.run(network, tokens)
    for hook in hooks:
        hook.remove()
    return leads


def write(model, out, llama_cpp, work):
    source, folder = work / model.name, out / model.name
    write_source(source, model)
    if model.mlx is not None:
        convert_to_mlx(source, work / "mlx", model)
    keep(source if model.mlx is None else work / "mlx", folder)
    config, state = reference.read_folder(folder)
    if model.gguf:
        path = out / f"{model.model_type}_bf16.gguf"
        convert_to_gguf(llama_cpp, source, path)
        check_same(state, reference.read_qwen3_gguf(path), path)
    tokens = long_tokens()
    if model.model_type == "qwen3_moe":
        network = reference.make_model(config, state, torch.float64)
        tokens = clear_tokens(model, lambda tokens: expert_leads(network, tokens), 1e-3)
    metadata = {"model": model.name, "prompt_text": tiny_llama.PROMPT}
    for path in sorted(folder.glob("*.safetensors")):
        metadata["model_sha256." + path.name] = exact.sha256_of(path)
    golden = out / f"{model.name}.golden.gguf"
    make_model = lambda dtype: reference.make_model(config, state, dtype)  # noqa: E731
    exact.write_expected(golden, make_model, prompt_tokens(), tokens, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default="tests/golden/data")
    parser.add_argument("--only", choices=[model.name for model in MODELS])
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_tokenizer(args.out / "tiny_tokenizer")
    for model in MODELS:
        if args.only in (None, model.name):
            with tempfile.TemporaryDirectory() as work:
                write(model, args.out, args.llama_cpp, pathlib.Path(work))


if __name__ == "__main__":
    main()
