# SPDX-License-Identifier: Apache-2.0
"""Rewrites that help the processor: tried first, and then what every candidate begins with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from litesmith import samples
from litesmith.errors import OptimizeError
from litesmith.model import Builder, Model
from litesmith.optimize import Recipe
from litesmith.targets import fix
from litesmith.tune import Tuned, plan, reproduce, tune
from litesmith.tune._jobs import REWRITES, FindRewrites
from litesmith.tune._trial import Trial
from litesmith.tune._tune import ask

OPTIONS: dict[str, Any] = {"preprocess": "scale=1/255", "limit": 128, "max_drop": "50%", "effort": "quick"}


def _striding(path: Path, batch: int = 1) -> Path:
    """Write a classifier that takes every second pixel with STRIDED_SLICE, which XNNPACK leaves to others."""
    b = Builder(seed=1)
    x = b.conv2d(b.input("image", (batch, 28, 28, 1)), 16, kernel=3, activation="RELU", name="first")
    x = b.op("STRIDED_SLICE", x, *(np.array(v, np.int32) for v in ([0, 0, 0, 0], [1, 28, 28, 16], [1, 2, 2, 1])))
    x = b.conv2d(x, 16, kernel=3, activation="RELU", name="second")
    b.build({"scores": b.fully_connected(b.op("MEAN", x, np.array([1, 2], np.int32)), 10)}).save(path)
    return path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("rewrites")
    data = samples.path("fashion-test.npz")
    return tune(
        _striding(folder / "model.tflite"), data, output=folder / "run", recipes=("int8",), seconds=0.05, **OPTIONS
    )


def test_every_candidate_of_its_own_begins_with_them(tuned: Tuned) -> None:
    stages = {t.stage: t for t in tuned.trials}
    own = [t for t in tuned.trials if t.stage not in ("baseline", "asked for", "rewrites")]

    assert stages["rewrites"].recipe == REWRITES
    assert stages["asked for"].recipe == "int8", "what the user asks for stays as it is"
    assert own
    assert all(t.start == REWRITES and t.recipe == f"{REWRITES} → {t.body}" for t in own)
    assert {"int8", "dynamic", "float16"} <= {t.body for t in own}
    assert {t.body for t in own if t.stage == "wider"} >= {"fold → dynamic", "fold → int8(same)"}
    assert [(t.recipe, t.reason) for t in own if t.status != "done"] == []


def test_the_files_have_them_and_the_lock_makes_the_winner_again(tuned: Tuned, tmp_path: Path) -> None:
    folder = Path(tuned.folder)
    winner = tuned.winner

    assert winner is not None
    assert winner.start == REWRITES or winner.recipe in ("", "int8", REWRITES)
    for trial in (t for t in tuned.trials if t.start and t.status == "done"):
        kinds = {op.kind for op in Model.load(folder / "files" / f"{trial.file}.tflite").main.operators}
        assert "DEPTHWISE_CONV_2D" in kinds
        assert "STRIDED_SLICE" not in kinds
    assert Recipe.from_toml(folder / "recipe.toml") == Recipe.parse(winner.recipe)
    again = reproduce(folder / "litesmith.lock", tmp_path / "again.tflite")
    assert again.read_bytes() == (folder / "winner.tflite").read_bytes()


def test_layers_are_compared_with_the_model_after_the_rewrites(tuned: Tuned) -> None:
    from litesmith.tune._jobs import Explain

    question, _ = ask(Path(tuned.model), samples.path("fashion-test.npz"), "scale=1/255", limit=128)
    trial = next(t for t in tuned.trials if t.body == "int8" and t.start)
    content = (Path(tuned.folder) / "files" / f"{trial.file}.tflite").read_bytes()

    layers = Explain(content, trial.recipe).answer(question).layers

    compared = [layer.kind for layer in layers if layer.error_share is not None]
    assert compared.count("DEPTHWISE_CONV_2D") == 1
    assert compared.count("CONV_2D") == 2


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"minimize": "size"}, 0), ({"minimize": "size", "max_latency": "9ms"}, 1)])  # fmt: skip
def test_the_plan_has_them_where_latency_counts(tmp_path: Path, options: dict[str, Any], count: int) -> None:
    path = _striding(tmp_path / "model.tflite")

    made = plan(path, samples.path("fashion-test.npz"), **OPTIONS, **options)

    found = [stage for stage in made.stages if stage.name == "rewrites"]
    assert len(found) == count
    assert all(s.candidates == (f"{REWRITES}: STRIDED_SLICE as DEPTHWISE_CONV_2D",) for s in found)


def test_a_model_of_any_batch_stays_one(assets: Path) -> None:
    path = assets / "corpus" / "261e2d25_mbnet96_0.25_f.tflite"
    question = SimpleNamespace(model=path.read_bytes())

    assert "a fixed batch" in fix(path, target="xnnpack").found.applied
    with pytest.raises(OptimizeError, match="would fix the batch"):
        FindRewrites().answer(question)  # type: ignore[arg-type]


def test_what_a_user_asks_for_with_them_is_tried_once(tmp_path: Path) -> None:
    asked = (REWRITES, f"{REWRITES} → dynamic")
    found = tune(
        _striding(tmp_path / "model.tflite"), samples.path("fashion-test.npz"), output=tmp_path / "run", recipes=asked,
        seconds=0.05, **OPTIONS,
    )  # fmt: skip

    recipes = [t.recipe for t in found.trials]
    assert len(recipes) == len(set(recipes))
    assert all(t.start == REWRITES for t in found.trials if t.recipe in asked)
    assert not any("earlier run" in note for note in found.notes)


def test_rewrites_that_lose_too_much_are_not_begun_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal on random inputs, but not on these samples, say."""
    from litesmith.tune._search import Search

    def refuted(search: Search, stage: str, recipes: Any) -> list[Trial]:
        trials = run(search, stage, recipes)
        if stage != "rewrites":
            return trials
        return [replace(t, status="stopped", reason="it loses 30 points") for t in trials]

    run = Search.run
    monkeypatch.setattr(Search, "run", refuted)
    found = tune(
        _striding(tmp_path / "model.tflite"), samples.path("fashion-test.npz"), output=tmp_path / "run",
        seconds=0.05, **OPTIONS,
    )  # fmt: skip

    assert {t.start for t in found.trials} == {""}
    assert any(what.startswith(REWRITES) and "loses 30 points" in why for what, why in found.left_out)
