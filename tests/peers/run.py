"""run.py TEXT_TOOL: tokens and chat templates beside other implementations, on files that are not ours to keep.

The vocabularies and templates are those in the source package of llama-cpp-python, which pip downloads into build/peers
(or KAPITSA_PEER_SOURCES names the folder). Tokens are compared with llama.cpp's recorded ones for its test texts, and with
the tokenizers package on 2 MB of text; templates with jinja2. What cannot be had is skipped, and said.
Ends with "N passed, N failed, N skipped".
"""

import datetime
import importlib.util
import json
import os
import random
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "peers"
PACKAGE = "llama_cpp_python-0.3.36"
NOW = datetime.datetime(2024, 7, 26, 9, 5, 3)
SEPARATOR = "\n__ggml_vocab_test__\n"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# How each vocabulary cuts text into words, one expression after the other, from the tokenizer.json of its family.
PATTERNS = {
    "gpt-2": [GPT2],
    "mpt": [GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "refact": [r"\p{N}", GPT2],
    "command-r": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, r"\p{N}"],
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
        r"\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
        r"\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
        r"\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
        r"\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113"
        r"\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
        r"\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
        r"\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a]+",
        r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        HAN,
        r"\p{N}",
    ],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL],
    "llama-bpe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
}
IGNORES_MERGES = {"llama-bpe"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a place",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string", "description": "where"}, "days": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
]
USER = {"role": "user", "content": "What is 2 + 2? \u00fc\U0001f680"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Oslo", "days": 2}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "rain"}
CONVERSATIONS = {
    "a question": ([USER], {}),
    "a system message": ([{"role": "system", "content": "Be brief."}, USER], {}),
    "turns": ([USER, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3 + 3?"}], {}),
    "no generation prompt": ([USER, {"role": "assistant", "content": "4"}], {"add_generation_prompt": False}),
    "tools": ([USER], {"tools": TOOLS}),
    "a call and its result": ([USER, CALL, RESULT], {"tools": TOOLS}),
    "no thinking": ([USER], {"enable_thinking": False}),
    "thinking": ([USER], {"enable_thinking": True}),
    "reasoning": (
        [USER, {"role": "assistant", "content": "4", "reasoning_content": "two and two"}, {"role": "user", "content": "So?"}],
        {},
    ),
}

# Cases that differ by choice, with the reason.
KNOWN = {
    ("llama-cpp-deepseek-r1.jinja", "tools"): "it hands a lazy sequence to tojson, which is a list here",
    ("llama-cpp-deepseek-r1.jinja", "a call and its result"): "it hands a lazy sequence to tojson, which is a list here",
}

counts = {"passed": 0, "failed": 0, "skipped": 0}


def count(result, what=""):
    counts[result] += 1
    if result != "passed":
        print(f"    {result.upper()}: {what}")


def pip(*arguments):
    """Runs pip; False when it fails, for whatever reason."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=600, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def prepare_packages():
    """jinja2 and tokenizers: the system's where it has them, else below build/peers."""
    folder = CACHE / "python"
    if folder.is_dir():
        sys.path.append(str(folder))
    missing = [name for name in ("jinja2", "tokenizers") if importlib.util.find_spec(name) is None]
    if missing:
        more = ["markupsafe"] if "jinja2" in missing else []
        if pip("install", "-q", "--no-deps", "--target", str(folder), *missing, *more):
            sys.path.append(str(folder))
            importlib.invalidate_caches()


def sources():
    """The folder models/ of llama.cpp, or None."""
    if os.environ.get("KAPITSA_PEER_SOURCES"):
        return Path(os.environ["KAPITSA_PEER_SOURCES"])
    folder = CACHE / PACKAGE / "vendor" / "llama.cpp" / "models"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    pip("download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", str(CACHE), "llama-cpp-python==0.3.36")
    for archive in CACHE.glob(PACKAGE + "*.tar.gz"):
        with tarfile.open(archive) as file:
            wanted = [m for m in file.getmembers() if "/vendor/llama.cpp/models/" in m.name and m.isfile()]
            file.extractall(CACHE, members=wanted, filter="data")
    return folder if folder.is_dir() else None


class TextTool:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the text tool ended at {str(request)[:200]}")
        return json.loads(line)


def check_recorded_tokens(tool, models):
    """llama.cpp's own test texts and the ids that it recorded for them."""
    for vocabulary in sorted(models.glob("ggml-vocab-*.gguf")):
        inputs, outputs = Path(f"{vocabulary}.inp"), Path(f"{vocabulary}.out")
        if not inputs.exists() or not outputs.exists():
            continue
        texts = inputs.read_bytes().decode("utf-8").split(SEPARATOR)
        expected = [[int(i) for i in line.split()] for line in outputs.read_text(encoding="utf-8").splitlines()]
        texts = texts[: len(expected)]  # after the last separator there is nothing, or the end of the file
        answer = tool.ask({"op": "tokens", "vocabulary": str(vocabulary), "texts": texts})
        name = vocabulary.stem.removeprefix("ggml-vocab-")
        if "error" in answer:
            count("skipped", f"tokens of {name}: {answer['error']}")
            continue
        wrong = [i for i, ids in enumerate(answer["ids"]) if ids != expected[i]]
        if wrong:
            i = wrong[0]
            count("failed", f"tokens of {name}: {len(wrong)} of {len(texts)} texts differ, the first is {texts[i]!r}: "
                            f"expected {expected[i]}, found {answer['ids'][i]}")
        else:
            count("passed")


def long_texts():
    """About 2 MB: this repository's sources, words of many scripts, emoji, digits, control characters, random bytes."""
    draw = random.Random(5763)
    texts = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "src").rglob("*.cpp"))]
    texts += [p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").rglob("*.md"))]
    ranges = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x939),
              (0xE01, 0xE30), (0x10D0, 0x10F0), (0x1100, 0x1112), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5),
              (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x20, 0x40), (0x300, 0x36F), (0x2000, 0x206F), (0x1, 0x1F)]
    for _ in range(4000):
        words = []
        for _ in range(draw.randrange(4, 40)):
            low, high = draw.choice(ranges)
            words.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 9))))
        texts.append(draw.choice(["", " ", "\n", "\t"]).join(words) + draw.choice(["", "  ", "\r\n", "\n\n"]))
    texts += [draw.randbytes(300).decode("latin-1") for _ in range(300)]
    return [unicodedata.normalize("NFC", text) for text in texts]


def check_long_texts(tool, models):
    try:
        from tokenizers import AddedToken, Regex, Tokenizer, models as kinds, normalizers, pre_tokenizers
    except ImportError as error:
        count("skipped", f"tokens of long texts: {error}")
        return
    texts = long_texts()
    if sum(len(text.encode()) for text in texts) < 2_000_000:
        count("failed", "the long texts have less than 2 MB")
    for name, patterns in {**PATTERNS, "gemma-4": None}.items():
        path = str(models / f"ggml-vocab-{name}.gguf")
        own = tool.ask({"op": "vocabulary", "vocabulary": path})
        gemma = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"} if patterns is None else {}
        bpe = kinds.BPE(vocab={t: i for i, t in enumerate(own["tokens"])}, ignore_merges=name in IGNORES_MERGES,
                        merges=[tuple(m.split(" ")) for m in own["merges"]], **gemma)
        reference = Tokenizer(bpe)
        if patterns is None:
            reference.normalizer = normalizers.Replace(" ", "\u2581")
            reference.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        else:
            reference.pre_tokenizer = pre_tokenizers.Sequence([
                *[pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns],
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ])
        # What a text may hold of tokens outside the model; those that look like markup are not taken from user text.
        user_defined = [t for t, kind in zip(own["tokens"], own["types"]) if kind == 4]
        reference.add_tokens([AddedToken(t, normalized=False) for t in user_defined if t[0] + t[-1] not in ("<>", "[]")])
        found = tool.ask({"op": "tokens", "vocabulary": path, "texts": texts})["ids"]
        wrong = [t for t, ids in zip(texts, found) if ids != reference.encode(t).ids]
        if wrong:
            count("failed", f"long texts with {name}: {len(wrong)} of {len(texts)} differ, the first is {wrong[0][:80]!r}")
        else:
            count("passed")


def environment():
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks what an assistant wrote; it changes no text."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    # Not the immutable sandbox: templates may change their own lists here, as Kimi's do.
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, jinja2.ext.do, Generation])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


def check_templates(tool, models):
    try:
        env = environment()
    except ImportError as error:
        count("skipped", f"chat templates: {error}")
        return
    for path in sorted((models / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for label, (messages, more) in CONVERSATIONS.items():
            if (path.name, label) in KNOWN:
                count("skipped", f"{path.name}, {label}: {KNOWN[path.name, label]}")
                continue
            variables = {"add_generation_prompt": True, "tools": None, **more}
            try:
                expected = env.from_string(source).render(messages=messages, bos_token="<s>", eos_token="</s>", **variables)
            except Exception as error:  # noqa: BLE001  # a template may fail in any way; then so must ours
                expected, reason = None, error
            answer = tool.ask({"op": "render", "template": source, "messages": messages, "variables": variables})
            if expected is None and "error" not in answer:
                count("failed", f"{path.name}, {label}: jinja2 refuses ({reason}), ours gives a text")
            elif expected is not None and answer.get("text") != expected:
                found = answer.get("text")
                at = next((i for i, (a, b) in enumerate(zip(expected, found or "")) if a != b), 0)
                told = answer.get("error") or f"at {at}: expected {expected[at : at + 60]!r}, found {found[at : at + 60]!r}"
                count("failed", f"{path.name}, {label}: {told}")
            else:
                count("passed")


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    prepare_packages()
    models = sources()
    if models is None:
        count("skipped", "the package index cannot be reached, so there is nothing to compare with")
    else:
        tool = TextTool(sys.argv[1])
        check_recorded_tokens(tool, models)
        check_templates(tool, models)
        check_long_texts(tool, models)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
