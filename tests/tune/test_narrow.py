# SPDX-License-Identifier: Apache-2.0
"""Fewer channels: steps go on while the scores allow it, and formats follow the narrowest models that fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import trial
from threadpoolctl import threadpool_info, threadpool_limits

from litesmith import samples
from litesmith.errors import RecipeError
from litesmith.optimize import Recipe
from litesmith.tune import Trial
from litesmith.tune._budget import Budget
from litesmith.tune._narrow import search_narrower
from litesmith.tune._question import KEPT, Question
from litesmith.tune._tune import ask


class Recorder:
    """A search that answers at once: what a recipe loses is a function of the share of the work that it leaves."""

    def __init__(self, loss: Callable[[float], float], minimize: str = "latency", **budget: Any) -> None:
        self.budget = Budget(minimize=minimize, **budget)
        self.drop_bound = 0.01
        self.left_out: list[tuple[str, str]] = []
        self.batches: list[list[str]] = []
        self._loss = loss
        made = [("", 0.0), ("weights8", 0.0), ("int8(same)", 0.02), ("int8", 0.004), ("int8(mse)", 0.001)]
        self.trials = {n: trial(n, recipe, 0.92 - drop, 1.0, 1000) for n, (recipe, drop) in enumerate(made)}

    @property
    def alike(self) -> list[Trial]:
        return list(self.trials.values())

    def run(self, stage: str, recipes: list[str]) -> list[Trial]:
        assert stage == "channels"
        self.batches.append(recipes)
        found = []
        for recipe in recipes:
            share = float(Recipe.parse(recipe).steps[0].get("max_macs"))
            found.append(trial(len(self.trials), recipe, 0.92 - self._loss(share), 1.0, 900))
            self.trials[found[-1].number] = found[-1]
        return found


def _run(loss: Callable[[float], float], **options: Any) -> Recorder:
    search = Recorder(loss, **options)
    search_narrower(search)  # type: ignore[arg-type]
    return search


def test_steps_go_on_while_they_fit_and_formats_that_fit_follow() -> None:
    search = _run(lambda share: 0.0 if share > 0.75 else 0.05)

    assert search.batches[:2] == [
        ["channels(max_macs=0.95)", "channels(max_macs=0.9)"],
        ["channels(max_macs=0.8)", "channels(max_macs=0.7)"],
    ]
    assert search.batches[2:] == [
        [f"channels(max_macs={s}) → {f}" for s in ("0.8", "0.9", "0.95") for f in ("weights8", "int8(mse)")]
    ]
    assert all(str(Recipe.parse(recipe)) == recipe for batch in search.batches for recipe in batch)


def test_where_no_channel_can_go_nothing_follows() -> None:
    assert len(_run(lambda _: 0.5).batches) == 1


def test_channels_stay_where_nothing_but_the_drop_counts() -> None:
    search = _run(lambda _: 0.0, minimize="drop")

    assert search.batches == []
    assert search.left_out == [("fewer channels", "nothing but the drop counts")]
    assert _run(lambda _: 0.0, minimize="drop", max_size_bytes=1000).batches


@pytest.fixture
def question() -> Question:
    data = samples.dataset("test").take(40)
    return ask(samples.path(), data, calibrate=samples.dataset("train").take(30))[0]


def test_what_several_recipes_begin_with_is_made_once_and_changes_nothing(
    question: Question, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shares = [f"channels({0.9 - 0.05 * n:g})" for n in range(KEPT + 1)]
    recipes = [Recipe.parse(f"{share} → dynamic") for share in shares]
    with threadpool_limits(1, user_api="blas"):  # more threads sum up in another order
        alone = [recipe.apply(samples.model(), question.calibrate).to_bytes() for recipe in recipes]
    applied: list[str] = []
    apply = Recipe.apply

    def counted(recipe: Recipe, *arguments: Any, **options: Any) -> Any:
        applied.extend(step.name for step in recipe.steps)
        return apply(recipe, *arguments, **options)

    monkeypatch.setattr(Recipe, "apply", counted)
    for share, expected in zip(shares, alone, strict=True):
        assert question.made(share) != question.made(f"{share} → dynamic") == expected

    assert applied.count("channels") == len(shares)
    question.made(shares[0])
    assert applied.count("channels") == len(shares) + 1  # no more than a few are kept


def test_files_are_made_with_one_thread_of_linear_algebra(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers would otherwise have several threads each, and wait for one another."""
    seen: list[int] = []
    apply = Recipe.apply

    def looked(recipe: Recipe, *arguments: Any, **options: Any) -> Any:
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return apply(recipe, *arguments, **options)

    monkeypatch.setattr(Recipe, "apply", looked)
    question.made("channels(0.9) → dynamic")

    assert seen
    assert set(seen) == {1}


def test_an_order_that_would_undo_a_step_is_refused(question: Question) -> None:
    with pytest.raises(RecipeError, match="comes after"):
        question.made("prune(0.5) → channels(0.9)")
