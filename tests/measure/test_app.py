# SPDX-License-Identifier: Apache-2.0
"""Where the time of a whole program goes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from litesmith.errors import UsageError
from litesmith.measure import App, app
from litesmith.measure._app_tips import find_tips
from litesmith.measure._calls import Call

from .test_trace import parse

Write = Callable[[str], Path]

CLASSIFY = """
    import sys
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter
    from neighbour import NAME

    def prepare():
        x = np.zeros((1, 32, 32, 3), np.float32)
        for _ in range(40):
            x = np.sort(x + 1, axis=1)
        return np.asfortranarray(x)

    def main():
        interpreter = Interpreter(sys.argv[1])
        interpreter.allocate_tensors()
        index = interpreter.get_input_details()[0]["index"]
        output = interpreter.get_output_details()[0]["index"]
        for _ in range(int(sys.argv[2])):
            interpreter.set_tensor(index, prepare())
            interpreter.invoke()
            interpreter.get_tensor(output)

    if __name__ == "__main__":
        main()
        print(NAME, __file__)
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a program beside a module that it can import."""
    (tmp_path / "neighbour.py").write_text("NAME = 'imported'\n")

    def program(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        return path

    return program


def test_a_program_is_run_as_python_runs_it(
    write: Write, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.argv[:], sys.path[:], sys.modules["__main__"]
    script = write(CLASSIFY)

    result = app(script, [str(tiny), "20"], trace=tmp_path / "a.pftrace")

    assert f"imported {script}" in capsys.readouterr().out
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    assert result.exit_code == 0
    assert result.complete
    assert result.runs == 20
    assert min(result.run_ms, result.feed_ms, result.read_ms, result.load_ms, result.own_ms) > 0
    assert sum(ms for _, ms in result.parts()) == pytest.approx(result.wall_ms)
    assert sum(f.own_ms for f in result.functions) > 0
    assert {f.file for f in result.functions} <= {str(script), str(tmp_path / "neighbour.py")}
    lines = script.read_text().splitlines()
    for site in result.sites:
        assert site.file == str(script)
        assert site.api.rpartition(".")[2].replace("__init__", "Interpreter") in lines[site.line - 1]
    (feed,) = [copy for copy in result.copies if copy.direction == "feed"]
    assert (feed.reason, feed.count) == ("layout", 20)
    assert App.from_json(result.to_json()) == result
    assert len(result.plot().data) == 5

    slices, _ = parse(tmp_path / "a.pftrace")
    assert [s.name for s in slices["application"]] == ["program.py"]
    kinds = [s.name.split(":")[0] for s in slices["LiteRT"]]
    assert kinds == ["load", "load", *["feed", "run", "read"] * 20]
    assert {s.depth for s in slices["LiteRT"]} == {0}
    whole = slices["application"][0]
    for track in slices.values():
        assert all(whole.start - 1_000_000 <= s.start <= s.end <= whole.end + 1_000_000 for s in track)


def test_a_program_that_raises_shows_its_own_traceback_and_keeps_the_rest(
    write: Write, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(CLASSIFY.replace("print(NAME, __file__)", "raise RuntimeError('too hot')"))

    result = app(script, [str(tiny), "3"], trace=tmp_path / "a.pftrace")

    said = capsys.readouterr().err
    assert result.exit_code == 1
    assert not result.complete
    assert result.runs == 3
    assert "RuntimeError: too hot" in said
    assert said.splitlines()[0].startswith("Traceback")
    assert str(script) in said.splitlines()[1], "nothing of Litesmith is above the program"
    assert "_app.py" not in said
    assert result.error in said
    assert parse(tmp_path / "a.pftrace")[0]["LiteRT"]


@pytest.mark.parametrize(
    ("ending", "code", "complete"),
    [
        ("sys.exit(3)", 3, True),
        ("sys.exit()", 0, True),
        ("sys.exit('no camera')", 1, True),
        ("import signal; signal.raise_signal(signal.SIGINT)", 130, False),
        ("raise KeyboardInterrupt", 130, False),
    ],
)
def test_the_exit_code_is_the_programs_own(write: Write, ending: str, code: int, complete: bool) -> None:
    result = app(write(f"import sys\n{ending}\n"), trace=None)

    assert (result.exit_code, result.complete) == (code, complete)
    assert result.trace == ""


def test_a_program_that_is_no_python_is_told_as_python_does(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(write("def :\n"), trace=None).exit_code == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no program"):
        app(tmp_path / "none.py")


def test_spans_of_the_program_are_in_its_trace(write: Write, tmp_path: Path) -> None:
    script = write("import litesmith\nwith litesmith.span('resize'):\n    pass\n")

    app(script, trace=tmp_path / "a.pftrace")

    names = [(s.name, s.depth) for s in parse(tmp_path / "a.pftrace")[0]["application"]]
    assert names == [("program.py", 0), ("resize", 1)]


def test_calls_in_other_threads_are_counted_apart(write: Write, tiny: Path) -> None:
    script = write(
        f"""
        import threading
        from litesmith.runtime import Session

        with Session({str(tiny)!r}) as session:
            worker = threading.Thread(target=session.run)
            worker.start()
            worker.join()
        """
    )

    result = app(script, trace=None)

    assert result.runs == 1
    assert result.run_ms == 0
    assert result.elsewhere_ms > 0


def _call(kind: str, api: str, line: int, ms: float, size: int = 0, reason: str = "") -> Call:
    return Call(kind, api, size, reason, 0.0, 1000 * ms, 1, "a.py", line, "f", 0, 0.0)


def test_the_tips_name_the_line_and_the_most_worth_comes_first() -> None:
    loads = [_call("load", "Interpreter.__init__", 5, 20.0)] * 4
    runs = [_call("run", "Interpreter.invoke", 9, 30.0)] * 11

    tips = find_tips([*loads, *runs], [], [("resize", "b.py", 7, 0.5), ("small", "b.py", 8, 0.01)], 1000.0)

    assert [(tip.file, tip.line) for tip in tips] == [("b.py", 7), ("a.py", 9), ("a.py", 5)]
    assert tips[2].share == pytest.approx(0.06)
    assert "4 times" in tips[2].text
    assert tips[0].place == "b.py:7"
