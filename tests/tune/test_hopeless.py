# SPDX-License-Identifier: Apache-2.0
"""Candidates that are too slow to score: found with nothing else running, so that the number of workers does not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tune.inline_workers import Inline

from litesmith import Model, Recipe, samples
from litesmith.measure import machine_facts
from litesmith.tune import Budget
from litesmith.tune._jobs import Build, Job, Latencies, Measure
from litesmith.tune._journal import Journal
from litesmith.tune._measuring import Measuring
from litesmith.tune._question import Question
from litesmith.tune._search import Search
from litesmith.tune._tune import ask


class Clock:
    """Measures that the float model takes 1 ms, and others what is said; refuses to while a worker is busy."""

    count = 1

    def __init__(self, workers: Inline, own_ms: float) -> None:
        self.workers, self.own_ms = workers, own_ms
        self.looks = 0

    def submit(self, ticket: int, job: Job) -> None:
        assert isinstance(job, Measure)
        assert not self.workers.waiting, "somebody else is running"
        self.ticket, self.models = ticket, job.models
        self.looks += len(job.models) > 1

    def next(self) -> tuple[int, Any]:
        found = [1.0 if model == self.workers.question.model else self.own_ms for model in self.models]
        return self.ticket, Latencies(tuple((ms, ms, ms) for ms in found), 0.01, machine_facts())

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def question() -> Question:
    asked, _ = ask(samples.path(), samples.dataset("test"), limit=64)
    return asked


def made(question: Question, recipe: str) -> bytes:
    return Recipe.parse(recipe).apply(Model.from_bytes(question.model)).to_bytes()


@pytest.mark.parametrize(
    ("budget", "beside_others", "alone_ms", "status", "looks"),
    [
        (Budget(), 20.0, 1.0, "done", 1),  # others made it seem slow
        (Budget(), 4.0, 6.0, "stopped", 1),  # others slowed the float model more
        (Budget(), 2.0, 2.0, "done", 0),  # a fast one costs nothing
        (Budget(minimize="size"), 20.0, 20.0, "done", 0),
        (Budget(max_latency_ms=0.2), 2.0, 3.0, "done", 1),
        (Budget(max_latency_ms=0.1), 2.0, 1.5, "done", 1),  # with 16 threads it may fit
        (Budget(max_latency_ms=0.1), 2.0, 2.0, "stopped", 1),
    ],
)
def test_only_a_look_with_nothing_else_running_stops_a_candidate(
    question: Question, tmp_path: Path, budget: Budget, beside_others: float, alone_ms: float, status: str, looks: int
) -> None:
    workers, journal = Inline(question, beside_others), Journal(tmp_path / "trials.jsonl")
    clock, measuring = Clock(workers, alone_ms), Measuring((1, 16))
    search = Search(question, workers, clock, journal, tmp_path, budget, key="k", measuring=measuring)
    search.baseline()
    found = search.run("schemes", ["float16", "relaxed"])
    journal.close()

    assert [t.status for t in found] == [status, status]
    assert all("too slow to score" in t.reason for t in found if t.status == "stopped")
    for trial in found:  # weak layers are looked for in the file of one that was stopped, too
        assert search.content(trial) == made(question, trial.recipe)
    assert clock.looks == 2 * looks


def test_what_is_slow_on_the_cpu_may_be_fast_on_an_accelerator(question: Question, tmp_path: Path) -> None:
    workers, journal = Inline(question, 20.0), Journal(tmp_path / "trials.jsonl")
    measuring = Measuring(accelerators=9)
    search = Search(question, workers, Clock(workers, 20.0), journal, tmp_path, Budget(), key="k", measuring=measuring)
    search.baseline()
    found = search.run("schemes", ["float16"])
    journal.close()

    assert [t.status for t in found] == ["done"]


def test_a_candidate_is_compared_with_the_float_model_beside_it(question: Question) -> None:
    built = Build("float16").answer(question)

    assert 0.2 < built.slowness < 5
