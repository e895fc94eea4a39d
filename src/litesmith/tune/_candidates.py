# SPDX-License-Identifier: Apache-2.0
"""What is tried, from cheap to dear: number formats, range methods, weak layers promoted, weights removed.

Each list depends on the model, on which steps are there, and on scores; never on latencies, which differ from run to
run. So the same question is always answered by the same candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

from litesmith.errors import LitesmithError, RecipeError
from litesmith.model import Model
from litesmith.optimize import Recipe
from litesmith.tune._jobs import Weight
from litesmith.tune._trial import DONE, Trial

SCHEMES = (
    "relaxed",
    "float16",
    "weights8",
    "dynamic",
    "int8",
    "int8(same)",
    "weights4-block32",
    "dynamic4",
    "weights4",
    "int8w4",
    "int16x8",
)
RECOVERY = ("int8(minmax)", "int8(mse)", "int8(entropy)", "int8(octav)", "int8(recover=)")
PROMOTED = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Shares of the weak layers that are promoted at once, before the gap between too few and enough is halved."""
HALVINGS = 3


def known(recipes: Sequence[str], *, trains: bool = False) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the recipes whose steps are all there, and those left out with the reason; ``trains`` where there is data."""
    usable: list[str] = []
    left_out = []
    for text in recipes:
        try:
            recipe = Recipe.parse(text)
        except RecipeError as error:
            left_out.append((text, str(error)))
            continue
        if recipe.trains and not trains:
            left_out.append(
                (text, "it trains, and there are no samples to train on; give them with train=… or --train")
            )
        else:
            usable.append(str(recipe))
    return usable, left_out


def own_schemes(model: bytes) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the number formats that every search tries; ``relaxed`` only where a kernel of this machine uses it."""
    usable, left_out = known(SCHEMES)
    if "relaxed" in usable and not _gains_from_relaxing(model):
        usable.remove("relaxed")
        left_out.append(
            ("relaxed", "no kernel of this machine would compute the model with less precision, and faster")
        )
    return usable, left_out


def _gains_from_relaxing(model: bytes) -> bool:
    from litesmith.runtime import inspect

    try:
        found = inspect(Recipe.parse("relaxed").apply(Model.from_bytes(model))).litesmith
    except LitesmithError:  # quantized already: the search itself will say so
        return False
    return found is not None and found.delegated > 0


def best_int8(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial in int8 that loses least; None where none was finished or stopped with a score."""
    scored = [t for t in trials if t.body.startswith("int8") and "int8w4" not in t.body and t.drop is not None]
    complete = [t for t in scored if t.status == DONE] or scored
    return min(complete, key=lambda t: (t.drop, t.number), default=None)


def needs_help(trial: Trial | None, drop_bound: float) -> bool:
    """Say whether int8 loses so much of what is allowed that dearer candidates are worth their time."""
    return trial is None or trial.drop is None or trial.status != DONE or trial.drop > drop_bound / 2


def ranked(weights: Sequence[Weight]) -> list[Weight]:
    """Return the operators in the order of promotion: most error removed for each byte that is added.

    Without weights an operator adds nothing to the file; a constant of 64 bytes keeps such from coming first for an
    error that hardly is one.
    """
    return sorted(weights, key=lambda w: (-w.share / (64 + max(0, w.extra_bytes)), w.operator))


def promoted(base: str, order: Sequence[Weight], count: int) -> str:
    """Return a recipe with the first operators of an order in float.

    Example:
        >>> promoted("int8", [Weight(4, "CONV_2D", 0.5, 100), Weight(2, "ADD", 0.1, 0)], 2)
        'int8 + float:#2 + float:#4'
    """
    return " + ".join([base, *(f"float:#{operator}" for operator in sorted(w.operator for w in order[:count]))])


def first_counts(total: int) -> list[int]:
    """Return how many operators to promote in the first batch."""
    return sorted({max(1, round(share * total)) for share in PROMOTED})
