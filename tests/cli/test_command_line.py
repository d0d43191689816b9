"""The command line as people expect it: help, errors, JSON, files, widths, Ctrl-C, completion."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli import console, interrupts
from fedgranger.cli.app import COMMANDS, app
from fedgranger.cli.console import plain
from fedgranger.cli.export import FORMATS
from fedgranger.cli.lazy import load_command
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.tables import edge_table
from fedgranger.data import reading_progress, text_tables
from fedgranger.export.formats import FORMATS as WRITERS
from fedgranger.federation.agreed_options import SCORER_NAMES
from fedgranger.rca import SCORERS

LONG = ("Dampferzeugung_1", "Kühlturm_Nord_üä")
MODULE = [sys.executable, "-m", "fedgranger"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_light_lists_of_names_are_those_of_the_heavy_modules():
    assert tuple(SCORERS) == SCORER_NAMES
    assert tuple(WRITERS) == FORMATS


def test_short_help_shows_what_people_need_and_long_help_everything():
    short, long = (call("fit", word).stdout for word in ("--help", "--help-all"))
    options = [set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) for text in (short, long)]
    assert {"--out", "--test", "--alpha", "--json", "--missing"} <= options[0]
    assert len(options[0]) <= 12
    assert len(options[1]) > 70
    assert "fedgranger fit plant/ --out run" in short
    assert f"shows {len(options[1] - options[0])} more options" in " ".join(short.split())
    assert "\nEdge tests:\n" in long
    assert "\nEdge tests:\n" not in short
    assert call("fit", "-h").stdout == short


@pytest.mark.parametrize(
    "name", [name for name, row in COMMANDS.items() if "research" not in row[0]]
)
def test_every_command_can_be_quiet_or_verbose_and_shows_an_example(name):
    command = load_command(name, COMMANDS[name][0])
    found = getattr(command, "commands", None) or {name: command}
    for one in (part for part in found.values() if part.callback is not None):
        words = {word for parameter in one.params for word in parameter.opts}
        assert {"-q", "--quiet", "-v", "--verbose"} <= words
        assert "commands" in dir(command) or one.epilog.startswith("fedgranger ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fit", "x", "--alhpa", "1"], "unknown option '--alhpa' (did you mean '--alpha'?)"),
        (["edgs", "x"], "unknown command 'edgs' (did you mean 'edges'?)"),
        (["federation", "chekc"], "unknown command 'chekc' (did you mean 'check'?)"),
        (["edges"], "argument 'run' is missing: Run folder; see 'fedgranger edges --help'"),
        (["edges", "run", "--top", "two"], "--top is 'two'; it must be a whole number; see"),
        (["edges", "run", "--alpha", "x"], "--alpha is 'x'; it must be a number; see"),
        (["rca", "run", "--top", "0"], "--top is '0'; it must be at least 1; see"),
        (["-q", "fit", "x"], "option '-q' stands before a command; give it after one"),
        (["fit", "x", "--out"], "option '--out' requires an argument"),
        (["edges", "a", "b"], "unexpected extra argument"),
        (["edges", "a", "-q", "-v"], "--quiet and --verbose contradict each other"),
    ],
)
def test_what_the_parser_refuses_is_one_sentence(words, sentence):
    done = CliRunner().invoke(app, words, prog_name="fedgranger")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert sentence.lower() in done.stderr.lower()
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    panel, truth = fg.simulate(3, 500, edges=[("client1", "client2")], seed=3)
    panel.write(folder / "data")
    truth.write(folder / "truth.json")
    words = ("--state-dim", 2, "--solver", "newton", "--copies", 20, "--json")
    done = call("fit", folder / "data", "--out", folder / "run", *words)
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["edges"]) == 6
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "check {0}/data",
        "edges {0}/run",
        "diagnose {0}/run --strength 0.3",
        "audit {0}/run",
        "evaluate {0}/run --truth {0}/truth.json",
        "compare {0}/run {0}/truth.json --all",
        "watch {0}/run",
        "privacy {0}/run",
        "report {0}/run",
        "rca {0}/run --data {0}/data",
        "rca {0}/run --history",
    ],
)
def test_json_is_one_document_and_alone_on_stdout(place, line):
    done = call(*line.format(place).split(), "--json")
    assert done.exit_code in (0, 4), done.output
    json.loads(done.stdout, parse_constant=pytest.fail)


def test_what_is_no_number_is_null():
    table = pd.DataFrame({"x": [1.5, float("nan")], "t": pd.to_datetime(["2026-01-01", None])})
    rows = plain(table.to_dict("records"))
    assert rows == [{"x": 1.5, "t": "2026-01-01T00:00:00"}, {"x": None, "t": None}]
    assert plain({"a": (float("inf"), True, "ü")}) == {"a": [None, True, "ü"]}


@pytest.mark.parametrize("words", [("export", "--format", "csv"), ("report",)])
def test_a_file_is_replaced_only_by_force(place, tmp_path, words):
    path = tmp_path / "mine.txt"
    path.write_text("mine")
    given = (words[0], place / "run", *words[1:], "--out", path)
    refused = call(*given)
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1
    assert f"{path}: is there already; add --overwrite" in refused.stderr
    assert path.read_text() == "mine"
    assert call(*given, "--overwrite").exit_code == 0
    assert path.read_text() != "mine"


def test_quiet_leaves_the_answer_and_verbose_shows_where_an_error_arose(place):
    loud, calm = (call("report", place / "run", *words) for words in ((), ("-q",)))
    assert loud.stdout == calm.stdout
    assert calm.stderr == ""
    wrong = call("edges", place / "none", "-q")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert "Traceback" in call("edges", place / "none", "-v").stderr


def shown(table, columns):
    screen = Console(width=columns, highlight=False)
    with screen.capture() as capture:
        screen.print(table)
    return capture.get()


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_cause_and_effect_are_never_cut(columns):
    numbers = {"strength": 0.12345, "ci_low": 0.1, "ci_high": 0.2, "statistic": 1.0, "df": 2}
    tests = {"p_value": 1.2345e-12, "delay": 1, "q_value": 1.2345e-11, "is_edge": True}
    edges = pd.DataFrame([{"cause": LONG[0], "effect": LONG[1], **numbers, **tests}])
    text = shown(edge_table(edges, None), columns)
    assert all(len(line) <= columns for line in text.splitlines())
    row = text.splitlines()[1]
    assert re.match(rf" {LONG[0]} +{LONG[1]} .*yes $", row)
    assert "…" not in text
    assert ("1.23e-11" in row) == (columns >= 60)
    assert ("not shown in" in text) == (columns < 160)


def test_names_that_do_not_fit_at_all_are_folded():
    name = "".join(chr(97 + k % 26) for k in range(50))
    text = shown(NarrowTable(("client", "size", "share"), [(name, "1", "2")]), 40)
    lines = [line for line in text.splitlines()[1:] if "not shown" not in line]
    assert "".join(line[1:].split(" ")[0] for line in lines) == name


def test_no_colour_means_no_codes(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.make_console().color_system is None
    done = subprocess.run([*MODULE, "edgs"], capture_output=True, text=True, check=False)
    assert done.stderr == "error: unknown command 'edgs' (did you mean 'edges'?)\n"


INTERRUPTED_IMPORT = """
import os, signal, sys
moment = sys.argv.pop(1)
class Hook:
    def find_spec(self, name, *rest):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hook())
from fedgranger.__main__ import main
main()
"""


@pytest.mark.parametrize("moment", ["rich.console", "fedgranger.cli.demo", "numpy"])
def test_ctrl_c_while_modules_are_read_is_one_line(tmp_path, moment):
    words = [sys.executable, "-c", INTERRUPTED_IMPORT, moment, "demo", "--out", tmp_path / "demo"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "demo").exists()


def test_ctrl_c_while_a_command_works_is_one_line(tmp_path):
    words = [*MODULE, "demo", "--out", str(tmp_path / "demo")]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert first == "simulating six plants …\n"
    assert rest == "interrupted\n"
    assert process.returncode == 130


def test_an_interrupted_command_leaves_with_130(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fg.Result, "load", interrupt)
    done = call("edges", "run")
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


def test_an_interrupt_before_a_command_is_found_is_one_line():
    code = (
        "import fedgranger.cli.app as cli\n"
        "def stop(**_): raise KeyboardInterrupt\n"
        "cli.app = stop\n"
        "from fedgranger.__main__ import main\nmain()"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupt_that_would_be_forgotten_is_raised_again(monkeypatch):
    again = []
    monkeypatch.setattr(interrupts, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(interrupts.signal, "raise_signal", again.append)

    class Dying:
        def __del__(self):
            interrupts.handle(signal.SIGINT, sys._getframe())

    Dying().__del__()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert signal.SIGINT in again
    with pytest.raises(KeyboardInterrupt):
        interrupts.handle(signal.SIGINT, sys._getframe())


def test_the_shell_completes_options_and_words_without_numerical_libraries():
    code = (
        "import sys\nfrom fedgranger.cli.app import app\n"
        "try: app(prog_name='fedgranger')\n"
        "finally: print('heavy:', *({'jax', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    for words, wanted in (("fedgranger fit --max-l", "--max-lags"), ("fedgranger ed", "edges")):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = {**os.environ, **asked, "_FEDGRANGER_COMPLETE": "complete_bash"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert wanted in done.stdout.split()
        assert done.stdout.rstrip().endswith("heavy:")


def test_reading_large_files_is_followed_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_progress, "LEAST_BYTES", 1)
    monkeypatch.setattr(reading_progress, "UNIT", 1)
    monkeypatch.setattr(text_tables, "BLOCK_BYTES", 2000)
    fg.simulate(2, 300, seed=1)[0].write(tmp_path)
    calls = []
    fg.Panel.read(tmp_path, report=lambda *words: calls.append(words))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert {(what, size) for what, _, size in calls} == {("reading, MB", total)}
    done = [count for _, count, _ in calls]
    assert done == sorted(done)
    assert done[-1] == total
    assert len(done) > 10
