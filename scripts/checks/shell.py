"""shell: shellcheck over every script that a shell runs."""

import shutil
import subprocess


def is_shell(project, name):
    if name.endswith(".sh"):
        return True
    with open(project.root / name, "rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and (b"bash" in first or first.rstrip().endswith(b"sh"))


def run(project):
    if shutil.which("shellcheck") is None:
        return ["shellcheck is not installed: run scripts/install-deps test"]
    scripts = [name for name in project.files() if is_shell(project, name)]
    if not scripts:
        return []
    command = ["shellcheck", "--external-sources", "--format=gcc", *scripts]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()
