"""words: things that must not be committed: paths of one machine, package mirrors, unfinished work, merge markers."""

import fnmatch
import re

# (what to say, pattern, files in which it is allowed)
FORBIDDEN = [
    ("a path of one machine", r"(?<![\w.$}~-])/(work|home|Users|root|opt|scratch)/[\w.]", ["tests/scripts/*"]),
    ("a path in /tmp: make a temporary folder instead", r"(?<![\w.$}~-])/tmp/[\w.]", ["tests/scripts/*"]),
    ("the host of a package registry",
     r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|npmjs\.com|deb\.debian\.org|archive\.ubuntu\.com|crates\.io|"
     r"proxy\.golang\.org)\b",
     ["tests/scripts/*"]),
    ("TODO without an issue: write TODO(#123)", r"\bTODO\b(?!\(#\d+\))", ["tests/scripts/*", "AGENTS.md", "CONTRIBUTING.md"]),
    ("unfinished work", r"\b(FIXME|XXX|HACK|WIP|TBD)\b|\b[Ll]orem ipsum\b", ["tests/scripts/*"]),
    ("a merge marker", r"^(<<<<<<< |>>>>>>> |=======$)", []),
]

SELF = "scripts/checks/words.py"


def run(project):
    rules = [(what, re.compile(pattern), places) for what, pattern, places in FORBIDDEN]
    problems = []
    for name in project.files():
        if name == SELF or not project.is_text(name):
            continue
        active = [rule for rule in rules if not any(fnmatch.fnmatch(name, place) for place in rule[2])]
        for number, line in enumerate(project.lines(name), 1):
            for what, pattern, _ in active:
                match = pattern.search(line)
                if match:
                    problems.append(f"{name}:{number}: {what}: {match.group(0).strip()}")
    return problems
