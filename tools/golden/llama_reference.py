"""The reference for llama-architecture GGUF files: the file's own weights in transformers' LlamaForCausalLM.

Owns reading such a file, its tokenizer, the model in float32 (transformers untouched, eager attention) and in
float64 (exact.py). It shares no code with the engine.
Invariant: every number comes from dequantised tensors of the file that the engine is given, never from the values
that were quantised into it.
"""

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import exact

TOKEN_TYPE_CONTROL = int(gguf.TokenType.CONTROL)

# GGUF name inside a block -> transformers name inside a layer.
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def to_adjacent_pairs(rows, n_head):
    """Rows of one head from half-split rope order (0, d/2), (1, d/2+1).. to adjacent pairs (0, 1), (2, 3).. ."""
    head_dim = rows.shape[0] // n_head
    split = rows.reshape(n_head, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)


def to_half_split(rows, n_head):
    """The inverse of to_adjacent_pairs."""
    head_dim = rows.shape[0] // n_head
    pairs = rows.reshape(n_head, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


class LlamaFile:
    """A llama-architecture GGUF: metadata as a dict and tensors dequantised to float32 in transformers' layout."""

    def __init__(self, path):
        self.path = path
        reader = gguf.GGUFReader(path)
        self.meta = {name: field.contents() for name, field in reader.fields.items()}
        assert self.meta["general.architecture"] == "llama", self.meta["general.architecture"]
        self.tensors = {t.name: t for t in reader.tensors}
        self.n_head = self["attention.head_count"]
        self.n_head_kv = self.get("attention.head_count_kv", self.n_head)
        self.n_embd = self["embedding_length"]
        self.n_layer = self["block_count"]
        self.head_dim = self.get("attention.key_length", self.n_embd // self.n_head)

    def __getitem__(self, key):
        return self.meta["llama." + key]

    def get(self, key, default):
        return self.meta.get("llama." + key, default)

    def dequantised(self, name):
        tensor = self.tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type)
        return values.reshape([int(n) for n in reversed(tensor.shape)])

    def state_dict(self):
        """All weights under transformers' names, q and k rows back in half-split order."""
        state = {}
        for name in self.tensors:
            if name == "rope_freqs.weight":
                continue
            values = self.dequantised(name)
            if name in TOP_NAMES:
                target = TOP_NAMES[name]
            else:
                _, layer, kind, leaf = name.split(".")
                target = f"model.layers.{layer}.{BLOCK_NAMES[kind]}.{leaf}"
                if kind in ("attn_q", "attn_k"):
                    values = to_half_split(values, self.n_head if kind == "attn_q" else self.n_head_kv)
            state[target] = torch.from_numpy(np.array(values, dtype=np.float32))
        if "lm_head.weight" not in state:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        return state

    def inverse_frequencies(self):
        """Rope radians per position of each pair, float64 [head_dim / 2]."""
        pairs = np.arange(0, self.head_dim, 2, dtype=np.float64)
        frequencies = float(self["rope.freq_base"]) ** (-pairs / self.head_dim)
        if "rope_freqs.weight" in self.tensors:
            frequencies /= self.dequantised("rope_freqs.weight").astype(np.float64)
        if self.get("rope.scaling.type", "none") == "linear":
            frequencies /= float(self["rope.scaling.factor"])
        return torch.from_numpy(frequencies)

    def config(self):
        return LlamaConfig(
            vocab_size=int(self.tensors["token_embd.weight"].shape[1]),
            hidden_size=self.n_embd,
            intermediate_size=self["feed_forward_length"],
            num_hidden_layers=self.n_layer,
            num_attention_heads=self.n_head,
            num_key_value_heads=self.n_head_kv,
            head_dim=self.head_dim,
            max_position_embeddings=self["context_length"],
            rms_norm_eps=self["attention.layer_norm_rms_epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": float(self["rope.freq_base"])},
            attention_bias="blk.0.attn_q.bias" in self.tensors,
            tie_word_embeddings="output.weight" not in self.tensors,
            bos_token_id=self.meta["tokenizer.ggml.bos_token_id"],
            eos_token_id=self.meta["tokenizer.ggml.eos_token_id"],
        )

    def model(self, dtype):
        """LlamaForCausalLM on this file's weights, in torch.float32 or torch.float64."""
        config = self.config()
        config._attn_implementation = "eager"
        model = LlamaForCausalLM(config)
        model.load_state_dict(self.state_dict(), strict=True)
        frequencies = self.inverse_frequencies()
        model.model.rotary_emb.inv_freq = frequencies.float()
        model = model.eval().to(dtype)
        if dtype == torch.float64:
            exact.make_exact(model, frequencies)
        return model

    def tokenizer(self, parse_special=True):
        """The byte-level BPE of the file. With parse_special, control tokens written in the text become their ids.

        The "smollm" pre-tokenizer is: every digit alone, then the GPT-2 byte-level split.
        """
        assert self.meta["tokenizer.ggml.model"] == "gpt2" and self.meta["tokenizer.ggml.pre"] == "smollm"
        tokens = self.meta["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ")) for merge in self.meta["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        if parse_special:
            kinds = self.meta["tokenizer.ggml.token_type"]
            control = [text for text, kind in zip(tokens, kinds) if kind == TOKEN_TYPE_CONTROL]
            tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
        return tokenizer

    def chat_text(self, messages, add_generation_prompt):
        wrapper = PreTrainedTokenizerFast(tokenizer_object=self.tokenizer())
        return wrapper.apply_chat_template(
            messages,
            chat_template=self.meta["tokenizer.chat_template"],
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
