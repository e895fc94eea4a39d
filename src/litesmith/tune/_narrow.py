# SPDX-License-Identifier: Apache-2.0
"""Fewer channels: how much work can be left out in float, step by step, and then in every number format that fits.

A narrower model is smaller and faster on every runtime, so that this is looked for first of all that is removed, and in
order. Whether a step goes further depends on scores alone, as everything that is tried does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litesmith.tune import _candidates as candidates
from litesmith.tune._budget import Budget
from litesmith.tune._trial import DONE, Trial

if TYPE_CHECKING:
    from litesmith.tune._search import Search

STEPS = ((0.95, 0.9), (0.8, 0.7), (0.6, 0.5))
"""Shares of the multiply-accumulates that are left; the next pair is tried where the smaller one of a pair fits."""
FORMATS = ("relaxed", "weights8", "dynamic", "int8(same)")
"""Formats besides the best int8 that may follow; float16 computes as float does, and others lose more."""
FOLLOWED = 3
"""Formats are tried after so many of the narrowest models that fit: rounding, and samples that the search has not seen,
may take what is left of the bound."""


def narrowed(share: float, then: str = "") -> str:
    """Return the recipe that leaves a share of the work, and a number format after it.

    Example:
        >>> narrowed(0.8, "int8")
        'channels(max_macs=0.8) → int8'
    """
    return " → ".join(filter(None, [f"channels(max_macs={share:g})", then]))


def steps_down() -> list[list[str]]:
    """Return the recipes of each step, and at last what may follow: how many those are depends on the scores."""
    followed = FOLLOWED * (1 + len(FORMATS)) * ["channels → a format that fits"]
    return [*([narrowed(share) for share in shares] for shares in STEPS), followed]


def pays(budget: Budget) -> bool:
    """Say whether a narrower model is of any use for a budget."""
    return budget.minimize != "drop" or budget.max_latency_ms is not None or budget.max_size_bytes is not None


def search_narrower(search: Search) -> None:
    """Remove channels until too much is lost, then round what is left."""
    if not pays(search.budget):
        search.left_out.append(("fewer channels", "nothing but the drop counts"))
        return
    found: dict[float, Trial] = {}
    for shares in STEPS:
        found.update(_tried(search, shares))
        if shares[-1] not in found or not _fits(found[shares[-1]], search):
            break
    fitting = sorted(share for share, trial in found.items() if _fits(trial, search))[:FOLLOWED]
    following = formats(search)
    recipes = [narrowed(share, name) for share in fitting for name in following]
    if recipes:
        search.run("channels", recipes)


def formats(search: Search) -> list[str]:
    """Return the number formats that fit by themselves, so that they may fit a narrower model as well."""
    single = [t for t in search.alike if "→" not in t.body and " + " not in t.body and _fits(t, search)]
    best = candidates.best_int8(single)
    wanted = (*FORMATS, *([] if best is None else [best.body]))
    return list(dict.fromkeys(t.body for t in single if t.body in wanted))


def _tried(search: Search, shares: Sequence[float]) -> dict[float, Trial]:
    recipes = {narrowed(share): share for share in shares}
    return {recipes[t.body]: t for t in search.run("channels", list(recipes))}


def _fits(trial: Trial, search: Search) -> bool:
    return trial.status == DONE and trial.drop is not None and trial.drop <= search.drop_bound
