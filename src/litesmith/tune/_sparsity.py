# SPDX-License-Identifier: Apache-2.0
"""Weights removed or shared: a space that is searched rather than listed, by Optuna's TPE sampler (arXiv:2304.11127).

How many channels and weights go, in which pattern, how many values are left, and the number format that follows: too
many combinations to try all. Batches have a fixed size and the sampler a seed, and it learns the drop and what is to be
small: bytes, or for latency the work that is left, told from the file. These do not differ from run to run; so the same
candidates are tried whatever the machine does meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litesmith.optimize import Recipe
from litesmith.optimize._recipe import _KINDS
from litesmith.tune._budget import Budget
from litesmith.tune._trial import DONE, NO_TIME, Trial
from litesmith.tune._work import work

if TYPE_CHECKING:
    import optuna

    from litesmith.tune._search import Search

BATCH = 4
SEARCHED = 12
AMOUNTS: dict[str, tuple[float, ...]] = {
    "channels": (0, 0.9, 0.8, 0.7),
    "prune": (0, 0.3, 0.5, 0.7, 0.8, 0.9),
    "cluster": (0, 32, 128),
}
"""What each step may be given, in the order of the steps: the share of channels kept, of weights removed, and how many
values are left; 0 leaves the step out."""
PATTERNS = ("unstructured", "4x1")
FORMATS = ("", "float16", "weights8", "dynamic", "int8")
STORES = ("dense", "sparse")
STORED = ("", "int8")
"""Formats that zeros can be left out of the file in."""
UNSCORED = 1.0
"""The drop that the sampler is told of a candidate that failed."""


def searchable() -> tuple[str, ...]:
    """Return the steps there are that remove or share weights."""
    return tuple(name for name in AMOUNTS if name in _KINDS)


def search_sparsity(search: Search) -> None:
    """Try combinations of the steps there are, a few at a time, each batch learning from those before."""
    search.left_out += [(name, f"there is no step {name!r}") for name in AMOUNTS if name not in _KINDS]
    if not searchable():
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=search.question.seed, n_startup_trials=BATCH)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    known: dict[str, Trial] = {t.body: t for t in search.alike}
    for _ in range(SEARCHED // BATCH):
        if search.out_of_time:
            search.left_out.append((f"more of {', '.join(searchable())}", NO_TIME))
            return
        asked = [study.ask() for _ in range(BATCH)]
        recipes = [_recipe(trial, search.budget) for trial in asked]
        fresh = [r for n, r in enumerate(recipes) if r and r not in known and r not in recipes[:n]]
        known.update({t.body: t for t in search.run("sparsity", fresh)})
        for trial, recipe in zip(asked, recipes, strict=True):
            study.tell(trial, _costs(known.get(recipe), search))


def _recipe(trial: optuna.Trial, budget: Budget) -> str:
    """Return the recipe of a point of the space; zeros may be left out of the file where its size counts."""
    steps, after = [], [str(trial.suggest_categorical("format", FORMATS))]
    counts_size = budget.minimize == "size" or budget.max_size_bytes is not None
    for name in searchable():
        amount = trial.suggest_categorical(name, AMOUNTS[name])
        if not amount:
            continue
        words = [f"{amount:g}"]
        if name == "prune":
            pattern = str(trial.suggest_categorical("pattern", PATTERNS))
            words += [pattern, "reorder=yes"] if pattern == "4x1" else [pattern]
            if counts_size and after[0] in STORED and trial.suggest_categorical("store", STORES) == "sparse":
                if after[0]:
                    after.append("sparse")
                else:
                    words.append("store=sparse")  # which has fewer bits than the step of its own
        steps.append(f"{name}({', '.join(words)})")
    return str(Recipe.parse(" → ".join(filter(None, [*steps, *after]))))


def _costs(trial: Trial | None, search: Search) -> tuple[float, float]:
    """Return the drop, and what is to be small, as the sampler is told them; a drop within the bound counts as none."""
    if trial is None or trial.drop is None or not trial.size_bytes:
        return UNSCORED, _cost(None, search)
    excess = max(0.0, trial.drop - search.drop_bound)
    return excess if trial.status == DONE else max(excess, search.drop_bound), _cost(trial, search)


def _cost(trial: Trial | None, search: Search) -> float:
    """Return what is to be small of a trial; of the float model for None."""
    if search.budget.minimize == "latency":
        return work(search.content(trial) if trial and trial.file else search.question.model)
    return float(trial.download_bytes or trial.size_bytes if trial else len(search.question.model))
