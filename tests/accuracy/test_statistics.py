# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest

from litesmith.accuracy._metric import mean_scorer
from litesmith.accuracy._statistics import bootstrap, mcnemar, paired_bootstrap, wilson


def test_wilson_solves_its_equation() -> None:
    # The ends are where the score test just accepts: |p - share| = z * sqrt(p (1 - p) / n).
    for successes, trials in ((90, 100), (1, 800), (799, 800), (5, 7)):
        for end in wilson(successes, trials):
            deviation = abs(end - successes / trials)
            assert deviation == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / trials), rel=1e-6)


def test_wilson_at_the_ends() -> None:
    assert wilson(0, 50).low == 0
    assert wilson(50, 50).high == 1
    assert wilson(50, 50).low == pytest.approx(50 / (50 + 1.959964**2), rel=1e-6)
    assert wilson(0, 0) == (0, 1)


def test_more_confidence_is_a_wider_interval() -> None:
    assert wilson(80, 100, confidence=0.99).low < wilson(80, 100).low


def test_mcnemar_is_the_binomial_test_of_the_differing_samples() -> None:
    first = np.array([True] * 60 + [False] * 10 + [True] * 25 + [False] * 5)
    second = np.array([True] * 60 + [True] * 10 + [False] * 25 + [False] * 5)
    expected = 2 * sum(math.comb(35, k) for k in range(11)) / 2**35
    test = mcnemar(first, second)
    assert (test.only_first, test.only_second) == (25, 10)
    assert test.p_value == pytest.approx(expected, rel=1e-9)
    assert test.difference == pytest.approx(0.15)
    assert test.low < 0.15 < test.high


def test_mcnemar_of_equal_models_is_certain_of_nothing() -> None:
    right = np.arange(100) % 10 != 0
    test = mcnemar(right, right)
    assert (test.difference, test.p_value) == (0, 1)
    assert test.low <= 0 <= test.high


def test_mcnemar_of_many_samples_does_not_overflow() -> None:
    first = np.arange(50_000) % 2 == 0
    assert mcnemar(first, ~first).p_value == 1
    assert mcnemar(np.ones(50_000, bool), np.zeros(50_000, bool)).p_value == 0


def test_paired_interval_covers_the_true_drop() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        kind = random.choice(4, size=300, p=[0.8, 0.07, 0.03, 0.1])  # both, only first, only second, neither
        test = mcnemar(kind <= 1, (kind == 0) | (kind == 2))
        covered += test.low <= 0.04 <= test.high
    assert 0.92 <= covered / 400 <= 0.985


def test_bootstrap_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(1).normal(3, 2, 1000)
    low, high = bootstrap(mean_scorer(values), 1000, resamples=2000, seed=0)
    half = 1.96 * values.std() / math.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_bootstrap_is_deterministic() -> None:
    score = mean_scorer(np.arange(50.0))
    assert bootstrap(score, 50, resamples=100, seed=3) == bootstrap(score, 50, resamples=100, seed=3)
    assert bootstrap(score, 50, resamples=100, seed=3) != bootstrap(score, 50, resamples=100, seed=4)


def test_paired_bootstrap_sees_a_small_constant_drop_in_noise() -> None:
    noise = np.random.default_rng(2).normal(0, 10, 500)
    test = paired_bootstrap(mean_scorer(noise + 0.1), mean_scorer(noise), 500, resamples=500, seed=0)
    assert test.difference == pytest.approx(0.1)
    assert test.p_value < 0.01
    same = paired_bootstrap(mean_scorer(noise), mean_scorer(noise), 500, resamples=500, seed=0)
    assert same.p_value == 1
