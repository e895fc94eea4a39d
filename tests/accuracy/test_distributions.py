# SPDX-License-Identifier: Apache-2.0
"""The divergence of quantized values from float ones: what it sees, and what it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from litesmith.accuracy._distributions import Distributions

VALUES = np.random.default_rng(0).normal(size=8000).astype(np.float32)
PEAK = float(np.abs(VALUES).max())


def rounded(step: float, most: int = 127) -> Any:
    return (np.clip(np.rint(VALUES / step), -most - 1, most) * step).astype(np.float32)


def divergence(quantized: Any, parts: Any = 1) -> float:
    found = Distributions(1)
    for real, other in zip(np.array_split(VALUES, parts), np.array_split(quantized, parts), strict=True):
        found.add(real, other - real)
    return found.kl(0)


def test_a_good_int8_range_leaves_no_trace() -> None:
    assert divergence(VALUES) == 0
    assert divergence(rounded(PEAK / 127)) < 1e-3


@pytest.mark.parametrize(
    "quantized",
    [rounded(PEAK / 8), rounded(PEAK / 400), np.zeros_like(VALUES), VALUES + np.float32(0.5), rounded(100 * PEAK)],
    ids=["coarse", "clipped", "dead", "shifted", "all beyond"],
)
def test_a_bad_one_shows(quantized: Any) -> None:
    assert divergence(quantized) > 0.1


def test_worse_is_more() -> None:
    found = [divergence(rounded(PEAK / levels)) for levels in (127, 16, 8, 4)]
    assert found == sorted(found)


def test_the_order_of_samples_does_not_matter() -> None:
    quantized = rounded(PEAK / 20)
    order = np.argsort(np.abs(VALUES))  # the range grows from sample to sample
    growing, shrinking = Distributions(1), Distributions(1)
    for found, places in ((growing, order), (shrinking, order[::-1])):
        for part in np.array_split(places, 9):
            found.add(VALUES[part], quantized[part] - VALUES[part])
    assert growing.kl(0) == pytest.approx(shrinking.kl(0), abs=1e-5)
    assert growing.kl(0) == pytest.approx(divergence(quantized), abs=1e-5)


def test_versions_are_told_apart() -> None:
    found = Distributions(2)
    found.add(VALUES, np.zeros_like(VALUES), np.ones_like(VALUES))
    assert found.kl(0) == 0
    assert found.kl(1) > 0.1


def test_what_is_not_finite_does_not_count() -> None:
    found = Distributions(1)
    found.add(np.zeros(4, np.float32), np.zeros(4, np.float32))
    found.add(np.array([np.nan, np.inf, 1e38, -3e38], np.float32), np.array([0, 0, np.nan, 0], np.float32))
    found.add(np.array([np.inf], np.float32), np.array([0], np.float32))
    assert found.kl(0) == 0
