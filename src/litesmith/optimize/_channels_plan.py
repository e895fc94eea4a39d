# SPDX-License-Identifier: Apache-2.0
"""How wide each group becomes: the same share of all, or what costs least until a budget is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from litesmith.errors import OptimizeError
from litesmith.optimize._channels_groups import LANES, Group, PlanCost
from litesmith.optimize._channels_importance import Order

Widths = dict[int, int]
LEAST_SHARE = 0.2
"""Of its channels no group keeps fewer when a budget decides: errors add up worse than they are counted there."""


def narrower(width: int, multiple: int) -> int:
    """Return the next smaller width that kernels like; the width itself where there is none."""
    smaller = (width - 1) // multiple * multiple
    return smaller if smaller > 0 else width


def rounded(wanted: float, width: int, multiple: int) -> int:
    """Return the width nearest to what is wanted among the multiples, the full width, and not nothing."""
    if wanted >= width:
        return width
    nearest = max(round(wanted / multiple) * multiple, multiple)
    return min(nearest, width)


def uniform_widths(groups: Sequence[Group], keep: Mapping[int, float], multiple: int) -> Widths:
    """Return the widths where each group keeps its share."""
    return {group.number: rounded(group.width * keep[group.number], group.width, multiple) for group in groups}


def removal_path(
    groups: Sequence[Group],
    orders: Mapping[int, Order],
    cost: PlanCost,
    multiple: int,
    fixed: Widths,
    start: Widths | None = None,
) -> list[Widths]:
    """Return plans from full width or ``start`` on, each with one more piece removed: what costs least for what it saves.

    A piece is what leads to the next narrower width, or to the next one that fills the lanes of the kernels.
    """
    widths = {**{group.number: group.width for group in groups}, **(start or {}), **fixed}
    free = [group for group in groups if group.number not in fixed]
    path = [dict(widths)]
    while True:
        now = cost.work(widths)
        choices = []
        for group in free:
            width = widths[group.number]
            for smaller in {narrower(width, multiple), narrower(width, math.lcm(multiple, LANES))}:
                if smaller == width or smaller < LEAST_SHARE * group.width:
                    continue
                loss = float(orders[group.number].losses[group.width - width : group.width - smaller].sum())
                saved = now - cost.work({**widths, group.number: smaller})
                if saved > 0:
                    choices.append((loss / saved, group.number, smaller))
        if not choices:
            return path
        _, number, smaller = min(choices)
        widths[number] = smaller
        path.append(dict(widths))


def widened(
    widths: Widths, groups: Sequence[Group], orders: Mapping[int, Order], cost: PlanCost, multiple: int, most: float
) -> Widths:
    """Return a plan with what the last large step saved too much given back, dearest channels first."""
    widths = dict(widths)
    while True:
        now = cost.macs(widths)
        choices = []
        for group in groups:
            width = widths[group.number]
            wider = min(width // multiple * multiple + multiple, group.width)
            added = cost.macs({**widths, group.number: wider}) - now
            if wider > width and now + added <= most:
                gone = group.width - wider, group.width - width
                loss = float(orders[group.number].losses[gone[0] : gone[1]].sum())
                choices.append((loss / max(added, 1), group.number, wider))
        if not choices:
            return widths
        _, number, wider = max(choices)
        widths[number] = wider


def first_within(path: Sequence[Widths], measure: Callable[[Widths], float], most: float, what: str) -> Widths:
    """Return the first plan of a path whose measure is at most ``most``, by bisection."""
    if measure(path[0]) <= most:
        return path[0]
    smallest = measure(path[-1])
    if smallest > most:
        raise OptimizeError(
            f"removing channels gets the model to {smallest:,.4g} {what} at best, not to {most:,.4g}; ask for more, allow "
            "narrower widths with a smaller multiple, or start from a smaller model"
        )
    too_wide, enough = 0, len(path) - 1
    while enough - too_wide > 1:
        middle = (too_wide + enough) // 2
        too_wide, enough = (too_wide, middle) if measure(path[middle]) <= most else (middle, enough)
    return path[enough]
