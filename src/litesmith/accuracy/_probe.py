# SPDX-License-Identifier: Apache-2.0
"""Two models that show everything at once: what each layer computes, in float, quantized, and quantized alone.

The first is the float model with each operator of the quantized one beside its float original, reading the original's
inputs, rounded to the scales it expects; and once more the float operator, on the same rounded inputs, so that the
operator's own error can be told from that of the rounding before it. The second is the quantized model with its inner
tensors as outputs. One run of each tells the error of all layers, isolated and accumulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from litesmith.accuracy._correspond import CONVERSIONS, Correspondence, Match, entry
from litesmith.accuracy._moves import hands_on
from litesmith.model import ABSENT, Model, Operator, Record, Signature, Subgraph, Tensor, constant

_CONTROL_FLOW = frozenset({"CALL_ONCE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "WHILE"})
KEY = "probe"


def tensor_name(index: int) -> str:
    """Return the name under which a probe gives a tensor."""
    return f"t{index}"


@dataclass(frozen=True)
class IsolatedProbe:
    """The float model with isolated operators, and where their outputs are, by index in the quantized model.

    Attributes:
        model: the probe.
        outputs: of the quantized operators.
        expected: of the float operators on the same rounded inputs, where that differs from the float model.
    """

    model: Model
    outputs: Mapping[int, int]
    expected: Mapping[int, int]


def exposed(model: Model, tensors: Iterable[int]) -> Model:
    """Return a model with one signature that gives these tensors and its own outputs, named by their index."""
    position = entry(model)
    graph = model.subgraphs[position]
    wanted = tuple(dict.fromkeys((*graph.outputs, *tensors)))
    names = _input_names(model)
    signature = Signature(
        KEY,
        tuple((name, index) for index, name in names.items()),
        tuple((tensor_name(t), t) for t in wanted),
        position,
    )
    graphs = list(model.subgraphs)
    graphs[position] = replace(graph, outputs=wanted)
    return replace(model, subgraphs=tuple(graphs), signatures=(signature,))


def isolated(
    float_model: Model, quantized_model: Model, found: Correspondence, matches: Sequence[Match]
) -> IsolatedProbe:
    """Return the float model with the quantized operators of ``matches`` beside their originals."""
    real = float_model.subgraphs[entry(float_model)]
    quantized = quantized_model.subgraphs[entry(quantized_model)]
    building = _Building(real, quantized, found)
    behind: dict[int, list[Operator]] = {}
    outputs: dict[int, int] = {}
    expected: dict[int, int] = {}
    for match in matches:
        if not can_isolate(quantized, found, match):
            continue
        added = behind.setdefault(match.float_operator, [])
        operator = quantized.operators[match.operator]
        added += building.isolate(operator)
        outputs[match.tensor] = building.place_of[match.tensor]
        if not hands_on(quantized, operator):
            original = building.original(operator, real.operators[match.float_operator])
            added += original
            if original:
                expected[match.tensor] = original[-1].outputs[0]
    operators: list[Operator] = []
    for index, operator in enumerate(real.operators):
        operators += (operator, *behind.get(index, ()))
    graph = replace(real, tensors=tuple(building.tensors), operators=tuple(operators))
    position = entry(float_model)
    graphs = (*float_model.subgraphs[:position], graph, *float_model.subgraphs[position + 1 :])
    shown = [*(m.float_tensor for m in matches), *outputs.values(), *expected.values()]
    return IsolatedProbe(exposed(replace(float_model, subgraphs=graphs), shown), outputs, expected)


def can_isolate(graph: Subgraph, found: Correspondence, match: Match) -> bool:
    """Say whether an operator can be run on its float inputs: it has no state, and all its inputs have an original."""
    operator = graph.operators[match.operator]
    if operator.kind in _CONTROL_FLOW or operator.kind in CONVERSIONS:
        return False
    read = [t for t in operator.inputs if t != ABSENT]
    return not any(graph.tensors[t].is_variable for t in read) and all(
        t in found.constants or t in found.tensors for t in read
    )


@dataclass
class _Building:
    """The tensors of the probe as it grows."""

    real: Subgraph
    quantized: Subgraph
    found: Correspondence
    tensors: list[Tensor] = field(init=False)
    place_of: dict[int, int] = field(init=False, default_factory=dict)
    _inputs: dict[int, int] = field(init=False, default_factory=dict)
    _reals: dict[int, int] = field(init=False, default_factory=dict)
    _producers: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = list(self.real.tensors)
        self._producers = self.quantized.producers()

    def isolate(self, operator: Operator) -> list[Operator]:
        """Return a copy of a quantized operator that reads float originals, and the conversions it needs."""
        needed: list[Operator] = []
        inputs = tuple(ABSENT if t == ABSENT else self._input(t, needed) for t in operator.inputs)
        outputs = []
        for index in operator.outputs:
            self.place_of[index] = self._add(self.quantized.tensors[index])
            outputs.append(self.place_of[index])
        intermediates = tuple(self._add(self.quantized.tensors[t]) for t in operator.intermediates)
        return [*needed, replace(operator, inputs=inputs, outputs=tuple(outputs), intermediates=intermediates)]

    def original(self, operator: Operator, real: Operator) -> list[Operator]:
        """Return a copy of the float operator that reads the rounded inputs; nothing where none is rounded."""
        read = {self.found.tensors[t]: t for t in operator.inputs if t in self.found.tensors}
        rounded = {real: t for real, t in read.items() if self._is_rounded(t, real)}
        used = {t for t in real.inputs if t in read}
        if operator.name != real.name or not rounded or used != read.keys():
            return []
        needed: list[Operator] = []
        inputs = tuple(self._real(rounded[t], needed) if t in rounded else t for t in real.inputs)
        outputs = tuple(self._add(self.real.tensors[t]) for t in real.outputs)
        return [*needed, replace(real, inputs=inputs, outputs=outputs)]

    def _real(self, index: int, needed: list[Operator]) -> int:
        """Return a rounded input as a float tensor."""
        if index not in self._reals:
            tensor = self.quantized.tensors[index]
            self._reals[index] = self._add(replace(tensor, dtype="float32", quantization=None))
            version = 3 if tensor.dtype == "int16" else 2
            needed.append(Operator("DEQUANTIZE", (self._inputs[index],), (self._reals[index],), version=version))
            shape = self.real.tensors[self.found.tensors[index]].shape
            self._reals[index] = self._shaped(self._reals[index], shape, needed)
        return self._reals[index]

    def _is_rounded(self, index: int, real: int) -> bool:
        return self.quantized.tensors[index].dtype != self.real.tensors[real].dtype

    def _shaped(self, place: int, shape: tuple[int, ...], needed: list[Operator]) -> int:
        """Return a tensor in the shape that an operator reads it in: pixels may be folded into channels."""
        tensor = self.tensors[place]
        if tensor.shape == shape:
            return place
        made = self._add(replace(tensor, shape=shape, shape_signature=None))
        sizes = (-1, *shape[1:])
        wanted = self._add(constant("shape", np.array(sizes, np.int32)))
        needed.append(Operator("RESHAPE", (place, wanted), (made,), Record("ReshapeOptions", new_shape=sizes)))
        return made

    def _input(self, index: int, needed: list[Operator]) -> int:
        if index in self._inputs:
            return self._inputs[index]
        tensor = self.quantized.tensors[index]
        if index in self.found.constants:
            place = self._constant(index, needed)
        else:
            real = self.found.tensors[index]
            place = self._shaped(real, tensor.shape, needed)
            if self._is_rounded(index, real):
                place = self._rounded(index, place, needed)
        self._inputs[index] = place
        return place

    def _constant(self, index: int, needed: list[Operator]) -> int:
        place = self._add(self.quantized.tensors[index])
        if index in self._producers:  # weights that are stored smaller and converted at run time
            operator = self.quantized.operators[self._producers[index]]
            inputs = tuple(self._input(t, needed) for t in operator.inputs)
            needed.append(replace(operator, inputs=inputs, outputs=(place,)))
        return place

    def _rounded(self, index: int, real: int, needed: list[Operator]) -> int:
        place = self._add(self.quantized.tensors[index])
        version = 2 if self.quantized.tensors[index].dtype == "int16" else 1
        needed.append(Operator("QUANTIZE", (real,), (place,), version=version))
        return place

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(replace(tensor, name=f"isolated/{len(self.tensors)}/{tensor.name}"))
        return len(self.tensors) - 1


def _input_names(model: Model) -> dict[int, str]:
    """Return the names of the inputs by tensor index, as a Session has them."""
    from litesmith.runtime._backend import unique_names

    if model.signatures:
        return {index: name for name, index in model.signatures[0].inputs}
    graph = model.main
    names = unique_names([graph.tensors[i].name for i in graph.inputs], "input")
    return dict(zip(graph.inputs, names, strict=True))
