# SPDX-License-Identifier: Apache-2.0
"""Which tensor of a quantized model is which of the float model it was made from.

Quantizers keep the graph and add conversions (QUANTIZE, DEQUANTIZE) at will; some keep names, some append to them, some
fuse. So the graphs are walked side by side from the inputs: an operator corresponds to the one of the same kind that
reads the corresponding tensors. Where the walk is stuck, names help; then it goes back from the outputs.

What was folded before has its values in the same order in memory, in other shapes, and so corresponds. Where channels were
removed, an operator of the same name and place corresponds too, but not its values: which ones are left is not written in
the file, and weights that were fitted anew do not tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from litesmith.errors import DataError
from litesmith.model import ABSENT, Model, Operator, Subgraph, Tensor

CONVERSIONS = frozenset({"DEQUANTIZE", "QUANTIZE"})
_STORED = CONVERSIONS | {"DENSIFY"}
_ADDED = re.compile(r"(_(quantized|requantized|dequantized|dequantize|quantize|dequant|quant|int8|int16|float))+\d*$")
_REAL = frozenset({"float32", "int8", "uint8", "int16"})
_LEAST_SHARE = 0.5
WHAT_TO_GIVE = (
    "give the float model it was made from; if its channels were removed or its pixels folded before it was quantized, "
    "that is the narrower or folded float model"
)


@dataclass(frozen=True)
class Match:
    """An operator of the quantized model and its tensor in both models.

    Attributes:
        operator: index in the quantized graph.
        float_operator: index of the operator that writes the tensor in the float graph.
        tensor: the first output, in the quantized graph.
        float_tensor: the same in the float graph.
    """

    operator: int
    float_operator: int
    tensor: int
    float_tensor: int


@dataclass(frozen=True)
class Correspondence:
    """How two graphs correspond.

    Attributes:
        tensors: for each tensor of the quantized graph that has one, the tensor of the float graph with the same values.
        matches: the operators whose first output corresponds, in the order of the quantized graph.
        unmatched: operators that compute reals and have no counterpart.
        narrower: operators whose counterpart has more channels.
        folded: whether any tensor has another shape than its counterpart.
        constants: tensors of the quantized graph that are constant, or computed from constants only.
    """

    tensors: dict[int, int]
    matches: tuple[Match, ...]
    unmatched: tuple[int, ...]
    narrower: tuple[int, ...]
    folded: bool
    constants: frozenset[int]


def entry(model: Model) -> int:
    """Return the subgraph that runs by default."""
    return model.signatures[0].subgraph_index if model.signatures else 0


def correspond(float_model: Model, quantized_model: Model) -> Correspondence:
    """Match a quantized model to its float original; refuse models that are not of one origin."""
    real, quantized = float_model.subgraphs[entry(float_model)], quantized_model.subgraphs[entry(quantized_model)]
    _check_borders(real, quantized)
    return _Matching(real, quantized).result()


def stored_constants(graph: Subgraph) -> frozenset[int]:
    """Return the tensors that are constant, or a conversion of constants."""
    found = {i for i, tensor in enumerate(graph.tensors) if tensor.is_constant}
    for operator in graph.operators:
        if operator.kind in _STORED and operator.inputs and operator.inputs[0] in found:
            found.update(operator.outputs)
    return frozenset(found)


class _Matching:
    """The state of a walk along both graphs."""

    def __init__(self, real: Subgraph, quantized: Subgraph) -> None:
        self._real, self._quantized = real, quantized
        self._real_constants, self.constants = stored_constants(real), stored_constants(quantized)
        self._alias = self._real_aliases()
        self._readers = self._real_readers()
        self._by_name = self._real_names()
        self._producer = real.producers()
        self._used: set[int] = set()
        self._views: set[int] = set()
        self.tensors: dict[int, int] = dict(zip(quantized.inputs, real.inputs, strict=True))

    def result(self) -> Correspondence:
        self._forward()
        self._backward()
        self._forward()
        matches, unmatched, narrower = [], [], []
        for index, operator in enumerate(self._quantized.operators):
            if not self._computes(operator):
                continue
            match = self._match(index, operator)
            if match is None:
                unmatched.append(index)
            elif self._same_values(match.tensor, match.float_tensor):
                matches.append(match)
            else:
                narrower.append(index)
        known, total = len(matches) + len(narrower), len(matches) + len(narrower) + len(unmatched)
        if known < _LEAST_SHARE * total or not matches:
            raise DataError(
                f"the two models do not correspond: only {known} of {total} operators of the quantized one have a "
                f"counterpart in the float one; {WHAT_TO_GIVE}"
            )
        tensors = {ours: theirs for ours, theirs in self.tensors.items() if self._same_values(ours, theirs)}
        folded = any(self._shapes(ours, theirs)[0] != self._shapes(ours, theirs)[1] for ours, theirs in tensors.items())
        return Correspondence(tensors, tuple(matches), tuple(unmatched), tuple(narrower), folded, self.constants)

    def _match(self, index: int, operator: Operator) -> Match | None:
        tensor = operator.outputs[0]
        real = self.tensors.get(tensor)
        if real is None or real in self._real.inputs or self._real.tensors[real].dtype != "float32":
            return None
        return Match(index, self._producer[real], tensor, real)

    def _computes(self, operator: Operator) -> bool:
        if operator.kind in _STORED or not operator.outputs or operator.outputs[0] in self.constants | self._views:
            return False
        return self._quantized.tensors[operator.outputs[0]].dtype in _REAL

    def _forward(self) -> None:
        for operator in self._quantized.operators:
            if operator.kind in CONVERSIONS:
                source = operator.inputs[0]
                if source in self.tensors:
                    self.tensors.setdefault(operator.outputs[0], self.tensors[source])
                continue
            if all(t in self.tensors for t in operator.outputs):
                continue
            read = self._activations(operator.inputs)
            if read and all(t in self.tensors for t in read):
                self._pair_by_graph(operator, tuple(self.tensors[t] for t in read))
                self._pair_view(operator, read[0])
            self._pair_by_name(operator)

    def _pair_by_graph(self, operator: Operator, read: tuple[int, ...]) -> None:
        readers = self._readers.get((operator.name, read), ())
        for fits in (self._same_values, self._is_narrower):
            candidates = [c for c in readers if self._fits(operator, c, fits)]
            if candidates:
                break
        else:
            return
        same_name = [
            c for c in candidates if self._name_of(c) == _bare(self._quantized.tensors[operator.outputs[0]].name)
        ]
        chosen = (same_name or candidates)[0]
        self._used.add(chosen)
        for ours, theirs in zip(operator.outputs, self._real.operators[chosen].outputs, strict=True):
            self.tensors.setdefault(ours, theirs)

    def _fits(self, operator: Operator, candidate: int, fits: Callable[[int, int], bool]) -> bool:
        if candidate in self._used:
            return False
        other = self._real.operators[candidate]
        return len(other.outputs) == len(operator.outputs) and all(
            fits(ours, theirs) for ours, theirs in zip(operator.outputs, other.outputs, strict=True)
        )

    def _shapes(self, ours: int, theirs: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._quantized.tensors[ours].shape, self._real.tensors[theirs].shape

    def _same_values(self, ours: int, theirs: int) -> bool:
        """Say whether two tensors have the same values in the same order: of one shape, or pixels folded into channels."""
        shape, original = self._shapes(ours, theirs)
        return shape == original or (
            len(shape) == len(original) == 4
            and shape[:2] == original[:2]
            and shape[2] * shape[3] == original[2] * original[3]
            and shape[3] % max(1, original[3]) == 0
        )

    def _is_narrower(self, ours: int, theirs: int) -> bool:
        """Say whether a tensor is another one with fewer channels: it has kept the name."""
        shape, original = self._shapes(ours, theirs)
        narrower = len(shape) == len(original) and all(a <= b for a, b in zip(shape, original, strict=True))
        return narrower and _bare(self._quantized.tensors[ours].name) == _bare(self._real.tensors[theirs].name)

    def _pair_view(self, operator: Operator, read: int) -> None:
        """Pair a tensor that is only another shape of one that is paired already."""
        made = operator.outputs[0]
        if operator.kind == "RESHAPE" and made not in self.tensors and self._same_values(made, self.tensors[read]):
            self.tensors[made] = self.tensors[read]
            self._views.add(made)

    def _pair_by_name(self, operator: Operator) -> None:
        for index in operator.outputs:
            tensor = self._quantized.tensors[index]
            found = self._by_name.get((_bare(tensor.name), tensor.shape))
            if index not in self.tensors and found is not None and found not in self.tensors.values():
                self.tensors[index] = found

    def _backward(self) -> None:
        """Follow both graphs back from their outputs, and from everything that was matched."""
        for ours, theirs in zip(self._quantized.outputs, self._real.outputs, strict=True):
            self.tensors.setdefault(ours, self._alias.get(theirs, theirs))
        for operator in reversed(self._quantized.operators):
            if not operator.outputs or operator.outputs[0] not in self.tensors:
                continue
            real = self.tensors[operator.outputs[0]]
            if operator.kind in CONVERSIONS:
                if operator.inputs[0] not in self.constants:
                    self.tensors.setdefault(operator.inputs[0], real)
                continue
            other = self._real.operators[self._producer[real]] if real in self._producer else None
            if other is None or other.name != operator.name:
                continue
            read = self._activations(operator.inputs)
            originals = [self._alias.get(t, t) for t in other.inputs if t != ABSENT and t not in self._real_constants]
            if len(read) == len(originals):
                for one, two in zip(read, originals, strict=True):
                    if self._same_values(one, two):
                        self.tensors.setdefault(one, two)

    def _activations(self, inputs: Iterable[int]) -> list[int]:
        return [
            t for t in inputs if t != ABSENT and t not in self.constants and not self._quantized.tensors[t].is_variable
        ]

    def _real_aliases(self) -> dict[int, int]:
        """Return, for each tensor that is a mere conversion of another, that other."""
        alias: dict[int, int] = {}
        for operator in self._real.operators:
            if operator.kind in CONVERSIONS and operator.inputs[0] not in self._real_constants:
                alias[operator.outputs[0]] = alias.get(operator.inputs[0], operator.inputs[0])
        return alias

    def _real_readers(self) -> dict[tuple[str, tuple[int, ...]], list[int]]:
        readers: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for index, operator in enumerate(self._real.operators):
            read = tuple(
                self._alias.get(t, t)
                for t in operator.inputs
                if t != ABSENT and t not in self._real_constants and not self._real.tensors[t].is_variable
            )
            readers.setdefault((operator.name, read), []).append(index)
        return readers

    def _real_names(self) -> dict[tuple[str, tuple[int, ...]], int]:
        """Return tensors by name and shape; names that occur twice help nobody."""
        named: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for operator in self._real.operators:
            for index in operator.outputs:
                tensor: Tensor = self._real.tensors[index]
                if index not in self._alias and index not in self._real_constants and tensor.name:
                    named.setdefault((_bare(tensor.name), tensor.shape), []).append(index)
        return {key: found[0] for key, found in named.items() if len(found) == 1}

    def _name_of(self, operator: int) -> str:
        return _bare(self._real.tensors[self._real.operators[operator].outputs[0]].name)


def _bare(name: str) -> str:
    """Return a name without what quantizers append.

    Example:
        >>> _bare("block/conv_quantized"), _bare("block/conv1")
        ('block/conv', 'block/conv1')
    """
    return _ADDED.sub("", name)


def _check_borders(real: Subgraph, quantized: Subgraph) -> None:
    for what, ours, theirs in (("inputs", real.inputs, quantized.inputs), ("outputs", real.outputs, quantized.outputs)):
        shapes = [[list(graph.tensors[i].shape) for i in side] for graph, side in ((real, ours), (quantized, theirs))]
        if shapes[0] != shapes[1]:
            raise DataError(
                f"the two models do not correspond: the {what} of the float one are {_texts(shapes[0])}, those of the "
                f"quantized one {_texts(shapes[1])}; {WHAT_TO_GIVE}"
            )


def _texts(shapes: list[list[int]]) -> str:
    return ", ".join(str(shape) for shape in shapes) or "none"
