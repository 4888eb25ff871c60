"""tidy: clang-tidy 19 with the repository's .clang-tidy, two files at a time, with the compile commands of build/test. By
default only over sources that changed since the base commit (with a changed header: the sources that include it by name);
with --all over every source; what changed last comes first, and after KAPITSA_TIDY_SECONDS no further file is begun: those
that are left count as one skipped check. Tests are left out: GoogleTest's headers cost more time than the rest together. Each
diagnostic is a problem."""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DATABASE = "build/test"
JOBS = 2


def sources(project, everything):
    """The translation units of the compile database to look at."""
    database = project.root / DATABASE / "compile_commands.json"
    entries = json.loads(database.read_text(encoding="utf-8"))
    root = project.root.resolve()
    units = set()
    for entry in entries:
        path = Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(root):
            units.add(path.relative_to(root).as_posix())
    units = [name for name in last_changed_first(project) if name in units and not name.startswith("tests/")]
    return units if everything else [name for name in units if touched(project, name, changed(project))]


def last_changed_first(project):
    """The sources in the order of their last commit, those that are in none before all others."""
    order = {}
    for name in (project.git("log", "--format=", "--name-only", "-n", "1000") or "").splitlines():
        order.setdefault(name, len(order))
    return sorted(project.code(), key=lambda name: (order.get(name, -1), name))


def changed(project):
    base = project.base_commit()
    if base is None:
        return set(project.code())
    listing = project.git("diff", "--name-only", base) or ""
    new = project.git("ls-files", "--others", "--exclude-standard") or ""
    names = set(listing.splitlines()) | set(new.splitlines())
    return set(project.code()) if ".clang-tidy" in names else names


def touched(project, name, names):
    if name in names:
        return True
    headers = {path.removeprefix("src/").removeprefix("include/") for path in names if path.endswith(".h")}
    return bool(headers & set(re.findall(r'^#include "([^"]+)"', project.text(name), re.M)))


def run(project, everything=False):
    if shutil.which("clang-tidy-19") is None:
        return ["clang-tidy-19 is not installed: run scripts/install-deps test"]
    if not (project.root / DATABASE / "compile_commands.json").exists():
        return [f"{DATABASE}/compile_commands.json is not there: run cmake --preset test"]

    limit = float(os.environ.get("KAPITSA_TIDY_SECONDS") or "inf")
    start = time.monotonic()

    def check(name):
        if time.monotonic() - start > limit:
            return None
        command = ["clang-tidy-19", "-p", DATABASE, "--quiet", name]
        return subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)

    units = sources(project, everything)
    with ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(check, units))
    problems = []
    left = results.count(None)
    if left:
        project.skip(f"tidy: {left} of {len(units)} files after {limit:.0f} s")
    for name, done in zip(units, results):
        if done is None:
            continue
        found = re.findall(r"^(\S+:\d+):\d+: (?:warning|error): (.*)$", done.stdout, re.M)
        problems += [f"{place.removeprefix(str(project.root) + '/')}: {text}" for place, text in found]
        if done.returncode != 0 and not found:
            problems.append(f"{name}: clang-tidy failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return sorted(set(problems))
