# SPDX-License-Identifier: Apache-2.0
"""In which order channels may go, and what each costs: from the weights that read them and, with data, from activations.

With data it is optimal brain surgery on whole channels. With H the covariance of what a reader sees and W its weights,
removing the inputs c and moving all others best adds tr(W_c ((H⁻¹)_cc)⁻¹ W_cᵀ) to its squared error, relative to the
variance of what it writes; the readers of a channel add up. The cheapest go first, W and H⁻¹ are updated, and so on.
Without data, H is diagonal, with the squared norms of the rows that write a channel in place of its variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Subgraph
from litesmith.optimize._channels_groups import Group
from litesmith.optimize._channels_trace import Trace, feature_atoms
from litesmith.optimize._layer_fit import normalized
from litesmith.optimize._layer_moments import Moments

Array = np.ndarray[Any, Any]
_RIDGE = 0.01
_ROUNDS = 64
"""How often the scores of a large group are worked out anew while it shrinks."""


@dataclass(frozen=True, eq=False)
class Order:
    """The atoms of a group, cheapest first, and the error that each adds when those before it are gone."""

    atoms: Array
    losses: Array


def removal_order(trace: Trace, group: Group, moments: Mapping[int, Moments]) -> Order:
    """Return the order in which the channels of a group go."""
    writers = _written(trace, group)
    readers = [
        _Reader(trace, group, index, moments[index]) if _is_plain(moments.get(index)) else None
        for index in group.readers
    ]
    known = [reader for reader in readers if reader is not None]
    plain = [index for index, reader in zip(group.readers, readers, strict=True) if reader is None]
    fixed = _by_norms(trace, group, plain, writers) if plain or not known else np.zeros(group.width)
    left = np.arange(group.width)
    order: list[int] = []
    losses: list[float] = []
    step = max(group.width // _ROUNDS, 1)
    while len(left):
        scores = fixed[left] + sum((reader.scores(left) for reader in known), np.zeros(len(left)))
        chosen = np.argsort(scores, kind="stable")[:step]
        order += left[chosen].tolist()
        losses += scores[chosen].tolist()
        for reader in known:
            reader.remove(left[chosen])
        left = np.delete(left, chosen)
    return Order(group.atoms[np.array(order)], np.array(losses))


def _is_plain(moments: Moments | None) -> bool:
    return moments is not None and len(moments.xx) == 1


class _Reader:
    """A layer that reads a group: its weights and H⁻¹ while channels go."""

    def __init__(self, trace: Trace, group: Group, index: int, moments: Moments) -> None:
        op = trace.graph.operators[index]
        weight = trace.graph.tensors[op.inputs[1]]
        rows = np.asarray(weight.array(), np.float64).reshape(1, len(weight.array()), -1)
        h, _, _, scaled = normalized(moments, rows, _RIDGE)
        self._inverse = np.linalg.inv(h[0])
        self._rows = scaled[0]
        self._size = max(float(np.sum((self._rows @ h[0]) * self._rows)), 1e-30)
        self._columns = _columns(trace, group, index)

    def scores(self, atoms: Array) -> Array:
        """Return the relative error that removing each atom adds."""
        columns = self._columns[atoms]  # atom, column
        if not columns.shape[1]:
            return np.zeros(len(atoms))
        blocks = self._inverse[columns[:, :, None], columns[:, None, :]]
        weights = self._rows[:, columns].transpose(1, 2, 0)  # atom, column, row
        solved = np.linalg.solve(blocks, weights)
        total: Array = np.einsum("acr,acr->a", weights, solved) / self._size
        return np.maximum(total, 0.0)

    def remove(self, atoms: Array) -> None:
        """Take atoms out and move the other weights to where they do best."""
        gone = self._columns[atoms].ravel()
        if not len(gone):
            return
        rows = self._inverse[gone]
        step = np.linalg.solve(rows[:, gone], rows)
        self._rows -= self._rows[:, gone] @ step
        self._inverse -= rows.T @ step
        self._rows[:, gone] = 0
        self._inverse[gone] = 0
        self._inverse[:, gone] = 0
        self._inverse[gone, gone] = 1


def _columns(trace: Trace, group: Group, index: int) -> Array:
    """Return the columns of a layer's matrix that each atom of a group feeds: (atom, column)."""
    op = trace.graph.operators[index]
    features = feature_atoms(trace, op)
    taps = trace.graph.tensors[op.inputs[1]].elements // trace.graph.tensors[op.inputs[1]].shape[0] // len(features)
    width = len(features)
    places = np.flatnonzero(np.isin(features, group.atoms))
    base = places[np.argsort(features[places], kind="stable")].reshape(group.width, -1)  # atoms rise, as in the group
    return np.concatenate([base + tap * width for tap in range(taps)], axis=1) if base.size else base


def _written(trace: Trace, group: Group) -> Array:
    """Return the squared norm of what writes each atom, over the mean of its layer, multiplied along the way."""
    sizes = np.ones(group.width)
    for index, op in enumerate(trace.graph.operators):
        is_depthwise = op.kind == "DEPTHWISE_CONV_2D"
        if (index not in group.writers and not is_depthwise) or op.outputs[0] not in trace.atoms:
            continue
        place = np.isin(trace.atoms[op.outputs[0]], group.atoms)
        if not place.any():
            continue
        values = np.asarray(trace.graph.tensors[op.inputs[1]].array(), np.float64)
        axis = 3 if is_depthwise else 0
        squares = np.sum(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1) ** 2, axis=1)
        squares = squares / max(float(squares.mean()), 1e-30)
        totals = np.bincount(trace.atoms[op.outputs[0]], squares, minlength=int(group.atoms.max()) + 1)
        share = totals[group.atoms]
        sizes = sizes * share if is_depthwise else sizes + share
    return sizes


def _by_norms(trace: Trace, group: Group, readers: list[int], written: Array) -> Array:
    """Return the squared norms of the weights that read each atom, times the size of what writes it."""
    graph: Subgraph = trace.graph
    total = np.zeros(group.width)
    for index in readers:
        values = np.asarray(graph.tensors[graph.operators[index].inputs[1]].array(), np.float64)
        squares = np.sum(values.reshape(-1, values.shape[-1]) ** 2, axis=0)
        features = feature_atoms(trace, graph.operators[index])
        by_atom = np.bincount(features, squares, minlength=int(group.atoms.max()) + 1)
        found = by_atom[group.atoms]
        total += found / max(float(squares.sum()), 1e-30)
    loss: Array = total * written / max(float(written.mean()), 1e-30) if readers else written * 1e-6
    return loss
