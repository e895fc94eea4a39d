# SPDX-License-Identifier: Apache-2.0
"""The inputs of each layer as columns: what each of its weights is multiplied with, sampled over samples and positions.

Layers come one after another; the weights of one can be replaced before the next is reached, which then sees what the
replaced weights make of the samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.model import Model, Operator, Tensor, same_padding
from litesmith.optimize._arithmetic import quantize_weights
from litesmith.optimize._calibrate import MEMORY_BUDGET_BYTES, entry_points
from litesmith.optimize._plan import decide
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._rules import RULES
from litesmith.optimize._run import Data, Feed
from litesmith.optimize._scheme import Scheme
from litesmith.optimize._segments import Walk, affordable_samples, spread_samples
from litesmith.optimize._weights import WeightOverride

if TYPE_CHECKING:
    from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]
MAX_COLUMNS = 20_000
_MOST_ELEMENTS = {"DEPTHWISE_CONV_2D": 16 << 20}
"""Of all columns of a layer; each channel of a depthwise layer has columns of its own, and few weights to decide."""
_MOST_DENSE = 48 << 20
_KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """One layer and what it was seen to read.

    Attributes:
        subgraph, operator, op: which layer.
        weight: its tensor, ``values`` as (channel, weight) with the weights in the order of the columns.
        columns: (n, weight); for a depthwise layer (n, weight, channel).
        walk: where ``replace`` puts new weights.
    """

    subgraph: int
    operator: int
    op: Operator
    scheme: Scheme
    values: Array
    columns: Array
    walk: Walk

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has columns of its own."""
        return self.op.kind == "DEPTHWISE_CONV_2D"

    @property
    def key(self) -> tuple[int, int]:
        """The key of the weights among overrides."""
        return self.subgraph, self.op.inputs[1]

    def stored(self, rows: Array) -> Array:
        """Return (channel, weight) in the layout of the weights in the file."""
        shape = self.walk.tensors[self.op.inputs[1]].shape
        return (rows.T if self.is_depthwise else rows).reshape(shape)

    def rows(self, stored: Array) -> Array:
        """Return weights in the layout of the file as (channel, weight)."""
        return stored.reshape(-1, stored.shape[-1]).T if self.is_depthwise else stored.reshape(len(stored), -1)

    def nearest(self, scales: Array) -> Array:
        """Return the weights rounded as they are where no pass decides: (channel, weight)."""
        axis = 3 if self.is_depthwise else 0
        taps = RULES[self.op.kind].taps
        return self.rows(quantize_weights(self.stored(self.values), scales, axis, self.scheme.bits, taps=taps))

    def override(self, integers: Array, scales: Array) -> WeightOverride:
        """Return integers as (channel, weight), with their scales, as the form that the layer is to have."""
        stored = self.stored(integers).astype(np.int8)
        return WeightOverride(stored, scales, RULES[self.op.kind].axis, self.scheme.bits)

    def replace(self, rows: Array) -> None:
        """Let the layers behind see what these weights, as (channel, weight), give."""
        tensor = self.walk.tensors[self.op.inputs[1]]
        self.walk.tensors[self.op.inputs[1]] = tensor.with_array(self.stored(rows).astype(np.float32))


def layers_with_inputs(
    model: Model,
    request: Request,
    ranges: Ranges | None,
    data: Data,
    *,
    samples: int,
    only_where_rounding_matters: bool = False,
) -> Iterator[LayerInputs]:
    """Yield the layers whose weights become integers with a scale a channel, in order of execution."""
    for signature, subgraph in entry_points(model):
        schemes = _schemes(model, request, ranges, subgraph)
        if only_where_rounding_matters:
            schemes = {index: scheme for index, scheme in schemes.items() if scheme.rounding_matters}
        graph = model.subgraphs[subgraph]
        count = min(samples, affordable_samples(graph, MEMORY_BUDGET_BYTES))
        fed = spread_samples(model, data, count, signature=signature) if schemes else []
        if fed:
            yield from _visit(model, subgraph, schemes, fed)


def _schemes(model: Model, request: Request, ranges: Ranges | None, subgraph: int) -> dict[int, Scheme]:
    decisions, _ = decide(
        model,
        subgraph,
        request.scheme,
        request.rules,
        ranges=ranges,
        float_outputs=request.io == "float",
        head=request.head,
        strict=request.strict,
        refused={},
    )
    graph = model.subgraphs[subgraph]
    found = {}
    for index, (op, decision) in enumerate(zip(graph.operators, decisions, strict=True)):
        scheme = decision.scheme
        if op.kind in _KINDS and scheme.bits <= 8 and not scheme.block and _is_plain(graph.tensors, op):
            found[index] = scheme
    return found


def _is_plain(tensors: Sequence[Tensor], op: Operator) -> bool:
    weight = tensors[op.inputs[1]]
    if weight.buffer is None or weight.dtype != "float32" or weight.sparsity is not None:
        return False
    if op.kind == "FULLY_CONNECTED":
        return op.options is None or bool(op.options.weights_format == "DEFAULT")
    return op.kind == "DEPTHWISE_CONV_2D" or weight.shape[3] == tensors[op.inputs[0]].shape[-1]


def _visit(model: Model, subgraph: int, schemes: dict[int, Scheme], fed: Sequence[Feed]) -> Iterator[LayerInputs]:
    walk = Walk(model, subgraph, fed)
    seen: set[int] = set()
    for piece in walk.pieces(index - 1 for index in schemes if index > 0):
        for index in piece:
            weight = walk.operators[index].inputs[1] if index in schemes else -1
            if index in schemes and weight not in seen:  # shared weights are decided where they are used first
                seen.add(weight)
                yield _layer(walk, subgraph, piece, index, schemes[index], len(fed))
        for _ in walk.run(piece, keep=True):
            pass


def _layer(walk: Walk, subgraph: int, piece: range, index: int, scheme: Scheme, samples: int) -> LayerInputs:
    op = walk.operators[index]
    weight = walk.tensors[op.inputs[1]]
    kept = walk.values(op.inputs[0])
    arrays = kept if kept is not None else (views[0] for views in walk.run(piece, [op.inputs[0]], keep=False))
    random = np.random.default_rng(index)
    most = _MOST_ELEMENTS.get(op.kind, _MOST_DENSE) // max(int(np.prod(weight.shape[1:])), 1)
    share = max(min(MAX_COLUMNS, most) // samples, 1)
    columns = np.concatenate([_columns(op, weight.shape, values, share, random) for values in arrays])
    values = np.nan_to_num(weight.array().astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    rows = values.reshape(-1, values.shape[-1]).T if op.kind == "DEPTHWISE_CONV_2D" else values.reshape(len(values), -1)
    return LayerInputs(subgraph, index, op, scheme, rows, columns, walk)


def _columns(op: Operator, shape: tuple[int, ...], values: Array, count: int, random: np.random.Generator) -> Array:
    """Return the columns of one sample at ``count`` positions, or at all if there are fewer."""
    if op.kind == "FULLY_CONNECTED":
        rows = values.reshape(-1, shape[1]).astype(np.float32)
        return rows if len(rows) <= count else rows[random.choice(len(rows), count, replace=False)]
    options = op.options
    height, width = shape[1], shape[2]
    steps = (options.stride_h, options.stride_w) if options else (1, 1)
    dilations = (options.dilation_h_factor, options.dilation_w_factor) if options else (1, 1)
    pads = [(0, 0), (0, 0)]
    if options is None or options.padding == "SAME":
        sizes = zip(values.shape[1:3], (height, width), steps, dilations, strict=True)
        pads = [same_padding(size, kernel, step, dilation) for size, kernel, step, dilation in sizes]
    padded = np.pad(values, [(0, 0), *pads, (0, 0)])
    reach = [(k - 1) * d + 1 for k, d in zip((height, width), dilations, strict=True)]
    spots = [(size - r) // step + 1 for size, r, step in zip(padded.shape[1:3], reach, steps, strict=True)]
    total = len(values) * spots[0] * spots[1]
    places = np.arange(total) if total <= count else random.choice(total, count, replace=False)
    batch, row, column = np.unravel_index(places, (len(values), *spots))
    taps = [
        padded[batch, row * steps[0] + i * dilations[0], column * steps[1] + j * dilations[1]]
        for i in range(height)
        for j in range(width)
    ]
    stacked = np.stack(taps, axis=1).astype(np.float32)  # position, tap, channel
    if op.kind == "DEPTHWISE_CONV_2D":
        multiplier = shape[3] // stacked.shape[2]
        return stacked if multiplier == 1 else np.repeat(stacked, multiplier, axis=2)
    return stacked.reshape(len(stacked), -1)
