# SPDX-License-Identifier: Apache-2.0
"""One operator with what surrounds it, as the rules of verification see it."""

from __future__ import annotations

from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model._flatbuffer import Record
from litesmith.model._graph import ABSENT, Model, Operator, Subgraph, Tensor
from litesmith.model._operators import options_table


class Node:
    """An operator, its tensors, and an error that names them."""

    def __init__(self, model: Model, subgraph_index: int, index: int, uncertain: dict[int, set[int]]) -> None:
        self.model = model
        self.subgraph_index = subgraph_index
        self.index = index
        self.subgraph: Subgraph = model.subgraphs[subgraph_index]
        self.operator: Operator = self.subgraph.operators[index]
        self.all_uncertain = uncertain  # by subgraph, those that are called before those that call
        self.uncertain = uncertain[subgraph_index]

    @property
    def inputs(self) -> list[Tensor | None]:
        """The tensors it reads, None for one that is absent."""
        return [None if i == ABSENT else self.subgraph.tensors[i] for i in self.operator.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors it writes."""
        return [self.subgraph.tensors[i] for i in self.operator.outputs]

    @property
    def options(self) -> Any:
        """Its options; the defaults where the file leaves them out."""
        table = options_table(self.operator.kind)
        return self.operator.options or (Record(table) if table else None)

    def input(self, position: int) -> Tensor | None:
        """Return an input, None when it is absent."""
        return self.inputs[position] if position < len(self.operator.inputs) else None

    def values(self, position: int) -> np.ndarray[Any, Any] | None:
        """Return the values of a constant dense input, None when they are known only at run time."""
        tensor = self.input(position)
        if tensor is None or tensor.buffer is None or tensor.sparsity is not None:
            return None
        return tensor.array()

    def error(self, text: str, *, input: int | None = None, output: int | None = None) -> ModelError:  # noqa: A002
        """Return an error about the operator, or about one of its tensors."""
        place = f"subgraph {self.subgraph_index} {self.subgraph.name!r}, operator {self.index} {self.operator.name}: "
        for role, position, indices in (
            ("input", input, self.operator.inputs),
            ("output", output, self.operator.outputs),
        ):
            if position is not None:
                index = indices[position]
                place += f"{role} {position} (tensor {index} {self.subgraph.tensors[index].name!r}) "
        return ModelError(place + text)
