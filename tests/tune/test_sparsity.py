# SPDX-License-Identifier: Apache-2.0
"""The space that is searched: its recipes are real, its batches the same each time, and it learns from the trials."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.conftest import trial

from litesmith.optimize import Recipe
from litesmith.tune import Trial
from litesmith.tune._sparsity import BATCH, FORMATS, SEARCHED, search_sparsity, searchable

pytest.importorskip("optuna")


class Question:
    seed = 0
    model = bytes(1000)


class Recorder:
    """A search that answers at once: fewer weights, a larger drop, a smaller file."""

    def __init__(self, seed: int = 0) -> None:
        self.question = Question()
        self.question.seed = seed
        self.trials: dict[int, Trial] = {0: trial(0, "", 0.92, 1.0, 1000)}
        self.left_out: list[Any] = []
        self.batches: list[list[str]] = []
        self.drop_bound = 0.01
        self.out_of_time = False

    @property
    def alike(self) -> list[Trial]:
        return list(self.trials.values())

    def run(self, stage: str, recipes: list[str]) -> list[Trial]:
        self.batches.append(recipes)
        made = []
        for recipe in recipes:
            steps = len(Recipe.parse(recipe).steps)
            made.append(trial(len(self.trials), recipe, 0.92 - 0.01 * steps, 1.0, 1000 // steps))
            self.trials[made[-1].number] = made[-1]
        return made


def test_batches_are_recipes_without_repetition_and_the_same_each_time() -> None:
    one, two, other = Recorder(), Recorder(), Recorder(seed=1)
    for search in (one, two, other):
        search_sparsity(search)  # type: ignore[arg-type]
    every = [recipe for batch in one.batches for recipe in batch]

    assert searchable() == ("channels", "prune", "cluster")
    assert one.batches == two.batches
    assert one.batches != other.batches
    assert len(every) == len(set(every)) <= SEARCHED
    assert all(len(batch) <= BATCH for batch in one.batches)
    for recipe in every:
        names = [step.name for step in Recipe.parse(recipe).steps]
        assert set(names) <= {"channels", "prune", "cluster", *FORMATS}


def test_it_stops_when_the_time_is_up() -> None:
    search = Recorder()
    search.out_of_time = True
    search_sparsity(search)  # type: ignore[arg-type]

    assert search.batches == []
