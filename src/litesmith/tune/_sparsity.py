# SPDX-License-Identifier: Apache-2.0
"""Weights removed or shared: a space that is searched rather than listed, by Optuna's TPE sampler (arXiv:2304.11127).

How many channels and weights go, in which pattern, how many values are left, and the number format that follows: too
many combinations to try all. Batches have a fixed size and the sampler a seed, and it learns drop and size only, which do
not differ from run to run; so the same candidates are tried whatever the machine does meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litesmith.optimize import Recipe
from litesmith.optimize._recipe import _KINDS
from litesmith.tune._trial import DONE, Trial

if TYPE_CHECKING:
    import optuna

    from litesmith.tune._search import Search

BATCH = 4
SEARCHED = 12
AMOUNTS: dict[str, tuple[float, ...]] = {
    "channels": (0, 0.9, 0.8, 0.7),
    "prune": (0, 0.3, 0.5, 0.7),
    "cluster": (0, 32, 128),
}
"""What each step may be given, in the order of the steps: the share of channels kept, of weights removed, and how many
values are left; 0 leaves the step out."""
PATTERNS = ("unstructured", "4x1")
FORMATS = ("", "float16", "weights8", "dynamic", "int8")
UNSCORED = 1.0
"""The drop that the sampler is told of a candidate that failed."""


def searchable() -> tuple[str, ...]:
    """Return the steps there are that remove or share weights."""
    return tuple(name for name in AMOUNTS if name in _KINDS)


def search_sparsity(search: Search) -> None:
    """Try combinations of the steps there are, a few at a time, each batch learning from those before."""
    if not searchable() or search.out_of_time:
        search.left_out += [(name, f"there is no step {name!r}") for name in AMOUNTS if name not in _KINDS]
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=search.question.seed, n_startup_trials=BATCH)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    known: dict[str, Trial] = {t.body: t for t in search.alike}
    for _ in range(SEARCHED // BATCH):
        asked = [study.ask() for _ in range(BATCH)]
        recipes = [_recipe(trial) for trial in asked]
        fresh = [r for n, r in enumerate(recipes) if r and r not in known and r not in recipes[:n]]
        known.update({t.body: t for t in search.run("sparsity", fresh)})
        for trial, recipe in zip(asked, recipes, strict=True):
            study.tell(trial, _costs(known.get(recipe), search))
        if search.out_of_time:
            return


def _recipe(trial: optuna.Trial) -> str:
    """Return the recipe of a point of the space."""
    steps = []
    for name in searchable():
        amount = trial.suggest_categorical(name, AMOUNTS[name])
        if not amount:
            continue
        words = [f"{amount:g}"]
        if name == "prune":
            pattern = str(trial.suggest_categorical("pattern", PATTERNS))
            words += [pattern, "reorder=yes"] if pattern == "4x1" else [pattern]
        steps.append(f"{name}({', '.join(words)})")
    last = str(trial.suggest_categorical("format", FORMATS))
    return str(Recipe.parse(" → ".join([*steps, last] if last else steps)))


def _costs(trial: Trial | None, search: Search) -> tuple[float, float]:
    """Return drop and size as the sampler is told them; a drop within the bound counts as none."""
    whole = len(search.question.model)
    if trial is None or trial.drop is None or not trial.size_bytes:
        return UNSCORED, float(whole)
    excess = max(0.0, trial.drop - search.drop_bound)
    return excess if trial.status == DONE else max(excess, search.drop_bound), float(trial.size_bytes)
