"""How far engines are from exact arithmetic on one GGUF file: KL divergence of their next-token distributions.

Usage:
  python tools/quality.py tokens MODEL.gguf TEXT OUT.i32 [--count 2000]
  python tools/quality.py exact MODEL.gguf TOKENS.i32 OUT.f32         (transformers, float64, dequantised weights)
  python tools/quality.py llama-cpp BINDINGS MODEL.gguf TOKENS.i32 OUT.f32 [--batch N]
  python tools/quality.py compare EXACT.f32 TOKENS.i32 NAME=LOGITS.f32 ...
Kapitsa's own logits come from bench_logits. BINDINGS is the folder of llama-cpp-python's sources; its library is found
through LLAMA_CPP_LIB_PATH. It runs as a black box with its default parameters.
"""

import argparse
import sys
from pathlib import Path

import numpy as np


def read_tokens(path):
    return np.fromfile(path, dtype="<i4")


def write_tokens(args):
    sys.path.insert(0, str(Path(__file__).parent / "golden"))
    import llama_reference as reference

    text = Path(args.text).read_text(encoding="utf-8")
    ids = reference.LlamaFile(args.model).tokenizer().encode(text).ids[: args.count]
    np.array(ids, dtype="<i4").tofile(args.out)
    print(f"{len(ids)} tokens")


def write_exact(args):
    sys.path.insert(0, str(Path(__file__).parent / "golden"))
    import exact
    import llama_reference as reference
    import torch

    torch.set_num_threads(1)
    model = reference.LlamaFile(args.model).model(torch.float64)
    logits, _ = exact.run(model, [int(i) for i in read_tokens(args.tokens)])
    logits.to(torch.float64).numpy().astype("<f4").tofile(args.out)


def write_llama_cpp(args):
    sys.path.insert(0, args.bindings)
    import ctypes

    from llama_cpp import llama_cpp as c

    c.llama_backend_init()
    model = c.llama_model_load_from_file(args.model.encode(), c.llama_model_default_params())
    tokens = read_tokens(args.tokens)
    params = c.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads = len(tokens) + 64, args.batch, args.batch, 2
    context = c.llama_init_from_model(model, params)
    n_vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
    batch = c.llama_batch_init(args.batch, 0, 1)
    with open(args.out, "wb") as out:
        for start in range(0, len(tokens), args.batch):
            part = tokens[start : start + args.batch]
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.logits[i] = int(token), start + i, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            if c.llama_decode(context, batch) != 0:
                raise SystemExit("llama_decode failed")
            address = ctypes.cast(c.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
            out.write(np.ctypeslib.as_array(address, (len(part), n_vocab)).tobytes())


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def compare(args):
    tokens = read_tokens(args.tokens)
    n = len(tokens)
    exact = np.memmap(args.exact, dtype="<f4", mode="r").reshape(n, -1)
    for pair in args.candidates:
        name, path = pair.split("=", 1)
        found = np.memmap(path, dtype="<f4", mode="r").reshape(n, -1)
        divergences, same, nll = [], 0, []
        for start in range(0, n, 64):
            p, q = log_softmax(exact[start : start + 64]), log_softmax(found[start : start + 64])
            divergences.append((np.exp(p) * (p - q)).sum(axis=1))
            same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
            following = tokens[start + 1 : start + 65]
            nll.append(-q[np.arange(len(following)), following])
        kl = np.concatenate(divergences)
        print(
            f"{name}: mean KL {kl.mean():.3e}, median {np.median(kl):.3e}, 99 % {np.quantile(kl, 0.99):.3e}, "
            f"same best token {100 * same / n:.2f} %, perplexity {np.exp(np.concatenate(nll).mean()):.5f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, function, names in (
        ("tokens", write_tokens, ["model", "text", "out"]),
        ("exact", write_exact, ["model", "tokens", "out"]),
        ("llama-cpp", write_llama_cpp, ["bindings", "model", "tokens", "out"]),
    ):
        command = commands.add_parser(name)
        for argument in names:
            command.add_argument(argument)
        command.set_defaults(function=function)
        if name == "tokens":
            command.add_argument("--count", type=int, default=2000)
        if name == "llama-cpp":
            command.add_argument("--batch", type=int, default=256)
    command = commands.add_parser("compare")
    command.add_argument("exact")
    command.add_argument("tokens")
    command.add_argument("candidates", nargs="+")
    command.set_defaults(function=compare)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
