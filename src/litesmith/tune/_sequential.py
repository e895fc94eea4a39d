# SPDX-License-Identifier: Apache-2.0
"""Stop a hopeless candidate early: a paired test that may be looked at after every sample.

The hypothesis is that the candidate loses no more than the bound. A gambler bets against it, sample by sample, on the
paired difference x in [-1, 1] (1: only the float model has it right); while it is true, the capital cannot be expected
to grow, so a capital of 1/alpha refutes it at level alpha whenever one looks (Ville's inequality). The stake follows
what was seen before: lambda = (mean − bound) / (variance + (mean − bound)²), "aGRAPA" of Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", arXiv:2010.09686.

Metrics without right and wrong have no bounded difference: there, a paired bootstrap at each look, its level divided by
the number of looks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.01
_LARGEST_STAKE = 0.75  # of the largest that cannot lose everything
_PRIOR = 1.0  # samples' worth of a first guess at mean and variance
_PRIOR_VARIANCE = 0.25


def refuted_after(difference: NDArray[Any], bound: float, *, alpha: float = ALPHA) -> int | None:
    """Return after how many samples "the mean difference is at most ``bound``" is refuted; None if it never is.

    Example:
        >>> refuted_after(np.ones(50), 0.01)
        10
        >>> refuted_after(np.zeros(50), 0.01) is None
        True
    """
    x = np.asarray(difference, np.float64)
    count = np.arange(len(x))
    before = np.concatenate([[0.0], np.cumsum(x)[:-1]])  # what was seen before each sample
    squares = np.concatenate([[0.0], np.cumsum(x * x)[:-1]])
    mean = (_PRIOR * bound + before) / (_PRIOR + count)
    variance = np.maximum((_PRIOR * (_PRIOR_VARIANCE + bound**2) + squares) / (_PRIOR + count) - mean**2, 1e-6)
    edge = mean - bound
    stake = np.clip(edge / (variance + edge**2), 0.0, _LARGEST_STAKE / (1 + bound))
    capital = np.cumsum(np.log1p(stake * (x - bound)))
    crossed = np.flatnonzero(capital >= np.log(1 / alpha))
    return int(crossed[0]) + 1 if crossed.size else None
