# SPDX-License-Identifier: Apache-2.0
"""Make inner tensors visible: a copy of a model that returns them as further outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from litesmith.errors import ModelError
from litesmith.model._graph import Model


def expose(model: Model, tensors: Iterable[int], *, subgraph: int = 0) -> Model:
    """Return a model whose subgraph also returns ``tensors``, behind its own outputs and each once.

    Indices stay what they are. A constant cannot be exposed: it is in the file. Signatures keep their own outputs, so
    the exposed tensors are read by index.
    """
    graph = model.subgraphs[subgraph]
    wanted = [t for t in dict.fromkeys(tensors) if t not in graph.outputs]
    for index in wanted:
        if not 0 <= index < len(graph.tensors):
            raise ModelError(f"there is no tensor {index} to expose: subgraph {subgraph} has {len(graph.tensors)}")
        if graph.tensors[index].is_constant:
            raise ModelError(f"tensor {index} {graph.tensors[index].name!r} is a constant and cannot be an output")
    opened = replace(graph, outputs=(*graph.outputs, *wanted))
    graphs = (*model.subgraphs[:subgraph], opened, *model.subgraphs[subgraph + 1 :])
    return replace(model, subgraphs=graphs)
