# SPDX-License-Identifier: Apache-2.0
"""Operators that only move data: they add no error of their own."""

from __future__ import annotations

from litesmith.model import ABSENT, Operator, Subgraph, Tensor

MOVES = frozenset(
    {
        "BATCH_TO_SPACE_ND",
        "BROADCAST_TO",
        "CONCATENATION",
        "DEPTH_TO_SPACE",
        "EXPAND_DIMS",
        "GATHER",
        "GATHER_ND",
        "MAX_POOL_2D",
        "MIRROR_PAD",
        "PACK",
        "PAD",
        "PADV2",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "SQUEEZE",
        "STRIDED_SLICE",
        "TILE",
        "TRANSPOSE",
        "UNPACK",
    }
)
"""Operators that hand values on unchanged, so that what they round was rounded before."""


def hands_on(graph: Subgraph, operator: Operator) -> bool:
    """Say whether an operator hands values on unchanged: what it gives was rounded, with this scale, before."""
    if operator.kind not in MOVES:
        return False
    scale = _scale(graph.tensors[operator.outputs[0]])
    read = [graph.tensors[t] for t in operator.inputs if t != ABSENT and not graph.tensors[t].is_constant]
    return all(_scale(tensor) == scale for tensor in read if tensor.dtype == graph.tensors[operator.outputs[0]].dtype)


def _scale(tensor: Tensor) -> tuple[object, ...]:
    quantization = tensor.quantization
    return () if quantization is None else (quantization.scale, quantization.zero_point)
