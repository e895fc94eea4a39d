# SPDX-License-Identifier: Apache-2.0
"""Walk through a subgraph piece by piece: keep the activations of some samples at the cut, run only what comes next.

A pass that changes a layer and then needs the inputs of the next one would run the model once for each layer. A walk
runs each operator once (or a few times) for each sample, in LiteRT, however many layers are changed on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import DataError
from litesmith.model import ABSENT, BITS, Model, Operator, Subgraph, Tensor
from litesmith.optimize._arithmetic import Affine, quantize_array
from litesmith.optimize._rules import CONTROL_FLOW
from litesmith.optimize._run import Data, Feed, GraphRunner, feeds, repeatable

Array = np.ndarray[Any, Any]
_LARGEST_HALF = 65504.0
_NOT_STORABLE = frozenset({"resource", "string", "variant"})


class Walk:
    """A subgraph on its way through its operators.

    Attributes:
        tensors, operators: of the subgraph; constants and operators ahead may be replaced at any time.

    With ``half``, floats are kept in 16 bits: twice as many samples in the same memory.
    """

    def __init__(self, model: Model, subgraph: int, samples: Sequence[Feed], *, half: bool = False) -> None:
        graph = model.subgraphs[subgraph]
        self._model, self._subgraph, self._graph = model, subgraph, graph
        self.tensors: list[Tensor] = list(graph.tensors)
        self.operators: list[Operator] = list(graph.operators)
        self._kept: dict[int, list[Array]] = {t: [feed[t] for feed in samples] for t in graph.inputs}
        self._samples, self._half = len(samples), half
        self._folded = constant_operators(graph)
        self._prepared = {t for i in self._folded for t in graph.operators[i].outputs}

    def pieces(self, stops: Iterable[int]) -> list[range]:
        """Return the operators in pieces that end at ``stops``, where everything that is still needed can be kept."""
        count = len(self.operators)
        ends = [stop + 1 for stop in sorted(set(stops)) if stop + 1 < count and self._can_cut(stop)]
        return [range(a, b) for a, b in zip([0, *ends], [*ends, count], strict=True) if a < b]

    def run(self, piece: range, watch: Sequence[int] = (), *, keep: bool) -> Iterator[list[Array]]:
        """Run a piece for each sample and yield the watched tensors, as views until the next sample.

        With ``keep``, what the operators behind the piece need is kept and what nothing needs any more is dropped; the
        next piece can then run.
        """
        ahead = self._needed(piece.stop)
        produced = {t for i in piece for t in self.operators[i].outputs}
        leaving = [t for t in dict.fromkeys(ahead) if t in produced] if keep else []
        model, place = self._extract(piece, [*dict.fromkeys([*watch, *leaving])])
        runner = GraphRunner(model, subgraph=self._entry(model))
        entering = [t for t in self._kept if t in place]
        stored: dict[int, list[Array]] = {t: [] for t in leaving}
        for sample in range(self._samples):
            runner.run({place[t]: _widened(self._kept[t][sample]) for t in entering})
            for tensor in leaving:
                stored[tensor].append(self._packed(runner.view(place[tensor])))
            yield [runner.view(place[t]) if t in place else _widened(self._kept[t][sample]) for t in watch]
        if keep:
            self._kept = {t: arrays for t, arrays in self._kept.items() if t in ahead} | stored

    def values(self, tensor: int) -> list[Array] | None:
        """Return a tensor that is kept at the cut, one array a sample, of 16 bits where they are kept so."""
        return self._kept.get(tensor)

    def _packed(self, values: Array) -> Array:
        if self._half and values.dtype == np.float32 and np.abs(values).max(initial=0.0) < _LARGEST_HALF:
            return np.asarray(values, np.float16)
        return np.array(values)

    def graph(self) -> Subgraph:
        """Return the subgraph with everything that was replaced."""
        return replace(self._graph, tensors=tuple(self.tensors), operators=tuple(self.operators))

    def _entry(self, model: Model) -> int:
        return 0 if len(model.subgraphs) == 1 else self._subgraph

    def _needed(self, start: int) -> set[int]:
        """Return the computed tensors that the operators from ``start`` on read."""
        behind = range(start, len(self.operators))
        return {t for i in behind if i not in self._folded for t in self.operators[i].inputs if self._is_kept(t)}

    def _is_kept(self, tensor: int) -> bool:
        if tensor == ABSENT or tensor in self._prepared:
            return False
        return not (self.tensors[tensor].is_constant or self.tensors[tensor].is_variable)

    def _can_cut(self, stop: int) -> bool:
        if any(op.kind == "VAR_HANDLE" for op in self.operators):
            return False  # state that one piece writes and another reads
        made = {t for op in self.operators[: stop + 1] for t in op.outputs} | set(self._graph.inputs)
        return not any(self.tensors[t].dtype in _NOT_STORABLE for t in self._needed(stop + 1) & made)

    def _extract(self, piece: range, outputs: list[int]) -> tuple[Model, dict[int, int]]:
        """Return the piece as a model of its own, and the place of each tensor in it."""
        inner = [i for i in piece if i not in self._folded]
        read = {t for i in inner for t in self.operators[i].inputs}
        chosen = sorted({*inner, *(i for i in self._folded if read & set(self.operators[i].outputs))})
        operators = [self.operators[i] for i in chosen]
        used = dict.fromkeys(t for op in operators for t in (*op.inputs, *op.outputs, *op.intermediates) if t != ABSENT)
        used |= dict.fromkeys(t for t in outputs if t in self._kept)
        used |= dict.fromkeys(s for t in list(used) for s in _block_scales(self.tensors[t]))
        place = {t: number for number, t in enumerate(used)}
        produced = {t for op in operators for t in op.outputs}
        graph = Subgraph(
            name=self._graph.name,
            tensors=tuple(_moved(self.tensors[t], place) for t in used),
            operators=tuple(_renumbered(op, place) for op in operators),
            inputs=tuple(place[t] for t in self._kept if t in place),
            outputs=tuple(place[t] for t in outputs if t in produced),
        )
        if not any(op.kind in CONTROL_FLOW for op in operators):
            return Model((graph,)), place
        others = self._model.subgraphs
        return Model((*others[: self._subgraph], graph, *others[self._subgraph + 1 :])), place


def _widened(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def spread_samples(model: Model, data: Data, count: int, *, signature: int = 0) -> list[Feed]:
    """Return what at most ``count`` samples from all over the data feed."""
    data = repeatable(data, count)
    try:
        return list(feeds(model, data, signature=signature))
    except DataError:
        if signature == 0:
            raise
        return []  # made for the first signature, they need not fit another


def as_fed(graph: Subgraph, feed: Feed) -> Feed:
    """Return a sample of the float model in the types of a quantized model's inputs."""
    fed = {}
    for index, values in feed.items():
        tensor = graph.tensors[index]
        quantization = tensor.quantization
        if tensor.dtype in ("int8", "int16") and values.dtype == np.float32 and quantization is not None:
            values = quantize_array(values, Affine(tensor.dtype, quantization.scale[0], quantization.zero_point[0]))
        fed[index] = values
    return fed


def affordable_samples(graph: Subgraph, budget_bytes: int) -> int:
    """Return of how many samples the activations at any cut can be kept, at least 1."""
    last_read = {t: index for index, op in enumerate(graph.operators) for t in op.inputs}
    kept, largest = sum(_bytes(graph.tensors[t]) for t in graph.inputs), 1
    leaving: dict[int, list[int]] = {}
    for tensor, index in last_read.items():
        leaving.setdefault(index, []).append(tensor)
    computed = {*graph.inputs, *graph.producers()}
    for index, op in enumerate(graph.operators):
        kept += sum(_bytes(graph.tensors[t]) for t in op.outputs if t in last_read)
        largest = max(largest, kept)
        kept -= sum(_bytes(graph.tensors[t]) for t in leaving.get(index, []) if t in computed)
    return max(budget_bytes // largest, 1)


def _bytes(tensor: Tensor) -> int:
    return tensor.elements * BITS.get(tensor.dtype, 32) // 8


def constant_operators(graph: Subgraph) -> list[int]:
    """Return the operators that only prepare constants, such as the DEQUANTIZE of stored weights."""
    fixed = {i for i, t in enumerate(graph.tensors) if t.is_constant}
    found = []
    for index, op in enumerate(graph.operators):
        if op.inputs and all(t in fixed or t == ABSENT for t in op.inputs):
            fixed.update(op.outputs)
            found.append(index)
    return found


def _renumbered(op: Operator, place: dict[int, int]) -> Operator:
    return replace(
        op,
        inputs=tuple(place.get(t, ABSENT) for t in op.inputs),
        outputs=tuple(place[t] for t in op.outputs),
        intermediates=tuple(place[t] for t in op.intermediates),
        debug_metadata_index=-1,
    )


def _block_scales(tensor: Tensor) -> tuple[int, ...]:
    """Return the tensors that hold the scales of blockwise weights."""
    details = tensor.quantization.details if tensor.quantization is not None else None
    return (details.scales,) if details is not None and details.table == "BlockwiseQuantization" else ()


def _moved(tensor: Tensor, place: dict[int, int]) -> Tensor:
    if not _block_scales(tensor):
        return tensor
    assert tensor.quantization is not None
    assert tensor.quantization.details is not None
    details = tensor.quantization.details.replace(scales=place[tensor.quantization.details.scales])
    return replace(tensor, quantization=replace(tensor.quantization, details=details))
