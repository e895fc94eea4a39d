# SPDX-License-Identifier: Apache-2.0
"""Do two models compute the same? Both run in LiteRT on the same random inputs.

Where one takes integers and the other the reals they stand for, the integers are drawn and the reals made of them, so that
neither is favoured by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from litesmith.model import Model, Tensor
from litesmith.runtime import Session, random_inputs

Array = np.ndarray[Any, Any]
Delegate = Literal["auto", "off"]
SEEDS = (0, 1, 2)
TOLERANCE = 1e-4
"""How far outputs may differ, as a share of their span: float rounding in another order, and nothing more."""


def difference(before: Model, after: Model, *, delegate: Delegate = "auto") -> float:
    """Return the largest difference of an output of any signature, as a share of the span of that output's values."""
    keys: list[str | None] = [signature.key for signature in before.signatures]
    return max(_difference(before, after, key, delegate) for key in keys or [None])


def _difference(before: Model, after: Model, key: str | None, delegate: Delegate) -> float:
    largest = 0.0
    opened = partial(Session, signature=key, delegate=delegate)
    with opened(before) as old, opened(after) as new:
        took, takes = _tensors(before, "inputs", old), _tensors(after, "inputs", new)
        gave, gives = _tensors(before, "outputs", old), _tensors(after, "outputs", new)
        names = _pairs(old.inputs, new.inputs), _pairs(old.outputs, new.outputs)
        for seed in SEEDS:
            drawn = random_inputs(new, seed)
            feeds = {o: _real(drawn[n], takes[n], took[o]) for o, n in names[0]}
            expected = {name: np.array(values) for name, values in old.run(feeds).items()}
            found = new.run(drawn)
            for o, n in names[1]:
                largest = max(largest, _distance(expected[o], _real(np.array(found[n]), gives[n], gave[o])))
    return largest


def _pairs(old: Mapping[str, Array], new: Mapping[str, Array]) -> list[tuple[str, str]]:
    """Return the names that belong together: equal ones, or else those in the same place."""
    if set(old) == set(new):
        return [(name, name) for name in old]
    return list(zip(old, new, strict=True))


def _tensors(model: Model, side: str, session: Session) -> dict[str, Tensor]:
    """Return the inputs or outputs by the names that a Session gives them."""
    if model.signatures:
        signature = next(s for s in model.signatures if s.key == session.signature)
        graph = model.subgraphs[signature.subgraph_index]
        return {name: graph.tensors[index] for name, index in getattr(signature, side)}
    return dict(
        zip(getattr(session, side), (model.main.tensors[index] for index in getattr(model.main, side)), strict=True)
    )


def _real(values: Array, tensor: Tensor, wanted: Tensor) -> Array:
    """Return the values as the other model has them: the reals that integers stand for, where types differ."""
    if tensor.dtype == wanted.dtype or tensor.quantization is None:
        return values
    zero = tensor.quantization.zero_point[0] if tensor.quantization.zero_point else 0
    return ((values.astype(np.float64) - zero) * tensor.quantization.scale[0]).astype(np.float32)


def _distance(expected: Array, found: Array) -> float:
    if expected.shape != found.shape:
        return float("inf")
    if expected.dtype.kind not in "fiu":
        return 0.0 if np.array_equal(expected, found) else float("inf")
    a, b = expected.astype(np.float64), found.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(a)
    if not finite.any():
        return 0.0
    span = max(float(np.ptp(a[finite])), float(np.abs(a[finite]).max()), 1e-6)
    return float(np.abs(a[finite] - b[finite]).max()) / span
