"""LLaDA 2 mixtures of experts in numpy, from their published description: transformers has no such class.

Owns the mathematics of the decoder for one sequence: which tokens a row sees is the caller's. It shares no code with the
engine. Invariant: everything is computed in the dtype that it is given.
"""

import numpy as np


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def silu(x):
    return x / (1.0 + np.exp(-x))


def softmax(x):
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


class Llada2:
    """config: as config.json; state: float32 arrays by name."""

    def __init__(self, config, state, dtype):
        self.config, self.dtype = config, dtype
        self.state = {name: np.asarray(values, dtype=dtype) for name, values in state.items()}
        self.leads = []  # of the worst chosen expert over the best other

    def weight(self, layer, name):
        return self.state[f"model.layers.{layer}.{name}.weight"]

    def rotate(self, x, positions):
        """x [n, heads, dim]: the first part of a head, in halves."""
        dims = int(self.config["head_dim"] * self.config["partial_rotary_factor"])
        frequencies = 1.0 / self.config["rope_theta"] ** (np.arange(0, dims, 2) / dims)
        angles = positions[:, None] * np.concatenate([frequencies, frequencies])
        cos, sin = (f(angles)[:, None].astype(self.dtype) for f in (np.cos, np.sin))
        own, rest = x[..., :dims], x[..., dims:]
        turned = np.concatenate([-own[..., dims // 2 :], own[..., : dims // 2]], -1)
        return np.concatenate([own * cos + turned * sin, rest], -1)

    def attend(self, layer, x, visible, positions, cache):
        c = self.config
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        joined = x @ self.weight(layer, "attention.query_key_value").T
        q, k, v = np.split(joined, [heads * dim, (heads + kv_heads) * dim], -1)
        q, k, v = (part.reshape(len(x), -1, dim) for part in (q, k, v))
        q = rms(q, c["rms_norm_eps"]) * self.weight(layer, "attention.query_layernorm")
        k = rms(k, c["rms_norm_eps"]) * self.weight(layer, "attention.key_layernorm")
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        if cache is not None:
            k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
            cache[layer] = (k, v)
        k, v = (part.repeat(heads // kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / dim**0.5
        shares = softmax(np.where(visible[None], scores, -np.inf))
        out = np.einsum("hqk,khd->qhd", shares, v).reshape(len(x), -1)
        return out @ self.weight(layer, "attention.dense").T

    def mlp(self, layer, name, x):
        gate, up, down = (self.weight(layer, f"{name}.{part}_proj") for part in ("gate", "up", "down"))
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(self, layer, x):
        c = self.config
        scores = 1.0 / (1.0 + np.exp(-(x @ self.weight(layer, "mlp.gate").T)))
        biased = scores + self.state[f"model.layers.{layer}.mlp.gate.expert_bias"]
        groups = np.sort(biased.reshape(len(x), c["n_group"], -1), -1)[..., -2:].sum(-1)
        out = self.mlp(layer, "mlp.shared_experts", x)
        for row in range(len(x)):
            kept = np.argsort(-groups[row])[: c["topk_group"]]
            of_group = np.arange(c["num_experts"]) // (c["num_experts"] // c["n_group"])
            allowed = np.where(np.isin(of_group, kept), biased[row], -np.inf)
            order = np.argsort(-allowed)
            chosen = order[: c["num_experts_per_tok"]]
            ranked = np.sort(groups[row])[::-1]
            self.leads.append(float(allowed[chosen[-1]] - allowed[order[len(chosen)]]))
            self.leads.append(float(ranked[c["topk_group"] - 1] - ranked[c["topk_group"]]))
            total = scores[row, chosen].sum() + 1e-20
            for e in chosen:
                share = scores[row, e] / total * c["routed_scaling_factor"]
                out[row] += share * self.mlp(layer, f"mlp.experts.{e}", x[row : row + 1])[0]
        return out

    def run(self, tokens, visible, position=0, cache=None):
        """Logits [n, vocab]. visible [n, n_before + n]; cache: new_cache(), extended."""
        c, eps = self.config, self.config["rms_norm_eps"]
        x = self.state["model.word_embeddings.weight"][tokens]
        positions = np.arange(position, position + len(tokens))
        for layer in range(c["num_hidden_layers"]):
            normed = rms(x, eps) * self.weight(layer, "input_layernorm")
            x = x + self.attend(layer, normed, visible, positions, cache)
            normed = rms(x, eps) * self.weight(layer, "post_attention_layernorm")
            dense = layer < c["first_k_dense_replace"]
            x = x + (self.mlp(layer, "mlp", normed) if dense else self.experts(layer, normed))
        return (rms(x, eps) * self.state["model.norm.weight"]) @ self.state["lm_head.weight"].T

    def new_cache(self):
        c = self.config
        empty = np.zeros((0, c["num_key_value_heads"], c["head_dim"]), dtype=self.dtype)
        return [(empty, empty)] * c["num_hidden_layers"]
