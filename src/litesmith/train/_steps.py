# SPDX-License-Identifier: Apache-2.0
"""The operators of a graph, made ready to run one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.model import ABSENT, Subgraph
from litesmith.train._operators import Compute, Node, fused_activation, make


@dataclass(frozen=True)
class Step:
    """One operator, ready to run.

    Attributes:
        index: its place in the file.
        compute: what it does, up to its activation.
        activation: the name of what is then applied.
        inputs: the tensors it reads.
        outputs: the tensors it writes.
        last: the tensors that nobody reads afterwards.
    """

    index: int
    compute: Compute
    activation: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last: tuple[int, ...]


def steps_of(graph: Subgraph, subgraphs: Sequence[Subgraph]) -> tuple[Step, ...]:
    """Return the operators of a graph in order; ``subgraphs`` are all of its model, which some of them call."""
    nodes = [Node(graph, op, index, subgraphs) for index, op in enumerate(graph.operators)]
    last_reader = {t: index for index, op in enumerate(graph.operators) for t in op.inputs if t != ABSENT}
    ends: dict[int, list[int]] = {}
    for tensor, reader in last_reader.items():
        ends.setdefault(reader, []).append(tensor)
    return tuple(
        Step(
            node.index,
            make(node),
            fused_activation(node),
            node.operator.inputs,
            node.operator.outputs,
            tuple(ends.get(node.index, ())),
        )
        for node in nodes
    )
