"""Writes tests/unit/text/data/tokenizer_json.json: tokenizer files of many kinds and what `tokenizers` does with them;
and tests/unit/text/data/sentencepiece.json: SentencePiece vocabularies and what `sentencepiece` does with them.

Usage: python tools/golden/tokenizer_json_cases.py [--out FOLDER]
Trains small models on the texts of smollm2_tokens.py. The pipelines are those that model families use, in miniature.
"""

import argparse
import io
import json
import os

import sentencepiece
import smollm2_tokens as texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizer_cases import PATTERNS, byte_level, split

CORPUS = sorted(texts.LANGUAGES * 2 + texts.CODE * 2)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MARK = "\u2581"

TEXTS = [
    "",
    " ",
    "   ",
    "Hello world",
    " leading",
    "trailing ",
    "two  spaces   three",
    "tab\tnew\nline\r\n\n\nx",
    "It's we're IT'S 123 4567 3.14",
    "\u00dcbergr\u00f6\u00dfe caf\u00e9 cafe\u0301 \ufb01ne \uff21\uff11 \u2460 \u0130stanbul",
    "\u4e2d\u6587\uff0c\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f600\U0001f680 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2581already \u2581 marked\u2581",
    "a\u00a0b\u2003c\u3000d\u200be\u180ef",
    "def f(x): return x ** 2  # !?;:,.()[]{}<>",
    "<s>Hello</s>",
    "<s> Hello </s> <s>",
    "x<think> y </think>z <THINK>",
    "wordtool tool tools _tool tool. TOOL",
    "a <mask> b<mask>c  <mask>",
    "  <rs>  after <rs>x",
    "<0x41><0x0A>",
    "the the the quick brown fox jumps over the lazy dog",
    "x" * 40,
    "1234567890 12 1 1,234",
    "\x00\x01\x7f",
]

ADDED = [
    AddedToken("<s>", special=True, normalized=False),
    AddedToken("</s>", special=True, normalized=False),
    AddedToken("<think>", special=False, normalized=False),
    AddedToken("</think>", special=False, normalized=True),
    AddedToken("tool", special=False, single_word=True, normalized=True),
    AddedToken("<mask>", special=True, lstrip=True, normalized=False),
    AddedToken("<rs>", special=False, rstrip=True, normalized=False),
    AddedToken("  ", special=False, normalized=False),
]


def trained(trainer_class, pre_tokenizer, model, **options):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS, trainer_class(show_progress=False, **options))
    return json.loads(tokenizer.to_str())["model"]


def byte_bpe(size=420):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model = trained(trainers.BpeTrainer, byte_level(True), models.BPE(), vocab_size=size, initial_alphabet=alphabet)
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def char_bpe(byte_fallback):
    """A vocabulary of frequent characters only, so that unknown ones occur."""
    model = trained(
        trainers.BpeTrainer,
        pre_tokenizers.Metaspace(),
        models.BPE(unk_token="<unk>"),
        vocab_size=260 + (256 if byte_fallback else 0),
        limit_alphabet=60,
        special_tokens=["<unk>"] + (BYTES if byte_fallback else []),
    )
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def bpe(vocab_and_merges, **options):
    return Tokenizer(models.BPE(*vocab_and_merges, **options))


def with_bos(tokenizer, eos=False):
    bos_id = tokenizer.token_to_id("<s>")
    special = [("<s>", bos_id)] + ([("</s>", tokenizer.token_to_id("</s>"))] if eos else [])
    form = "<s> $A </s>" if eos else "<s> $A"
    return processors.TemplateProcessing(single=form, pair=form + " $B", special_tokens=special)


def llama_decoder(strip=True):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def byte_level_files():
    model = byte_bpe()
    for name, steps in [
        ("gpt2 with prefix space", [pre_tokenizers.ByteLevel(add_prefix_space=True)]),
        ("llama 3", [split(PATTERNS["llama-bpe"]), byte_level()]),
        ("qwen", [split(PATTERNS["qwen2"]), byte_level()]),
        (
            "several splits",
            [
                split(r"\p{N}{1,3}"),
                split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                pre_tokenizers.Punctuation(behavior="contiguous"),
                split(r"[!-/:-~]?[A-Za-z]+| ?\p{L}+|\s+(?!\S)|\s+"),
                byte_level(),
            ],
        ),
        ("no split", [byte_level()]),
    ]:
        tokenizer = bpe(model, ignore_merges=name == "llama 3")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.normalizer = normalizers.NFC() if name == "qwen" else None
        tokenizer.add_tokens(ADDED)
        if name == "llama 3":
            tokenizer.post_processor = processors.Sequence(
                [processors.ByteLevel(trim_offsets=True), with_bos(tokenizer)]
            )
        yield name, tokenizer


def code_point_files():
    fallback, plain = char_bpe(True), char_bpe(False)
    prepend = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])

    llama = bpe(fallback, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    llama.normalizer, llama.decoder = prepend, llama_decoder()
    llama.add_tokens(ADDED[:3])
    llama.post_processor = with_bos(llama)
    yield "llama 2", llama

    first = bpe(fallback, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    first.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    first.decoder = llama_decoder()
    first.add_tokens(ADDED)
    yield "metaspace first", first

    gemma = bpe(fallback, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    gemma.normalizer = normalizers.Replace(" ", MARK)
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    gemma.decoder = llama_decoder(strip=False)
    gemma.add_tokens(ADDED)
    gemma.post_processor = with_bos(gemma, eos=True)
    yield "gemma", gemma

    for name, fuse in [("unknown fused", True), ("unknown apart", False)]:
        unknown = bpe(plain, unk_token="<unk>", fuse_unk=fuse)
        unknown.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(left=fuse, right=True)]
        )
        unknown.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Digits(individual_digits=fuse)]
        )
        unknown.add_tokens(ADDED)
        yield name, unknown

    words = bpe(plain, unk_token="<unk>")
    words.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"[\u0300-\u036f]+"), "")])
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior="merged_with_next")]
    )
    words.add_tokens(ADDED)
    yield "words", words

    dropped = bpe(plain)
    dropped.pre_tokenizer = pre_tokenizers.Whitespace()
    yield "unknown dropped", dropped


def unigram_files():
    for name, fallback in [("unigram", False), ("unigram with bytes", True)]:
        model = trained(
            trainers.UnigramTrainer,
            pre_tokenizers.Metaspace(),
            models.Unigram(),
            vocab_size=800 if fallback else 540,
            unk_token="<unk>",
            special_tokens=["<unk>"] + (BYTES if fallback else []),
        )
        # Rare characters go, so that unknown ones occur.
        vocab = [tuple(p) for p in model["vocab"] if len(p[0]) > 1 or p[0] == MARK or p[0] < "\u00ff"]
        tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=fallback))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=not fallback)
        tokenizer.add_tokens(ADDED)
        yield name, tokenizer


def file_cases():
    for files in (byte_level_files(), code_point_files(), unigram_files()):
        for name, tokenizer in files:
            cases = []
            for text in TEXTS:
                # This one library lets text become byte tokens by their names.
                if "<0x" in text and name.startswith("unigram"):
                    continue
                encoding = tokenizer.encode(text)
                case = {"text": text, "ids": encoding.ids}
                if tokenizer.decoder is not None:
                    case["decoded"] = tokenizer.decode(encoding.ids, skip_special_tokens=False)
                cases.append(case)
            yield {"name": name, "file": tokenizer.to_str(), "cases": cases}


def sentencepiece_cases():
    types = ((3, "is_control"), (2, "is_unknown"), (6, "is_byte"), (5, "is_unused"))
    defined = ("quick", MARK * 2, "xx")
    for kind, fallback, prefix in [("bpe", True, True), ("bpe", True, False), ("unigram", False, True), ("unigram", True, True)]:
        blob = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_writer=blob,
            vocab_size=620 if fallback else 360,
            model_type=kind,
            byte_fallback=fallback,
            add_dummy_prefix=prefix,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            character_coverage=0.98,
            hard_vocab_limit=False,
            user_defined_symbols=["quick", "  ", "xx"] if prefix else [],
            num_threads=1,
            minloglevel=2,
        )
        model = sentencepiece.SentencePieceProcessor(model_proto=blob.getvalue())
        ids = range(model.get_piece_size())
        yield {
            "name": f"{kind}, byte fallback {fallback}, prefix {prefix}",
            "model": kind,
            "add_space_prefix": prefix,
            "unk": model.unk_id(),
            "tokens": [model.id_to_piece(i) for i in ids],
            "scores": [model.get_score(i) for i in ids],
            "types": [
                next((t for t, test in types if getattr(model, test)(i)), 4 if prefix and model.id_to_piece(i) in defined else 1)
                for i in ids
            ],
            "cases": [{"text": text, "ids": model.encode(text)} for text in TEXTS if "\x00" not in text],
        }


def write(path, rows):
    rows = list(rows)
    with open(path, "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")
    print(f"{path}: {len(rows)} tokenizers, {len(TEXTS)} texts")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="tests/unit/text/data")
    args = parser.parse_args()
    write(os.path.join(args.out, "tokenizer_json.json"), file_cases())
    write(os.path.join(args.out, "sentencepiece.json"), sentencepiece_cases())


if __name__ == "__main__":
    main()
