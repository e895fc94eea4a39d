# SPDX-License-Identifier: Apache-2.0
"""The output head: the last layer with weights, what follows it up to an output of the model, and a pooling before it.

An int8 output has 256 values. Among the scores of many classes several then share the largest one, and which of them
counts as the answer is chance. A head whose result stays float has no ties, and costs next to nothing: its weights
are int8 all the same, and its input is quantized on the fly. A mean over all positions is small beside the values it is
of, and on their scale would use few of the 256 steps; in float it is exact.
"""

from __future__ import annotations

import math

from litesmith.model import Subgraph

_POOLS = frozenset({"AVERAGE_POOL_2D", "MEAN"})
_MOVES = frozenset({"RESHAPE", "SQUEEZE"})
_TAIL = frozenset({"LOGISTIC", "LOG_SOFTMAX", "RESHAPE", "SOFTMAX", "SQUEEZE", "TANH"})


def head_operators(graph: Subgraph) -> tuple[int, ...]:
    """Return the operators of all heads: a FULLY_CONNECTED, or a CONV_2D on a single position, and its tail."""
    return tuple(sorted({index for chain in _heads(graph) for index in chain}))


def pooled_heads(graph: Subgraph) -> dict[int, int]:
    """Return the operators of all heads, those from a pooling on included, each with the layer of its head."""
    return {
        index: chain[-1]
        for chain in _heads(graph)
        for index in (*chain, *_pooling(graph, graph.operators[chain[-1]].inputs[0]))
    }


def _heads(graph: Subgraph) -> list[list[int]]:
    """Return the operators of each head from the output back to its layer."""
    producers, consumers = graph.producers(), graph.consumers()
    found = []
    for output in graph.outputs:
        chain: list[int] = []
        tensor = output
        while tensor in producers:
            index = producers[tensor]
            op = graph.operators[index]
            if any(user not in chain for user in consumers.get(tensor, [])):
                break
            chain.append(index)
            if op.kind == "FULLY_CONNECTED" or (op.kind == "CONV_2D" and _is_single_position(graph, tensor)):
                found.append(chain)
                break
            if op.kind not in _TAIL:
                break
            tensor = op.inputs[0]
    return found


def _pooling(graph: Subgraph, tensor: int) -> list[int]:
    """Return the operators from a mean over all positions to the head, empty where there is none or others read it."""
    producers, consumers = graph.producers(), graph.consumers()
    chain: list[int] = []
    while tensor in producers and len(consumers.get(tensor, [])) == 1 and tensor not in graph.outputs:
        index = producers[tensor]
        op = graph.operators[index]
        chain.append(index)
        if op.kind in _POOLS:
            shape = graph.tensors[tensor].shape
            return chain if math.prod(shape[:-1]) == shape[0] else []
        if op.kind not in _MOVES:
            break
        tensor = op.inputs[0]
    return []


def _is_single_position(graph: Subgraph, tensor: int) -> bool:
    shape = graph.tensors[tensor].shape
    return len(shape) == 4 and math.prod(shape[1:3]) == 1
