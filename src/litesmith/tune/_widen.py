# SPDX-License-Identifier: Apache-2.0
"""Thin layers made wide: formats that fit are tried after pixels are folded into channels, which keeps the outputs.

It is faster only where matrix units multiply whole tiles in integers, which the latencies tell at the end; whether it is
tried depends on the model and on scores alone, as everything does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litesmith.model import Model
from litesmith.optimize._fold import thin_layers
from litesmith.tune._narrow import formats

if TYPE_CHECKING:
    from litesmith.tune._search import Search

MOST = 3
"""Recipes of this stage at most: dynamic, int8 with its head in int8 as well, and the best int8."""
NOTHING_TO_FOLD = "fold", "there are no thin convolutions, whose pixels could be folded into channels"


def has_thin_layers(model: bytes) -> bool:
    """Say whether there is anything to fold."""
    return bool(thin_layers(Model.from_bytes(model)))


def search_wider(search: Search) -> None:
    """Try the integer formats that fit on the model with wide layers."""
    if not search.budget.counts_latency:
        return
    if not has_thin_layers(search.question.model):
        search.left_out.append(NOTHING_TO_FOLD)
        return
    recipes = [f"fold → {name}" for name in formats(search) if name.startswith(("int8", "dynamic"))]
    if recipes:
        search.run("wider", recipes)
    else:
        search.left_out.append(("fold", "no integer format is within the bound, and in float it is slower"))
