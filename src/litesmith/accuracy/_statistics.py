# SPDX-License-Identifier: Apache-2.0
"""How sure a score is: intervals for one model, and tests for the difference of two on the same samples.

Proportions: Wilson's score interval (Wilson 1927), McNemar's exact test (McNemar 1947), and for the difference of two
paired proportions Newcombe's interval with the correlation taken into account (Newcombe 1998, Statistics in Medicine
17:2635, method 10). Everything else: the percentile bootstrap over samples (Efron 1979), paired for two models: both
are scored on the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.int64]
"""How often each sample was drawn."""
Scorer = Callable[[Weights | None], float]
"""The score of the samples, each counted as often as it was drawn; None counts each once."""


class Interval(NamedTuple):
    """Where the true score lies, with the confidence asked for."""

    low: float
    high: float


@dataclass(frozen=True)
class PairedTest:
    """Whether two models differ on the same samples.

    Attributes:
        difference: the first score minus the second.
        low, high: its interval.
        p_value: how likely a difference of at least this size is between models that are equally good.
        method: the name of the test.
        only_first: samples that only the first model has right, where a sample is right or wrong; else None.
        only_second: samples that only the second model has right.
    """

    difference: float
    low: float
    high: float
    p_value: float
    method: str
    only_first: int | None = None
    only_second: int | None = None


def wilson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Return the interval of a proportion.

    Example:
        >>> [round(end, 4) for end in wilson(90, 100)]
        [0.8256, 0.9448]
    """
    if trials == 0:
        return Interval(0.0, 1.0)
    z = _quantile(confidence)
    share = successes / trials
    center = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # The ends are exactly 0 and 1 there; the formula may miss them by a rounding.
    low = 0.0 if successes == 0 else max(0.0, center - half)
    return Interval(low, 1.0 if successes == trials else min(1.0, center + half))


def bootstrap(score: Scorer, samples: int, *, resamples: int, seed: int, confidence: float = 0.95) -> Interval:
    """Return the interval of any score by drawing the samples again and again, with replacement."""
    draws = _Draws(samples, seed)
    return _percentiles([score(draws.next()) for _ in range(resamples)], confidence)


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_], *, confidence: float = 0.95) -> PairedTest:
    """Compare two models by which samples each has right: the exact test on those where they differ.

    Example:
        >>> right = np.array([True] * 8 + [False] * 2)
        >>> test = mcnemar(right, ~right)
        >>> test.only_first, test.only_second, round(test.p_value, 4)
        (8, 2, 0.1094)
    """
    only_first = int(np.count_nonzero(first & ~second))
    only_second = int(np.count_nonzero(second & ~first))
    low, high = _newcombe(first, second, confidence)
    return PairedTest(
        difference=(only_first - only_second) / len(first),
        low=low,
        high=high,
        p_value=_binomial_two_sided(min(only_first, only_second), only_first + only_second),
        method="McNemar's exact test",
        only_first=only_first,
        only_second=only_second,
    )


def paired_bootstrap(
    first: Scorer, second: Scorer, samples: int, *, resamples: int, seed: int, confidence: float = 0.95
) -> PairedTest:
    """Compare two models by any score: both are scored on the same draws of the samples."""
    draws = _Draws(samples, seed)
    differences = np.empty(resamples)
    for number in range(resamples):
        weights = draws.next()
        differences[number] = first(weights) - second(weights)
    known = differences[np.isfinite(differences)]
    # One more on both sides: no number of draws proves an impossibility.
    tail = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
    low, high = _percentiles(known.tolist(), confidence)
    return PairedTest(
        difference=first(None) - second(None),
        low=low,
        high=high,
        p_value=min(1.0, 2 * (int(tail) + 1) / (len(known) + 1)),
        method=f"paired bootstrap, {resamples} draws",
    )


class _Draws:
    """Random draws of all samples with replacement, as counts."""

    def __init__(self, samples: int, seed: int) -> None:
        self._samples = samples
        self._random = np.random.default_rng(seed)

    def next(self) -> Weights:
        drawn = self._random.integers(0, self._samples, self._samples)
        return np.bincount(drawn, minlength=self._samples)


def _percentiles(scores: list[float], confidence: float) -> Interval:
    known = np.array(scores)[np.isfinite(scores)]  # a draw may lack a class, and its score is then unknown
    if not known.size:
        return Interval(math.nan, math.nan)
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _newcombe(first: NDArray[np.bool_], second: NDArray[np.bool_], confidence: float) -> Interval:
    trials = len(first)
    both, neither = int(np.count_nonzero(first & second)), int(np.count_nonzero(~first & ~second))
    a, b = int(np.count_nonzero(first)), int(np.count_nonzero(second))
    p, q = a / trials, b / trials
    only_first, only_second = a - both, b - both
    spread = a * b * (trials - a) * (trials - b)
    product = float(both * neither - only_first * only_second)
    if product > 0:  # Newcombe's continuity correction of a positive correlation
        product = max(product - trials / 2, 0.0)
    correlation = product / math.sqrt(spread) if spread else 0.0
    low_p, high_p = wilson(a, trials, confidence=confidence)
    low_q, high_q = wilson(b, trials, confidence=confidence)
    below, above = p - low_p, high_q - q
    low = math.sqrt(max(0.0, below**2 - 2 * correlation * below * above + above**2))
    below, above = q - low_q, high_p - p
    high = math.sqrt(max(0.0, below**2 - 2 * correlation * below * above + above**2))
    return Interval(p - q - low, p - q + high)


def _binomial_two_sided(fewer: int, trials: int) -> float:
    """Return the probability of a split at least as uneven as this one under equal chances."""
    if trials == 0:
        return 1.0
    k = np.arange(fewer + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    logs: NDArray[Any] = log_factorial[trials] - log_factorial[k] - log_factorial[trials - k] - trials * math.log(2)
    return min(1.0, 2 * float(np.exp(logs).sum()))


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
