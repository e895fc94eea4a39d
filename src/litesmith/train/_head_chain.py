# SPDX-License-Identifier: Apache-2.0
"""Where a classifier decides: its last layer with weights, and what stands between it and an output."""

from __future__ import annotations

import math

from litesmith.model import Subgraph

_BEHIND = frozenset({"LOGISTIC", "LOG_SOFTMAX", "RESHAPE", "SOFTMAX", "SQUEEZE"})


def head_chains(graph: Subgraph) -> list[list[int]]:
    """Return for each output that a layer decides the operators from that layer on."""
    chains = []
    producers, consumers = graph.producers(), graph.consumers()
    for output in dict.fromkeys(graph.outputs):
        chain: list[int] = []
        tensor = output
        while tensor in producers and len(consumers.get(tensor, [])) == (1 if chain else 0):
            index = producers[tensor]
            chain.insert(0, index)
            op = graph.operators[index]
            if op.kind == "FULLY_CONNECTED" or (op.kind == "CONV_2D" and _is_one_position(graph.tensors[tensor].shape)):
                chains.append(chain)
                break
            if op.kind not in _BEHIND:
                break
            tensor = op.inputs[0]
    return chains


def head_layers(graph: Subgraph) -> set[int]:
    """Return the last layers, by index."""
    return {chain[0] for chain in head_chains(graph)}


def _is_one_position(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and math.prod(shape[1:3]) == 1
