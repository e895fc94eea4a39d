# SPDX-License-Identifier: Apache-2.0
"""Constants that several tensors hold, as the signatures of one file do: found, and still one after a change.

Two tensors that share a ``Buffer`` object share it in the file. A pass that gave only one of them other values would leave
the other as it was, and the file would hold both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from litesmith.model import Model

Found = TypeVar("Found")

Place = tuple[int, int]
"""A subgraph and the index of a tensor in it."""


def shared_places(model: Model) -> dict[Place, tuple[Place, ...]]:
    """Return for each tensor whose constant others hold too all the places of that constant, in order."""
    holders: dict[int, list[Place]] = {}
    for number, graph in enumerate(model.subgraphs):
        for index, tensor in enumerate(graph.tensors):
            if tensor.buffer is not None and len(tensor.buffer):
                holders.setdefault(id(tensor.buffer), []).append((number, index))
    return {place: tuple(places) for places in holders.values() if len(places) > 1 for place in places}


def held_elsewhere(model: Model, subgraph: int) -> set[int]:
    """Return the constants of a subgraph that other subgraphs have too."""
    return {
        index
        for (number, index), places in shared_places(model).items()
        if number == subgraph and any(other != subgraph for other, _ in places)
    }


def keep_shared(before: Model, after: Model, changed: Iterable[Place]) -> Model:
    """Return ``after`` with the new values of the changed constants wherever ``before`` held the old ones."""
    shared = shared_places(before)
    tensors = [list(graph.tensors) for graph in after.subgraphs]
    for place in changed:
        buffer = after.subgraphs[place[0]].tensors[place[1]].buffer
        for number, index in shared.get(place, ()):
            tensors[number][index] = replace(tensors[number][index], buffer=buffer)
    graphs = zip(after.subgraphs, tensors, strict=True)
    return replace(after, subgraphs=tuple(replace(graph, tensors=tuple(found)) for graph, found in graphs))


def for_all_holders(model: Model, found: Mapping[Place, Found]) -> dict[Place, Found]:
    """Return what was found for constants for every tensor of the same shape that holds them; the first one counts."""
    shared = shared_places(model)
    result: dict[Place, Found] = {}
    for place, value in found.items():
        shape = model.subgraphs[place[0]].tensors[place[1]].shape
        for number, index in shared.get(place, (place,)):
            if model.subgraphs[number].tensors[index].shape == shape:
                result.setdefault((number, index), value)
    return result
