"""links: every relative link of a Markdown file leads to a file or folder of the repository."""

import re
from pathlib import PurePosixPath

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def run(project):
    problems = []
    for name in project.files():
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(project.lines(name), 1):
            for target in LINK.findall(line):
                path = target.split("#")[0]
                if not path or "://" in target or target.startswith("mailto:"):
                    continue
                if not (project.root / PurePosixPath(name).parent / path).exists():
                    problems.append(f"{name}:{number}: the link leads nowhere: {target}")
    return problems
