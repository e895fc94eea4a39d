# SPDX-License-Identifier: Apache-2.0
"""The space that is searched: its recipes are real, its batches the same each time, and it learns from the trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report.conftest import trial

from litesmith import samples
from litesmith.optimize import Recipe
from litesmith.tune import Budget, Trial
from litesmith.tune._sparsity import AMOUNTS, BATCH, FORMATS, SEARCHED, _costs, search_sparsity, searchable
from litesmith.tune._work import work

pytest.importorskip("optuna")


class Question:
    seed = 0
    model = samples.path().read_bytes()


class Recorder:
    """A search that answers at once: fewer weights, a larger drop, a smaller file."""

    def __init__(self, seed: int = 0, **budget: Any) -> None:
        self.budget = Budget(**budget)
        self.question = Question()
        self.question.seed = seed
        self.trials: dict[int, Trial] = {0: trial(0, "", 0.92, 1.0, 1000)}
        self.left_out: list[Any] = []
        self.batches: list[list[str]] = []
        self.drop_bound = 0.01
        self.out_of_time = False
        self.files: dict[str, bytes] = {}

    @property
    def alike(self) -> list[Trial]:
        return list(self.trials.values())

    def content(self, trial: Trial) -> bytes:
        return self.files.get(trial.recipe, self.question.model)

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
        assert set(names) <= {"channels", "prune", "cluster", "sparse", *FORMATS}


def test_it_stops_when_the_time_is_up() -> None:
    search = Recorder()
    search.out_of_time = True
    search_sparsity(search)  # type: ignore[arg-type]

    assert search.batches == []
    assert [why for _, why in search.left_out] == ["no time left"]


def test_zeros_are_left_out_of_the_file_only_where_its_size_counts() -> None:
    stored = {}
    for name, budget in {"size": {"minimize": "size"}, "bound": {"max_size_bytes": 10}, "latency": {}}.items():
        searches = [Recorder(seed, **budget) for seed in range(4)]
        for search in searches:
            search_sparsity(search)  # type: ignore[arg-type]
        recipes = [recipe for search in searches for batch in search.batches for recipe in batch]
        stored[name] = [r for r in recipes if ", sparse" in r or r.endswith("int8 → sparse")]
        assert any("prune(0.8" in r or "prune(0.9" in r for r in recipes)

    assert any(", sparse" in r for r in stored["size"])
    assert any(r.endswith("int8 → sparse") for r in stored["size"])
    assert stored["bound"]
    assert not stored["latency"]
    assert {0.8, 0.9} <= set(AMOUNTS["prune"])


def test_the_sampler_learns_what_is_to_be_small() -> None:
    made = trial(1, "small", 0.92, 1.0, 500)
    zipped = replace(made, download_bytes=300)
    stopped = replace(made, status="stopped", recipe="stopped")
    searches = {goal: Recorder(minimize=goal) for goal in ("size", "download", "latency")}
    pruned = Recipe.parse("prune(0.8, method=magnitude)").apply(samples.model()).to_bytes()
    whole = samples.model().cost().macs
    for search in searches.values():
        search.files = {"small": pruned}

    assert _costs(made, searches["size"])[1] == 500  # type: ignore[arg-type]
    assert _costs(zipped, searches["download"])[1] == 300  # type: ignore[arg-type]
    assert _costs(made, searches["latency"])[1] == work(pruned) < 0.5 * whole  # type: ignore[arg-type]
    assert _costs(stopped, searches["latency"])[1] == whole  # type: ignore[arg-type]
    assert _costs(None, searches["size"])[1] == len(Question.model)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recipe", "share"),
    [
        ("float16", 1.0),
        ("int8(minmax, recover=)", 0.25),
        ("prune(0.2, method=magnitude)", 1.0),  # too few zeros to gain from
        ("prune(0.9, 4x1, method=magnitude)", 0.35),  # the first and the last layer stay dense
        ("prune(0.9, 4x1, method=magnitude, store=sparse)", 0.35),
        ("prune(0.9, method=magnitude) → int8(minmax, recover=)", 0.25),
    ],
)
def test_work_follows_numbers_and_zeros(recipe: str, share: float) -> None:
    content = Recipe.parse(recipe).apply(samples.model(), samples.dataset("test").take(16)).to_bytes()

    assert work(content) / samples.model().cost().macs == pytest.approx(share, abs=0.1)
