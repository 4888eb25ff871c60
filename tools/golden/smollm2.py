"""Writes what transformers computes for SmolLM2-135M-Instruct, from the weights of one GGUF file.

Usage: python tools/golden/smollm2.py MODEL.gguf OUT.golden.gguf [--text tests/golden/data/smollm2_text.txt]
Owns the choice of what is stored: a sample of the logits of 500 positions of one text, and greedy answers to a few
chats with the lead of each chosen token. Everything is computed in float64 (about 2 GB of memory, one minute).
"""

import argparse

import numpy as np
import torch

import exact
import llama_reference as reference

N_TOKENS = 500
N_SAMPLED_IDS = 64
FULL_POSITIONS = [249, 499]
N_GREEDY = 48
CHATS = [
    [{"role": "user", "content": "Explain in a few sentences why the sky is blue."}],
    [{"role": "user", "content": "Write a Python function that reverses a string, and explain how it works."}],
    [
        {"role": "system", "content": "You are a friendly cook."},
        {"role": "user", "content": "How do I boil an egg?"},
        {"role": "assistant", "content": "Put it in boiling water for eight minutes."},
        {"role": "user", "content": "Tell me a long story about a cook and an egg."},
    ],
    [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
]


def text_results(file, model, text):
    tokens = file.tokenizer().encode(text).ids
    assert len(tokens) == N_TOKENS, f"the text has {len(tokens)} tokens, not {N_TOKENS}"
    logits, hidden = exact.run(model, tokens)
    logsumexp = logits.logsumexp(dim=-1)
    next_ids = torch.tensor(tokens[1:])
    nll = logsumexp[:-1] - logits[:-1].gather(1, next_ids[:, None])[:, 0]
    n_vocab = logits.shape[1]
    sampled = np.sort(np.random.RandomState(1).choice(n_vocab, N_SAMPLED_IDS, replace=False))
    maximum = logits.max(dim=-1)
    runner_up = logits.topk(2).values[:, 1]
    tensors = {
        "tokens": np.array(tokens),
        "sampled.ids": sampled,
        "sampled.logits": logits[:, torch.from_numpy(sampled)],
        "logsumexp": logsumexp,
        "max.logit": maximum.values,
        "max.gap": maximum.values - runner_up,
        "argmax": maximum.indices,
        "nll": nll,
        "full.positions": np.array(FULL_POSITIONS),
        "full.logits": logits[FULL_POSITIONS],
        "hidden": hidden,
    }
    metadata = {"perplexity": float(nll.mean().exp()), "logits_std": float(logits.std())}
    return metadata, tensors, logits


def chat_results(file, model):
    metadata, tensors = {"greedy.count": len(CHATS)}, {}
    tokenizer = file.tokenizer()
    for i, messages in enumerate(CHATS):
        text = file.chat_text(messages, add_generation_prompt=True)
        prompt = tokenizer.encode(text).ids
        ids, gaps = exact.greedy(model, prompt, N_GREEDY, [file.meta["tokenizer.ggml.eos_token_id"]])
        answer = tokenizer.decode(ids, skip_special_tokens=False)
        metadata[f"greedy.{i}.prompt_text"] = text
        metadata[f"greedy.{i}.answer_text"] = answer
        tensors[f"greedy.{i}.prompt"] = np.array(prompt)
        tensors[f"greedy.{i}.tokens"] = np.array(ids)
        tensors[f"greedy.{i}.gap"] = np.array(gaps)
        print(f"chat {i}: {len(ids)} tokens, smallest lead {min(gaps):.3f}: {answer!r}")
    return metadata, tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--text", default="tests/golden/data/smollm2_text.txt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    file = reference.LlamaFile(args.model)
    with open(args.text, encoding="utf-8", newline="") as text_file:
        text = text_file.read()
    model = file.model(torch.float64)
    metadata, tensors, logits = text_results(file, model, text)
    single, _ = exact.run(file.model(torch.float32), tensors["tokens"])
    metadata["f32_max_abs_diff"] = float((single.double() - logits).abs().max())
    print(f"perplexity {metadata['perplexity']:.5f}, float32 differs by {metadata['f32_max_abs_diff']:.1e}")
    chat_metadata, chat_tensors = chat_results(file, model)
    source = {"model": file.meta["general.name"], "model_sha256": exact.sha256_of(args.model)}
    exact.write_golden(args.out, source | metadata | chat_metadata, tensors | chat_tensors)


if __name__ == "__main__":
    main()
