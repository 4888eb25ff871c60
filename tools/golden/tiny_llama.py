"""Writes tiny random llama checkpoints (GGUF) and what transformers computes for them.

Usage: python tools/golden/tiny_llama.py [--out tests/golden/data] [--only VARIANT]
Owns the variants and their weights; llama_reference.py owns the mathematics. Weights are uniform numbers seeded by
the hash of variant and tensor name, so that no tensor depends on another. They are scaled so that attention is far
from uniform: a wrong rope order, frequency, head mapping or missing bias moves the logits by far more than rounding.
"""

import argparse
import dataclasses
import hashlib
import os

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from gguf.quants import quantize
from tokenizers import pre_tokenizers

import exact
import llama_reference as reference

PROMPT = 'Then she wrote: "the engine reads 1024 rows";\n\tna\u00efve, all at once. \u4f60\u597d!'
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
MERGES = ["\u0120 t", "h e", "i n", "e r", "\u0120 a", "a t", "\u0120t he", "o n", "r e", "\u0120 s", "in g", "e n"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclasses.dataclass
class Variant:
    name: str
    n_embd: int = 64
    n_layer: int = 2
    n_head: int = 2
    n_head_kv: int = 1
    head_dim: int = 32
    n_ff: int = 32
    theta: float = 10000.0
    tied: bool = True
    bias: bool = False
    rope: str = "none"  # none, linear, llama3
    embedding: Q = Q.F16
    matrix: Q = Q.F16
    # Types of attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down for each layer, where they differ.
    mixed: tuple = ()


LINEAR_FACTOR = 4.0
# Llama 3.1's rule with a short original context, so that a short prompt sees all three of its ranges.
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

VARIANTS = [
    Variant("f32", matrix=Q.F32),
    Variant("wide_head", head_dim=64, theta=500000.0, embedding=Q.BF16, matrix=Q.BF16),
    Variant("untied_bias", n_head=4, theta=100000.0, tied=False, bias=True),
    Variant("rope_llama3", n_head=4, n_head_kv=2, rope="llama3"),
    Variant("rope_linear", n_layer=3, rope="linear", embedding=Q.Q8_0),
    Variant(
        "kquant",
        n_embd=256,
        n_head=4,
        embedding=Q.Q4_K,
        mixed=(
            (Q.Q4_K, Q.Q4_K, Q.Q6_K, Q.Q4_0, Q.Q4_K, Q.Q6_K, Q.Q8_0),
            (Q.Q4_0, Q.Q8_0, Q.Q4_K, Q.Q4_1, Q.Q6_K, Q.Q4_K, Q.Q4_0),
        ),
    ),
]


def random_state(variant, name):
    # The legacy generator: numpy keeps its stream fixed for ever. Uniform numbers need no libm, so bits are portable.
    digest = hashlib.sha256(f"{variant.name}/{name}".encode()).digest()
    return np.random.RandomState(int.from_bytes(digest[:4], "little"))


def uniform(state, shape, std):
    return (state.random_sample(shape) * 2.0 - 1.0).astype(np.float32) * np.float32(std * 3.0**0.5)


def f16_bytes(values):
    return values.astype(np.float16).view(np.uint8).reshape(len(values), 2)


def random_q4_k(state, n_blocks, std):
    """Blocks d, dmin (f16), 12 scale bytes, 128 quant bytes; value = d * scale * q - dmin * min, 0 <= scale, min < 64."""
    d = std / 258.0 * (0.6 + 0.8 * state.random_sample(n_blocks))
    body = state.randint(0, 256, (n_blocks, 140)).astype(np.uint8)
    return np.hstack([f16_bytes(d), f16_bytes(7.5 * d), body])


def random_q6_k(state, n_blocks, std):
    """Blocks of 192 quant bytes, 16 signed scales, d (f16); value = d * scale * (q - 32)."""
    d = std / 684.0 * (0.6 + 0.8 * state.random_sample(n_blocks))
    quants = state.randint(0, 256, (n_blocks, 192)).astype(np.uint8)
    scales = state.randint(-64, 64, (n_blocks, 16)).astype(np.int8).view(np.uint8)
    return np.hstack([quants, scales, f16_bytes(d)])


def matrix(variant, name, rows, cols, std, kind):
    """The bytes (or float32) of a matrix in GGUF's layout."""
    state = random_state(variant, name)
    if kind in (Q.Q4_K, Q.Q6_K):
        make = random_q4_k if kind == Q.Q4_K else random_q6_k
        return make(state, rows * cols // 256, std).reshape(rows, -1)
    values = uniform(state, (rows, cols), std)
    if name.endswith(("attn_q.weight", "attn_k.weight")):
        values = reference.to_adjacent_pairs(values, variant.n_head if "attn_q" in name else variant.n_head_kv)
    return quantize(values, kind)


def llama3_factors(variant):
    """Divisors of the rope frequencies, float32 [head_dim / 2]: 1 for short wavelengths, `factor` for long ones."""
    wavelengths = 2.0 * np.pi * variant.theta ** (np.arange(0, variant.head_dim, 2) / variant.head_dim)
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    turns = LLAMA3["original_max_position_embeddings"] / wavelengths
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / LLAMA3["factor"] + smooth)).astype(np.float32)


def vocabulary():
    """Four control tokens, the 256 bytes in byte-level spelling, then the results of the merges: 272 tokens."""
    tokens = CONTROL_TOKENS + sorted(pre_tokenizers.ByteLevel.alphabet()) + [merge.replace(" ", "") for merge in MERGES]
    kinds = [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS)
    kinds += [gguf.TokenType.NORMAL] * (len(tokens) - len(kinds))
    return tokens, kinds


def add_metadata(writer, variant, n_vocab):
    writer.add_name(f"tiny llama {variant.name}")
    writer.add_vocab_size(n_vocab)
    writer.add_context_length(256)
    writer.add_embedding_length(variant.n_embd)
    writer.add_block_count(variant.n_layer)
    writer.add_feed_forward_length(variant.n_ff)
    writer.add_head_count(variant.n_head)
    writer.add_head_count_kv(variant.n_head_kv)
    writer.add_key_length(variant.head_dim)
    writer.add_value_length(variant.head_dim)
    writer.add_rope_dimension_count(variant.head_dim)
    writer.add_rope_freq_base(variant.theta)
    writer.add_layer_norm_rms_eps(1e-5)
    if variant.rope == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(LINEAR_FACTOR)


def add_tokenizer(writer):
    tokens, kinds = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(3)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_tensors(writer, variant, n_vocab):
    def add(name, data, kind):
        raw = kind not in (Q.F32, Q.F16)
        writer.add_tensor(name, data, raw_dtype=kind if raw else None)

    def linear(name, n_in, n_out, gain, kind):
        # A unit-variance input gives outputs of standard deviation `gain`.
        add(name, matrix(variant, name, n_out, n_in, gain / n_in**0.5, kind), kind)

    def norm(name):
        add(name, np.float32(1.0) + uniform(random_state(variant, name), variant.n_embd, 0.25), Q.F32)

    n_q, n_kv = variant.n_head * variant.head_dim, variant.n_head_kv * variant.head_dim
    # Tied logits are (unit-variance vector) . (embedding row): the row norm 2.5 keeps them in a realistic range.
    linear("token_embd.weight", variant.n_embd, n_vocab, 2.5, variant.embedding)
    if variant.rope == "llama3":
        add("rope_freqs.weight", llama3_factors(variant), Q.F32)
    for layer in range(variant.n_layer):
        kinds = variant.mixed[layer] if variant.mixed else (variant.matrix,) * 7
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        norm(prefix + "ffn_norm.weight")
        shapes = (
            ("attn_q", variant.n_embd, n_q, 1.4),
            ("attn_k", variant.n_embd, n_kv, 1.4),
            ("attn_v", variant.n_embd, n_kv, 1.0),
            ("attn_output", n_q, variant.n_embd, 1.0),
            ("ffn_gate", variant.n_embd, variant.n_ff, 1.5),
            ("ffn_up", variant.n_embd, variant.n_ff, 1.0),
            ("ffn_down", variant.n_ff, variant.n_embd, 1.0),
        )
        for (name, n_in, n_out, gain), kind in zip(shapes, kinds):
            linear(f"{prefix}{name}.weight", n_in, n_out, gain, kind)
            if variant.bias and name.startswith("attn"):
                bias_name = f"{prefix}{name}.bias"
                bias = uniform(random_state(variant, bias_name), n_out, 0.5)
                if name in ("attn_q", "attn_k"):
                    bias = reference.to_adjacent_pairs(bias, variant.n_head if name == "attn_q" else variant.n_head_kv)
                add(bias_name, bias, Q.F32)
    norm("output_norm.weight")
    if not variant.tied:
        linear("output.weight", variant.n_embd, n_vocab, 2.5, variant.matrix)


def write_model(path, variant):
    writer = gguf.GGUFWriter(path, "llama")
    n_vocab = len(vocabulary()[0])
    add_metadata(writer, variant, n_vocab)
    add_tokenizer(writer)
    add_tensors(writer, variant, n_vocab)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_expected(path, model_path):
    file = reference.LlamaFile(model_path)
    metadata = {
        "model": os.path.basename(model_path),
        "model_sha256": exact.sha256_of(model_path),
        "prompt_text": PROMPT,
    }
    tokenizer = file.tokenizer()
    prompt = tokenizer.encode(PROMPT).ids
    tokens = exact.lengthened(prompt, tokenizer.get_vocab_size())
    exact.write_expected(path, file.model, prompt, tokens, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="tests/golden/data")
    parser.add_argument("--only", choices=[variant.name for variant in VARIANTS])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for variant in VARIANTS:
        if args.only in (None, variant.name):
            model_path = os.path.join(args.out, f"llama_{variant.name}.gguf")
            write_model(model_path, variant)
            write_expected(os.path.join(args.out, f"llama_{variant.name}.golden.gguf"), model_path)


if __name__ == "__main__":
    main()
