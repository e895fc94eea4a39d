# SPDX-License-Identifier: Apache-2.0
"""Channels rescaled between layers: multiplied where they are written, divided where they are read.

A model whose channels were rescaled computes the same, but its inner tensors differ from those of the original. What was
done travels with the model as metadata, an eighth of a power of two in a byte for each channel, so that whoever compares
the two layer by layer can do the same to the original.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from litesmith.model._graph import ABSENT, Buffer, Metadata, Model, Subgraph

Array = np.ndarray[Any, Any]
NAME = "litesmith.channel_scales"
_STEPS = 8
_MOST = 127
_PLACES = {"CONV_2D": (2, 0), "DEPTHWISE_CONV_2D": (2, 3), "FULLY_CONNECTED": (2, 0), "TRANSPOSE_CONV": (3, 0)}
"""Of each kind of layer the position of the bias, and the axis of the weights that has the output channels."""


@dataclass(frozen=True)
class ChannelScales:
    """The scales of the channels between some layers.

    Attributes:
        subgraph: in which the layers are.
        writers, readers: operators whose output channels are multiplied, whose input channels are divided.
        steps: eighths of a power of two, one for each channel.
    """

    subgraph: int
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def nearest(cls, subgraph: int, writers: Sequence[int], readers: Sequence[int], scales: Array) -> ChannelScales:
        """Return the scales nearest to those wanted."""
        steps = np.clip(np.rint(_STEPS * np.log2(scales)), -_MOST, _MOST).astype(int)
        return cls(subgraph, tuple(writers), tuple(readers), tuple(steps.tolist()))

    @property
    def scales(self) -> Array:
        """What the channels are multiplied with."""
        return np.exp2(np.array(self.steps, np.float64) / _STEPS)


def rescaled(model: Model, groups: Iterable[ChannelScales]) -> Model:
    """Return the model with rescaled channels, and the record of it."""
    groups = tuple(group for group in groups if any(group.steps))
    if not groups:
        return model
    graphs = list(model.subgraphs)
    for subgraph in {group.subgraph for group in groups}:
        here = [group for group in groups if group.subgraph == subgraph]
        written = {index: group.scales for group in here for index in group.writers}
        read = {index: group.scales for group in here for index in group.readers}
        graphs[subgraph] = rescaled_layers(graphs[subgraph], written, read)
    kept = tuple(entry for entry in model.metadata if entry.name != NAME)
    record = Metadata(NAME, Buffer(_packed((*recorded(model), *groups))))
    return replace(model, subgraphs=tuple(graphs), metadata=(*kept, record), source=None)


def recorded(model: Model) -> tuple[ChannelScales, ...]:
    """Return what was done to the channels of a model, in order; nothing where there is no record."""
    entry = next((entry for entry in model.metadata if entry.name == NAME), None)
    if entry is None:
        return ()
    try:
        document = json.loads(bytes(entry.buffer.data))
        return tuple(
            ChannelScales(g["subgraph"], tuple(g["writers"]), tuple(g["readers"]), _unpacked(g["steps"]))
            for g in document
        )
    except (ValueError, KeyError, TypeError):
        return ()  # not written by this version: as good as none


def _packed(groups: Iterable[ChannelScales]) -> bytes:
    def fields(group: ChannelScales) -> dict[str, Any]:
        return asdict(group) | {"steps": base64.b64encode(np.array(group.steps, np.int8).tobytes()).decode()}

    return json.dumps([fields(group) for group in groups], separators=(",", ":")).encode()


def _unpacked(text: str) -> tuple[int, ...]:
    return tuple(np.frombuffer(base64.b64decode(text), np.int8).tolist())


def rescaled_layers(graph: Subgraph, written: Mapping[int, Array], read: Mapping[int, Array]) -> Subgraph:
    """Return a subgraph with the output channels of some layers multiplied, and the input channels of some divided."""
    tensors = list(graph.tensors)
    for index in sorted({*written, *read}):
        op = graph.operators[index]
        bias_position, axis = _PLACES[op.kind]
        weights = tensors[op.inputs[1]].array().astype(np.float64)
        if index in read:
            weights = weights / np.repeat(read[index], weights.shape[-1] // len(read[index]))
        if index in written:
            weights = weights * written[index].reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
            bias = op.inputs[bias_position] if len(op.inputs) > bias_position else ABSENT
            if bias != ABSENT:
                values = tensors[bias].array()
                moved = (values * written[index].reshape(values.shape)).astype(np.float32)
                tensors[bias] = tensors[bias].with_array(moved)
        tensors[op.inputs[1]] = tensors[op.inputs[1]].with_array(weights.astype(np.float32))
    return replace(graph, tensors=tuple(tensors))
