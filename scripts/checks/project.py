"""The files that the checks look at: what git tracks, and what is new and not ignored. Paths are relative to the root."""

import subprocess
from pathlib import Path

CODE_SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".mm", ".metal")


class Project:
    def __init__(self, root, files=None):
        self.root = Path(root)
        self._files = files
        self.skipped = []  # what a check left out, one line each

    def skip(self, what):
        self.skipped.append(what)

    def git(self, *arguments):
        """The standard output of a git command, or None when it fails."""
        done = subprocess.run(["git", "-C", str(self.root), *arguments], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def files(self):
        if self._files is None:
            listing = self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            if listing is None:
                raise SystemExit("error: scripts/check needs git and a git checkout")
            names = {name for name in listing.split("\0") if name}
            self._files = sorted(name for name in names if (self.root / name).is_file())
        return self._files

    def code(self):
        return [name for name in self.files() if name.endswith(CODE_SUFFIXES)]

    def text(self, name):
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def lines(self, name):
        return self.text(name).splitlines()

    def is_text(self, name):
        """False for binary files and for test data, which holds whatever a test needs."""
        if is_test_data(name):
            return False
        with open(self.root / name, "rb") as file:
            return b"\0" not in file.read(4096)

    def base_commit(self):
        """What the present state is compared with: where the branch left origin/main, or main; else the commit before."""
        head = (self.git("rev-parse", "HEAD") or "").strip()
        for branch in ("origin/main", "main"):
            base = (self.git("merge-base", "HEAD", branch) or "").strip()
            if base and base != head:
                return base
        return (self.git("rev-parse", "HEAD~1") or "").strip() or None


def is_test_data(name):
    return name.startswith("tests/") and ("/data/" in name or "/corpus/" in name)
