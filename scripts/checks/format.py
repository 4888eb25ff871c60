"""format: every source file is as clang-format 19 writes it with the repository's .clang-format."""

import re
import shutil
import subprocess

SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".mm")


def run(project):
    files = [name for name in project.code() if name.endswith(SUFFIXES)]
    program = shutil.which("clang-format-19") or shutil.which("clang-format")
    if program is None:
        return ["clang-format-19 is not installed: run scripts/install-deps test"]
    if not files:
        return []
    done = subprocess.run([program, "--dry-run", *files], cwd=project.root, capture_output=True, text=True, check=False)
    found = sorted(set(re.findall(r"^(\S+?:\d+):\d+: warning: code should be clang-formatted", done.stderr, re.M)))
    problems = [f"{place}: not as clang-format writes it; run: clang-format-19 -i {place.split(':')[0]}" for place in found]
    if done.returncode != 0 and not problems:
        problems = [f"clang-format failed: {done.stderr.strip().splitlines()[-1]}"]
    return problems
