"""includes: which folder may include from which (the arrows of docs/architecture.md), and which files may name the operating
system and each third-party library."""

import fnmatch
import re

# folder of src/ -> what its files may include. "include" is the public facade, include/kapitsa.
ALLOWED = {
    "base": [],
    "weights": ["base"],
    "text": ["base"],
    "plan": ["base"],
    "hub": ["base"],
    "backend": ["plan", "base", "weights"],
    "model": ["plan", "weights", "base"],
    "kv": ["base"],
    "sample": ["text", "base"],
    "kflash": ["model", "kv", "sample", "plan", "base"],
    "engine": ["kflash", "model", "kv", "sample", "backend", "plan", "weights", "text", "base", "include"],
    "server": ["text", "include", "hub", "base"],
    "agents": ["server", "include", "hub", "base"],
    "cli": ["server", "agents", "include", "hub", "base"],
    "main.cpp": ["cli"],
    "include": ["base"],
}

# Of these folders only the named headers are open to the folder in front.
ONLY_HEADERS = {("backend", "weights"): ["weights/codec.h", "weights/iq_blocks.h", "weights/mlx_codec.h"],
                ("server", "text"): ["text/output_format.h", "text/output_parser.h"]}

# Backends know nothing of each other.
SEPARATE = ("ref", "cpu", "cuda", "metal")

# (what, pattern of the header, the files that may include it)
RESTRICTED = [
    ("the operating system",
     r"(unistd|fcntl|pthread|sched|poll|dlfcn|dirent|termios|netdb|signal|spawn|pwd|glob|ifaddrs)\.h|"
     r"(sys|linux|netinet|arpa|net|mach|dispatch|asm)/.*|(liburing|numa|windows)\.h",
     ["src/base/*"]),
    ("Boost.JSON", r"boost/json(\.hpp|/.*)", ["src/base/json*", "src/text/jinja/json*", "src/text/tokenizer_json*", "src/text/output_parser*", "src/text/tool_calls*", "src/weights/*json*",
      "src/hub/*", "src/server/api/*"]),
    ("Boost", r"boost/(?!json(\.hpp|/)).*", ["src/server/http/*"]),
    ("CLI11", r"CLI/.*", ["src/cli/*"]),
    ("libedit", r"histedit\.h|editline/.*", ["src/cli/line_reader.cpp"]),
    ("PCRE2", r"pcre2.*\.h", ["src/text/*"]),
    ("utf8proc", r"utf8proc\.h", ["src/text/*"]),
    ("libcurl", r"curl/.*", ["src/hub/http_client.cpp"]),
    ("OpenSSL", r"openssl/.*", ["src/hub/sha256.cpp", "src/base/*"]),
    ("zlib", r"zlib\.h", ["src/hub/zip.cpp"]),
    ("toml++", r"toml\+\+/.*|toml\.hpp", ["src/cli/*"]),
    ("CUDA", r"(cuda|cublas|nccl|nvtx3/|cub/|mma|cooperative_groups).*", ["src/backend/cuda/*"]),
    ("Metal", r"(Metal|Foundation|QuartzCore)/.*|metal_.*", ["src/backend/metal/*", "src/base/noise.h"]),
]

INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*([<"])([^>"]+)[>"]')


def module_of(name):
    """The folder of src/ that a file belongs to, "include" for the facade, None for files outside both."""
    parts = name.split("/")
    if parts[0] == "include":
        return "include"
    return parts[1] if parts[0] == "src" and len(parts) > 1 else None


def included_module(header):
    return "include" if header.startswith("kapitsa/") else header.split("/")[0]


def arrow_problem(name, header):
    """What is wrong with `#include "header"` in the file, or None."""
    source, target = module_of(name), included_module(header)
    if source not in ALLOWED:
        return f"folder src/{source} has no entry in scripts/checks/includes.py"
    if target not in ALLOWED or "/" not in header:
        return f'"{header}": write project headers as a path from src/, such as "base/result.h"'
    if target == source:
        return sibling_problem(name, header)
    if target not in ALLOWED[source]:
        return f'"{header}": {source} must not include from {target} (it may: {", ".join(ALLOWED[source]) or "nothing"})'
    only = ONLY_HEADERS.get((source, target))
    if only is not None and header not in only:
        return f'"{header}": {source} may include only {", ".join(only)} from {target}'
    return None


def sibling_problem(name, header):
    if module_of(name) != "backend":
        return None
    own, other = name.split("/")[2], header.split("/")[1]
    if own in SEPARATE and other in SEPARATE and own != other:
        return f'"{header}": backend/{own} must not include from backend/{other}'
    return None


def library_problem(name, header):
    for what, pattern, places in RESTRICTED:
        if re.fullmatch(pattern, header) and not any(fnmatch.fnmatch(name, place) for place in places):
            return f"<{header}>: only {', '.join(places)} may include {what}"
    return None


def run(project):
    problems = []
    for name in project.code():
        if module_of(name) is None:
            continue
        for number, line in enumerate(project.lines(name), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            quote, header = match.groups()
            problem = arrow_problem(name, header) if quote == '"' else None
            problem = problem or library_problem(name, header)
            if problem:
                problems.append(f"{name}:{number}: {problem}")
    return problems
