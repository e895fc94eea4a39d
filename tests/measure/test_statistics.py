# SPDX-License-Identifier: Apache-2.0
"""What a set of timings says."""

from __future__ import annotations

import numpy as np
import pytest

from litesmith.measure import summarize
from litesmith.measure._statistics import BLOCKS, RESAMPLES, bootstrap_medians, chance, compare_medians


def test_the_summary_is_that_of_numpy() -> None:
    values = np.random.default_rng(0).lognormal(size=400)

    summary = summarize(values)

    assert summary.count == 400
    assert summary.median == pytest.approx(np.median(values))
    assert [summary.p90, summary.p95, summary.p99] == pytest.approx(np.quantile(values, [0.9, 0.95, 0.99]).tolist())
    assert summary.deviation == pytest.approx(values.std(ddof=1))
    assert summary.minimum <= summary.low <= summary.median <= summary.high


def test_one_sample_is_enough_for_a_summary() -> None:
    summary = summarize([2.0])

    assert (summary.median, summary.low, summary.high, summary.deviation) == (2.0, 2.0, 2.0, 0.0)
    assert summary.uncertainty == 0


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    hits = 0
    for seed in range(100):
        summary = summarize(random.exponential(size=200), seed=seed)
        hits += summary.low <= np.log(2) <= summary.high

    assert 85 <= hits <= 100


@pytest.mark.parametrize("count", [1, 2, 7, 30, 101, 1000])
def test_medians_of_resamples_are_those_of_resamples_that_are_made(count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=count).round(1)  # with equal ones among them
    blocks = np.array_split(values, min(BLOCKS, count))
    stacked = np.stack([block[: count // len(blocks)] for block in blocks])
    chosen = np.random.default_rng(5).integers(0, len(blocks), (RESAMPLES, len(blocks)))

    assert np.array_equal(bootstrap_medians(values, seed=5), np.median(stacked[chosen].reshape(RESAMPLES, -1), axis=1))


@pytest.mark.parametrize("paired", [True, False])
def test_a_real_difference_is_found_and_a_false_one_is_not(paired: bool) -> None:
    random = np.random.default_rng(2)
    base, same, slower = (random.normal(1.0, 0.02, 400) for _ in range(3))

    nothing = compare_medians(base, same, paired=paired)
    effect = compare_medians(base, slower * 1.1, paired=paired)

    assert nothing.low < 1 < nothing.high
    assert chance(base, same, paired=paired) > 0.05
    assert effect.low < 1.1 < effect.high
    assert effect.low > 1
    assert chance(base, slower * 1.1, paired=paired) < 0.001


def test_pairing_takes_out_the_drift_that_hits_both() -> None:
    random = np.random.default_rng(3)
    drift = np.linspace(1, 2, 400)
    first, second = (drift * random.normal(1, 0.01, 400) for _ in range(2))

    together = compare_medians(first, 1.02 * second, paired=True)
    apart = compare_medians(first, 1.02 * second, paired=False)

    assert together.low > 1
    assert apart.low < 1 < apart.high


def test_equal_timings_are_no_difference() -> None:
    values = np.ones(30)

    assert chance(values, values, paired=True) == 1
