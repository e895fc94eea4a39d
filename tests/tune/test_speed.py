# SPDX-License-Identifier: Apache-2.0
"""A machine that becomes slower while files are measured: files are compared by what they take beside the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tune.inline_workers import Inline

from litesmith import samples
from litesmith.measure import machine_facts
from litesmith.tune import Budget, Timing, Trial
from litesmith.tune._decide import ranking
from litesmith.tune._jobs import Job, Latencies, Measure, OnAccelerator, work
from litesmith.tune._journal import Journal
from litesmith.tune._measuring import Measuring
from litesmith.tune._question import Question
from litesmith.tune._search import Search, _on_best
from litesmith.tune._tune import ask

RECIPES = ["float16", "relaxed"]
OWN_MS = [1.0, 0.9, 0.8]  # of the float model and what the recipes make, on a machine that stays the same


class SlowingClock:
    """Measures one file after the other beside the float model; the machine takes twice as long each time."""

    count = 1

    files: list[bytes]
    slowness = 0.5

    def submit(self, ticket: int, job: Job) -> None:
        assert isinstance(job, Measure)
        self.ticket, self.job = ticket, job
        self.slowness *= 2

    def next(self) -> tuple[int, Any]:
        found = [
            self.slowness * OWN_MS[self.files.index(model)] / n for model in self.job.models for n in self.job.threads
        ]
        return self.ticket, Latencies(tuple((ms, 0.99 * ms, 1.01 * ms) for ms in found), 0.01, machine_facts())

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def question() -> Question:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=64)
    return asked


def search_in(
    folder: Path, question: Question, monkeypatch: pytest.MonkeyPatch, recipes: list[str] = RECIPES
) -> list[Trial]:
    """Return the measured trials of a search, one file in each group of measurements."""
    monkeypatch.setattr("litesmith.tune._measuring.TOGETHER", 1)
    journal = Journal(folder / "trials.jsonl")
    clock = SlowingClock()
    search = Search(
        question, Inline(question, 1.0), clock, journal, folder, Budget(), key="k", measuring=Measuring((1, 2))
    )
    trials = [search.baseline(), *search.run("schemes", recipes)]
    clock.files = [search.content(trial) for trial in trials]
    found = search.measure(trials)
    journal.close()
    return found


def test_the_faster_file_wins_though_it_was_measured_in_a_slow_minute(
    question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = search_in(tmp_path, question, monkeypatch)

    assert [t.timing.median_ms for t in measured if t.timing] == pytest.approx(OWN_MS)
    assert [t.threads[0].median_ms for t in measured] == pytest.approx([ms / 2 for ms in OWN_MS])
    assert [t.timing.float_ms for t in measured if t.timing] == pytest.approx([1.0, 1.0, 1.0])
    assert [t.timing.low_ms for t in measured if t.timing] == pytest.approx([0.99 * ms for ms in OWN_MS])
    assert ranking(measured, Budget(minimize="latency"))[0].recipe == "relaxed"


def test_a_restart_compares_with_what_was_measured_before(
    question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_in(tmp_path, question, monkeypatch, RECIPES[:1])
    again = search_in(tmp_path, question, monkeypatch)

    assert [t.timing.median_ms for t in again if t.timing] == pytest.approx(OWN_MS)


class NoisyClock:
    """A machine that is disturbed at times: the float model takes this long, and the files a share of it."""

    count = 1

    def __init__(self, *rounds: tuple[float, float, float]) -> None:
        self.rounds = list(rounds)
        self.asked = 0

    def submit(self, ticket: int, job: Job) -> None:
        self.ticket, self.job = ticket, job

    def next(self) -> tuple[int, Any]:
        assert isinstance(self.job, Measure)
        float_ms, *shares = self.rounds[self.asked]
        self.asked += 1
        found = [float_ms, *(float_ms * share for share in shares)]
        return self.ticket, Latencies(tuple((ms, ms, ms) for ms in found), 0.01, machine_facts())

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("rounds", "asked", "winner"),
    [
        ([(1.0, 0.8, 0.9), (1.05, 0.9, 0.8)], 2, "relaxed"),  # quiet enough: the second look counts
        ([(1.0, 0.8, 0.9), (1.6, 0.9, 0.8), (1.0, 0.8, 0.9)], 3, "float16"),  # disturbed, so once more
        ([(1.0, 0.8, 0.9), (1.6, 0.8, 0.9), (1.2, 0.9, 0.8), (1.4, 0.8, 0.9)], 4, "relaxed"),  # the least disturbed
    ],
)
def test_the_best_run_off_until_the_machine_is_quiet(
    question: Question, tmp_path: Path, rounds: list[tuple[float, float, float]], asked: int, winner: str
) -> None:
    journal, clock = Journal(tmp_path / "trials.jsonl"), NoisyClock(*rounds)
    budget = Budget(minimize="latency")
    search = Search(question, Inline(question, 1.0), clock, journal, tmp_path, budget, key="k")
    search.baseline()
    first = search.measure(search.run("schemes", RECIPES))
    search.run_off(first)
    again = [search.trials[t.number] for t in first]
    search.run_off(again)  # which is settled
    journal.close()

    assert clock.asked == asked
    assert ranking(again, budget)[0].recipe == winner
    assert all(t.timing is not None and t.timing.float_ms == 1.0 for t in again)


def test_intervals_are_of_the_ratio_to_the_first_file(question: Question) -> None:
    answer = work(question, Measure((question.model, question.model), (1,), 0.2))

    (first, low, high), (second, least, most) = answer.summaries
    assert low <= first <= high
    assert least <= second <= most
    assert second == pytest.approx(first, rel=0.5)


def test_an_accelerator_counts_at_the_speed_of_the_cpu_in_its_own_rounds() -> None:
    def on(name: str, ms: float, *, best: bool = False) -> OnAccelerator:
        return OnAccelerator(1, name, ms, ran=True, best=best, verdict="", low_ms=0.9 * ms, high_ms=1.1 * ms)

    trial = Trial(1, "schemes", "int8", "done", timing=Timing(1, 2.0, 1.9, 2.1, 4.0))
    found = _on_best(trial, [on("xnnpack", 6.0), on("litesmith", 5.0), on("webgpu", 2.5, best=True)])

    assert found == Timing(1, 1.0, pytest.approx(0.9), pytest.approx(1.1), 4.0, "webgpu")
