"""The shell scripts as a user calls them: options, messages, and what they do without a network."""

import contextlib
import io
import os
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def run(*command, **environment):
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)

    def write_program(self, name, text):
        """A program that stands in for one of the system's; its folder goes in front of PATH."""
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return f"{path.parent}:{os.environ['PATH']}"


class OptionsTest(ScriptTest):
    def test_help_is_shown_and_unknown_options_are_refused(self):
        for name in ("quickstart", "install-deps", "fetch-model", "test"):
            with self.subTest(name):
                self.assertIn("Usage: scripts/" + name, run(SCRIPTS / name, "--help").stdout)
                refused = run(SCRIPTS / name, "--no-such-option")
                self.assertNotEqual(refused.returncode, 0)
                self.assertTrue(refused.stderr)

    def test_quickstart_refuses_a_wrong_number_of_jobs(self):
        for jobs in ("0", "x", "-1", ""):
            with self.subTest(jobs):
                refused = run(SCRIPTS / "quickstart", "--jobs", jobs)
                self.assertEqual(refused.returncode, 1)
                self.assertIn("--jobs: expected a number", refused.stderr)

    def test_check_refuses_an_unknown_name(self):
        self.assertIn("unknown check 'nothing'", run(SCRIPTS / "check", "nothing").stderr)


class FetchModelTest(ScriptTest):
    def test_lets_the_program_pull_and_prints_the_path(self):
        self.write_program("kapitsa", "#!/bin/bash\necho \"$@\" >&2\necho the/path\n")
        done = run(SCRIPTS / "fetch-model", "smollm2", KAPITSA=str(self.home / "bin/kapitsa"))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "the/path\n", "pull smollm2\n"))

    def test_a_failed_pull_is_a_failure(self):
        self.write_program("kapitsa", "#!/bin/bash\nexit 1\n")
        self.assertEqual(run(SCRIPTS / "fetch-model", KAPITSA=str(self.home / "bin/kapitsa")).returncode, 1)

    def test_other_models_are_refused(self):
        self.assertIn("unknown argument 'other'", run(SCRIPTS / "fetch-model", "other").stderr)


class InstallDepsTest(ScriptTest):
    def test_asks_apt_for_nothing_when_all_is_installed(self):
        self.write_program("dpkg-query", "#!/bin/bash\ncase \"$*\" in *libboost*) echo 'installed 1.81.0-5';; *) printf installed;; esac\n")
        path = self.write_program("apt-get", f"#!/bin/bash\ntouch {self.home}/called\n")
        self.assertEqual(run(SCRIPTS / "install-deps", "build", PATH=path).returncode, 0)
        self.assertFalse((self.home / "called").exists())

    def test_takes_boost_181_where_the_default_is_older(self):
        self.write_program("dpkg-query", "#!/bin/bash\ncase \"$*\" in *libboost*) echo 'installed 1.74.0';; *) printf installed;; esac\n")
        self.write_program(
            "apt-cache",
            "#!/bin/bash\ncase \"$1\" in policy) echo '  Candidate: 1.74.0.3';; search) echo 'libboost-json1.81-dev - JSON';; esac\n",
        )
        path = self.write_program("apt-get", f"#!/bin/bash\necho \"$@\" >> {self.home}/called\n")
        done = run(SCRIPTS / "install-deps", "build", PATH=path)
        if os.getuid() != 0:
            self.skipTest("only root installs without sudo")
        self.assertEqual(done.returncode, 0, done.stderr)
        called = (self.home / "called").read_text(encoding="utf-8")
        self.assertIn("--no-remove libboost1.81-dev libboost-json1.81-dev", called)
        self.assertNotIn("update", called)


def load_script(name):
    loader = SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class RunCtestTest(ScriptTest):
    def run_tests(self, declarations, *options):
        """What run-ctest prints for a build folder with these tests."""
        (self.home / "CTestTestfile.cmake").write_text(declarations, encoding="utf-8")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = load_script("run-ctest").run(self.home, list(options))
        return code, printed.getvalue().splitlines()

    def test_counts_what_passed_failed_and_skipped_itself(self):
        tests = """add_test(good true)
add_test(bad sh -c "echo why; exit 1")
add_test(gone no-such-program)
add_test(shy sh -c "echo not here")
set_tests_properties(shy PROPERTIES SKIP_REGULAR_EXPRESSION "not here")
"""
        code, lines = self.run_tests(tests)
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "1 passed, 2 failed, 1 skipped")
        self.assertIn("why", lines)
        self.assertEqual(self.run_tests(tests, "-R", "good")[1][-1], "1 passed, 0 failed, 0 skipped")

    def test_a_run_without_tests_has_failed(self):
        self.assertEqual(self.run_tests("add_test(good true)\n", "-R", "nothing")[1][-1], "0 passed, 1 failed, 0 skipped")

    def outcome(self, xml):
        return load_script("run-ctest").outcome(ElementTree.fromstring(xml))

    def test_only_a_test_that_skips_itself_counts_as_skipped(self):
        self.assertEqual(self.outcome('<testcase status="run"/>'), "passed")
        self.assertEqual(self.outcome('<testcase status="fail"><failure message=""/></testcase>'), "failed")
        self.assertEqual(
            self.outcome('<testcase status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'), "skipped"
        )
        self.assertEqual(
            self.outcome('<testcase status="notrun"><skipped message="Unable to find executable"/></testcase>'), "failed"
        )


class LibTest(ScriptTest):
    def test_counts_are_summed_from_the_closing_line(self):
        (self.home / "log").write_text("1 passed, 0 failed\nx\n12 passed, 3 failed, 4 skipped\n", encoding="utf-8")
        script = f'. {SCRIPTS}/lib.sh; count_pass; count_closing_line "$1"; print_closing_line'
        done = run("bash", "-c", script, "-", self.home / "log")
        self.assertEqual(done.stdout, "13 passed, 3 failed, 4 skipped\n")

    def test_a_log_without_closing_line_is_an_error(self):
        (self.home / "log").write_text("3 passed, none failed\n", encoding="utf-8")
        done = run("bash", "-c", f'. {SCRIPTS}/lib.sh; count_closing_line "$1"', "-", self.home / "log")
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
