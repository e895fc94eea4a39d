# SPDX-License-Identifier: Apache-2.0
"""Groups of channels that are alike, and what a plan of widths costs.

Atoms that occur in the same tensors equally often form a group: from it a plan removes as many as it likes, and every
tensor of the group gets narrower by the same number. All channels of a residual stream are one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from litesmith.model import Model, Subgraph
from litesmith.model._cost import cost
from litesmith.optimize._channels_trace import Trace, feature_atoms
from litesmith.optimize._layer_rules import op_input

Array = np.ndarray[Any, Any]
READERS = ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
_COUNTED = (*READERS, "DEPTHWISE_CONV_2D")
LANES = 16
"""Outputs that the float kernels of XNNPACK compute at once on x86 (8 on Arm): one more costs as much as 16 more."""


@dataclass(frozen=True, eq=False)
class Group:
    """Channels that may be removed independently of each other but look alike.

    Attributes:
        number: of the group, in the order of execution.
        atoms: what can be removed.
        writers, readers: the layers that write and read them, by index of the operator.
        name: of the first tensor that is written.
        reason: why it must stay as it is; empty where it need not.
    """

    number: int
    atoms: Array
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    name: str
    reason: str

    @property
    def width(self) -> int:
        """How many channels it has."""
        return len(self.atoms)


def find_groups(trace: Trace) -> list[Group]:
    """Return the groups whose channels a layer writes."""
    graph = trace.graph
    where: dict[int, list[tuple[int, int]]] = {}
    for tensor, atoms in trace.atoms.items():
        found, counts = np.unique(atoms, return_counts=True)
        for atom, count in zip(found.tolist(), counts.tolist(), strict=True):
            where.setdefault(atom, []).append((tensor, count))
    alike: dict[Any, list[int]] = {}
    for atom, places in where.items():
        alike.setdefault((tuple(places), trace.pinned.get(atom, "")), []).append(atom)
    writers = {op.outputs[0]: i for i, op in enumerate(graph.operators) if op.kind in READERS}
    readers: dict[int, list[int]] = {}
    for index, op in enumerate(graph.operators):
        if op.kind in READERS:
            readers.setdefault(op_input(op), []).append(index)
    groups = []
    for (places, reason), members in alike.items():
        wrote = sorted(writers[t] for t, _ in places if t in writers)
        read = sorted({i for t, _ in places for i in readers.get(t, [])})
        if wrote:
            name = graph.tensors[graph.operators[wrote[0]].outputs[0]].name
            groups.append((wrote[0], np.array(sorted(members)), tuple(wrote), tuple(read), name, reason))
    groups.sort(key=lambda group: (group[0], int(group[1][0])))
    return [Group(number, *group[1:]) for number, group in enumerate(groups)]


class PlanCost:
    """What a model costs by the widths of its groups."""

    def __init__(self, model: Model, subgraph: int, trace: Trace, groups: list[Group]) -> None:
        graph = model.subgraphs[subgraph]
        owner = {atom: group.number for group in groups for atom in group.atoms.tolist()}
        self._widths = {group.number: group.width for group in groups}
        self._fixed = 0
        self._layers: list[tuple[int, Mapping[int, float], int, Mapping[int, float], int]] = []
        for entry in cost(model).operators:
            op = graph.operators[entry.index] if entry.subgraph == subgraph else None
            if op is None or op.kind not in _COUNTED or op.outputs[0] not in trace.atoms:
                self._fixed += entry.macs
                continue
            written = trace.atoms[op.outputs[0]]
            read = feature_atoms(trace, op) if op.kind in READERS else np.zeros(0, np.int64)
            self._layers.append(
                (entry.macs, _shares(written, owner), len(written), _shares(read, owner), max(len(read), 1))
            )

    def macs(self, widths: Mapping[int, int]) -> int:
        """Return the multiply-accumulates with these widths; groups that are not named keep theirs."""
        return self._total(widths, lanes=1)

    def work(self, widths: Mapping[int, int]) -> int:
        """Return the multiply-accumulates with outputs rounded up to whole lanes: what the kernels spend time on."""
        return self._total(widths, LANES)

    def _total(self, widths: Mapping[int, int], lanes: int) -> int:
        gone = {number: self._widths[number] - width for number, width in widths.items()}
        total = float(self._fixed)
        for macs, written, outputs, read, inputs in self._layers:
            out = outputs - sum(gone.get(g, 0) * count for g, count in written.items())
            into = inputs - sum(gone.get(g, 0) * count for g, count in read.items())
            total += macs * (-(-out // lanes) * lanes / outputs) * (into / inputs)
        return round(total)


def _shares(atoms: Array, owner: Mapping[int, int]) -> dict[int, float]:
    """Return how many indices one channel of each group takes here."""
    indices: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    for atom in atoms.tolist():
        if atom in owner:
            indices[owner[atom]] = indices.get(owner[atom], 0) + 1
            members.setdefault(owner[atom], set()).add(atom)
    return {group: count / len(members[group]) for group, count in indices.items()}


def kept_indices(trace: Trace, removed: set[int]) -> dict[int, Array]:
    """Return the indices of the last axis that stay, for each tensor that loses some."""
    if not removed:
        return {}
    gone = np.array(sorted(removed))
    kept = {}
    for tensor, atoms in trace.atoms.items():
        stays = ~np.isin(atoms, gone)
        if not stays.all():
            kept[tensor] = np.flatnonzero(stays)
    return kept


def changed_readers(graph: Subgraph, kept: Mapping[int, Array]) -> list[int]:
    """Return the layers that read or write a tensor that got narrower."""
    return [
        index
        for index, op in enumerate(graph.operators)
        if op.kind in _COUNTED and (op_input(op) in kept or op.outputs[0] in kept)
    ]
