"""Writes tiny random block-diffusion checkpoints, their logits, and the answers of a plain loop over them.

Usage: python tools/golden/tiny_diffusion.py [--out tests/golden/data] [--only NAME]
Owns the models and the requests; block_diffusion.py owns the algorithm. SDAR is transformers' Qwen3-MoE under the block
mask; its GGUF file has the same weights and the keys `diffusion.*`. LLaDA 2 is llada2_reference.py, DiffusionGemma is
transformers' own.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from gguf.quants import quantize
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, DiffusionGemmaConfig, DynamicCache
from transformers import DiffusionGemmaForBlockDiffusion

import block_diffusion
import checkpoint_reference as reference
import exact
import float64
import llada2_reference
import tiny_folders
import tiny_llama

MASK_TOKEN = tiny_llama.CONTROL_TOKENS.index("<|pad|>")
N_PROMPT = 320
KEPT_ROWS = 4  # every fourth row of logits is stored
N_ANSWER = 22  # tokens: the last block is cut
THRESHOLDS = (0.9, 0.5, 0.2)


def tokens_of(n):
    ids = tiny_folders.tokenizer().encode(tiny_llama.PROMPT).ids
    return (ids * (n // len(ids) + 1))[:n]


def metadata_of(folder):
    metadata = {"model": folder.name}
    for path in sorted(folder.glob("*.safetensors")):
        metadata["model_sha256." + path.name] = exact.sha256_of(path)
    return metadata


def requests():
    for i, threshold in enumerate(THRESHOLDS):
        yield block_diffusion.Request(tokens_of(30 + 21 * i), N_ANSWER, threshold)
        yield block_diffusion.Request(tokens_of(3 + 35 * i), N_ANSWER, threshold, temperature=0.8, seed=7 + (i << 33))
    yield block_diffusion.Request(tokens_of(41), N_ANSWER, 0.3, edit_threshold=0.05)
    yield block_diffusion.Request(tokens_of(2), N_ANSWER, 0.5, temperature=0.6, seed=5, shift=True)
    yield block_diffusion.Request(tokens_of(67), N_ANSWER, 0.5, shift=True)


SDAR = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "moe_intermediate_size": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "tie_word_embeddings": False,
}
SDAR_BLOCK = 4
LLADA2 = {
    "architectures": ["LLaDA2MoeModelLM"],
    "model_type": "llada2_moe",
    "vocab_size": len(tiny_llama.vocabulary()[0]),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "first_k_dense_replace": 1,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "num_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "score_function": "sigmoid",
    "use_qk_norm": True,
    "rope_theta": 600000.0,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "block_length": 8,
    "mask_token_id": MASK_TOKEN,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


GEMMA = {
    "canvas_length": 16,
    "text_config": {
        "vocab_size": len(tiny_llama.vocabulary()[0]),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "max_position_embeddings": 512,
        "sliding_window": 24,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "eos_token_id": 2,
        "pad_token_id": 3,
        "bos_token_id": 1,
    },
    "vision_config": {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_hidden_layers": 1,
        "patch_size": 2,
        "position_embedding_size": 16,
    },
}
GEMMA_BOUNDS = (6.0, 0.1, 40.0)  # the first is the file's
GEMMA_RULE = {
    "steps": 7,
    "temperature_low": 0.4,
    "temperature_high": 0.8,
    "confident_entropy": 0.4,
    "stable_steps": 1,
}


class Network:
    """Logits under the block mask: of a whole sequence, and of a block after cached ones.

    Subclasses have run(tokens, visible, position, cache) -> logits [n, vocab], which extends the cache; new_cache();
    cut(cache, n), a cache without the last n tokens.
    """

    block = 0

    def logits(self, tokens):
        return self.run(tokens, block_diffusion.block_mask(len(tokens), self.block))

    def without_cache(self, settled, shift):
        def logits_of(tokens):
            logits = self.logits(settled + tokens)
            if shift:  # the first token of all is never asked for
                logits = np.concatenate([logits[:1], logits[:-1]])
            return logits[len(settled) :]

        return logits_of

    def with_cache(self, settled, shift):
        """Computes every settled block once, and blocks under way without keeping anything."""
        cache = self.new_cache()
        for first in range(0, len(settled), self.block):
            own = settled[first : first + self.block]
            self.run(own, np.ones((len(own), first + len(own)), dtype=bool), first, cache)

        n_again = 1 if shift and settled else 0  # the token before the block has the logits for its first
        if n_again:
            cache = self.cut(cache, 1)

        def logits_of(tokens):
            nonlocal cache
            own = settled[len(settled) - n_again :] + tokens
            visible = np.ones((len(own), len(settled) + len(tokens)), dtype=bool)
            visible[:n_again, len(settled) :] = False
            logits = self.run(own, visible, len(settled) - n_again, cache)
            cache = self.cut(cache, len(own))
            if not shift:
                return logits
            return logits[:-1] if n_again else np.concatenate([logits[:1], logits[:-1]])

        return logits_of


class Sdar(Network):
    block = SDAR_BLOCK

    def __init__(self, model):
        self.model = model

    def new_cache(self):
        return DynamicCache(config=self.model.config)

    def cut(self, cache, n):
        cache.crop(-n)
        return cache

    @torch.no_grad()
    def run(self, tokens, visible, position=0, cache=None):
        mask = torch.zeros(visible.shape, dtype=next(self.model.parameters()).dtype)
        mask = mask.masked_fill(~torch.from_numpy(visible), torch.finfo(mask.dtype).min)[None, None]
        positions = torch.arange(position, position + len(tokens))[None]
        out = self.model(
            torch.tensor([tokens]),
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=cache is not None,
        )
        return out.logits[0].double().numpy()


class Llada2Network(Network):
    block = LLADA2["block_length"]

    def __init__(self, config, state, dtype):
        self.model = llada2_reference.Llada2(config, state, dtype)

    def new_cache(self):
        return self.model.new_cache()

    def cut(self, cache, n):
        return [(k[:-n], v[:-n]) for k, v in cache]

    def run(self, tokens, visible, position=0, cache=None):
        return self.model.run(tokens, visible, position, cache).astype(np.float64)


def write_answers(network):
    """(metadata, tensors) of the requests, which both ways of computing must agree on."""
    metadata, tensors = {"diffusion.count": 0}, {}
    for i, request in enumerate(requests()):
        answer = block_diffusion.generate(request, network.block, MASK_TOKEN, network.without_cache)
        again = block_diffusion.generate(request, network.block, MASK_TOKEN, network.with_cache)
        assert answer.tokens == again.tokens and answer.passes == again.passes, (answer, again)
        assert answer.margin > 2e-5, (request, answer.margin)
        print(f"  threshold {request.threshold}: passes {answer.passes}, margin {answer.margin:.1e}")
        tensors[f"diffusion.{i}.prompt"] = np.array(request.prompt)
        tensors[f"diffusion.{i}.tokens"] = np.array(answer.tokens)
        tensors[f"diffusion.{i}.passes"] = np.array(answer.passes)
        metadata |= {
            f"diffusion.{i}.threshold": request.threshold,
            f"diffusion.{i}.temperature": request.temperature,
            f"diffusion.{i}.seed": str(request.seed),
            "diffusion.count": i + 1,
        }
        metadata[f"diffusion.{i}.shift"] = int(request.shift)
        if request.edit_threshold is not None:
            metadata[f"diffusion.{i}.edit_threshold"] = request.edit_threshold
    return metadata, tensors


def write_expected(path, make_network, metadata):
    network = make_network(torch.float64)
    tokens = tokens_of(N_PROMPT)
    rows = np.arange(0, N_PROMPT, KEPT_ROWS)
    logits = network.logits(tokens)
    difference = float(abs(make_network(torch.float32).logits(tokens) - logits).max())
    answers, tensors = write_answers(network)
    metadata = metadata | answers | {"logits_std": float(logits.std()), "f32_max_abs_diff": difference}
    tensors |= {"tokens": np.array(tokens), "rows": rows, "logits": logits[rows]}
    exact.write_golden(path, metadata, tensors)
    print(f"{path}: logits std {logits.std():.3f}, f32 differs by {difference:.1e}")


GAINS = {"embed_tokens": 2.5, "word_embeddings": 2.5, "lm_head": 6.0, "q_proj": 1.4, "k_proj": 1.4, "gate": 2.0, "query_key_value": 1.2}


def random_values(model, name, shape):
    state = tiny_llama.random_state(model, name)
    if name.endswith("expert_bias"):
        return tiny_llama.uniform(state, shape, 0.1)
    if name.endswith(("norm.weight", "norm_1.weight", "norm_2.weight", "router.scale", "per_expert_scale")):
        return np.float32(1.0) + tiny_llama.uniform(state, shape, 0.25)
    gain = GAINS.get(name.split(".")[-2], 1.0)
    if model.model_type == "diffusion_gemma":  # a step must not magnify the rounding of the one before
        tied = name.split(".")[-2] in ("embed_tokens", "lm_head")
        gain = 1.5 if tied else 0.4 if "self_conditioning" in name else gain
    return tiny_llama.uniform(state, shape, gain / shape[-1] ** 0.5)


@torch.no_grad()
def write_sdar_folder(folder, name):
    model = tiny_folders.Model(name, "qwen3_moe")
    config = AutoConfig.for_model(
        "qwen3_moe", vocab_size=len(tiny_llama.vocabulary()[0]), bos_token_id=1, eos_token_id=2, **SDAR
    )
    network = AutoModelForCausalLM.from_config(config)
    for key, values in network.state_dict().items():
        values.copy_(torch.from_numpy(np.array(random_values(model, key, tuple(values.shape)))))
    network.bfloat16().save_pretrained(folder)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values |= {"model_type": "sdar_moe", "architectures": ["SDARMoeForCausalLM"]}
    values |= {"block_size": SDAR_BLOCK, "mask_token_id": MASK_TOKEN}
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def write_sdar_gguf(path, state):
    """The folder's tensors as a qwen3moe file, which the keys make a block-diffusion model."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_name("tiny sdar")
    writer.add_vocab_size(len(tiny_llama.vocabulary()[0]))
    writer.add_context_length(SDAR["max_position_embeddings"])
    writer.add_embedding_length(SDAR["hidden_size"])
    writer.add_block_count(SDAR["num_hidden_layers"])
    writer.add_feed_forward_length(SDAR["moe_intermediate_size"])
    writer.add_expert_feed_forward_length(SDAR["moe_intermediate_size"])
    writer.add_head_count(SDAR["num_attention_heads"])
    writer.add_head_count_kv(SDAR["num_key_value_heads"])
    writer.add_key_length(SDAR["head_dim"])
    writer.add_value_length(SDAR["head_dim"])
    writer.add_rope_freq_base(SDAR["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(SDAR["num_experts"])
    writer.add_expert_used_count(SDAR["num_experts_per_tok"])
    tiny_llama.add_tokenizer(writer)
    writer.add_uint32("diffusion.block_length", SDAR_BLOCK)
    writer.add_uint32("diffusion.mask_token_id", MASK_TOKEN)
    own = {hf: name for name, hf in reference.TOP_NAMES.items()}
    for layer in range(SDAR["num_hidden_layers"]):
        for name, hf in reference.QWEN3_NAMES.items():
            own[f"model.layers.{layer}.{hf}.weight"] = f"blk.{layer}.{name}.weight"
    for hf, name in own.items():
        if "{}" in hf:
            values = np.stack([state[hf.format(i)].numpy() for i in range(SDAR["num_experts"])])
        elif hf in state:
            values = state[hf].numpy()
        else:
            continue
        kind = Q.F32 if values.ndim == 1 else Q.BF16
        data = values if kind == Q.F32 else quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=None if kind == Q.F32 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_sdar(config, state, dtype):
    model = reference.make_model(config | {"model_type": "qwen3_moe"}, state, torch.float32)
    return Sdar(float64.widen(model) if dtype == torch.float64 else model)


def write_sdar(out):
    with tempfile.TemporaryDirectory() as work:
        write_sdar_folder(pathlib.Path(work), "sdar_moe_hf")
        tiny_folders.keep(pathlib.Path(work), out / "sdar_moe_hf")
    config, state = reference.read_folder(out / "sdar_moe_hf")
    write_sdar_gguf(out / "sdar_moe_bf16.gguf", state)
    write_expected(
        out / "sdar_moe_hf.golden.gguf",
        lambda dtype: make_sdar(config, state, dtype),
        metadata_of(out / "sdar_moe_hf"),
    )


def llada2_shapes():
    c = LLADA2
    hidden, dim = c["hidden_size"], c["head_dim"]
    n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    yield "model.word_embeddings.weight", (c["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (c["vocab_size"], hidden)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        yield at + "attention.query_key_value.weight", (n_q + 2 * n_kv, hidden)
        yield at + "attention.query_layernorm.weight", (dim,)
        yield at + "attention.key_layernorm.weight", (dim,)
        yield at + "attention.dense.weight", (hidden, n_q)
        widths = {"mlp": c["intermediate_size"]}
        if layer >= c["first_k_dense_replace"]:
            yield at + "mlp.gate.weight", (c["num_experts"], hidden)
            yield at + "mlp.gate.expert_bias", (c["num_experts"],)
            widths = {f"mlp.experts.{e}": c["moe_intermediate_size"] for e in range(c["num_experts"])}
            widths["mlp.shared_experts"] = c["moe_intermediate_size"] * c["num_shared_experts"]
        for name, width in widths.items():
            for part, shape in (("gate", (width, hidden)), ("up", (width, hidden)), ("down", (hidden, width))):
                yield f"{at}{name}.{part}_proj.weight", shape


def write_llada2(out):
    folder = out / "llada2_moe_hf"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = tiny_folders.Model("llada2_moe_hf", "llada2_moe")
    state = {name: torch.from_numpy(random_values(model, name, shape)) for name, shape in llada2_shapes()}
    state = {name: t if name.endswith("expert_bias") else t.bfloat16() for name, t in state.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(LLADA2, indent=2, sort_keys=True) + "\n")
    config, state = reference.read_folder(folder)
    state = {name: tensor.numpy() for name, tensor in state.items()}

    def make_network(dtype):
        return Llada2Network(config, state, np.float64 if dtype == torch.float64 else np.float32)

    network = make_network(torch.float64)
    network.logits(tokens_of(N_PROMPT))
    print(f"llada2_moe_hf: smallest lead of a chosen expert or group {min(network.model.leads):.1e}")
    assert min(network.model.leads) > 2e-5
    write_expected(out / "llada2_moe_hf.golden.gguf", make_network, metadata_of(folder))


@torch.no_grad()
def write_gemma_folder(folder):
    """As transformers saves it, without the vision part."""
    network = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**GEMMA))
    model = tiny_folders.Model("diffusion_gemma_hf", "diffusion_gemma")
    for key, values in network.state_dict().items():
        if key.endswith("layer_scalar"):
            values.fill_(0.75 if "encoder" in key else 0.875)  # exact in BF16
        else:
            values.copy_(torch.from_numpy(np.array(random_values(model, key, tuple(values.shape)))))
    network.bfloat16().save_pretrained(folder)
    path = folder / "model.safetensors"
    text = {name: tensor for name, tensor in load_file(path).items() if "vision" not in name}
    save_file(text, path, metadata={"format": "pt"})


def make_gemma(folder, dtype):
    network, info = DiffusionGemmaForBlockDiffusion.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    missing = [name for name in info["missing_keys"] if "vision" not in name]
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
    network = network.eval()
    return float64.widen(network) if dtype == torch.float64 else network


class Gemma:
    """The encoder and decoder over one growing cache."""

    def __init__(self, network):
        self.network, self.settled = network, []
        self.cache = DynamicCache(config=network.config.text_config)

    @torch.no_grad()
    def logits(self, canvas, conditions=None, new=()):
        """Encodes the new tokens, then computes the canvas. conditions: logits [canvas, vocab]."""
        n = len(self.settled)
        self.settled += new
        encoded = {"input_ids": torch.tensor([new]), "position_ids": torch.arange(n, n + len(new))[None]} if new else {}
        dtype = next(self.network.parameters()).dtype
        if conditions is not None:
            conditions = torch.from_numpy(np.array(conditions))[None].to(dtype)
        first = len(self.settled)
        out = self.network(
            cache=self.cache,
            decoder_input_ids=torch.tensor([canvas]),
            decoder_position_ids=torch.arange(first, first + len(canvas))[None],
            self_conditioning_logits=conditions,
            **encoded,
        )
        return out.logits[0].double().numpy()


def watch_routers(network):
    """A list that collects the leads of the worst chosen expert over the best other."""
    leads = []

    def record(module, _args, output):
        best = output[0].topk(module.config.top_k_experts + 1).values
        leads.append(float((best[:, -2] - best[:, -1]).min()))

    for module in network.modules():
        if type(module).__name__.endswith("TextRouter"):
            module.register_forward_hook(record)
    return leads


def gemma_logits(network):
    """Tensors of three canvases: the first step, one with conditions, and the first behind a settled canvas."""
    tokens = tokens_of(N_PROMPT)
    canvas, own = GEMMA["canvas_length"], Gemma(network)
    prompt, canvases = tokens[: -3 * canvas], [tokens[i : i + canvas] for i in (5, 70, 131)]
    first = own.logits(canvases[0], new=prompt)
    second = own.logits(canvases[1], conditions=first)
    third = own.logits(canvases[2], new=canvases[1])
    return {
        "tokens": np.array(prompt),
        "canvases": np.array(canvases),
        "canvas.0.logits": first,
        "canvas.1.logits": second,
        "canvas.2.logits": third,
    }


def write_gemma_answers(network):
    """(metadata, tensors) of answers under three entropy bounds, the first of which is the file's."""
    metadata, tensors, i = {"diffusion.count": 0}, {}, 0
    length, n_vocab = GEMMA["canvas_length"], GEMMA["text_config"]["vocab_size"]
    leads = watch_routers(network)
    for bound in GEMMA_BOUNDS:
        for temperature, seed in ((0.0, 0), (1.0, 11 + (1 << 40))):
            rule = block_diffusion.CanvasRule(**(GEMMA_RULE | {"entropy_bound": bound}))

            def with_cache():
                own = Gemma(network)

                def open_canvas(settled):
                    new = settled[len(own.settled) :]

                    def logits_of(canvas, processed):
                        nonlocal new
                        logits, new = own.logits(canvas, processed, new), []
                        return logits

                    return logits_of

                return open_canvas

            def without_cache(settled):
                return lambda canvas, processed: Gemma(network).logits(canvas, processed, list(settled))

            # The choice of an expert must not hang on rounding either: another prompt, then.
            for n_prompt in range(19 + 30 * i, 31 + 30 * i):
                leads.clear()
                request = block_diffusion.Request(tokens_of(n_prompt), N_ANSWER, bound, temperature, seed)
                answer = block_diffusion.generate_canvas(request, rule, length, n_vocab, with_cache())
                if answer.margin > 1e-3 and min(leads) > 1e-5:
                    break
            print(f"  {n_prompt} tokens: smallest lead of a chosen expert {min(leads):.1e}")
            again = block_diffusion.generate_canvas(request, rule, length, n_vocab, without_cache)
            assert answer.tokens == again.tokens and answer.passes == again.passes, (answer, again)
            assert answer.margin > 1e-3, (request, answer.margin)
            print(f"  bound {bound}, temperature {temperature}: passes {answer.passes}, margin {answer.margin:.1e}")
            tensors[f"diffusion.{i}.prompt"] = np.array(request.prompt)
            tensors[f"diffusion.{i}.tokens"] = np.array(answer.tokens)
            tensors[f"diffusion.{i}.passes"] = np.array(answer.passes)
            metadata |= {
                f"diffusion.{i}.entropy_bound": bound,
                f"diffusion.{i}.temperature": temperature,
                f"diffusion.{i}.seed": str(seed),
                "diffusion.count": i + 1,
            }
            i += 1
    return metadata, tensors


def write_gemma(out):
    folder = out / "diffusion_gemma_hf"
    with tempfile.TemporaryDirectory() as work:
        write_gemma_folder(pathlib.Path(work))
        tiny_folders.keep(pathlib.Path(work), folder)
    generation = {
        "max_denoising_steps": GEMMA_RULE["steps"],
        "t_min": GEMMA_RULE["temperature_low"],
        "t_max": GEMMA_RULE["temperature_high"],
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": GEMMA_BOUNDS[0]},
        "confidence_threshold": GEMMA_RULE["confident_entropy"],
        "stability_threshold": GEMMA_RULE["stable_steps"],
        "eos_token_id": [1, 2],
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2, sort_keys=True) + "\n")
    network = make_gemma(folder, torch.float64)
    tensors = gemma_logits(network)
    single = gemma_logits(make_gemma(folder, torch.float32))
    difference = max(float(abs(single[name] - tensors[name]).max()) for name in tensors if "logits" in name)
    answers, more = write_gemma_answers(network)
    spread = float(tensors["canvas.0.logits"].std())
    metadata = metadata_of(folder) | answers | {"logits_std": spread, "f32_max_abs_diff": difference}
    exact.write_golden(out / "diffusion_gemma_hf.golden.gguf", metadata, tensors | more)
    print(f"diffusion_gemma_hf: logits std {spread:.3f}, f32 differs by {difference:.1e}")


MODELS = {"sdar_moe": write_sdar, "llada2_moe": write_llada2, "diffusion_gemma": write_gemma}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="tests/golden/data")
    parser.add_argument("--only", choices=MODELS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, write in MODELS.items():
        if args.only in (None, name):
            write(args.out)


if __name__ == "__main__":
    main()
