# SPDX-License-Identifier: Apache-2.0
"""How much work a run of a file is, told from the file alone: the same whoever looks, and whatever else is running."""

from __future__ import annotations

import numpy as np

from litesmith.model import Model, Operator, Subgraph
from litesmith.optimize import unpack_sparse

INTEGER = 0.25
"""A multiply-accumulate of 8-bit integers, of which a register holds four times as many as floats."""
FEWEST_ZEROS = 0.3
"""The share of zeros from which on kernels leave them out."""


def work(content: bytes) -> float:
    """Return the multiply-accumulates of a file, weighed by what kernels make of its numbers and zeros.

    Example:
        >>> from litesmith import samples
        >>> work(samples.path().read_bytes()) == samples.model().cost().macs
        True
    """
    model = unpack_sparse(Model.from_bytes(content))
    return sum(
        cost.macs * _share(model.subgraphs[cost.subgraph], model.subgraphs[cost.subgraph].operators[cost.index])
        for cost in model.cost().operators
        if cost.macs
    )


def _share(graph: Subgraph, operator: Operator) -> float:
    """Return what an operator's multiply-accumulates cost, as a share of those of floats."""
    tensors = [graph.tensor(index) for index in operator.inputs[:2]]
    weight = tensors[1] if len(tensors) > 1 else None
    if any(tensor is not None and tensor.dtype in ("int8", "int4") for tensor in tensors):
        return INTEGER
    if operator.kind not in ("CONV_2D", "FULLY_CONNECTED") or weight is None or not weight.is_constant:
        return 1.0
    kept = np.count_nonzero(weight.array()) / max(weight.elements, 1) if weight.dtype == "float32" else 1.0
    return kept if kept <= 1 - FEWEST_ZEROS else 1.0
