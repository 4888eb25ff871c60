"""Speed of Kapitsa beside llama.cpp on the same files and machine, taking turns, so that a slow minute falls on both.

Usage: python tools/peer_speed.py --kapitsa build/release/kapitsa --llama-bench PATH MODEL.gguf ... [--rounds 5]
Prompts of 512 tokens and 64 tokens decoded after them; medians. llama-bench decodes at the same depth (-d).
"""

import argparse
import json
import statistics
import subprocess

PROMPT, DECODE = 512, 64


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def kapitsa(program, model, threads):
    report = run([program, "bench", model, "-d", str(PROMPT + DECODE), "-n", str(DECODE), "-r", "1", "-t", str(threads),
                  "--json", "-"])
    speeds = {cell["test"]: cell["tokens_per_second"]["median"] for cell in report["cells"]}
    return speeds["prefill"], speeds["decode"]


def llama_cpp(program, model, threads):
    common = [program, "-m", model, "-t", str(threads), "-r", "1", "-o", "json"]
    prefill = run([*common, "-p", str(PROMPT), "-n", "0"])[0]["avg_ts"]
    decode = run([*common, "-p", "0", "-n", str(DECODE), "-d", str(PROMPT)])[0]["avg_ts"]
    return prefill, decode


def shown(values):
    return f"{statistics.median(values):8.1f} ({min(values):.1f}..{max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kapitsa", required=True)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    for model in args.models:
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(kapitsa(args.kapitsa, model, args.threads))
            theirs.append(llama_cpp(args.llama_bench, model, args.threads))
        print(model)
        for i, what in enumerate(("prefill", "decode")):
            a, b = [x[i] for x in ours], [x[i] for x in theirs]
            ratio = statistics.median(a) / statistics.median(b)
            print(f"  {what}: kapitsa {shown(a)} tok/s, llama.cpp {shown(b)} tok/s, {ratio:.2f} times")


if __name__ == "__main__":
    main()
