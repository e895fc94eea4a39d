# SPDX-License-Identifier: Apache-2.0
"""Does LiteRT take the file? Compile and run it once, with and without XNNPACK, and find the operator that fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from litesmith.errors import SessionError
from litesmith.model import Model, numpy_dtype
from litesmith.optimize._run import GraphRunner

_NODE = re.compile(r"Node number (\d+) \((\w+)\) failed to (prepare|invoke)")


@dataclass(frozen=True)
class Failure:
    """What LiteRT refused: an operator of a subgraph where it says so, and its own words."""

    subgraph: int
    operator: int | None
    message: str


def first_failure(model: Model, subgraphs: list[int], *, run: bool = True) -> Failure | None:
    """Return what LiteRT refuses about a model; None where it compiles and runs, on zeros, both ways."""
    for subgraph in subgraphs:
        for kernels in ("builtin", "delegate"):
            try:
                runner = GraphRunner(model, subgraph=subgraph, kernels=kernels)
                graph = model.subgraphs[subgraph]
                types = [graph.tensors[i].dtype for i in graph.inputs]
                if run and not {"string", "resource", "variant"} & set(types):
                    runner.run(
                        {i: np.zeros(graph.tensors[i].shape, numpy_dtype(graph.tensors[i].dtype)) for i in graph.inputs}
                    )
            except SessionError as error:
                return _failure(subgraph, str(error), kernels)
    return None


def _failure(subgraph: int, message: str, kernels: str) -> Failure:
    found = _NODE.search(message)
    operator = int(found[1]) if found and found[2] != "TfLiteXNNPackDelegate" else None
    words = message.replace("LiteRT cannot compile the model: ", "").replace("LiteRT cannot run the model: ", "")
    return Failure(subgraph, operator, f"LiteRT ({kernels} kernels) refuses it: {words.strip()[:200]}")
