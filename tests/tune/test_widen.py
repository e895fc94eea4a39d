# SPDX-License-Identifier: Apache-2.0
"""Thin layers made wide: integer formats that fit are tried on them, where there are any and latency counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.report.conftest import trial

from litesmith import zoo
from litesmith.optimize import Recipe
from litesmith.tune._budget import Budget
from litesmith.tune._widen import MOST, search_wider

FITTING = ("", "relaxed", "weights8", "dynamic", "int8", "int8(same)", "int8(mse)")


def _search(architecture: str, **budget: Any) -> SimpleNamespace:
    """A search that has tried some formats, all of which fit, and writes down what it is asked to run."""
    search = SimpleNamespace(
        budget=Budget(**budget),
        drop_bound=0.01,
        question=SimpleNamespace(model=zoo.build(architecture).to_bytes()),
        alike=[trial(n, recipe, 0.92 - 0.001 * (7 - n), 1.0, 1000) for n, recipe in enumerate(FITTING)],
        left_out=[],
        asked=[],
    )
    search.run = lambda stage, recipes: search.asked.append((stage, recipes))
    search_wider(search)  # type: ignore[arg-type]
    return search


def test_integer_formats_that_fit_are_tried_on_wide_layers() -> None:
    ((stage, recipes),) = _search("resnet_8").asked

    assert stage == "wider"
    assert recipes == ["fold → dynamic", "fold → int8(same)", "fold → int8(mse)"]
    assert len(recipes) == MOST
    assert all(str(Recipe.parse(recipe)) == recipe for recipe in recipes)


def test_without_thin_layers_that_is_said() -> None:
    search = _search("wav2letter")

    assert search.asked == []
    assert search.left_out[0][0] == "fold"


@pytest.mark.parametrize(
    ("budget", "count"), [({"minimize": "size"}, 0), ({"minimize": "size", "max_latency_ms": 5.0}, 1)]
)
def test_only_where_latency_counts(budget: dict[str, Any], count: int) -> None:
    assert len(_search("resnet_8", **budget).asked) == count
