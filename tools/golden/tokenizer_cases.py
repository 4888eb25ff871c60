"""Writes tests/unit/text/data/bpe.json: a small byte-level BPE vocabulary, and what `tokenizers` makes of hard texts.

Usage: python tools/golden/tokenizer_cases.py [--out FILE]
Trains the vocabulary on the texts of smollm2_tokens.py. For every pre-tokenizer it stores the pieces of each text (byte
lengths) and the token ids. All characters are older than Unicode 14.
"""

import argparse
import json
import random

import smollm2_tokens as texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
WORDS = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+", r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"
PATTERNS = {
    "llama-bpe": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL,
    "tekken": "|".join(WORDS) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL,
    "gpt-4o": "|".join(w + CONTRACTIONS + "?" for w in WORDS) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL,
    "bailingmoe": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
}
SPECIAL = ["<|end|>", "<|im_start|>", "<|im_end|>", "<|im_end|>\n"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


# Without the step to the byte alphabet, so that pieces are pieces of the text.
SPLITS = {
    "gpt-2": [split(GPT2)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), split(GPT2)],
    **{name: [split(pattern)] for name, pattern in PATTERNS.items()},
}


def all_texts():
    groups = [texts.LANGUAGES, texts.NUMBERS_AND_SYMBOLS, texts.EMOJI, texts.WHITESPACE, texts.CONTROLS, texts.CODE]
    out = [text for group in groups for text in group]
    state = random.Random(7)
    pool = list(" \n\t\r'sStTlLaZ9\u00bd!_/\u00e9\u01c5\u02b0\u4e2d\u0301\u00a0\u200d\u017f\u212a\u180e\u3000") + ["'ll", "\r\n"]
    out += ["".join(state.choice(pool) for _ in range(state.randint(3, 30))) for _ in range(150)]
    return out


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=640, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(sorted(texts.LANGUAGES * 2 + texts.CODE * 3), trainer)
    return json.loads(tokenizer.to_str())["model"]


def make(model, steps):
    tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [byte_level()])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="tests/unit/text/data/bpe.json")
    args = parser.parse_args()
    model = train()
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    cases = []
    for text in all_texts():
        case = {"text": text, "pieces": {}, "ids": {}}
        for name, steps in SPLITS.items():
            pieces = pre_tokenizers.Sequence(steps).pre_tokenize_str(text)
            assert "".join(piece for piece, _ in pieces) == text
            case["pieces"][name] = [len(piece.encode()) for piece, _ in pieces]
            case["ids"][name] = make(model, steps).encode(text).ids
        # Most splits agree: what equals the first one is left out.
        for kind in ("pieces", "ids"):
            first = case[kind]["gpt-2"]
            case[kind] = {n: v for n, v in case[kind].items() if n == "gpt-2" or v != first}
        cases.append(case)
    special = make(model, SPLITS["gpt-2"])
    special.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    special_cases = [
        {"text": text, "ids": special.encode(text).ids}
        for text in texts.SPECIAL
        + ["<|im_end|>\n\n", "a<|im_end|>\nb", "<|im_end|", "<|im_<|im_end|>", "<|end|><|end|>x <|end|> y"]
    ]
    with open(args.out, "w", encoding="ascii") as out:
        out.write('{"tokens": ' + json.dumps(tokens + SPECIAL) + ',\n"n_special": ' + str(len(SPECIAL)) + ",\n")
        out.write('"merges": ' + json.dumps([" ".join(merge) for merge in model["merges"]]) + ',\n"special": ')
        out.write(json.dumps(special_cases) + ',\n"splits": ' + json.dumps(list(SPLITS)) + ',\n"cases": [\n')
        out.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]}\n")
    print(f"{args.out}: {len(tokens)} tokens, {len(cases)} texts, {len(SPLITS)} pre-tokenizers")


if __name__ == "__main__":
    main()
