"""spelling: codespell over every text file; scripts/spelling_allowed.txt lists the words that it gets wrong."""

import shutil
import subprocess

ALLOWED = "scripts/spelling_allowed.txt"


def run(project):
    if shutil.which("codespell") is None:
        return ["codespell is not installed: run scripts/install-deps test"]
    files = [name for name in project.files() if project.is_text(name) and name != ALLOWED]
    if not files:
        return []
    command = ["codespell", "--quiet-level=35"]
    if (project.root / ALLOWED).exists():
        command += ["--ignore-words", ALLOWED]
    done = subprocess.run([*command, *files], cwd=project.root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()
