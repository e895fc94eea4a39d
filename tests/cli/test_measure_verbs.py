# SPDX-License-Identifier: Apache-2.0
"""`bench`, `profile`, `trace`, `threads`, `copies`, `compare` and `app` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command
from typer.testing import CliRunner

from litesmith.cli._app import command_line
from litesmith.measure import App, Bench, Comparison, Copies, Profile, Threads, Trace, _recording, _timing
from litesmith.model import Builder
from litesmith.result import Result

SHORT = ("--seconds", 0.05)
VERBS: dict[str, tuple[type[Result], tuple[object, ...]]] = {
    "bench": (Bench, (*SHORT, "--no-memory")),
    "profile": (Profile, ("--runs", 5)),
    "trace": (Trace, ("--runs", 5)),
    "threads": (Threads, (*SHORT, "--counts", 1, "--counts", 2)),
    "copies": (Copies, SHORT),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_prints_a_table_in_80_columns_and_json_that_reads_back(
    verb: str, litesmith: Command, tiny: Path
) -> None:
    kind, options = VERBS[verb]

    shown = litesmith(verb, tiny, *options)
    told = litesmith(verb, tiny, *options, "--json")

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip()
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert told.returncode == 0, told.stderr
    result = kind.from_json(told.stdout)
    assert json.loads(told.stdout)["kind"] == kind.kind
    assert "tiny" in str(result)


def test_results_are_kept_drawn_and_compared(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        done = litesmith("bench", tiny, *SHORT, "--no-memory", "--save", f"{name}.json", "--plot", f"{name}.html")
        assert done.returncode == 0, done.stderr
    compared = litesmith("compare", "a.json", "b.json", "--fail-if", "size>0%", "--json")
    failed = litesmith("compare", "a.json", "b.json", "--fail-if", "size>-1%")

    assert "plotly" in (tmp_path / "a.html").read_text()
    assert compared.returncode == 0, compared.stderr
    assert Comparison.from_json(compared.stdout).change("size").ratio == 1
    assert failed.returncode == 1
    assert "size>-1%" in failed.stdout


def test_a_profile_in_every_format(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    formats = ["csv", "html", "proto", "plot", "save"]
    options = [word for name in formats for word in (f"--{name}", f"p.{name}")]

    done = litesmith("profile", tiny, "--runs", 5, *options, "--model-explorer", "p.nodes")

    assert done.returncode == 0, done.stderr
    for name in (*formats, "nodes"):
        assert (tmp_path / f"p.{name}").stat().st_size > 100
    page = (tmp_path / "p.html").read_text()
    assert "CONV_2D" in page
    assert "https://" not in page, "a page needs no network"
    assert len(Profile.from_json(tmp_path / "p.save").operators) == 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("bench", "none.tflite"), 1, "none.tflite"),
        (("bench", "TINY", "--runs", "0"), 2, "runs"),
        (("bench", "TINY", "--data", "none.npz"), 1, "none.npz"),
        (("bench", "TINY", "--kernels", "quick"), 2, "quick"),
        (("profile", "TINY", "--runs", "1"), 2, "runs"),
        (("trace", "TINY", "--runs", "1", "-o", "no/t.pftrace"), 1, "cannot be written"),
        (("threads", "TINY", "--counts", "0"), 2, "threads"),
        (("compare", "TINY", "TINY", "--fail-if", "speed"), 2, "bound"),
        (("app", "none.py"), 2, "none.py"),
        (("bench", "TINY", "--save", "no/x.json"), 1, "there is no folder no; make it first"),
        (("bench", "TINY", "--plot", "no/x.html", "--device", "local://"), 1, "there is no folder no"),
        (("profile", "TINY", "--csv", "no/x.csv"), 1, "there is no folder no"),
        (("profile", "TINY", "--html", "."), 1, "it is a folder"),
        (("threads", "TINY", "--save", "no/x.json"), 1, "there is no folder no"),
        (("copies", "TINY", "--plot", "no/x.html"), 1, "there is no folder no"),
        (("compare", "TINY", "TINY", "--save", "no/x.json"), 1, "there is no folder no"),
        (("accelerators", "TINY", "--save", "no/x.json"), 1, "there is no folder no"),
        (("choose", "--page", "no/x.html"), 1, "there is no folder no"),
        (("report", "TINY", "-o", "no/x.html"), 1, "there is no folder no"),
        (("run", "TINY", "--save", "no/x.npz"), 1, "there is no folder no"),
    ],
)
def test_bad_input_is_told_in_one_line(
    words: tuple[str, ...], code: int, said: str, litesmith: Command, tiny: Path
) -> None:
    done = litesmith(*(str(tiny) if word == "TINY" else word for word in words))

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "path", "reason"),
    [
        (("bench", "--no-memory", *SHORT), "/proc/x.json", "cannot read or write /proc/x.json: No such file"),
        (("bench", "--no-memory", *SHORT), "/dev/full", "cannot write: No space left on device"),
        (("profile", "--runs", 5), "/proc/x.json", "cannot read or write /proc/x.json: No such file"),
        (("copies", *SHORT), "/dev/full", "cannot write: No space left on device"),
    ],
)
def test_a_result_that_cannot_be_written_is_shown_all_the_same(
    words: tuple[object, ...], path: str, reason: str, litesmith: Command, tiny: Path
) -> None:
    verb, *options = words
    kind, _ = VERBS[str(verb)]

    shown = litesmith(verb, tiny, *options, "--save", path)
    told = litesmith(verb, tiny, *options, "--save", path, "--json")

    assert (shown.returncode, told.returncode) == (1, 1)
    assert "tiny" in shown.stdout
    assert "tiny" in str(kind.from_json(told.stdout))
    for done in (shown, told):
        assert reason in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "printed"),
    [
        ("FileNotFoundError(2, 'No such file or directory', 'gone.json')", 1, "write gone.json: No such file"),
        ("OSError('a mistake of ours')", 1, "Traceback"),
        ("TimeoutError(110, 'Connection timed out')", 1, "Traceback"),
        ("BrokenPipeError(32, 'Broken pipe')", 1, ""),
    ],
)
def test_only_what_is_wrong_with_a_file_goes_without_a_traceback(raised: str, code: int, printed: str) -> None:
    program = (
        "import sys, typer, litesmith.cli._app as app\n"
        f"def fail(): raise {raised}\n"
        "def failing(verbs):\n    line = typer.Typer(pretty_exceptions_enable=False)\n"
        "    line.command()(fail)\n    return line\n"
        "app.command_line, sys.argv = failing, ['litesmith']\napp.main()\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == code
    assert printed in done.stderr
    assert ("Traceback" in done.stderr) == (printed == "Traceback")


def test_a_model_that_does_not_compile_is_told_with_its_operator(litesmith: Command, tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", (1, 4))
    y = b.op("CUSTOM", x, outputs=[((1, 4), "float32")], custom_code="Mystery")
    b.build({"y": y}).save(tmp_path / "m.tflite")

    done = litesmith("bench", "m.tflite")

    assert done.returncode == 1
    assert "Mystery" in done.stderr


PROGRAM = """
import sys
from litesmith import Session
with Session(sys.argv[1]) as session:
    for _ in range(3):
        session.run()
print("printed by the program", sys.argv[2:])
{}
"""


def test_app_runs_a_program_with_its_own_options(litesmith: Command, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROGRAM.format(""))

    shown = litesmith("app", "p.py", tiny, "--json", "-x")
    told = litesmith("app", "--json", "--trace", "t.pftrace", "p.py", tiny)

    assert shown.returncode == 0, shown.stderr
    assert "printed by the program ['--json', '-x']" in shown.stdout
    assert "running the model" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert (tmp_path / "app.pftrace").stat().st_size > 0
    assert App.from_json(told.stdout).runs == 3
    assert "printed by the program" in told.stderr
    assert (tmp_path / "t.pftrace").stat().st_size > 0


@pytest.mark.parametrize(
    ("ending", "code"), [("raise OSError('gone')", 1), ("sys.exit(7)", 7), ("raise KeyboardInterrupt", 130)]
)
def test_app_ends_with_the_code_of_the_program_and_keeps_what_it_saw(
    ending: str, code: int, litesmith: Command, tiny: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.py").write_text(PROGRAM.format(ending))

    done = litesmith("app", "--save", "r.json", "p.py", tiny)

    assert done.returncode == code
    assert ("OSError: gone" in done.stderr) == (code == 1)
    assert App.from_json(tmp_path / "r.json").runs == 3
    assert (tmp_path / "app.pftrace").stat().st_size > 0


@pytest.mark.parametrize(
    ("verb", "module", "function", "call"),
    [
        ("bench", _timing, "time_for", 3),
        ("threads", _timing, "time_for", 5),
        ("copies", _timing, "time_for", 15),
        ("profile", _recording, "_record_some", 3),
        ("trace", _recording, "_record_some", 3),
    ],
)
def test_ctrl_c_writes_the_partial_result_and_exits_with_130(
    verb: str,
    module: Any,
    function: str,
    call: int,
    tiny: Path,
    tmp_path: Path,
    interrupt_at: Callable[[Any, str, int], None],
) -> None:
    kind, options = VERBS[verb]
    words = ["--runs", "100000"] if verb in ("profile", "trace") else list(map(str, options))
    words += ["--output", str(tmp_path / "t.pftrace")] if verb == "trace" else ["--save", str(tmp_path / "r.json")]
    interrupt_at(module, function, call)

    done = CliRunner().invoke(command_line(), [verb, str(tiny), *words, "--json"])

    assert done.exit_code == 130, done.output
    text = done.stdout if verb == "trace" else (tmp_path / "r.json").read_text()
    assert kind.from_json(text[text.index("{") :]).complete is False  # type: ignore[attr-defined]


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, int], None]:
    """Have Ctrl-C come when a function is called for the nth time."""

    def at(module: Any, function: str, call: int) -> None:
        real, calls = getattr(module, function), iter(range(1, 1_000_000))

        def interrupted(*arguments: Any, **named: Any) -> Any:
            if next(calls) == call:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        monkeypatch.setattr(module, function, interrupted)

    return at
