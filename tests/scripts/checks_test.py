"""Each check of scripts/checks passes a good example and names the file and line of a bad one."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from checks import format as format_check  # noqa: E402  # found through the path above
from checks import includes, links, loc, project, shell, size, spelling, tidy, words  # noqa: E402


class CheckTest(unittest.TestCase):
    """Builds a small project in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_check(self, check, files):
        for name, text in files.items():
            self.write(name, text)
        return check.run(project.Project(self.root, sorted(files)))

    def assert_problem(self, problems, *parts):
        self.assertEqual(len(problems), 1, problems)
        for part in parts:
            self.assertIn(part, problems[0])


class FormatTest(CheckTest):
    def test_accepts_formatted_code(self):
        self.assertEqual(self.run_check(format_check, {"a.cpp": "int f() { return 1; }\n"}), [])

    def test_names_the_line_of_unformatted_code(self):
        self.assert_problem(self.run_check(format_check, {"a.cpp": "int a;\nint   b ;\n"}), "a.cpp:2:", "clang-format")


class IncludesTest(CheckTest):
    def include(self, name, line):
        return self.run_check(includes, {name: "// x\n" + line + "\n"})

    def test_accepts_the_arrows(self):
        for name, line in [
            ("src/engine/a.cpp", '#include "kflash/tree.h"'),
            ("src/engine/a.cpp", '#include "kapitsa/engine.h"'),
            ("src/backend/cpu/a.cpp", '#include "backend/backend.h"'),
            ("src/backend/registry.cpp", '#include "backend/cpu/cpu.h"'),
            ("src/backend/cpu/a.cpp", '#include "weights/codec.h"'),
            ("src/cli/a.cpp", '#include "server/server.h"'),
            ("src/main.cpp", '#include "cli/cli.h"'),
            ("src/base/file.cpp", "#include <unistd.h>"),
            ("src/server/http/a.cpp", "#include <boost/beast.hpp>"),
            ("src/base/json.cpp", "#include <boost/json.hpp>"),
            ("src/text/a.cpp", "#include <pcre2.h>"),
            ("tests/unit/base/a_test.cpp", "#include <unistd.h>"),
        ]:
            with self.subTest(line=line, name=name):
                self.assertEqual(self.include(name, line), [])

    def test_refuses_what_goes_the_other_way(self):
        for name, line in [
            ("src/base/a.cpp", '#include "plan/ops.h"'),
            ("src/text/a.h", '#include "plan/ops.h"'),
            ("src/backend/a.cpp", '#include "model/block.h"'),
            ("src/backend/cpu/a.cpp", '#include "weights/gguf.h"'),
            ("src/backend/cpu/a.cpp", '#include "backend/ref/ref.h"'),
            ("src/server/a.cpp", '#include "engine/device_thread.h"'),
            ("src/server/a.cpp", '#include "cli/cli.h"'),
            ("src/engine/a.cpp", '#include "server/json.h"'),
            ("include/kapitsa/engine.h", '#include "engine/sequence.h"'),
        ]:
            with self.subTest(line=line, name=name):
                self.assert_problem(self.include(name, line), f"{name}:2:", "must not" if "gguf" not in line else "only")

    def test_keeps_the_system_and_libraries_in_their_folders(self):
        for name, line in [
            ("src/hub/a.cpp", "#include <sys/stat.h>"),
            ("src/cli/a.cpp", "#include <unistd.h>"),
            ("src/engine/a.cpp", "#include <pthread.h>"),
            ("src/engine/a.cpp", "#include <boost/json.hpp>"),
            ("src/server/api/a.cpp", "#include <boost/asio.hpp>"),
            ("src/server/a.cpp", "#include <CLI/CLI.hpp>"),
            ("src/model/a.cpp", "#include <curl/curl.h>"),
            ("src/backend/cpu/a.cpp", "#include <cuda_runtime.h>"),
        ]:
            with self.subTest(line=line, name=name):
                self.assert_problem(self.include(name, line), f"{name}:2:", "only")

    def test_asks_for_paths_from_src_and_known_folders(self):
        self.assert_problem(self.include("src/base/a.cpp", '#include "file.h"'), "path from src/")
        self.assert_problem(self.include("src/misc/a.cpp", '#include "base/file.h"'), "no entry")

    def test_the_folders_of_this_repository_are_known(self):
        folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
        self.assertLessEqual(folders, set(includes.ALLOWED))


def function_of(lines, name="f", indent=""):
    body = "".join(f"{indent}  g({i});\n" for i in range(lines - 2))
    return f"{indent}void {name}() {{\n{body}{indent}}}\n"


class SizeTest(CheckTest):
    def test_accepts_what_fits(self):
        files = {"src/a.cpp": "int a;\n" * 800, "src/a.h": "int a;\n" * 300, "src/b.cpp": function_of(100)}
        self.assertEqual(self.run_check(size, files), [])

    def test_names_a_file_that_is_too_long(self):
        self.assert_problem(self.run_check(size, {"src/a.cpp": "int a;\n" * 801}), "src/a.cpp:1:", "801", "800")

    def test_headers_and_tests_have_their_own_limits(self):
        self.assert_problem(self.run_check(size, {"src/a.h": "int a;\n" * 301}), "src/a.h:1:", "300")
        self.assertEqual(self.run_check(size, {"tests/a_test.cpp": "int a;\n" * 1000}), [])

    def test_names_a_function_that_is_too_long(self):
        text = "namespace kapitsa {\n\n" + function_of(5, "a") + "\n" + function_of(101, "long_one") + "\n}  // namespace kapitsa\n"
        self.assert_problem(self.run_check(size, {"src/a.cpp": text}), "src/a.cpp:9:", "long_one", "101")

    def test_names_a_member_function_that_is_too_long(self):
        text = "class A {\npublic:\n  A();\n\n" + function_of(101, "member", "  ") + "\nprivate:\n  int a_;\n};\n"
        self.assert_problem(self.run_check(size, {"src/a.cpp": text}), "src/a.cpp:5:", "member", "101")

    def test_tables_and_classes_are_not_functions(self):
        table = "const int kTable[] = {\n" + "    1,\n" * 150 + "};\n"
        many = "class A {\npublic:\n" + "".join(function_of(5, f"m{i}", "  ") for i in range(40)) + "};\n"
        self.assertEqual(self.run_check(size, {"src/a.cpp": table + many}), [])

    def test_an_exception_holds_for_its_exact_size(self):
        self.write(size.EXCEPTIONS, "# comment\nsrc/a.cpp 850\n")
        self.assertEqual(self.run_check(size, {"src/a.cpp": "int a;\n" * 850}), [])
        self.assert_problem(self.run_check(size, {"src/a.cpp": "int a;\n" * 851}), "grew from 850 to 851")
        self.assert_problem(self.run_check(size, {"src/a.cpp": "int a;\n" * 849}), "lower its entry")
        self.assert_problem(self.run_check(size, {"src/a.cpp": "int a;\n" * 700}), "remove its entry")

    def test_an_entry_never_grows(self):
        git = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        self.write(size.EXCEPTIONS, "src/a.cpp 850\n")
        subprocess.run(["git", "init", "-q", "-b", "main", str(self.root)], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "two", "--allow-empty"], check=True)
        self.write(size.EXCEPTIONS, "src/a.cpp 900\n")
        self.assert_problem(self.run_check(size, {"src/a.cpp": "int a;\n" * 900}), "grew from 850 to 900")


class WordsTest(CheckTest):
    def test_accepts_clean_files(self):
        text = "see ~/.local and $HOME/work/x, src/work/a, https://example.org/home/ and TODO(#12)\n"
        self.assertEqual(self.run_check(words, {"a.md": text}), [])

    def test_names_what_must_not_be_committed(self):
        for text in [
            "/home/someone/file",
            "path=/work/x",
            '"/tmp/scratch"',
            "https://pypi.org/simple",
            "// TODO later",
            "// FIXME",
            "<<<<<<< HEAD",
        ]:
            with self.subTest(text=text):
                self.assert_problem(self.run_check(words, {"src/a.cpp": "x\n" + text + "\n"}), "src/a.cpp:2:")

    def test_leaves_test_data_alone(self):
        self.assertEqual(self.run_check(words, {"tests/unit/text/data/a.txt": "FIXME\n"}), [])


class OtherChecksTest(CheckTest):
    def test_links_finds_a_dead_link(self):
        files = {"docs/a.md": "[b](b.md) [web](https://example.org) [here](#top)\n[dead](missing.md)\n", "docs/b.md": "x\n"}
        self.assert_problem(self.run_check(links, files), "docs/a.md:2:", "missing.md")

    def test_spelling_finds_a_typo(self):
        self.assert_problem(self.run_check(spelling, {"a.md": "fine\nrec" + "ieve\n"}), "a.md:2:", "receive")

    def test_shell_finds_an_unquoted_variable(self):
        problems = self.run_check(shell, {"run": "#!/bin/bash\nrm $1\n", "a.py": "#!/usr/bin/env python3\nrm $1\n"})
        self.assert_problem(problems, "run:2:", "SC2086")

    def test_loc_counts_by_module(self):
        self.assertEqual(loc.group_of("src/base/a.cpp"), "base")
        self.assertEqual(loc.group_of("tests/unit/base/a_test.cpp"), "tests")
        self.assertTrue(loc.is_comment("  // why"))
        self.assertFalse(loc.is_comment("int a;  // what"))


class TidyTest(CheckTest):
    def check_unit(self, text):
        self.write(".clang-tidy", (ROOT / ".clang-tidy").read_text(encoding="utf-8"))
        self.write("src/a.cpp", text)
        entry = {"directory": str(self.root), "file": "src/a.cpp", "command": "g++ -std=c++20 -c src/a.cpp"}
        self.write(tidy.DATABASE + "/compile_commands.json", json.dumps([entry]))
        return tidy.run(project.Project(self.root, ["src/a.cpp"]), everything=True)

    def test_accepts_the_project_style(self):
        text = """constexpr int kLimit = 3;
class Counter {
public:
  int next() { return ++count_; }

private:
  int count_ = kLimit;
};
int count_once() {
  Counter counter;
  const int first = counter.next();
  return first;
}
"""
        self.assertEqual(self.check_unit(text), [])

    def test_names_a_wrong_name(self):
        self.assert_problem(self.check_unit("int x;\nint BadName() { return 1; }\n"), "src/a.cpp:2", "BadName")

    def test_stops_at_its_time_limit_and_says_what_is_left(self):
        self.write(".clang-tidy", (ROOT / ".clang-tidy").read_text(encoding="utf-8"))
        self.write("src/a.cpp", "int BadName() { return 1; }\n")
        entry = {"directory": str(self.root), "file": "src/a.cpp", "command": "g++ -std=c++20 -c src/a.cpp"}
        self.write(tidy.DATABASE + "/compile_commands.json", json.dumps([entry]))
        looked_at = project.Project(self.root, ["src/a.cpp"])
        with mock.patch.dict(os.environ, {"KAPITSA_TIDY_SECONDS": "-1"}):
            self.assertEqual(tidy.run(looked_at, everything=True), [])
        self.assertEqual(looked_at.skipped, ["tidy: 1 of 1 files after -1 s"])

    def test_names_a_mistake(self):
        self.assert_problem(self.check_unit("int f(int a) {\n  if (a > 1) return 1; else return 1;\n}\n"), "src/a.cpp:2", "bugprone")


if __name__ == "__main__":
    unittest.main()
