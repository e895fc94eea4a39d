# SPDX-License-Identifier: Apache-2.0
"""Remove channels from a subgraph, or put them in another order: every constant and every shape that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError
from litesmith.model import ABSENT, Operator, Record, Subgraph, Tensor, constant
from litesmith.optimize._channels_trace import Trace, feature_atoms
from litesmith.optimize._layer_rules import bias_position, op_bias

Array = np.ndarray[Any, Any]


def without_channels(trace: Trace, removed: set[int], kept: Mapping[int, Array]) -> Subgraph:
    """Return the subgraph without the removed atoms; operators keep their index and tensors too."""
    gone = np.array(sorted(removed))
    return _Cut(trace, kept, lambda atoms: np.flatnonzero(~np.isin(atoms, gone))).run()


def with_order(trace: Trace, moves: Mapping[int, int]) -> Subgraph:
    """Return the subgraph with another atom in the place of each that ``moves`` names; what it computes stays the same.

    The moves are within groups of atoms that occur in the same tensors equally often.
    """
    target = np.arange(max((int(a.max(initial=0)) for a in trace.atoms.values()), default=0) + 1)
    target[list(moves)] = list(moves.values())
    moved = {tensor: _moved(atoms, target) for tensor, atoms in trace.atoms.items()}
    kept = {tensor: places for tensor, places in moved.items() if not np.array_equal(places, np.arange(len(places)))}
    return _Cut(trace, kept, lambda atoms: _moved(atoms, target)).run()


def _moved(atoms: Array, target: Array) -> Array:
    """Return the index from which each index gets its channel: the same occurrence of the atom that comes there."""
    by_atom = np.argsort(atoms, kind="stable")
    first = np.searchsorted(atoms[by_atom], np.arange(len(target)))
    occurrence = np.empty_like(by_atom)
    occurrence[by_atom] = np.arange(len(atoms)) - first[atoms[by_atom]]
    found: Array = by_atom[first[target[atoms]] + occurrence]
    return found


class _Cut:
    """Takes a selection of channels, by tensor; ``select`` gives that of a layer's inputs from their atoms."""

    def __init__(self, trace: Trace, kept: Mapping[int, Array], select: Callable[[Array], Array]) -> None:
        self._trace, self._kept, self._select = trace, kept, select
        self._graph = trace.graph
        self._tensors = list(trace.graph.tensors)
        self._made: dict[tuple[Any, ...], int] = {}
        self._reads: dict[int, int] = {}
        for op in trace.graph.operators:
            for tensor in set(op.inputs):
                self._reads[tensor] = self._reads.get(tensor, 0) + 1

    def run(self) -> Subgraph:
        for tensor, indices in self._kept.items():
            if not len(indices):
                raise OptimizeError(
                    f"the plan would empty the tensor {self._tensors[tensor].name!r}; keep more channels"
                )
            axis = self._trace.axes.get(tensor, len(self._tensors[tensor].shape) - 1)
            self._tensors[tensor] = _narrowed(self._tensors[tensor], len(indices), axis)
        operators = self._moved_back([self._operator(op) for op in self._graph.operators])
        return replace(self._graph, tensors=tuple(self._tensors), operators=tuple(operators))

    def _moved_back(self, operators: list[Operator]) -> list[Operator]:
        """Put a cut constant into the place of the old one where nothing reads that any more."""
        read = {t for op in operators for t in op.inputs}
        place: dict[int, int] = {}
        for (old, *_), made in self._made.items():
            if old not in read and old not in place.values():
                place[made] = old
                self._tensors[old] = self._tensors[made]
        stay = [i for i in range(len(self._tensors)) if i not in place]
        number = {old: new for new, old in enumerate(stay)} | {ABSENT: ABSENT}
        self._tensors = [self._tensors[i] for i in stay]
        return [replace(op, inputs=tuple(number[place.get(t, t)] for t in op.inputs)) for op in operators]

    def _operator(self, op: Operator) -> Operator:
        if not any(t in self._kept for t in (*op.inputs, *op.outputs)):
            return op
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
            return self._layer(op)
        if op.kind == "RESHAPE":
            return self._reshape(op)
        if op.kind in ("PAD", "PADV2", "MIRROR_PAD"):
            return self._pad(op)
        if op.kind in ("SPLIT", "SPLIT_V"):
            return self._split(op)
        if op.kind in ("SLICE", "STRIDED_SLICE"):
            return self._slice(op)
        return self._operands(op)

    def _replace(self, op: Operator, position: int, values: Array) -> Operator:
        """Give an operator other constant values, in a tensor of its own where others read the old one."""
        return self._replace_by(op, position, lambda: values, values.tobytes())

    def _replace_by(self, op: Operator, position: int, make: Callable[[], Array], key: Any) -> Operator:
        """Do so with values that are made only if no operator had the same cut, which ``key`` says, before."""
        index = op.inputs[position]
        old = self._graph.tensors[index]
        if self._reads[index] == 1:
            self._tensors[index] = self._tensors[index].with_array(np.ascontiguousarray(make()), old.dtype)
            return op
        key = (index, key)
        if key not in self._made:
            self._tensors.append(old.with_array(np.ascontiguousarray(make()), old.dtype))
            self._made[key] = len(self._tensors) - 1
        inputs = (*op.inputs[:position], self._made[key], *op.inputs[position + 1 :])
        return replace(op, inputs=inputs)

    def _layer(self, op: Operator) -> Operator:
        values = self._graph.tensors[op.inputs[1]].array()
        outputs = self._kept.get(op.outputs[0])
        bias = op_bias(op)
        if op.kind == "DEPTHWISE_CONV_2D":
            op = op if outputs is None else self._replace(op, 1, np.ascontiguousarray(values[..., outputs]))
        else:
            columns = self._select(feature_atoms(self._trace, op))
            rows = np.arange(len(values)) if outputs is None else outputs
            key = rows.tobytes(), columns.tobytes()
            op = self._replace_by(op, 1, lambda: values[rows][..., columns], key)
        if bias != ABSENT and outputs is not None:
            before = self._graph.tensors[bias].array()
            if before.size > 1 or len(outputs) == before.size:
                op = self._replace(op, bias_position(op), np.ascontiguousarray(before.reshape(-1)[outputs]))
        if op.kind == "TRANSPOSE_CONV" and outputs is not None:
            shape = np.array(self._graph.tensors[op.inputs[0]].array())
            shape[-1] = len(outputs)
            op = self._replace(op, 0, shape)
        return op

    def _reshape(self, op: Operator) -> Operator:
        width = self._tensors[op.outputs[0]].shape[-1]
        if len(op.inputs) > 1 and op.inputs[1] != ABSENT:
            shape = np.array(self._graph.tensors[op.inputs[1]].array())
            if shape.reshape(-1)[-1] != -1:
                shape.reshape(-1)[-1] = width
            op = self._replace(op, 1, shape)
        options = op.options
        if options is not None and options.new_shape and options.new_shape[-1] != -1:
            op = replace(op, options=options.replace(new_shape=(*options.new_shape[:-1], width)))
        return op

    def _pad(self, op: Operator) -> Operator:
        if op.outputs[0] not in self._kept:
            return op
        amounts = np.array(self._graph.tensors[op.inputs[1]].array())
        before, after = amounts[-1].tolist()
        total = self._graph.tensors[op.outputs[0]].shape[-1]
        kept = self._kept[op.outputs[0]]
        amounts[-1] = np.sum(kept < before), np.sum(kept >= total - after)
        return self._replace(op, 1, amounts)

    def _split(self, op: Operator) -> Operator:
        """Parts that are no longer equal need SPLIT_V."""
        widths = np.array([self._tensors[t].shape[-1] for t in op.outputs], np.int32)
        data, axis = (op.inputs[1], op.inputs[0]) if op.kind == "SPLIT" else (op.inputs[0], op.inputs[2])
        rank = len(self._graph.tensors[data].shape)
        if int(np.ravel(self._graph.tensors[axis].array())[0]) % rank != rank - 1:
            return op
        if op.kind == "SPLIT_V":
            return self._replace(op, 1, widths.astype(self._graph.tensors[op.inputs[1]].dtype))
        if len(set(widths.tolist())) == 1:
            return op
        self._tensors.append(constant(f"{self._graph.tensors[op.outputs[0]].name}/sizes", widths))
        options = Record("SplitVOptions", num_splits=len(widths))
        inputs = (data, len(self._tensors) - 1, axis)
        return replace(op, kind="SPLIT_V", inputs=inputs, options=options, version=max(op.version, 1))

    def _slice(self, op: Operator) -> Operator:
        width = self._tensors[op.outputs[0]].shape[-1]
        end = np.array(self._graph.tensors[op.inputs[2]].array())
        masked = op.kind == "STRIDED_SLICE" and op.options is not None and op.options.end_mask >> (len(end) - 1) & 1
        if end[-1] == -1 or masked:
            return op
        end[-1] = width
        return self._replace(op, 2, end)

    def _operands(self, op: Operator) -> Operator:
        """Cut the constants of an operator on two tensors that have a value for each channel."""
        indices = self._kept.get(op.outputs[0]) if op.outputs else None
        if indices is None or op.kind == "CONCATENATION":
            return op
        before = self._graph.tensors[op.outputs[0]].shape[-1]
        for position, tensor in enumerate(op.inputs):
            old = self._graph.tensor(tensor)
            if old is None or old.buffer is None or old.dtype != "float32" or not old.shape:
                continue
            if old.shape[-1] == before and before > 1:
                op = self._replace(op, position, np.ascontiguousarray(old.array()[..., indices]))
        return op


def _narrowed(tensor: Tensor, width: int, axis: int) -> Tensor:
    signature = tensor.shape_signature
    if signature is not None and signature[axis] != -1:
        signature = (*signature[:axis], width, *signature[axis + 1 :])
    return replace(tensor, shape=(*tensor.shape[:axis], width, *tensor.shape[axis + 1 :]), shape_signature=signature)
