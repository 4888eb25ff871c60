"""loc: a table of lines for each module, with the share of comment lines and the change against the base commit. Only tells;
it has no limit."""

from collections import defaultdict

from checks.includes import module_of


def group_of(name):
    module = module_of(name)
    if module is None:
        return name.split("/")[0] if "/" in name else "(root)"
    return "src" if module == "main.cpp" else module


def is_comment(line):
    return line.lstrip().startswith(("//", "/*", "*"))


def changes(project):
    """{group: lines added minus lines removed since the base commit}."""
    delta = defaultdict(int)
    base = project.base_commit()
    listing = project.git("diff", "--numstat", "--no-renames", base) if base else None
    for line in (listing or "").splitlines():
        added, removed, name = line.split("\t")
        if added != "-" and name in set(project.code()):
            delta[group_of(name)] += int(added) - int(removed)
    return delta


def run(project):
    rows = defaultdict(lambda: [0, 0, 0, 0])  # files, lines, comment lines, blank lines
    for name in project.code():
        lines = project.lines(name)
        row = rows[group_of(name)]
        row[0] += 1
        row[1] += len(lines)
        row[2] += sum(is_comment(line) for line in lines)
        row[3] += sum(not line.strip() for line in lines)
    delta = changes(project)
    print(f"{'module':<12}{'files':>7}{'lines':>8}{'comment':>9}{'change':>8}")
    total = [sum(column) for column in zip(*rows.values())] or [0, 0, 0, 0]
    for name, row in [*sorted(rows.items()), ("total", total)]:
        share = 100 * row[2] / max(1, row[1] - row[3])
        change = sum(delta.values()) if name == "total" else delta[name]
        print(f"{name:<12}{row[0]:>7}{row[1]:>8}{share:>8.0f}%{change:>+8}")
    return []
