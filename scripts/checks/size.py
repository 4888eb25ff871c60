"""size: limits on the lines of a file and of a function. scripts/size_exceptions.txt lists what is larger, with its exact
size: an entry must be lowered when the thing shrinks and removed when it fits, and may never grow."""

import re

EXCEPTIONS = "scripts/size_exceptions.txt"
FUNCTION_LIMIT = 100
RECORD_LIMIT = 120  # a function of src/model/arch, which follows a paper line by line


def file_limit(name):
    """The most lines that this file may have, or None."""
    if "/gen/" in name or "/data/" in name:
        return None
    if name.startswith("tests/"):
        return 1000
    if name.endswith((".h", ".cuh")):
        return 300
    if name.endswith((".cu", ".metal")) or name.startswith("src/backend/") and "/kernels/" in name:
        return 600
    return 800


def functions(lines):
    """(name, first line, line count) of each function body. Reads the layout that clang-format gives: the body of a function
    at namespace level ends with a lone } in column 0, that of a member of a class in column 2."""
    found = []
    start = {0: None, 2: None}
    in_class = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if not text or text.startswith(("//", "#")):
            continue
        if indent not in start or (indent == 2 and not in_class):
            continue
        if text == "}" or text.startswith("}  //") and indent == 2:
            if start[indent] is not None:
                first = start[indent]
                found.append((function_name(lines[first - 1 : number]), first, number - first + 1))
            start[indent] = None
        elif text.startswith("}") or text.endswith((";", ":")) or text.startswith("namespace"):
            start[indent] = None
        elif start[indent] is None:
            start[indent] = number
        if indent == 0:
            if re.match(r"(template .*)?(class|struct|union)\b", text) and text.endswith("{"):
                in_class, start[0], start[2] = True, None, None
            elif text.startswith("}"):
                in_class = False
    return found


def function_name(lines):
    head = " ".join(line.strip() for line in lines)
    match = re.search(r"([A-Za-z_~][\w:~]*)\s*\(", head)
    return match.group(1) if match else "?"


def measure(project):
    """{key: (size, limit, place)} of everything above its limit; the key is a path, or path::function."""
    large = {}
    for name in project.code():
        limit = file_limit(name)
        if limit is None:
            continue
        lines = project.lines(name)
        if len(lines) > limit:
            large[name] = (len(lines), limit, f"{name}:1")
        function_limit = RECORD_LIMIT if name.startswith("src/model/arch/") else FUNCTION_LIMIT
        for function, first, count in functions(lines):
            if count > function_limit:
                large[f"{name}::{function}"] = (count, function_limit, f"{name}:{first}")
    return large


def read_exceptions(text):
    """{key: size} of the lines "key size"; # starts a comment."""
    entries = {}
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            key, size = line.rsplit(None, 1)
            entries[key] = int(size)
    return entries


def run(project):
    path = project.root / EXCEPTIONS
    allowed = read_exceptions(path.read_text(encoding="utf-8")) if path.exists() else {}
    problems = []
    large = measure(project)
    for key, (size, limit, place) in sorted(large.items()):
        if key not in allowed:
            problems.append(f"{place}: {key} has {size} lines, at most {limit} are allowed: split it by what each part owns")
        elif size > allowed[key]:
            problems.append(f"{place}: {key} grew from {allowed[key]} to {size} lines: an exception may only shrink")
        elif size < allowed[key]:
            problems.append(f"{EXCEPTIONS}: {key} shrank to {size} lines: lower its entry from {allowed[key]}")
    for key in sorted(set(allowed) - set(large)):
        problems.append(f"{EXCEPTIONS}: {key} is within its limit or gone: remove its entry")
    return problems + grown_entries(project, allowed)


def grown_entries(project, allowed):
    base = project.base_commit()
    before = read_exceptions(project.git("show", f"{base}:{EXCEPTIONS}") or "") if base else {}
    return [
        f"{EXCEPTIONS}: the entry of {key} grew from {before[key]} to {size}: an exception may only shrink"
        for key, size in sorted(allowed.items())
        if size > before.get(key, size)
    ]
