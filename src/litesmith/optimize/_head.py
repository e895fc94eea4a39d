# SPDX-License-Identifier: Apache-2.0
"""The output head: the last layer with weights and what follows it up to an output of the model.

An int8 output has 256 values. Among the scores of many classes several then share the largest one, and which of them
counts as the answer is chance. A head whose result stays float has no ties, and costs next to nothing: its weights
are int8 all the same, and its input is quantized on the fly.
"""

from __future__ import annotations

import math

from litesmith.model import Subgraph

_TAIL = frozenset({"LOGISTIC", "LOG_SOFTMAX", "RESHAPE", "SOFTMAX", "SQUEEZE", "TANH"})


def head_operators(graph: Subgraph) -> tuple[int, ...]:
    """Return the operators of all heads: a FULLY_CONNECTED, or a CONV_2D on a single position, and its tail."""
    producers, consumers = graph.producers(), graph.consumers()
    found: set[int] = set()
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
                found.update(chain)
                break
            if op.kind not in _TAIL:
                break
            tensor = op.inputs[0]
    return tuple(sorted(found))


def _is_single_position(graph: Subgraph, tensor: int) -> bool:
    shape = graph.tensors[tensor].shape
    return len(shape) == 4 and math.prod(shape[1:3]) == 1
