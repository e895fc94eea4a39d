# SPDX-License-Identifier: Apache-2.0
"""The registry of operators in PyTorch: for each kind a function that makes a function of tensors.

What can be known from the file (options, constant axes, static shapes) is worked out once, when the operator is made;
what is left runs at each step. Tensors keep the file's layout (images NHWC): convolutions see them through ``permute``,
which is free, and write channels-last memory, so that no operator copies to change a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.errors import ModelError
from litesmith.model import ABSENT, Operator, Record, Subgraph, options_table

Array = np.ndarray[Any, Any]
Compute = Callable[..., Any]
"""From the inputs of an operator (None for an absent one) to its output, or a tuple of them, before any activation."""
Maker = Callable[["Node"], Compute]
_MAKERS: dict[str, Maker] = {}


class Node:
    """One operator of a file, as its maker sees it."""

    def __init__(self, graph: Subgraph, operator: Operator, index: int, subgraphs: Sequence[Subgraph] = ()) -> None:
        self.graph, self.operator, self.index, self.subgraphs = graph, operator, index, subgraphs
        table = options_table(operator.kind)
        self.options: Any = operator.options or (Record(table) if table else None)

    def __str__(self) -> str:
        return f"operator {self.index} {self.operator.name} {self.graph.tensors[self.operator.outputs[0]].name!r}"

    def has(self, position: int) -> bool:
        """Say whether an optional input is there."""
        return position < len(self.operator.inputs) and self.operator.inputs[position] != ABSENT

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """Return the shape of an input in the file."""
        return self.graph.tensors[self.operator.inputs[position]].shape

    def output_shape(self, position: int = 0) -> tuple[int, ...]:
        """Return the shape of an output in the file."""
        return self.graph.tensors[self.operator.outputs[position]].shape

    def output_dtype(self) -> str:
        """Return the type of the first output."""
        return self.graph.tensors[self.operator.outputs[0]].dtype

    def decomposition(self) -> Subgraph:
        """Return the graph that computes a composite operator."""
        return self.subgraphs[int(self.options.decomposition_subgraph_index)]

    def constant(self, position: int) -> Array:
        """Return a constant input; raise where it is computed, as PyTorch cannot follow it then."""
        tensor = self.graph.tensors[self.operator.inputs[position]]
        if tensor.buffer is None:
            raise ModelError(
                f"{self}: its input {position}, {tensor.name!r}, is computed at run time, which training cannot follow"
            )
        return tensor.array()

    def integers(self, position: int) -> list[int]:
        """Return a constant input as integers."""
        return [int(v) for v in np.ravel(self.constant(position))]

    def axes(self, position: int) -> list[int]:
        """Return a constant input as axes of input 0, none of them negative, in order."""
        rank = len(self.shape(0))
        return sorted({axis % rank if rank else 0 for axis in self.integers(position)})


def makes(*kinds: str) -> Callable[[Maker], Maker]:
    """Register a maker for these kinds of operators."""

    def register(maker: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return register


def known_operators() -> tuple[str, ...]:
    """Return the kinds of operators that can be trained through, in alphabetical order."""
    _load()
    return tuple(sorted(_MAKERS))


def make(node: Node) -> Compute:
    """Return the function of one operator."""
    return _MAKERS[node.operator.name](node)


def check_known(graph: Subgraph, subgraphs: Sequence[Subgraph]) -> None:
    """Raise one error that names every operator without a function, those inside of composite ones as well."""
    _load()
    unknown: dict[str, list[int]] = {}
    for index, op in enumerate(graph.operators):
        if op.name not in _MAKERS:
            unknown.setdefault(op.name, []).append(index)
        elif op.kind == "STABLEHLO_COMPOSITE":
            check_known(Node(graph, op, index, subgraphs).decomposition(), subgraphs)
    if unknown:
        listed = ", ".join(f"{name} (#{', #'.join(map(str, places[:3]))})" for name, places in unknown.items())
        raise ModelError(f"these operators cannot be trained through: {listed}; train a model without them")


def _load() -> None:
    from litesmith.train import (  # noqa: F401 (each registers its operators)
        _composite,
        _convolutions,
        _elementwise,
        _indexing,
        _movement,
        _recurrent,
        _reductions,
        _resizing,
    )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda x: x,
    "RELU": torch.relu,
    "RELU6": nnf.relu6,
    "RELU_N1_TO_1": nnf.hardtanh,
    "TANH": torch.tanh,
    "SIGN_BIT": torch.signbit,
}
"""What an operator may apply to its result."""


def fused_activation(node: Node) -> str:
    """Return the name of the activation that an operator applies to its result."""
    options = node.options
    if options is None or "fused_activation_function" not in options.asdict() or node.operator.kind in _OWN_ACTIVATION:
        return "NONE"
    return str(options.fused_activation_function)


_OWN_ACTIVATION = frozenset({"UNIDIRECTIONAL_SEQUENCE_LSTM"})
"""Operators whose "fused" activation is inside of what they compute."""
