# SPDX-License-Identifier: Apache-2.0
"""The choice of an architecture: built, measured, kept, and picked."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.tune.conftest import Command

from litesmith.errors import UsageError
from litesmith.tune import Choice, choose
from litesmith.tune._choose import Measured, Variant, _judged, _with_front


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITESMITH_CACHE", str(tmp_path / "cache"))


def test_it_measures_picks_and_remembers() -> None:
    first = choose(task="keyword-spotting", workers=1)
    again = choose(task="keyword-spotting", max_latency="0.000001ms", workers=1)

    assert first.pick == 0
    assert first.variants[0].measured is not None
    assert first.variants[0].measured.memory_bytes > 0
    assert first.cached == 0
    assert again.cached == 1
    assert again.variants[0].measured == first.variants[0].measured
    assert again.pick is None
    assert again.variants[0].reason.startswith("takes")
    assert Choice.from_json(first.to_json()) == first


def test_what_the_published_accuracy_rules_out_is_not_built() -> None:
    result = choose(min_accuracy=99.0, workers=1)

    assert len(result.variants) > 50
    assert all(v.measured is None for v in result.variants)
    assert result.pick is None


def test_the_front_and_the_bounds() -> None:
    def variant(name: str, accuracy: float, ms: float, size: int) -> Variant:
        return Variant(name, name, 1.0, 224, 1000, "float", accuracy, Measured(ms, ms, ms, size, size))

    three = [variant("a", 75, 10, 100), variant("b", 70, 5, 50), variant("c", 69, 6, 60)]
    front = _with_front(three, better=True)

    assert [v.front for v in front] == [True, True, False]
    assert [v.front for v in _with_front(three, better=False)] == [False, True, True]
    assert _judged(three[0], 9.0, None).reason == "takes 10.00 ms"
    assert _judged(three[0], None, 99).reason == "has 0.0 MB"
    assert _judged(three[0], 10.0, 100).reason == ""


def test_mistakes_are_told() -> None:
    for bad in ({"task": "poetry"}, {"precision": "int3"}, {"dataset": "MNIST"}):
        with pytest.raises(UsageError):
            choose(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "asked"),
    [("int8", ("--task", "person-detection")), ("float", ("--task", "image-classification", "--min-accuracy", 81))],
)
def test_the_next_command_makes_the_file_that_was_measured(
    litesmith: Command, tmp_path: Path, precision: str, asked: tuple[object, ...]
) -> None:
    done = litesmith("choose", *asked, "--precision", precision, "--save", "c.json", "--workers", 1)
    printed = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    for command in printed.removeprefix("next: ").split(" && "):
        name, *words = shlex.split(command)
        made = litesmith(*words)
        assert (name, made.returncode) == ("litesmith", 0), made.stderr
    choice = Choice.from_json(tmp_path / "c.json")
    assert choice.pick is not None
    pick = choice.variants[choice.pick]
    file = tmp_path / words[words.index("-o") + 1]

    assert pick.precision == precision
    assert pick.measured is not None
    assert file.stat().st_size == pick.measured.size_bytes
    assert "the weights are random" in done.stdout
    assert ("--data" in done.stdout) == (precision == "int8")


def test_the_command_line(litesmith: Command, tmp_path: Path) -> None:
    done = litesmith("choose", "--task", "keyword-spotting", "--page", "c.html", "--save", "c.json")
    nothing = litesmith("choose", "--task", "keyword-spotting", "--max-latency", "0.0001ms")

    assert done.returncode == 0, done.stderr
    assert "★" in done.stdout
    assert "Accuracy vs latency" in (tmp_path / "c.html").read_text()
    assert "Model size vs accuracy" in (tmp_path / "c.html").read_text()
    assert Choice.from_json(tmp_path / "c.json").pick == 0
    assert nothing.returncode == 1
