# SPDX-License-Identifier: Apache-2.0
"""Run a whole recipe: its steps in the order in which none undoes another, with what each reports, and the sizes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.errors import RecipeError
from litesmith.model import Model
from litesmith.optimize._compressed_size import FileSizes, file_sizes
from litesmith.optimize._recipe import Recipe
from litesmith.optimize._run import Data
from litesmith.progress import task
from litesmith.result import Result


@dataclass(frozen=True)
class StepCoverage:
    """One step of a recipe, and what it did.

    Attributes:
        step: as text.
        report: the JSON of what it reports, as the verb of its name does; empty where a step reports nothing.
        raw_bytes: of the file after it.
    """

    step: str
    report: dict[str, Any]
    raw_bytes: int

    @property
    def coverage(self) -> Result | None:
        """What the step reports; None where it is nothing."""
        if not self.report:
            return None
        return Result.kinds()[self.report["kind"]].from_json(json.dumps(self.report))


@dataclass(frozen=True)
class RecipeCoverage(Result, kind="recipe", schema=1):
    """What a recipe did.

    Attributes:
        recipe: as it ran.
        steps: every step in that order.
        sizes: of the whole file before and after, raw and compressed; None where not asked for.
        notes: what else one should know.
    """

    recipe: str
    steps: tuple[StepCoverage, ...]
    sizes: tuple[FileSizes, FileSizes] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Applied:
    """The model after a recipe and what was done."""

    model: Model
    coverage: RecipeCoverage


def recipe(
    model: Model,
    steps: Recipe | str | Path,
    *,
    data: Data | None = None,
    train: Data | None = None,
    sizes: bool = False,
) -> Applied:
    """Return the model after all steps of a recipe, and a report of what each of them did.

    Steps that are given in an order in which one would undo another, as integers before zeros, run in the right one:
    rewrites, channels, training, zeros, shared values, folding, integers, and storing the zeros sparse. The report says so.

    Args:
        model: to start with, in float.
        steps: a Recipe, its text, or the path of its TOML.
        data: samples for the steps that look at some; those of quantization give the ranges of activations.
        train: samples for the steps that train; ``data`` by default.
        sizes: measure the file raw and compressed too.

    Raises:
        RecipeError: a step or an option that does not exist, or no step at all.

    Example:
        >>> import litesmith
        >>> result = recipe(litesmith.samples.model(), "dynamic → prune(0.5)")
        >>> result.coverage.recipe
        'prune(0.5) → dynamic'
    """
    wanted = _read(steps)
    if not wanted.steps:
        raise RecipeError("the recipe has no step; write some, such as prune(0.8) → cluster(32) → int8")
    ordered = wanted.in_order()
    moved = f"the steps ran in the order in which none undoes another, not as given: {wanted}"
    notes = () if ordered == wanted else (moved,)
    made, done = model, []
    with task("Recipe", total=len(ordered.steps)) as advance:
        for step, made, coverage in ordered.applied(model, data, train=train):
            report = {} if coverage is None else json.loads(coverage.to_json())
            done.append(StepCoverage(str(step), report, len(made.to_bytes())))
            advance(1)
    both = (file_sizes(model), file_sizes(made)) if sizes else None
    return Applied(made, RecipeCoverage(str(ordered), tuple(done), both, notes))


def _read(steps: Recipe | str | Path) -> Recipe:
    if isinstance(steps, Recipe):
        return steps
    return Recipe.from_toml(steps) if isinstance(steps, Path) else Recipe.parse(steps)
