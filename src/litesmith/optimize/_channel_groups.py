# SPDX-License-Identifier: Apache-2.0
"""Which tensors can be rescaled channel by channel without changing what a model computes.

A channel that is multiplied by s > 0 where layers write it, and divided by s where layers read it, leaves no trace, if
everything between commutes with s: linear operators on single channels, RELU, and sums of tensors with the same s.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from litesmith.model import ABSENT, Operator, Subgraph
from litesmith.optimize._rules import RULES

LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
_ALWAYS = frozenset({
    "ABS", "AVERAGE_POOL_2D", "LEAKY_RELU", "MAX_POOL_2D", "RELU", "RELU6", "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR",
})  # fmt: skip
_CUTS = 6.0
"""Where RELU6 cuts; a tensor behind it can be rescaled only as long as nothing reaches the cut."""


@dataclass(frozen=True)
class ChannelGroup:
    """Tensors that must be rescaled together.

    Attributes:
        tensors: all of them.
        writers, readers: the layers at the border, by index of the operator.
        cut: the value at which an activation cuts, None where none does.
    """

    tensors: tuple[int, ...]
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    cut: float | None


def channel_groups(graph: Subgraph, shared: Collection[int] = ()) -> list[ChannelGroup]:
    """Return the groups whose every neighbour is a layer with constant weights of its own, not ``shared`` ones."""
    return _Search(graph, shared).run()


def data_input(op: Operator) -> int:
    """Return the tensor that a layer works on."""
    return op.inputs[(RULES[op.kind].inputs or (0,))[0]]


class _Search:
    def __init__(self, graph: Subgraph, shared: Collection[int]) -> None:
        self._graph, self._shared = graph, shared
        self._parent = list(range(len(graph.tensors)))
        self._blocked = {*graph.inputs, *graph.outputs}
        self._cut: set[int] = set()
        self._reads: dict[int, int] = {}
        for op in graph.operators:
            for tensor in set(op.inputs):
                self._reads[tensor] = self._reads.get(tensor, 0) + 1

    def run(self) -> list[ChannelGroup]:
        writers: dict[int, int] = {}
        readers: dict[int, int] = {}
        for index, op in enumerate(self._graph.operators):
            activation = _fused(op)
            if activation not in ("NONE", "RELU", "RELU6"):
                self._blocked.update(op.outputs)
            if "RELU6" in (activation, op.kind):
                self._cut.update(op.outputs)
            if op.kind in LAYERS and self._is_plain(op):
                writers[index] = op.outputs[0]
                readers[index] = data_input(op)
                if not self._reads_single_channels(op):
                    self._blocked.add(data_input(op))
            elif _commutes(self._graph, op):
                for tensor in op.inputs:
                    if tensor != ABSENT and not self._graph.tensors[tensor].is_constant:
                        self._parent[self._find(tensor)] = self._find(op.outputs[0])
            else:
                self._blocked.update(t for t in (*op.inputs, *op.outputs) if t != ABSENT)
        return self._collect(writers, readers)

    def _collect(self, writers: dict[int, int], readers: dict[int, int]) -> list[ChannelGroup]:
        blocked = {self._find(t) for t in self._blocked}
        members: dict[int, list[int]] = {}
        for tensor in self._graph.producers():
            if self._find(tensor) not in blocked:
                members.setdefault(self._find(tensor), []).append(tensor)
        groups = []
        for root, tensors in members.items():
            producers, consumers = (
                tuple(i for i, t in side.items() if self._find(t) == root) for side in (writers, readers)
            )
            if producers and consumers:
                cut = _CUTS if self._cut & set(tensors) else None
                groups.append(ChannelGroup(tuple(tensors), producers, consumers, cut))
        return groups

    def _find(self, tensor: int) -> int:
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor

    def _is_plain(self, op: Operator) -> bool:
        """Say whether a layer's weights and bias are float constants that nothing else reads."""
        rule = RULES[op.kind]
        if op.inputs[rule.weight or 0] in self._shared:
            return False
        bias = op.inputs[rule.bias or 0] if len(op.inputs) > (rule.bias or 0) else ABSENT
        for index in (op.inputs[rule.weight or 0], bias):
            if index == ABSENT:
                continue
            tensor = self._graph.tensors[index]
            if tensor.buffer is None or tensor.dtype != "float32" or tensor.sparsity or self._reads[index] > 1:
                return False
        return op.kind != "FULLY_CONNECTED" or op.options is None or bool(op.options.weights_format == "DEFAULT")

    def _reads_single_channels(self, op: Operator) -> bool:
        """Say whether the last axis of the weights is the last axis of the data: not so in groups or when flattened."""
        channels = self._graph.tensors[data_input(op)].shape[-1:]
        weight = self._graph.tensors[op.inputs[1]].shape
        if op.kind == "DEPTHWISE_CONV_2D":
            return bool(channels) and weight[3] % channels[0] == 0
        return channels == weight[-1:]


def _fused(op: Operator) -> str:
    return str(getattr(op.options, "fused_activation_function", "NONE")) if op.options is not None else "NONE"


def _commutes(graph: Subgraph, op: Operator) -> bool:
    """Say whether an operator gives s·y for s·x, for any positive s of each channel."""
    output = graph.tensors[op.outputs[0]]
    inputs = [graph.tensors[t] for t in op.inputs if t != ABSENT]
    if output.dtype != "float32" or not output.shape or not inputs or not inputs[0].shape:
        return False
    rank = len(inputs[0].shape)
    if op.kind in ("ADD", "SUB"):
        return inputs[0].shape == inputs[1].shape and not any(t.is_constant for t in inputs)
    if op.kind == "PAD":
        return inputs[1].buffer is not None and not inputs[1].array()[-1].any()
    if op.kind == "MEAN":
        axes = inputs[1].array().reshape(-1).tolist() if inputs[1].buffer is not None else [-1]
        return all(axis % rank != rank - 1 for axis in axes)
    if op.kind in ("RESHAPE", "SQUEEZE"):
        return inputs[0].shape[-1] == output.shape[-1]
    return op.kind in _ALWAYS
