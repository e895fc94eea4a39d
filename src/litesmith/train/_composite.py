# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_COMPOSITE: an operator that some runtimes know by its name, and all others by a graph that computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from litesmith.model import ABSENT
from litesmith.train._operators import ACTIVATIONS, Compute, Node, makes
from litesmith.train._steps import steps_of


@makes("STABLEHLO_COMPOSITE")
def composite(node: Node) -> Compute:
    """Make what its graph computes, as LiteRT does on a CPU; constants inside of it are not trained."""
    graph = node.decomposition()
    steps = steps_of(graph, node.subgraphs)
    constants = {
        index: torch.from_numpy(np.array(tensor.array()))
        for index, tensor in enumerate(graph.tensors)
        if tensor.buffer is not None and tensor.dtype != "string"
    }

    def compute(*inputs: Tensor | None) -> Any:
        values: dict[int, Any] = {ABSENT: None, **constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for step in steps:
            results = step.compute(*(values[t] for t in step.inputs))
            results = results if isinstance(results, (tuple, list)) else (results,)
            made = [ACTIVATIONS[step.activation](result) for result in results]
            values.update(zip(step.outputs, made, strict=False))
        outputs = tuple(values[t] for t in graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    return compute
