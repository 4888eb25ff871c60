"""Runs a transformers decoder in float64 from end to end, and writes what it computes as GGUF.

Owns the replacement of the parts of transformers that compute in float32 whatever the model's type (softmax, RMS
norms, rope angles, router), the recording of logits, hidden states and greedy answers, and the golden container.
It knows no file format of checkpoints and shares no code with the engine.
"""

import contextlib
import hashlib
import sys
import types

import gguf
import numpy as np
import torch
from transformers import AttentionInterface


def _attention_f64(module, query, key, value, attention_mask, scaling, **_):
    """softmax(q k^T * scaling) v with a causal mask; transformers' eager path does its softmax in float32."""
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling  # (1, n_head, n_query, n_key)
    n_query, n_key = scores.shape[-2:]
    future = torch.ones(n_query, n_key, dtype=torch.bool).triu(n_key - n_query + 1)
    weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def _rms_norm_f64(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def _route_f64(self, hidden):
    """Softmax over all experts, then the best top_k (Qwen3-MoE); probabilities stay in float64."""
    logits = torch.nn.functional.linear(hidden.reshape(-1, self.hidden_dim), self.weight)
    best = logits.softmax(dim=-1).topk(self.top_k, dim=-1)
    scores = best.values / best.values.sum(dim=-1, keepdim=True) if self.norm_topk_prob else best.values
    return logits, scores, best.indices


def make_exact(model, frequencies):
    """Makes a float64 decoder compute in float64 throughout. frequencies: rope radians per position of each pair."""
    AttentionInterface.register("exact_f64", _attention_f64)
    model.config._attn_implementation = "exact_f64"
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(_rms_norm_f64, module)
        if type(module).__name__.endswith("TopKRouter"):
            module.forward = types.MethodType(_route_f64, module)

    def rotary(x, position_ids):
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    model.model.rotary_emb.forward = rotary


class _DoubleTorch:
    """The torch module with float64 under the names of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def double_precision(model):
    """The Python module of the model asks for float32 and gets float64."""
    module, convert = sys.modules[type(model).__module__], torch.Tensor.float
    module.torch, torch.Tensor.float = _DoubleTorch(), torch.Tensor.double
    try:
        yield
    finally:
        module.torch, torch.Tensor.float = torch, convert


def make_double(model):
    """As make_exact, for models whose code has too many float32 parts to replace: it runs as it is, in float64."""
    forward = model.forward

    def double_forward(*args, **kwargs):
        with double_precision(model):
            return forward(*args, **kwargs)

    model.forward = double_forward


@torch.no_grad()
def run(model, tokens):
    """Logits [n, vocab] and the residual stream of the last position [n_layer + 2, n_embd].

    Row 0 is the embedding, row i the output of block i - 1, the last row the output of the final norm, or of what
    stands in its place. Of several residual streams, the rows are the first.
    """
    rows = []
    decoder = getattr(model.model, "language_model", model.model)
    lasts = ("norm", "norm_f", "hyper_connection_mixer")
    last = next(getattr(decoder, name) for name in lasts if hasattr(decoder, name))
    watched = [model.get_input_embeddings(), *decoder.layers, last]

    def record(_module, _args, output):
        row = (output[0] if isinstance(output, tuple) else output)[0, -1]
        rows.append(row[: model.config.hidden_size].clone())

    hooks = [module.register_forward_hook(record) for module in watched]
    logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, torch.stack(rows)


@torch.no_grad()
def greedy(model, prompt, n_tokens, stop_ids=()):
    """Arg-max continuation: ids and, for each, how far the best logit lies above the second best."""
    ids, gaps, cache, step = [], [], None, list(prompt)
    while len(ids) < n_tokens and not (ids and ids[-1] in stop_ids):
        out = model(torch.tensor([step]), cache=cache, use_cache=True)
        cache = out.cache
        top = out.logits[0, -1].topk(2)
        ids.append(int(top.indices[0]))
        gaps.append(float(top.values[0] - top.values[1]))
        step = ids[-1:]
    return ids, gaps


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def write_golden(path, metadata, tensors):
    """A GGUF of architecture "golden": metadata under "golden.", tensors float32 or int32 (row major)."""
    writer = gguf.GGUFWriter(path, "golden")
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for key, value in metadata.items():
        add[type(value)]("golden." + key, value)
    for name, values in tensors.items():
        if isinstance(values, torch.Tensor):
            values = values.numpy()
        values = np.asarray(values)
        kind = np.int32 if values.dtype.kind == "i" else np.float32
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def lengthened(tokens, n_vocab, seed=0, n_tokens=320):
    """The tokens, and random ones after them: five steps of the prefill grid, longer than every window."""
    state = np.random.RandomState(seed)
    return list(tokens) + state.randint(0, n_vocab, n_tokens - len(tokens)).tolist()


def kept_rows(n_tokens):
    """Every eighth row, and the last eight."""
    return sorted({*range(0, n_tokens, 8), *range(n_tokens - 8, n_tokens)})


def write_expected(path, make_model, prompt, tokens, metadata, more=lambda model: {}):
    """What make_model(torch.float64) computes for the tokens and answers to the prompt, and how far make_model(torch.float32) is from it.

    more(model) gives further tensors.
    """
    model = make_model(torch.float64)
    logits, hidden = run(model, tokens)
    single, _ = run(make_model(torch.float32), tokens)
    ids, gaps = greedy(model, prompt, 16)
    difference = float((single.double() - logits).abs().max())
    metadata = metadata | {"logits_std": float(logits.std()), "f32_max_abs_diff": difference}
    rows = kept_rows(len(tokens))
    tensors = {
        "prompt": np.array(prompt),
        "tokens": np.array(tokens),
        "logits.rows": np.array(rows),
        "logits": logits[rows],
        "hidden": hidden,
        "greedy.tokens": np.array(ids),
        "greedy.gap": np.array(gaps),
    } | more(model)
    write_golden(path, metadata, tensors)
    print(f"{path}: {len(tokens)} tokens, logits std {logits.std():.3f}, f32 differs by {difference:.1e}")
