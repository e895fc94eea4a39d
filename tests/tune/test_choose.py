# SPDX-License-Identifier: Apache-2.0
"""The choice of an architecture: built, measured, kept, and picked."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import pytest
from tests.tune.conftest import Command

from litesmith.errors import UsageError
from litesmith.tune import Choice, choose
from litesmith.tune._choose import Measured, Variant, _blame, _judged, _with_front


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
    assert result.reasons[0] == "no variant is within the bounds, because of that on accuracy"
    assert f"{result.variants[0].accuracy:g}, of {result.variants[0].name}" in result.reasons[1]


def _variant(name: str, accuracy: float, ms: float, size: int) -> Variant:
    return Variant(name, name, 1.0, 224, 1000, "float", accuracy, Measured(ms, ms, ms, size, size))


THREE = [_variant("big", 75, 10, 9_000_000), _variant("fast", 70, 5, 5_000_000), _variant("small", 69, 6, 40_000)]


@pytest.mark.parametrize(
    ("bounds", "headline", "more"),
    [
        (
            (None, None, 1000),
            "because of that on size",
            "the least size is 40.0 kB, of small as float; allowed is 1.0 kB",
        ),
        (
            (None, 1.0, None),
            "because of that on latency",
            "the least latency is 5 ms, of fast as float; allowed is 1 ms",
        ),
        (
            (None, 1.0, 1000),
            "because of that on latency and that on size",
            "near: small as float: accuracy 69, 6.00 ms",
        ),
        ((None, 5.5, 50_000), ": some meet each, but none meets all", "near: small as float: accuracy 69, 6.00 ms"),
        (
            (69.5, 5.5, 50_000),
            "because of that on size",
            "1 variants are less accurate than 69.5 and were not measured",
        ),
        (
            (80, 1.0, 1000),
            "because of that on accuracy",
            "the best published accuracy is 75, of big as float; asked for is 80",
        ),
        ((80, 1.0, 1000), "because of that on accuracy", "near: fast as float: accuracy 70, not measured"),
    ],
)
def test_where_nothing_fits_it_names_the_bound_to_blame_and_the_nearest(
    bounds: tuple[float | None, float | None, int | None], headline: str, more: str
) -> None:
    first, *others = _blame(THREE, *bounds, better=True)

    assert first.startswith("no variant is within the bounds")
    assert first.endswith(headline)
    assert [line for line in others if more in line], others


def test_where_less_is_better_the_floor_is_a_ceiling() -> None:
    assert "because of that on accuracy" in _blame(THREE[::-1], 10, None, None, better=False)[0]
    assert "because of that on size" in _blame(THREE[::-1], 70, None, 10, better=False)[0]


def test_the_front_and_the_bounds() -> None:
    three = [_variant("a", 75, 10, 100), _variant("b", 70, 5, 50), _variant("c", 69, 6, 60)]
    front = _with_front(three, better=True)

    assert [v.front for v in front] == [True, True, False]
    assert [v.front for v in _with_front(three, better=False)] == [False, True, True]
    assert _judged(three[0], 9.0, None).reason == "takes 10.00 ms"
    assert _judged(three[0], None, 99).reason == "has 0.1 kB"
    assert _judged(three[0], 9.0, 99).reason == "takes 10.00 ms and has 0.1 kB"
    assert _judged(three[0], 10.0, 100).reason == ""


def test_mistakes_are_told() -> None:
    for bad in ({"task": "poetry"}, {"precision": "int3"}, {"dataset": "MNIST"}):
        with pytest.raises(UsageError):
            choose(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_latency", "min_accuracy", "max_size"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_bounds_that_nothing_can_meet_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=r"finite number"):
        choose(task="keyword-spotting", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_no_workers_and_no_threads_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be 1 or more, not 0"):
        choose(task="keyword-spotting", **{name: 0})  # type: ignore[arg-type]


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
    unknown = litesmith("choose", "--task", "keyword-spotting", "--min-accuracy", "99.9")
    text = litesmith("choose", "--task", "keyword-spotting", "--page", "c.txt")

    assert done.returncode == 0, done.stderr
    assert "★" in done.stdout
    assert "Accuracy vs latency" in (tmp_path / "c.html").read_text()
    assert "Model size vs accuracy" in (tmp_path / "c.html").read_text()
    assert Choice.from_json(tmp_path / "c.json").pick == 0
    assert nothing.returncode == 1
    assert "✗ no variant is within the bounds, because of that on latency" in nothing.stdout
    assert unknown.returncode == 1
    assert "because of that on accuracy" in unknown.stdout
    assert "─" not in unknown.stdout, "an empty table"
    assert text.returncode == 2
    assert "c.txt cannot be a page" in text.stderr
    assert not (tmp_path / "c.txt").exists()
