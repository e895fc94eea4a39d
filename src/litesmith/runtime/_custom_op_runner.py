# SPDX-License-Identifier: Apache-2.0
"""Run a subgraph with custom operators by tensor index: the wheel's Interpreter, which could, takes no kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from litesmith.model import Model, Signature
from litesmith.runtime._arrays import Array
from litesmith.runtime._custom_op_binding import kernels_of
from litesmith.runtime._session import Session

_KEY = "litesmith_by_index"


class IndexedSession:
    """A session of one subgraph, fed and read by tensor index."""

    def __init__(self, model: Model, *, subgraph: int = 0, kernels: str = "delegate", threads: int = 1) -> None:
        graph = model.subgraphs[subgraph]
        entry = Signature(
            key=_KEY,
            inputs=tuple((f"in{index}", index) for index in graph.inputs),
            outputs=tuple((f"out{index}", index) for index in dict.fromkeys(graph.outputs)),
            subgraph_index=subgraph,
        )
        self._session = Session(replace(model, signatures=(entry,)), kernels=kernels, threads=threads, verify=False)

    def run(self, feed: Mapping[int, Array]) -> None:
        """Run once; an input of another shape than before is resized first."""
        named = {f"in{index}": array for index, array in feed.items()}
        self._session.resize({n: a.shape for n, a in named.items() if a.shape != self._session.inputs[n].shape})
        self._session.run(named)

    def view(self, index: int) -> Array:
        """Return the values of an output, as a view until the next run."""
        return self._session.outputs[f"out{index}"]


def indexed_session(
    model: Model, *, subgraph: int = 0, kernels: str = "delegate", threads: int = 1
) -> IndexedSession | None:
    """Return a session by index where the model has custom operators with registered kernels, else None."""
    if not kernels_of(model):
        return None
    return IndexedSession(model, subgraph=subgraph, kernels=kernels, threads=threads)
