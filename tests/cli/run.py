"""run.py KAPITSA: the program from outside, on a model of 200 KB: help, errors, exit codes, pipes, JSON, Ctrl-C, a conversation
in a terminal. Ends with "N passed, N failed"."""

import http.client
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parent.parent
MODEL = str(TESTS / "golden" / "data" / "llama_f32.gguf")
PROGRAM = ""
HOME = ""
DEADLINE = 120  # seconds that only a hang can reach
COMMANDS = ["run", "serve", "opencode", "claude", "codex", "pi", "pull", "list", "rm", "inspect", "verify", "bench", "doctor", "synth", "completions"]


def environment(**more):
    return {**os.environ, "KAPITSA_HOME": HOME, "HOME": HOME, "TERM": "xterm", **more}


def run(*arguments, text="", **more):
    return subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, encoding="utf-8", timeout=DEADLINE,
                          env=environment(**more), check=False)


class Help(unittest.TestCase):
    def test_every_command_has_help_with_examples(self):
        for command in COMMANDS:
            done = run(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn("Examples:\n  ", done.stdout, command)
            self.assertEqual(done.stderr, "")
        for command in COMMANDS:
            self.assertIn(command, run("--help").stdout)

    def test_version(self):
        self.assertRegex(run("--version").stdout, r"^kapitsa \d+\.\d+\.\d+ \(.+\)\n$")


class Errors(unittest.TestCase):
    def check(self, code, arguments, *parts, text=""):
        done = run(*arguments, text=text)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^kapitsa: [^\n]+\n$")
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_wrong_usage_is_2(self):
        self.check(2, [], "subcommand")
        self.check(2, ["fly"], "--help")
        self.check(2, ["run"], "MODEL")
        self.check(2, ["run", MODEL, "x", "--compute", "slow"], "--compute")
        self.check(2, ["completions", "ksh"], "bash")

    def test_what_fails_is_1_and_names_it(self):
        for command in ("run", "inspect", "verify", "bench"):
            self.check(1, [command, "no-such-model"], "no-such-model")
        self.check(1, ["inspect", __file__], "run.py")
        self.check(1, ["run", MODEL], "empty")
        self.check(1, ["run", MODEL, "x", "--temp", "-1"], "temperature")
        self.check(1, ["run", MODEL, "x " * 400], "256", "tokens")
        self.check(1, ["bench", MODEL, "-d", "4096"], "trained for 256")

    def test_options_are_honoured_or_refused(self):
        self.check(2, ["fly", "away"], "unknown command 'fly'")
        self.check(2, ["run", MODEL, "x", "--seed", "18446744073709551616"], "--seed", "18446744073709551615")
        self.check(2, ["run", MODEL, "x", "--seed", "-1"], "--seed")
        self.check(2, ["run", MODEL, "x", "--stop", ""], "--stop")
        self.check(1, ["run", MODEL, "x", "--raw", "-s", "Be brief."], "--system")
        done = run("run", MODEL, "--stop", "never in it", "the prompt", "-n", "2", "--seed", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("run", MODEL, "x", "--ctx", "300", "-n", "1")
        self.assertIn("longer than the 256 that the model was trained for", done.stderr)

    def test_numbers_say_what_was_expected_and_found(self):
        whole = "expected a whole number from -2147483648 to 2147483647, found "
        self.check(2, ["run", MODEL, "x", "--threads", "two"], "--threads", whole + "two")
        self.check(2, ["run", MODEL, "x", "--ctx", "99999999999"], "--ctx", whole + "99999999999")
        self.check(2, ["run", MODEL, "x", "--ctx", "12x"], whole + "12x")
        self.check(2, ["run", MODEL, "x", "--temp", "nan"], "--temp: expected a number, found nan")
        self.check(2, ["bench", MODEL, "--time", "nan"], "--time: expected a number, found nan")
        self.check(2, ["bench", MODEL, "--time", "-1"], "--time: expected a number from 0 to 1000000, found -1")
        self.check(2, ["bench", MODEL, "-d", "64,ten"], "--depths", whole + "ten")
        self.check(2, ["bench", MODEL, "-r", "0"], "--runs: expected a number from 1 to 1000, found 0")

    def test_a_home_that_is_a_file_is_told(self):
        with tempfile.NamedTemporaryFile() as file:
            for command in (["list"], ["pull", "smollm2"], ["run", "smollm2", "x"]):
                done = run(*command, KAPITSA_HOME=file.name)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, f"kapitsa: KAPITSA_HOME: {file.name}: expected a folder for models and data, found a file\n")

    def test_bench_looks_at_its_output_file_first(self):
        done = run("bench", MODEL, "--json", "/no/such/folder/bench.json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("/no/such/folder/bench.json: cannot create", done.stderr)
        self.check(1, ["bench", MODEL, "--json", tempfile.gettempdir()], "found a folder")

    def test_a_signal_leaves_nothing_of_a_synthetic_file(self):
        for number, code in ((signal.SIGTERM, 130), (signal.SIGINT, 130)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "m.gguf")
                with subprocess.Popen([PROGRAM, "synth", "qwen3-1.7b", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      encoding="utf-8", env=environment()) as process:
                    while not os.path.exists(path + ".part") and process.poll() is None:
                        time.sleep(0.01)
                    process.send_signal(number)
                    process.send_signal(number)  # an impatient one
                    _, errors = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, code, errors)
                self.assertEqual(os.listdir(folder), [])

    def test_an_answer_that_cannot_be_written_fails(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "run", MODEL, "x", "-n", "2"], stdout=full, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, encoding="utf-8", timeout=DEADLINE, env=environment(),
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write the answer", done.stderr)

    def test_no_command_ends_well_when_its_output_is_lost(self):
        for command in (["--version"], ["list", "--json"], ["inspect", MODEL], ["inspect", MODEL, "--json"],
                        ["completions", "bash"], ["run", "--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, encoding="utf-8",
                                      timeout=DEADLINE, env=environment(), check=False)
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("standard output: cannot be written", done.stderr)

    def test_synth_replaces_nothing_unasked_and_no_device(self):
        with tempfile.TemporaryDirectory() as folder:
            kept, link, pipe = (os.path.join(folder, name) for name in ("kept.gguf", "link.gguf", "pipe.gguf"))
            Path(kept).write_text("mine", encoding="utf-8")
            os.symlink(kept, link)
            os.mkfifo(pipe)
            for path in (kept, link):
                self.check(1, ["synth", "smollm2", path, "--layers", "1"], "exists already")
                self.assertEqual(Path(kept).read_text(encoding="utf-8"), "mine")
            self.check(1, ["synth", "smollm2", pipe, "--layers", "1"], "expected the name of a file")
            done = run("synth", "smollm2", link, "--layers", "1", "--force", "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(os.path.islink(link))
            self.assertGreater(os.path.getsize(kept), 1 << 20)

    def test_the_environment_chooses_the_instruction_set(self):
        done = run("inspect", MODEL, KAPITSA_ISA="scalar")
        self.assertIn("scalar kernels", done.stdout)
        done = run("run", MODEL, "x", "-n", "1", KAPITSA_ISA="none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("instruction set 'none' is not available", done.stderr)

    def test_a_named_pipe_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "a\nb\x1b[31m.gguf")
            os.mkfifo(pipe)
            self.check(1, ["run", pipe, "x"], "a\\x0ab\\x1b[31m.gguf", "expected a file")

    def test_a_path_needs_no_home(self):
        variables = {name: value for name, value in os.environ.items() if name not in ("HOME", "KAPITSA_HOME", "XDG_DATA_HOME")}
        done = subprocess.run([PROGRAM, "run", MODEL, "x", "-n", "1"], stdin=subprocess.DEVNULL, capture_output=True,
                              encoding="utf-8", timeout=DEADLINE, env=variables, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ctrl_c_before_the_answer_is_one_line_and_130(self):
        with subprocess.Popen([PROGRAM, "run", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", env=environment()) as process:
            time.sleep(0.3)  # it waits for the prompt, however long this takes
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130)
        self.assertIn("kapitsa: stopped by Ctrl-C\n", errors)

    def test_bench_without_a_model_says_how_to_get_one(self):
        self.check(1, ["bench"], "smollm2")


class Answers(unittest.TestCase):
    ARGUMENTS = ["run", MODEL, "--seed", "7", "-n", "12"]

    def test_the_same_seed_gives_the_same_answer(self):
        first = run(*self.ARGUMENTS, "Hello")
        again = run(*self.ARGUMENTS, "Hello", "--threads", "1")
        other = run("run", MODEL, "--seed", "8", "-n", "12", "--temp", "5", "Hello")
        self.assertEqual(first.returncode, 0)
        self.assertEqual(first.stdout, again.stdout)
        self.assertNotEqual(first.stdout, other.stdout)
        self.assertRegex(first.stderr, r"^\[prompt \d+ tokens.* seed 7.*\]\n$")

    def test_a_pipe_is_a_prompt(self):
        self.assertEqual(run(*self.ARGUMENTS, text="Hello\n").stdout, run(*self.ARGUMENTS, "Hello").stdout)

    def test_no_escape_codes_outside_of_a_terminal(self):
        done = run(*self.ARGUMENTS, "Hello")
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertEqual(run(*self.ARGUMENTS, "--quiet", "Hello").stderr, "")

    def test_json_events_hold_the_answer(self):
        done = run(*self.ARGUMENTS, "--json", "--quiet", "Hello")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(events[0]["event"], "prefill")
        end = events[-1]
        self.assertEqual(end["event"], "end")
        self.assertEqual(end["seed"], 7)
        self.assertEqual(end["completion_tokens"], 12)
        self.assertEqual("".join(e["text"] for e in events if e["event"] == "text"), end["text"])
        self.assertEqual(run(*self.ARGUMENTS, "Hello").stdout.rstrip("\n"), end["text"].rstrip("\n"))

    def test_json_tells_errors(self):
        done = run("run", MODEL, "--json", "x " * 400)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["code"], "context_overflow")
        for arguments in (["no-such-model", "x"], [__file__, "x"], [MODEL]):
            done = run("run", *arguments, "--json")
            self.assertEqual(done.returncode, 1)
            event = json.loads(done.stdout)
            self.assertEqual(event["event"], "error")
            self.assertEqual(done.stderr, f"kapitsa: {event['message']}\n")

    def test_ctrl_c_ends_an_answer_with_130(self):
        # The reference, so that the answer is long enough in seconds.
        arguments = [PROGRAM, "run", MODEL, "--backend", "ref", "--json", "--seed", "1", "--ctx", "4000", "Hello", "--temp", "4"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              env=environment()) as process:
            while '"text"' not in process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=DEADLINE)
            self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(rest.splitlines()[-1])["reason"], "cancelled")


class Reports(unittest.TestCase):
    def test_inspect_and_its_json_agree(self):
        text = run("inspect", MODEL, "--tensors").stdout
        report = json.loads(run("inspect", MODEL, "--json").stdout)
        self.assertEqual(report["architecture"], "llama")
        self.assertTrue(report["memory"]["fits"])
        for tensor in report["tensors"]:
            self.assertIn(tensor["name"], text)
        self.assertIn("Fits:", text)

    def test_inspect_says_what_does_not_fit(self):
        text = run("inspect", MODEL, "--ctx", str(1 << 24), "--kv", "f32").stdout
        self.assertTrue("Does not fit" in text or "Fits" in text, text)

    def test_verify_passes(self):
        done = run("verify", MODEL)
        self.assertEqual(done.returncode, 0, done.stdout)
        for check in ("weights", "layers", "perplexity"):
            self.assertRegex(done.stdout, rf"{check} +ok")
        self.assertTrue(json.loads(run("verify", MODEL, "--json").stdout)["passed"])

    def test_doctor_is_content_and_fits_80_columns(self):
        done = run("doctor")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("All is well", done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
        report = json.loads(run("doctor", "--json").stdout)
        self.assertTrue(report["healthy"])
        self.assertTrue(all(check["passed"] for check in report["checks"]))

    def test_bench_prints_a_table_and_writes_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.json"
            done = run("bench", MODEL, "-d", "32,128,1024", "-n", "8", "-r", "2", "--json", str(path))
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
        self.assertIn("1K: the model was trained for 256 tokens", done.stdout)
        self.assertEqual(len(cells), 6)
        for cell in cells:
            self.assertEqual(len(cell["runs"]), 0 if cell["depth"] == 1024 else 2)
            for key in ("engine", "version", "commit", "flags", "machine"):
                self.assertIn(key, cell)


class Catalog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name
        self.file = Path(folder.name) / "catalog.toml"

    def run_here(self, *arguments):
        return run(*arguments, KAPITSA_HOME=self.home)

    def test_the_catalog_fits_80_columns_and_json_has_everything(self):
        done = self.run_here("list", "--all")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
        everything = json.loads(self.run_here("list", "--all", "--json").stdout)
        self.assertEqual(everything["models"], [])
        for name in ("smollm2", "35b", "27b", "flash-next", "bolt", "flint", "clover"):
            self.assertIn(f"\n{name} ", done.stdout)
            entry = next(entry for entry in everything["catalog"] if entry["name"] == name)
            self.assertTrue(entry["files"][0]["sources"], name)
            self.assertIn(entry["family"], [family["name"] for family in everything["families"]])

    def test_a_name_of_ones_own_is_a_model(self):
        self.file.write_text(f"[models.mine]\npath = '{MODEL}'\n", encoding="utf-8")
        self.assertIn("llama", self.run_here("inspect", "mine").stdout)
        self.assertEqual(self.run_here("run", "mine", "x", "-n", "1").returncode, 0)
        self.assertEqual(self.run_here("bench", "mine", "-d", "32", "-n", "4", "-r", "1").returncode, 0)
        self.assertEqual(self.run_here("pull", "mine").stdout, MODEL + "\n")
        self.assertRegex(self.run_here("list", "--all").stdout, r"\nmine +\S+ .*here")

    def test_a_wrong_file_is_one_line(self):
        self.file.write_text("[models.mine]\npath = 5\n", encoding="utf-8")
        for arguments in (["list"], ["run", "mine", "x"], ["pull", "mine"], ["inspect", "mine"]):
            done = self.run_here(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"kapitsa: {self.file}:2: models.mine.path: expected a text, found 5\n")
        self.assertEqual(self.run_here("run", MODEL, "x", "-n", "1").returncode, 0, "a path needs no catalog")


class Completions(unittest.TestCase):
    def complete(self, *words):
        script = run("completions", "bash").stdout
        quoted = " ".join(f"'{word}'" for word in words)
        script += f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _kapitsa; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", script], capture_output=True, encoding="utf-8", check=True, timeout=DEADLINE)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_commands_options_choices_and_models(self):
        self.assertEqual(self.complete("kapitsa", "ins"), ["inspect"])
        self.assertIn("--max-tokens", self.complete("kapitsa", "run", "--m"))
        self.assertEqual(sorted(self.complete("kapitsa", "run", "x", "--compute", "")), ["f32", "fast"])
        self.assertIn("smollm2", self.complete("kapitsa", "bench", "smo"))
        self.assertEqual(self.complete("kapitsa", "completions", "z"), ["zsh"])

    def test_zsh_and_fish_name_every_command(self):
        for shell in ("zsh", "fish"):
            script = run("completions", shell).stdout
            for command in COMMANDS:
                self.assertIn(command, script)
            self.assertIn("fast f32" if "fast f32" in script else "f32 fast", script)


class Conversation(unittest.TestCase):
    def test_lines_of_a_pipe_are_messages(self):
        text = "Hello\n/set temp 0\n/nonsense\n/stats\n/system Be brief.\n/stats\n/exit\nnever read\n"
        done = run("run", MODEL, "--chat", "-n", "4", "--seed", "1", text=text)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("[prompt"), 1)
        self.assertIn("temp 0 ", done.stderr)
        self.assertIn("unknown command '/nonsense'", done.stderr)
        self.assertIn("in 2 messages", done.stderr)
        self.assertIn("in 1 messages", done.stderr)

    def test_a_full_context_is_told_and_not_cut_silently(self):
        text = "Hello\n" + "word " * 300 + "\n/clear\nHello\n"
        done = run("run", MODEL, "--chat", "-n", "4", "--seed", "1", text=text)
        self.assertEqual(done.returncode, 0)
        self.assertIn("The conversation is too long", done.stderr)
        self.assertIn("/clear", done.stderr)
        self.assertEqual(done.stderr.count("[prompt"), 2)

    def test_save_writes_the_messages(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "talk.json"
            run("run", MODEL, "--chat", "-n", "4", "-s", "Be brief.", text=f'"""one\ntwo"""\n/save {path}\n')
            messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        self.assertEqual(messages[1]["content"], "one\ntwo")


class Terminal:
    """The program in a pseudo-terminal."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *arguments], environment())
        self.text = ""

    def wait_for(self, pattern):
        """Reads until the pattern is in what came since the last call; returns that."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            found = re.search(pattern, self.text)
            if found:
                seen, self.text = self.text[:found.end()], self.text[found.end():]
                return seen
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    break
        raise AssertionError(f"{pattern!r} did not come; found {self.text!r}")

    def send(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


class InTerminal(unittest.TestCase):
    def test_ctrl_c_clears_a_line_and_stops_an_answer_and_ctrl_d_leaves(self):
        terminal = Terminal("run", MODEL, "--backend", "ref", "--ctx", "4000", "--temp", "4", "--seed", "1")
        terminal.wait_for("> ")
        terminal.send("half a line")
        terminal.wait_for("half a line")
        terminal.send("\x03")
        terminal.wait_for("> ")
        terminal.send("Hello\r")
        terminal.wait_for("Hello\r\n.")
        terminal.send("\x03")
        self.assertIn("stopped by Ctrl-C", terminal.wait_for(r"seed 1[^\n]*\n"))
        terminal.wait_for("> ")
        terminal.send("/stats\r")
        terminal.wait_for("in [02] messages")  # none when Ctrl-C came before the first token
        terminal.wait_for("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.exit_code(), 0)


class Serving:
    """kapitsa serve on a free port, until the block ends."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([PROGRAM, "serve", MODEL, "--port", "0", "--log-format", "json", *arguments],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", env=environment())
        self.events = []
        self.wait_for("ready")
        self.port = int(re.search(r":(\d+)$", self.events[-1]["message"]).group(1))

    def wait_for(self, name):
        while not self.events or self.events[-1]["event"] != name:
            self.events.append(json.loads(self.process.stderr.readline()))
        return self.events[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE)

    def ask(self, path, body=None, method=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request(method or ("POST" if body else "GET"), path, json.dumps(body) if body else None)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply.status, text


class Server(unittest.TestCase):
    def test_it_answers_logs_and_ends_with_a_signal(self):
        with Serving() as server:
            self.assertEqual(server.ask("/health"), (200, '{"status":"ok"}'))
            body = {"prompt": "Hello", "max_tokens": 5, "seed": 7, "temperature": 1}
            status, text = server.ask("/v1/completions", body)
            self.assertEqual(status, 200)
            again = json.loads(server.ask("/v1/completions", body)[1])
            self.assertEqual(json.loads(text)["choices"], again["choices"])
            record = server.wait_for("request")
            self.assertEqual((record["path"], record["ending"], record["completion_tokens"]), ("/v1/completions", "length", 5))
            self.assertEqual(server.ask("/", method="HEAD")[0], 200)
        self.assertEqual(server.process.returncode, 0)

    def test_a_port_in_use_is_told_before_loading(self):
        with Serving() as server:
            done = run("serve", MODEL, "--port", str(server.port))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^kapitsa: port \d+ on 127\.0\.0\.1 is in use[^\n]*\n$")

    def test_wrong_usage(self):
        self.assertEqual(run("serve").returncode, 1)
        self.assertIn("--api-key", run("serve", MODEL, "--host", "0.0.0.0", "--port", "0").stderr)
        self.assertEqual(run("serve", MODEL, "--port", "70000").returncode, 2)


class Agents(unittest.TestCase):
    PROGRAMS = {"opencode": "OPENCODE_CONFIG_CONTENT", "claude": "ANTHROPIC_BASE_URL", "codex": "HOME", "pi": "PI_CODING_AGENT_DIR"}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def install(self, name, text):
        path = Path(self.folder.name) / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def launch(self, *arguments, **more):
        return run(*arguments, PATH=f"{self.folder.name}:/usr/bin:/bin", **more)

    def test_a_missing_agent_is_127_with_the_line_that_installs_it(self):
        for name in self.PROGRAMS:
            done = self.launch(name, "--model", MODEL, "--port", "1")
            self.assertEqual(done.returncode, 127, name)
            self.assertRegex(done.stderr, r"^kapitsa: [^\n]*npm install -g [^\n]*\n$")

    def test_an_agent_gets_a_server_its_arguments_and_its_exit_code(self):
        for name, variable in self.PROGRAMS.items():
            self.install(name, f'printf "%s\\n" "${variable}"; for a in "$@"; do echo "$a"; done; exit 3')
            done = self.launch(name, "--model", MODEL, "--port", "1", "--ctx", "200", "--", "--own", "two words")
            self.assertEqual(done.returncode, 3, done.stderr)
            lines = done.stdout.splitlines()
            self.assertEqual(lines[-2:], ["--own", "two words"])
            self.assertNotEqual(lines[0], "")

    def test_a_server_that_runs_is_used(self):
        self.install("claude", 'echo "$ANTHROPIC_BASE_URL $ANTHROPIC_MODEL $CLAUDE_CODE_MAX_CONTEXT_TOKENS"')
        with Serving("--name", "mine") as server:
            done = self.launch("claude", "--port", str(server.port))
            self.assertEqual(done.stdout, f"http://127.0.0.1:{server.port} mine 256\n", done.stderr)
        self.assertIn("--model", self.launch("claude", "--port", "1").stderr)

    def test_a_dry_run_does_nothing_and_hides_the_key(self):
        before = sorted(str(path) for path in Path(HOME).rglob("*"))
        for name in self.PROGRAMS:
            done = self.launch(name, "--model", MODEL, "--port", "1", "--dry-run", KAPITSA_API_KEY="very-secret")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(name, done.stdout)
            self.assertNotIn("very-secret", done.stdout)
        self.assertEqual(sorted(str(path) for path in Path(HOME).rglob("*")), before)


def main():
    global PROGRAM, HOME
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    PROGRAM = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        HOME = folder
        suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
        result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
