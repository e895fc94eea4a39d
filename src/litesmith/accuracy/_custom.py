# SPDX-License-Identifier: Apache-2.0
"""The user's own metric: a function of outputs and labels.

``function(outputs, labels)`` gets the outputs of several samples (an array, or a dict of arrays where the model has
several outputs; the first axis counts samples) and their labels (None where there are none). It returns a score for
each sample, of which the mean is taken; or one number for all of them, and is then called once with all samples, which
are kept in memory for it, and again for each draw of the bootstrap. Attributes of the function say more:
``higher_is_better = False`` that less is better, ``whole = True`` that it only makes sense of all samples at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from litesmith.accuracy._metric import Array, Metric, Observed, Seen, mean_scorer
from litesmith.accuracy._statistics import Scorer, Weights
from litesmith.data import import_callable
from litesmith.errors import UsageError

_OUTPUT, _LABELS = "output:", "labels"


class Custom(Metric):
    """A metric that a function of the user's computes."""

    needs_labels = False
    is_fraction = False

    def __init__(self, function: str | Callable[..., Any], *, output: str | None = None) -> None:
        super().__init__(output=output)
        self.function = function
        self.name = function if isinstance(function, str) else getattr(function, "__qualname__", str(function))
        resolved = self._resolved()
        self.higher_is_better = bool(getattr(resolved, "higher_is_better", True))
        self._whole = bool(getattr(resolved, "whole", False))

    def _resolved(self) -> Callable[..., Any]:
        return import_callable(self.function) if isinstance(self.function, str) else self.function

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep a score for each sample; or, for a function that scores all of them at once, everything."""
        outputs = observed.outputs if self.output is None else {self.output: observed.outputs[self.output]}
        count = len(next(iter(outputs.values())))
        if not self._whole:
            scores = np.asarray(self._call(outputs, observed.labels), np.float64)
            if scores.shape == (count,):
                return {"score": scores}
            if scores.ndim:
                raise UsageError(
                    f"metric {self.name} returned an array of shape {scores.shape} for {count} samples; return one "
                    "score for each sample, or one number for all"
                )
            self._whole = True
        kept = {_OUTPUT + name: array.copy() for name, array in outputs.items()}
        return kept if observed.labels is None else kept | {_LABELS: np.asarray(observed.labels)}

    def scorer(self, seen: Seen) -> Scorer:
        """Score by the mean, or by the function itself on all samples."""
        if "score" in seen:
            return mean_scorer(seen["score"])

        def score(weights: Weights | None) -> float:
            count = len(next(iter(seen.values())))
            drawn = np.arange(count) if weights is None else np.repeat(np.arange(count), weights)
            outputs = {n.removeprefix(_OUTPUT): a[drawn] for n, a in seen.items() if n.startswith(_OUTPUT)}
            return float(self._call(outputs, seen[_LABELS][drawn] if _LABELS in seen else None))

        return score

    def _call(self, outputs: Any, labels: Array | None) -> Any:
        return self._resolved()(next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs), labels)
