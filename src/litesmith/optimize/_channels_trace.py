# SPDX-License-Identifier: Apache-2.0
"""Which channels must vanish together: every channel of every tensor, traced through the operators.

Each index of the channel axis of a computed tensor, the last axis unless a TRANSPOSE moved it, is a node. An operator
ties nodes: an ADD ties channel c of both inputs and the output, a concatenation ties its output to its parts, a flattening
ties all features that come from one channel, a depthwise layer ties what it reads to what it writes. Connected nodes form
an *atom*: the smallest thing that can be removed. Whatever an operator does that is not known to be safe *pins* the nodes
that it touches, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Operator, Subgraph, Tensor
from litesmith.optimize._layer_rules import WEIGHT_KINDS, op_bias, op_input

Array = np.ndarray[Any, Any]

_ALIKE = frozenset({
    "ABS", "CAST", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG", "LOGISTIC", "NEG",
    "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH",
    "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR",
    "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND",
})  # fmt: skip
"""Operators whose output channel depends on the same channel of their first input only."""
_POINTWISE = _ALIKE - {
    "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "BATCH_TO_SPACE_ND",
    "SPACE_TO_BATCH_ND",
}  # fmt: skip
_TWO = frozenset({"ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "PRELU", "SQUARED_DIFFERENCE", "SUB"})
_ACROSS = frozenset({"L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX"})
_REDUCTIONS = frozenset({"MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"})


class Pin(Exception):
    """An operator in the way, and why."""


class Trace:
    """The atoms of a subgraph.

    Attributes:
        atoms: of each computed tensor that is no single value, the atom of each index along its channel axis.
        axes: the channel axis of tensors where it is not the last one.
        pinned: why an atom must stay, by atom.
    """

    def __init__(self, graph: Subgraph, held: Collection[int] = ()) -> None:
        """Trace a subgraph; the constants ``held`` elsewhere too must stay as they are."""
        self.graph, self._held = graph, held
        self._start: dict[int, int] = {}
        self._ties: list[tuple[Array, Array]] = []
        self._pins: list[tuple[Array, str]] = []
        self._count = 0
        self._shared: dict[int, Operator] = {}
        self.axes = _moved_axes(graph)
        computed = {*graph.inputs, *(t for op in graph.operators for t in op.outputs)}
        for tensor in sorted(computed):
            if graph.tensors[tensor].shape:
                self._start[tensor] = self._count
                self._count += max(graph.tensors[tensor].shape[self.axes.get(tensor, -1)], 1)
        self._walk()
        self.atoms, self.pinned = self._collected()

    def nodes(self, tensor: int) -> Array:
        """Return the nodes of a computed tensor, one for each index of its channel axis."""
        if tensor not in self._start:
            return np.zeros(0, np.int64)
        width = self.graph.tensors[tensor].shape[self.axes.get(tensor, -1)]
        return np.arange(max(width, 1)) + self._start[tensor]

    def tie(self, one: Array, other: Array) -> None:
        """Let nodes vanish together."""
        assert one.shape == other.shape
        self._ties.append((one, other))

    def pin(self, tensor: int, reason: str) -> None:
        """Let all channels of a tensor stay."""
        if tensor != ABSENT and not self.graph.tensors[tensor].is_constant:
            self._pins.append((self.nodes(tensor), reason))

    def _walk(self) -> None:
        for tensor in self.graph.inputs:
            self.pin(tensor, "it is an input of the model")
        for tensor in self.graph.outputs:
            self.pin(tensor, "it is an output of the model")
        for index, op in enumerate(self.graph.operators):
            try:
                self._operator(op)
            except Pin as pin:
                for tensor in (*op.inputs, *op.outputs):
                    self.pin(tensor, f"#{index} {op.name}: {pin}")

    def _operator(self, op: Operator) -> None:
        tensors = self.graph.tensors
        if any(
            tensors[t].is_quantized and tensors[t].dtype != "float32" for t in (*op.inputs, *op.outputs) if t != ABSENT
        ):
            raise Pin("it works on quantized tensors")
        if len(op.inputs) > 1 and op.kind in WEIGHT_KINDS and op.inputs[1] in self._held:
            raise Pin("another subgraph, such as that of another signature, has the same weights")
        if any(t in self.axes for t in (*op.inputs, *op.outputs)):
            _aside(self, op)
            return
        rule = _RULES.get(op.kind)
        if op.kind in _ACROSS:
            raise Pin("it weighs channels against each other")
        if rule is not None:
            rule(self, op)
        elif op.kind in _ALIKE:
            self._through(op)
        elif op.kind in _TWO:
            _two(self, op)
        elif op.kind in _REDUCTIONS:
            _reduction(self, op)
        else:
            raise Pin("what it does to channels is not known")

    def _through(self, op: Operator) -> None:
        self._same_width(op.inputs[0], op.outputs[0])
        self.tie(self.nodes(op.inputs[0]), self.nodes(op.outputs[0]))

    def _same_width(self, one: int, other: int) -> None:
        shapes = self.graph.tensors[one].shape, self.graph.tensors[other].shape
        if not shapes[0] or not shapes[1] or shapes[0][-1] != shapes[1][-1] or self.graph.tensors[one].is_constant:
            raise Pin(f"it goes from shape {list(shapes[0])} to {list(shapes[1])}")

    def _collected(self) -> tuple[dict[int, Array], dict[int, str]]:
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        one = np.concatenate([np.zeros(0, np.int64), *(a for a, _ in self._ties)])
        other = np.concatenate([np.zeros(0, np.int64), *(b for _, b in self._ties)])
        links = coo_matrix((np.ones(len(one), np.int8), (one, other)), (self._count, self._count))
        labels = connected_components(links, directed=False)[1] if self._count else np.zeros(0, np.int64)
        pinned: dict[int, str] = {}
        for nodes, reason in self._pins:
            for atom in np.unique(labels[nodes]).tolist():
                pinned.setdefault(atom, reason)
        return {tensor: labels[self.nodes(tensor)] for tensor in self._start}, pinned

    # ---------------------------------------------------------------- one rule for each kind of operator

    def constants(self, tensor: int, values: str) -> Array:
        """Return the integers of a constant."""
        found = self.graph.tensor(tensor)
        if found is None or found.buffer is None or found.sparsity is not None:
            raise Pin(f"its {values} is not a constant")
        return np.ravel(found.array())


def _layer(trace: Trace, op: Operator) -> None:
    """A layer reads channels and writes new ones; only groups tie anything."""
    tensors = trace.graph.tensors
    weight, bias = tensors[op.inputs[1]], trace.graph.tensor(op_bias(op))
    for tensor in (weight, *([bias] if bias is not None else [])):
        if tensor.buffer is None or tensor.sparsity is not None:
            raise Pin("its weights are not constants")
    source, target = op_input(op), op.outputs[0]
    if not tensors[source].shape or tensors[source].is_constant:
        raise Pin("its input is a constant")
    channels = tensors[source].shape[-1]
    if op.kind == "FULLY_CONNECTED":
        if op.options is not None and op.options.weights_format != "DEFAULT":
            raise Pin("its weights are shuffled")
        if weight.shape[1] % channels:
            raise Pin("it does not read whole positions")
        if tensors[target].shape[-1:] != weight.shape[:1]:
            raise Pin("it does not write whole positions")
    elif op.kind == "TRANSPOSE_CONV":
        trace.constants(op.inputs[0], "output shape")
    elif channels != weight.shape[3]:
        _grouped(trace, source, target, channels // weight.shape[3])
    first = trace._shared.setdefault(op.inputs[1], op)  # noqa: SLF001
    if first is not op:  # layers with the same weights keep the same rows and columns of them
        trace.tie(trace.nodes(op_input(first)), trace.nodes(source))
        trace.tie(trace.nodes(first.outputs[0]), trace.nodes(target))


def _moved_axes(graph: Subgraph) -> dict[int, int]:
    """Return the channel axis of the tensors where a TRANSPOSE has moved it away from the end."""
    axes: dict[int, int] = {}
    for op in graph.operators:
        source = op.inputs[0] if op.inputs else ABSENT
        rank = len(graph.tensors[source].shape) if source != ABSENT else 0
        axis = axes.get(source, rank - 1)
        is_known = op.kind == "TRANSPOSE" or (source in axes and op.kind in _REDUCTIONS)
        second = graph.tensor(op.inputs[1]) if is_known and len(op.inputs) > 1 else None
        values = np.ravel(second.array()).tolist() if second is not None and second.buffer is not None else []
        if op.kind == "TRANSPOSE" and sorted(values) == list(range(rank)):
            axis = values.index(axis)
        elif op.kind in _REDUCTIONS and values:
            gone = {int(v) % rank for v in values}
            axis = axis if op.options is None or op.options.keep_dims else axis - sum(a < axis for a in gone)
        elif source not in axes or op.kind not in _POINTWISE:
            continue
        if axis != len(graph.tensors[op.outputs[0]].shape) - 1:
            axes[op.outputs[0]] = axis
    return axes


def _aside(trace: Trace, op: Operator) -> None:
    """Follow channels that are not on the last axis: as far as they are only moved, averaged or mapped one by one."""
    source, target = op.inputs[0], op.outputs[0]
    axis = trace.axes.get(source, len(trace.graph.tensors[source].shape) - 1)
    if op.kind in _REDUCTIONS:
        rank = len(trace.graph.tensors[source].shape)
        if axis in {int(a) % rank for a in trace.constants(op.inputs[1], "axis")}:
            raise Pin("it adds channels up")
    elif op.kind not in _POINTWISE and op.kind != "TRANSPOSE":
        raise Pin("it reads channels from another axis than the last")
    if len(trace.nodes(source)) != len(trace.nodes(target)):
        raise Pin("it moves the channels to another axis")
    trace.tie(trace.nodes(source), trace.nodes(target))


def _grouped(trace: Trace, source: int, target: int, groups: int) -> None:
    """Channel j of every group goes when that of one group goes, on both sides: the groups stay equally wide."""
    for tensor in (source, target):
        nodes = trace.nodes(tensor).reshape(groups, -1)
        for group in nodes[1:]:
            trace.tie(nodes[0], group)


def _depthwise(trace: Trace, op: Operator) -> None:
    for tensor in (trace.graph.tensors[op.inputs[1]], trace.graph.tensor(op_bias(op))):
        if tensor is not None and (tensor.buffer is None or tensor.sparsity is not None):
            raise Pin("its weights are not constants")
    source, target = trace.nodes(op.inputs[0]), trace.nodes(op.outputs[0])
    trace.tie(np.repeat(source, len(target) // len(source)), target)


def _two(trace: Trace, op: Operator) -> None:
    tensors = trace.graph.tensors
    target = trace.nodes(op.outputs[0])
    for tensor in op.inputs:
        shape = tensors[tensor].shape
        if tensors[tensor].is_constant:
            if tensors[tensor].buffer is None or tensors[tensor].sparsity is not None:
                raise Pin("it has an operand whose values are not in the file")
            continue
        if shape and shape[-1] == len(target):
            trace.tie(trace.nodes(tensor), target)
        else:
            raise Pin("it spreads one channel over many")
    if all(tensors[t].is_constant or not tensors[t].shape for t in op.inputs):
        raise Pin("it works on constants")


def _reduction(trace: Trace, op: Operator) -> None:
    rank = len(trace.graph.tensors[op.inputs[0]].shape)
    axes = {int(a) % rank for a in trace.constants(op.inputs[1], "axis")}
    if rank - 1 in axes:
        raise Pin("it adds channels up")
    trace._through(op)  # noqa: SLF001


def _moved(position: int) -> Callable[[Trace, Operator], None]:
    """Return the rule of an operator that leaves the last axis alone if its constant input says so."""

    def rule(trace: Trace, op: Operator) -> None:
        rank = len(trace.graph.tensors[op.inputs[0]].shape)
        order = trace.constants(op.inputs[position], "order").tolist()
        if len(order) != rank or order[-1] != rank - 1:
            raise Pin("it moves the channels to another axis")
        trace._through(op)  # noqa: SLF001

    return rule


def _reshape(trace: Trace, op: Operator) -> None:
    """Flattening keeps channels innermost: feature p of a flat tensor is channel p mod c."""
    tensors = trace.graph.tensors
    source, target = tensors[op.inputs[0]], tensors[op.outputs[0]]
    if not source.shape or not target.shape or source.is_constant:
        raise Pin("it reshapes a single value")
    if len(op.inputs) > 1 and op.inputs[1] != ABSENT:
        trace.constants(op.inputs[1], "shape")
    width, flat = source.shape[-1], target.shape[-1]
    if flat % max(width, 1):
        raise Pin(f"it regroups {width} channels from {list(source.shape)} to {list(target.shape)}")
    if width == 1 and flat > 1:
        raise Pin("it makes channels of positions")
    trace.tie(np.tile(trace.nodes(op.inputs[0]), flat // width), trace.nodes(op.outputs[0]))


def _expand(trace: Trace, op: Operator) -> None:
    trace._through(op)  # noqa: SLF001


def _concatenation(trace: Trace, op: Operator) -> None:
    rank = len(trace.graph.tensors[op.outputs[0]].shape)
    if any(trace.graph.tensors[t].is_constant for t in op.inputs):
        raise Pin("it joins a constant")
    assert op.options is not None
    if op.options.axis % rank == rank - 1:
        trace.tie(np.concatenate([trace.nodes(t) for t in op.inputs]), trace.nodes(op.outputs[0]))
        return
    for tensor in op.inputs:
        trace.tie(trace.nodes(tensor), trace.nodes(op.outputs[0]))


def _split(trace: Trace, op: Operator) -> None:
    data, axis_place = (op.inputs[1], 0) if op.kind == "SPLIT" else (op.inputs[0], 2)
    rank = len(trace.graph.tensors[data].shape)
    axis = int(trace.constants(op.inputs[axis_place], "axis")[0]) % rank
    if op.kind == "SPLIT_V":
        trace.constants(op.inputs[1], "sizes")
    if axis == rank - 1:
        trace.tie(trace.nodes(data), np.concatenate([trace.nodes(t) for t in op.outputs]))
        return
    for tensor in op.outputs:
        trace.tie(trace.nodes(data), trace.nodes(tensor))


def _pad(trace: Trace, op: Operator) -> None:
    """Channels that are padded with are channels like others: they are tied to what they are added to."""
    amounts = trace.constants(op.inputs[1], "padding").reshape(-1, 2)
    before, after = amounts[-1].tolist()
    if op.kind == "MIRROR_PAD" and (before or after):
        raise Pin("it mirrors channels")
    target = trace.nodes(op.outputs[0])
    trace.tie(trace.nodes(op.inputs[0]), target[before : len(target) - after])


def _slice(trace: Trace, op: Operator) -> None:
    trace.constants(op.inputs[1], "begin")
    trace.constants(op.inputs[2], "size")
    shapes = [trace.graph.tensors[t].shape for t in (op.inputs[0], op.outputs[0])]
    if len(shapes[0]) != len(shapes[1]) or shapes[0][-1] != shapes[1][-1]:
        raise Pin("it cuts channels out")
    if op.kind == "STRIDED_SLICE":
        strides = trace.constants(op.inputs[3], "strides")
        options = op.options
        assert options is not None
        rank = len(shapes[0])
        if options.ellipsis_mask or options.new_axis_mask or options.shrink_axis_mask or len(strides) != rank:
            raise Pin("it changes the axes")
        if strides[-1] != 1:
            raise Pin("it takes channels in steps")
    trace._through(op)  # noqa: SLF001


_RULES: dict[str, Callable[[Trace, Operator], None]] = {
    "CONCATENATION": _concatenation,
    "CONV_2D": _layer,
    "DEPTHWISE_CONV_2D": _depthwise,
    "EXPAND_DIMS": _expand,
    "FULLY_CONNECTED": _layer,
    "MIRROR_PAD": _pad,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "SQUEEZE": _expand,
    "STRIDED_SLICE": _slice,
    "TRANSPOSE": _moved(1),
    "TRANSPOSE_CONV": _layer,
}


def feature_atoms(trace: Trace, op: Operator) -> Array:
    """Return the atom of each input that a layer's weights have a column for, along the last axis of the weights."""
    weight: Tensor = trace.graph.tensors[op.inputs[1]]
    atoms = trace.atoms[op_input(op)]
    width = weight.shape[-1]
    return np.tile(atoms, width // len(atoms)) if width >= len(atoms) else atoms[:width]
