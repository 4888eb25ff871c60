"""Writes a tiny random checkpoint of Qwen3.8-Flash-Next (qwen4_exp), and what transformers computes for it.

Usage: python tools/golden/tiny_qwen4.py --llama-cpp DIR [--out tests/golden/data]
As tiny_hybrid.py, whose tools it uses: a folder laid out as the released one, and the GGUF file that the converter of
llama.cpp makes of it, checked tensor by tensor. The prediction head, which neither transformers nor that converter
has, is written here: from the mixers, norms and layers of transformers by the published description, and into the GGUF
file as last block, which attends to everything. The prompt goes on with random tokens, so that sparse attention leaves
most blocks out, and has ends of text inside, where the n-gram hash restarts.
"""

import argparse
import json
import pathlib
import tempfile

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import checkpoint_reference as reference
import exact
import tiny_folders
import tiny_hybrid
import tiny_llama

END_OF_TEXT = 2
ENDS = (1, 23, 24, 66, 190, 251)  # places of the prompt
N_TOKENS, N_HEAD_ROWS = 320, 16
STREAMS, INDEX_HEADS, INDEX_DIM, RATIO, BUDGET = 3, 4, 16, 4, 12
PARTS = 4  # of the n-gram table
OWN_KEYS = {
    "hc_count": STREAMS,
    "hc_lowrank": 8,
    "indexer_n_heads": INDEX_HEADS,
    "indexer_kv_heads": 1,
    "indexer_head_dim": INDEX_DIM,
    "indexer_budget": BUDGET,
    "indexer_compress_ratio": RATIO,
    "ple_layer_ids": [3],
    "ple_embed_dim": 32,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 2,
    "ngram_vocab_size_base": 31,
    "make_ngram_vocab_size_divisible_by": 4,
    "split_ngram_parts": PARTS,
    "seed": 1234,
    "norm_topk_prob": True,
    "output_gate_type": "sigmoid",
}
MODEL = tiny_hybrid.Model(
    "qwen4_exp_hf",
    "qwen4_exp_text",
    width=16,
    tied=False,
    config=tiny_hybrid.EXPERTS | OWN_KEYS,
    salt="1/",
)
TABLE = "ple.ple_embedding.ngram_embedding."
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_hc_norm.weight": "model.hyper_connection_mixer.hc_norm.weight",
    "output_hc_down.weight": "model.hyper_connection_mixer.input_mix_weight_down.weight",
    "output_hc_up.weight": "model.hyper_connection_mixer.input_mix_weight_up.weight",
}
GGUF_NAMES = tiny_hybrid.GGUF_NAMES | {
    "indexer.q_norm": "self_attn.indexer.q_layernorm",
    "indexer.k_norm": "self_attn.indexer.k_layernorm",
    "ple_key": "ple.key_proj",
    "ple_value": "ple.value_proj",
    "ple_norm_key": "ple.norm_key",
    "ple_norm_query": "ple.norm_query",
    "ple_norm_conv": "ple.norm_conv",
    "ple_conv1d": "ple.conv1d",
}
for _half, _name in (("attn", "attn"), ("ffn", "mlp")):
    for _part, _own in (
        ("norm", "hc_norm"),
        ("down", "input_mix_weight_down"),
        ("up", "input_mix_weight_up"),
        ("inject", "block_inject_weight"),
    ):
        GGUF_NAMES[f"hc_{_half}_{_part}"] = f"{_name}_hyper_connection.{_own}"


def config_of(model):
    return AutoConfig.for_model(
        model.model_type,
        vocab_size=len(tiny_llama.vocabulary()[0]),
        max_position_embeddings=512,
        moe_intermediate_size=model.width,
        **model.config,
        hidden_size=model.hidden,
        num_hidden_layers=tiny_hybrid.N_LAYERS,
        num_attention_heads=model.n_head,
        num_key_value_heads=model.n_head_kv,
        head_dim=model.head_dim,
        full_attention_interval=tiny_hybrid.INTERVAL,
        linear_num_key_heads=model.n_k,
        linear_num_value_heads=model.n_v,
        linear_key_head_dim=model.dk,
        linear_value_head_dim=model.dv,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        tie_word_embeddings=model.tied,
        bos_token_id=1,
        eos_token_id=END_OF_TEXT,
    )


def random_parameter(model, name, shape):
    """As in tiny_hybrid.py. The n-gram table is as large as the embedding; mixers and injections are far from even."""
    if "ngram_embedding" in name:
        return tiny_hybrid.random_parameter(model, name.replace("ngram_embedding", "embed_tokens"), shape)
    gain = 3.0 if "hyper_connection" in name and "norm" not in name else 1.0
    return tiny_hybrid.random_parameter(model, name, shape) * gain


def fill(model, module, prefix=""):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(random_parameter(model, prefix + name, tuple(parameter.shape)))


class Head(torch.nn.Module):
    """The prediction head, with the names of its tensors below "mtp."."""

    def __init__(self, network):
        super().__init__()
        config, trunk = network.config, network.model
        mixer, layer = trunk.hyper_connection_mixer, trunk.layers[tiny_hybrid.INTERVAL - 1]
        hidden, norm = config.hidden_size, type(mixer.hc_norm)
        self.pre_fc_norm_embedding = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(STREAMS * hidden, group_size=hidden, eps=config.rms_norm_eps)
        self.fc_embedding = torch.nn.Linear(hidden, hidden, bias=False)
        self.fc_hidden = torch.nn.Linear(hidden, hidden, bias=False)
        self.layers = torch.nn.ModuleList([type(layer)(config, tiny_hybrid.INTERVAL - 1)])
        self.hyper_connection_mixer = type(mixer)(config, use_combine=False)

    def forward(self, embedded, streams, rotary):
        """embedded [1, n, hidden] of the next tokens, streams [1, n, STREAMS * hidden] after the trunk's layers."""
        n = embedded.shape[1]
        streams = self.pre_fc_norm_hidden(streams).unflatten(-1, (STREAMS, -1))
        x = self.fc_embedding(self.pre_fc_norm_embedding(embedded))[..., None, :] + self.fc_hidden(streams)
        positions = torch.arange(n).view(1, 1, -1).expand(3, 1, -1)
        mask = torch.full((n, n), torch.finfo(embedded.dtype).min, dtype=embedded.dtype).triu(1)[None, None]
        x = self.layers[0](x.flatten(-2), rotary(embedded, positions), attention_mask=mask)
        return self.hyper_connection_mixer(x)


def head_logits(head_state, tokens):
    """Logits of the head at the last rows that have a next token; "dense": where it attends to everything."""

    @torch.no_grad()
    def compute(network):
        head = Head(network)
        head.load_state_dict(head_state)
        head = head.to(network.dtype).eval()
        rows = []
        hook = network.model.hyper_connection_mixer.register_forward_pre_hook(lambda _module, args: rows.append(args[0]))
        network(torch.tensor([tokens]), use_cache=False)
        hook.remove()
        embedded = network.model.embed_tokens(torch.tensor([tokens[1:]]))
        found = {}
        with exact.double_precision(network):
            for name in ("mtp.logits", "mtp.dense_logits"):
                out = head(embedded, rows[0][:, :-1], network.model.rotary_emb)
                found[name] = network.lm_head(out)[0, -N_HEAD_ROWS:]
                indexer = head.layers[0].self_attn.indexer
                indexer.forward = lambda _x, _positions, mask, _cache: torch.ones_like(mask, dtype=torch.bool)
        return found

    return compute


def write_source(folder, model):
    """The folder as the converter can read it. Returns what it has to be completed with: the head's tensors."""
    network = AutoModelForCausalLM.from_config(config_of(model))
    fill(model, network)
    head = Head(network)
    fill(model, head, "mtp.")
    state = {}
    for name, values in network.state_dict().items():
        if values.is_floating_point() and not name.endswith("A_log"):
            values = values.to(model.dtype)
        name = name.replace("model.", "model.language_model.", 1)
        if name.endswith(TABLE + "weight"):
            for i, part in enumerate(values.chunk(PARTS)):
                state[name.replace("weight", f"shard_{i}.weight")] = part.contiguous()
        else:
            state[name] = values.contiguous()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    text = json.loads(network.config.to_json_string(use_diff=False))
    kept = tiny_hybrid.KEPT_KEYS | OWN_KEYS.keys()
    text = {key: value for key, value in text.items() if key in kept or key.startswith(("linear_", "num_"))}
    text["layer_types"] = [t.replace("indexed", "full") for t in text["layer_types"]]  # as released
    text["mtp_num_hidden_layers"] = 1
    config = {"architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp", "text_config": text}
    config["tie_word_embeddings"] = model.tied
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tiny_folders.write_tokenizer(folder)
    return {f"mtp.{name}": values.to(model.dtype).contiguous() for name, values in head.state_dict().items()}


def read_text(folder):
    """(config, state, state of the head) of the text model, as transformers wants them."""
    config, state = reference.read_folder(folder)
    head = {name.removeprefix("mtp."): state.pop(name) for name in list(state) if name.startswith("mtp.")}
    return config["text_config"], {name.replace("language_model.", "", 1): v for name, v in state.items()}, head


def block_values(model, state, prefix, kind, n_dims):
    """The tensor `kind` of a GGUF block, from the folder's layer."""
    if kind == "ssm_a":
        return tiny_hybrid.expected_in_gguf(model, kind, -state[prefix + "linear_attn.A_log"].exp())
    if kind == "ssm_dt":
        return tiny_hybrid.expected_in_gguf(model, kind, state[prefix + "linear_attn.dt_bias"])
    if kind in ("ffn_gate_exps", "ffn_up_exps"):
        return state[prefix + "mlp.experts.gate_up_proj"].chunk(2, dim=1)[kind == "ffn_up_exps"]
    if kind == "ffn_down_exps":
        return state[prefix + "mlp.experts.down_proj"]
    if kind in ("indexer.q_proj", "indexer.k_proj"):
        joined = state[prefix + "self_attn.indexer.index_qk_proj.weight"]
        return joined.split([INDEX_HEADS * INDEX_DIM, INDEX_DIM])[kind == "indexer.k_proj"]
    values = state[f"{prefix}{GGUF_NAMES[kind]}.weight"]
    if kind.startswith("ple_norm"):
        return values + 1.0
    return values[:, 0] if kind == "ple_conv1d" else tiny_hybrid.expected_in_gguf(model, kind, values, n_dims)


def check_gguf(path, model, state):
    """Every tensor of the GGUF file is the one of the folder, converted as published; so are the constants."""
    reader = gguf.GGUFReader(path)
    layer = model.config["ple_layer_ids"][0] - 1
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        values = torch.from_numpy(np.array(values, dtype=np.float32))
        name = tensor.name
        if name in TOP_NAMES:
            other = state[TOP_NAMES[name]] + (1.0 if "norm" in name else 0.0)
        elif name == "per_layer_token_embd.weight":
            other = torch.cat([state[f"model.layers.{layer}.{TABLE}shard_{i}.weight"] for i in range(PARTS)])
        else:
            _, block, kind = name.split(".", 2)
            kind = kind.removesuffix(".weight").removesuffix(".bias")
            other = block_values(model, state, f"model.layers.{block}.", kind, values.ndim)
        assert torch.allclose(values, other, rtol=1e-6 if name.endswith("ssm_a") else 0.0, atol=0.0), name
    for key, own in (
        ("layer_multipliers", "layer_multipliers"),
        ("head_offsets", "ngram_heads_offsets"),
        ("head_vocab_sizes", "ngram_heads_vocab_sizes"),
    ):
        found = reader.get_field("qwen4exp.ple." + key).contents()
        assert found == state[f"model.layers.{layer}.ple.ple_embedding.{own}"].tolist(), key
    print(f"{path}: {len(reader.tensors)} tensors are as expected")


def smallest_block_lead(network, tokens):
    """How far the worst chosen block lies above the best other one: the choice must not hang on rounding."""
    leads, topk = [], torch.Tensor.topk

    def watched(values, k, *args, **kwargs):
        if values.ndim == 1 and values.numel() > k:
            best = topk(values, k + 1).values
            leads.append(float(best[-2] - best[-1]))
        return topk(values, k, *args, **kwargs)

    torch.Tensor.topk = watched
    try:
        exact.run(network, tokens)
    finally:
        torch.Tensor.topk = topk
    return min(leads)


def convert_to_gguf(llama_cpp, source, path):
    """The converter reads config.json as released: transformers renames layers of attention, which it then misses."""
    plain = tiny_folders.CONVERTER
    own = "import conversion.base\nconversion.base.AutoConfig = None\nfrom conversion.base import TextModel\n"
    tiny_folders.CONVERTER = plain.replace("from conversion.base import TextModel\n", own)
    try:
        tiny_folders.convert_to_gguf(llama_cpp, source, path)
    finally:
        tiny_folders.CONVERTER = plain
    interval, n_layers = tiny_hybrid.INTERVAL, tiny_hybrid.N_LAYERS
    ratios = gguf.GGUFReader(path).get_field("qwen4exp.attention.compress_ratios").contents()
    assert ratios == [0 if (i + 1) % interval else RATIO for i in range(n_layers)], ratios


def head_tensors(model, head, layer_kinds):
    """(GGUF name, values) of the head's block: a layer like those of attention, and the nextn tensors."""
    block = f"blk.{tiny_hybrid.N_LAYERS}."
    for kind, n_dims in layer_kinds:
        yield f"{block}{kind}.weight", block_values(model, head, "layers.0.", kind, n_dims)
    yield block + "nextn.eh_proj.weight", torch.cat([head["fc_embedding.weight"], head["fc_hidden.weight"]], dim=1)
    yield block + "nextn.enorm.weight", head["pre_fc_norm_embedding.weight"] + 1.0
    yield block + "nextn.hnorm.weight", head["pre_fc_norm_hidden.weight"] + 1.0
    yield block + "nextn.hc_head_norm.weight", head["hyper_connection_mixer.hc_norm.weight"] + 1.0
    for part in ("down", "up"):
        yield f"{block}nextn.hc_head_{part}.weight", head[f"hyper_connection_mixer.input_mix_weight_{part}.weight"]


def add_head(path, model, head):
    """Appends the head to a GGUF file, by the names and the order of llama.cpp's loader; its ratio is 0."""
    reader, part = gguf.GGUFReader(path), path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen4exp")
    ratios = reader.get_field("qwen4exp.attention.compress_ratios").contents()
    changed = {
        "qwen4exp.block_count": tiny_hybrid.N_LAYERS + 1,
        "qwen4exp.attention.compress_ratios": [*ratios, 0],
    }
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, changed.get(field.name, field.contents()), field.types[0], kind)
    writer.add_uint32("qwen4exp.nextn_predict_layers", 1)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    prefix = f"blk.{tiny_hybrid.INTERVAL - 1}."
    own = [tensor for tensor in reader.tensors if tensor.name.startswith(prefix)]
    kinds = [(tensor.name.removeprefix(prefix).removesuffix(".weight"), len(tensor.shape)) for tensor in own]
    for name, values in head_tensors(model, head, kinds):
        if values.ndim == 1 or "ffn_gate_inp" in name:
            writer.add_tensor(name, values.float().numpy())
        else:
            data = values.to(torch.bfloat16).contiguous().view(torch.uint8).numpy()
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def clear_tokens(model, network):
    """The prompt and random tokens, with ends of text inside: those whose choices do not hang on rounding."""
    for seed in range(100):
        n_vocab = tiny_folders.tokenizer().get_vocab_size()
        tokens = exact.lengthened(tiny_folders.prompt_tokens(), n_vocab, seed, N_TOKENS - len(ENDS))
        for place in ENDS:
            tokens.insert(place, END_OF_TEXT)
        expert, block = min(tiny_folders.expert_leads(network, tokens)), smallest_block_lead(network, tokens)
        print(f"{model.name}: tokens {seed}: smallest lead of a chosen expert {expert:.1e}, of a block {block:.1e}")
        if expert > 2e-4 and block > 5e-5:
            return tokens
    raise AssertionError("choices hang on rounding for all tokens that were tried")


def write(model, out, llama_cpp, work):
    source, folder = work / model.name, out / model.name
    source.mkdir()
    head = write_source(source, model)
    path = out / "qwen4_exp_bf16.gguf"
    convert_to_gguf(llama_cpp, source, path)
    weights = source / "model.safetensors"
    save_file(load_file(weights) | head, weights, {"format": "pt"})
    tiny_folders.keep(source, folder)
    config, state, head = read_text(folder)
    check_gguf(path, model, state)
    add_head(path, model, head)
    tokens = clear_tokens(model, reference.make_model(config, state, torch.float64))
    metadata = {"model": model.name, "prompt_text": tiny_llama.PROMPT}
    metadata["model_sha256.model.safetensors"] = exact.sha256_of(folder / "model.safetensors")
    make_model = lambda dtype: reference.make_model(config, state, dtype)  # noqa: E731
    golden = out / f"{model.name}.golden.gguf"
    more = head_logits(head, tokens)
    exact.write_expected(golden, make_model, tiny_folders.prompt_tokens(), tokens, metadata, more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default="tests/golden/data")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        write(MODEL, args.out, args.llama_cpp, pathlib.Path(work))


if __name__ == "__main__":
    main()
