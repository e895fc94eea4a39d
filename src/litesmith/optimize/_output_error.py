# SPDX-License-Identifier: Apache-2.0
"""How far a changed model is off: the mean square error of what it returns over the variance of the original.

Probabilities are compared before the SOFTMAX or LOGISTIC that makes them, where differences are not squeezed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from litesmith.model import Model
from litesmith.model._expose import expose
from litesmith.optimize._run import Feed, GraphRunner

Array = np.ndarray[Any, Any]
_A_VALUE = 4
"""Samples for each value of an output that the last layer's part in it can be told from."""
_SQUEEZING = frozenset({"LOGISTIC", "LOG_SOFTMAX", "SOFTMAX"})


class OutputError:
    """Compares models of the same structure with one original on the same samples."""

    def __init__(self, model: Model, samples: Sequence[Feed], *, subgraph: int = 0) -> None:
        self._subgraph, self._samples = subgraph, samples
        graph = model.subgraphs[subgraph]
        producers = graph.producers()
        self._tensors = []
        for output in graph.outputs:
            op = graph.operators[producers[output]] if output in producers else None
            squeezed = op is not None and op.kind in _SQUEEZING
            tensor = op.inputs[0] if op is not None and squeezed else output
            if graph.tensors[tensor].dtype == "float32" and not graph.tensors[tensor].is_constant:
                self._tensors.append(tensor)
        self._wanted = self._run(model)

    def of(self, model: Model) -> float:
        """Return the error of a model, the mean over its outputs; 0 where it has none in float."""
        errors = []
        for wanted, found in zip(self._wanted, self._run(model), strict=True):
            spread = float(np.mean((wanted - wanted.mean(axis=0)) ** 2)) if len(wanted) > 1 else float(np.var(wanted))
            error = float(np.mean((wanted - found) ** 2))
            errors.append(error / max(spread, 1e-12) if np.isfinite(error) else 1e12)
        return float(np.mean(errors)) if errors else 0.0

    def after_refit(self, model: Model) -> float:
        """Return the error that is left if the last layer makes up for what it can: after the best affine map.

        With too few samples to tell that from chance, the error as it is.
        """
        errors = []
        for wanted, found in zip(self._wanted, self._run(model), strict=True):
            if len(found) < _A_VALUE * found.shape[1] or not np.isfinite(found).all():
                return self.of(model)
            mean, goal = found.mean(axis=0), wanted.mean(axis=0)
            x, lost = found - mean, (wanted - goal) - (found - mean)
            h = x.T @ x
            h += 1e-3 * max(float(np.trace(h)) / len(h), 1e-30) * np.eye(len(h))
            left = lost - x @ np.linalg.solve(h, x.T @ lost)
            errors.append(float(np.mean(left**2)) / max(float(np.mean((wanted - goal) ** 2)), 1e-12))
        return float(np.mean(errors)) if errors else 0.0

    def difference(self, model: Model) -> Array:
        """Return how far each output value of each sample is off, over the deviation of that output tensor."""
        pairs = zip(self._wanted, self._run(model), strict=True)
        parts = [(found - wanted).ravel() / max(float(np.std(wanted)), 1e-6) for wanted, found in pairs]
        return np.nan_to_num(np.concatenate(parts)) if parts else np.zeros(1)

    def _run(self, model: Model) -> list[Array]:
        runner = GraphRunner(expose(model, self._tensors, subgraph=self._subgraph), subgraph=self._subgraph)
        found: list[list[Array]] = [[] for _ in self._tensors]
        for feed in self._samples:
            runner.run(feed)
            for place, tensor in zip(found, self._tensors, strict=True):
                place.append(runner.view(tensor).astype(np.float64).ravel())
        return [np.stack(arrays) for arrays in found]
