# SPDX-License-Identifier: Apache-2.0
"""Two models side by side: what the layers of a changed model see, and what the original would have them write.

Both models go through the samples in step, layer by layer. At each layer the changed one may get new weights, and the
layers behind it see their effect: each then makes up for the errors of those before it, as far as it can. A layer whose
output is only added to another tensor that is there already makes up for the error of that one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Model, Operator, Subgraph, Tensor
from litesmith.optimize._layer_moments import (
    Gathering,
    Moments,
    Window,
    chosen_places,
    from_matrices,
    groups_of,
    positions_a_sample,
    to_matrices,
)
from litesmith.optimize._layer_rules import bias_position, op_bias, op_input
from litesmith.optimize._run import Feed, GraphRunner
from litesmith.optimize._segments import Walk, affordable_samples
from litesmith.optimize._shared_constants import shared_places

Array = np.ndarray[Any, Any]
FITTED_KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_WALK_BYTES = 2400 << 20
"""Of the activations that each model keeps at the cut."""
WIDEST = 5000
"""A layer with more inputs for each output than this is not fitted: its matrix would not be worth the memory."""
_HELD = 5
"""Every fifth sample is held out."""
_MEAN_WEIGHT = 5
"""Where a layer's output is averaged over its positions, their mean counts so many times as much as all of them."""


@dataclass(eq=False)
class LayerPair:
    """One layer, in the original and the changed model.

    Attributes:
        operator, op: which one, in the changed model.
        rows: its present weights there, as (group, row, input).
        fitted, held: the moments of what it reads, and of what the original writes, on two sets of samples.
    """

    operator: int
    op: Operator
    rows: Array
    fitted: Moments
    held: Moments
    walk: Walk

    def replace(self, rows: Array, bias: Array) -> None:
        """Give the layer other weights and another bias in the changed model."""
        weight = self.walk.tensors[self.op.inputs[1]]
        self.walk.tensors[self.op.inputs[1]] = weight.with_array(from_matrices(rows, self.op.kind, weight.shape))
        values = np.asarray(bias, np.float32).reshape(-1)
        present = op_bias(self.op)
        name = self.walk.tensors[self.op.outputs[0]].name + "/bias" if present == ABSENT else ""
        readers = [op for op in self.walk.operators if present in op.inputs]
        if present != ABSENT and len(readers) == 1:
            self.walk.tensors[present] = self.walk.tensors[present].with_array(values)
            return
        self.walk.tensors.append(Tensor(name or self.walk.tensors[present].name, ()).with_array(values))
        position = bias_position(self.op)
        inputs = [*self.op.inputs, *[ABSENT] * (position + 1 - len(self.op.inputs))]
        inputs[position] = len(self.walk.tensors) - 1
        self.op = replace(self.op, inputs=tuple(inputs))
        self.walk.operators[self.operator] = self.op


def fittable(model: Model, subgraph: int) -> set[int]:
    """Return the layers that can be fitted: float constants that only they hold, of a size that is worth it."""
    graph, shared = model.subgraphs[subgraph], shared_places(model)
    return {
        index
        for index, op in enumerate(graph.operators)
        if _is_plain(graph, op) and (subgraph, op.inputs[1]) not in shared
    }


def _is_plain(graph: Subgraph, op: Operator) -> bool:
    if op.kind not in FITTED_KINDS:
        return False
    weight, bias = graph.tensors[op.inputs[1]], graph.tensor(op_bias(op))
    if weight.buffer is None or weight.dtype != "float32" or weight.sparsity is not None:
        return False
    if bias is not None and (bias.buffer is None or bias.dtype != "float32"):
        return False
    if sum(op.inputs[1] in other.inputs for other in graph.operators) > 1:
        return False
    if op.kind == "FULLY_CONNECTED" and op.options is not None and op.options.weights_format != "DEFAULT":
        return False
    width = int(np.prod(weight.shape[1:3])) if op.kind == "DEPTHWISE_CONV_2D" else int(np.prod(weight.shape[1:]))
    data = graph.tensors[op_input(op)]
    return 0 < width <= WIDEST and data.dtype == "float32" and not data.is_constant


def most_samples(graph: Subgraph) -> int:
    """Return how many samples two models can be compared on, layer by layer, without taking too much memory."""
    return 2 * affordable_samples(graph, _WALK_BYTES)  # beyond half as many, floats are kept in 16 bits


def single_sample_notes(samples: int) -> list[str]:
    """Return what happens where no sample can be held out."""
    if samples != 1:
        return []
    return ["one sample leaves none to judge a fit by: weights are not fitted, only biases; give some hundreds"]


def layer_pairs(
    original: Model,
    changed: Model,
    subgraph: int,
    samples: Sequence[Feed],
    layers: Iterable[int],
    *,
    kept: Mapping[int, Array] | None = None,
    seed: int = 0,
) -> Iterator[LayerPair]:
    """Yield the layers in order of execution; ``kept`` has the channels of each tensor that the changed model keeps.

    The changed model ends up in the ``walk`` of the last pair.
    """
    half = len(samples) > affordable_samples(original.subgraphs[subgraph], _WALK_BYTES)
    before, after = (Walk(model, subgraph, samples, half=half) for model in (original, changed))
    wanted = sorted(set(layers))
    stops = [index - 1 for index in wanted if index > 0]
    for piece in after.pieces(stops):
        for index in (i for i in wanted if i in piece):
            yield _pair(before, after, piece, index, len(samples), kept or {}, seed)
        for walk in (before, after):
            for _ in walk.run(piece, keep=True):
                pass


def _pair(
    before: Walk, after: Walk, piece: range, index: int, samples: int, kept: Mapping[int, Array], seed: int
) -> LayerPair:
    old, new = before.operators[index], after.operators[index]
    shapes = [walk.tensors[op.inputs[1]].shape for walk, op in ((before, old), (after, new))]
    windows = Window(old, shapes[0]), Window(new, shapes[1])
    old_groups, groups = (
        groups_of(op.kind, shape, walk.tensors[op_input(op)].shape[-1])
        for walk, op, shape in ((before, old, shapes[0]), (after, new, shapes[1]))
    )
    rows = to_matrices(after.tensors[new.inputs[1]].array().astype(np.float64), new.kind, groups)
    target = to_matrices(before.tensors[old.inputs[1]].array(), old.kind, old_groups)
    outputs = kept.get(old.outputs[0])
    chosen_groups, target = _kept_rows(target, outputs, old.kind)
    bias: Array = np.zeros(1, np.float32)
    if op_bias(old) != ABSENT:
        bias = before.tensors[op_bias(old)].array().reshape(-1)
    bias = bias if outputs is None or bias.size == 1 else bias[outputs]
    bias = np.broadcast_to(bias, groups * rows.shape[1]).reshape(groups, 1, -1)
    other = _added(before, new)
    share = positions_a_sample(rows.shape[2], samples, groups)
    parts = Gathering(Moments.empty(*rows.shape)), Gathering(Moments.empty(*rows.shape))
    averaged = _is_averaged(after, new)
    feeds = zip(_inputs(before, piece, old), _inputs(after, piece, new), strict=True)
    for sample, (reference, values) in enumerate(feeds):
        spots = windows[1].spots(values)
        places = chosen_places(int(np.prod(spots)), share, np.random.default_rng((seed, index, sample)))
        seen = windows[0].columns(reference, places)
        y = (seen if chosen_groups is None else seen[chosen_groups]) @ np.swapaxes(target, 1, 2) + bias
        if other is not None:
            y = y + _difference(before, after, other, sample, places, kept, groups)
        columns, part = windows[1].columns(values, places), parts[_is_held(sample, samples)]
        part.add(columns, y.astype(np.float32))
        if averaged:
            part.moments.add_mean(columns, y, _MEAN_WEIGHT * len(places))
    return LayerPair(index, new, rows, parts[0].done(), parts[1].done(), after)


def _is_held(sample: int, samples: int) -> bool:
    """Say whether a sample is held out: every fifth one, and the last of fewer."""
    return sample % _HELD == _HELD - 1 or sample + 1 == samples < _HELD


def _is_averaged(walk: Walk, op: Operator) -> bool:
    """Say whether all that happens to a layer's output, after activations and sums, is a mean over its positions."""
    tensor = op.outputs[0]
    while True:
        readers = [other for other in walk.operators if tensor in other.inputs]
        if len(readers) != 1 or tensor in walk.graph().outputs:
            return False
        if readers[0].kind in ("AVERAGE_POOL_2D", "MEAN"):
            size, mean = walk.tensors[tensor], walk.tensors[readers[0].outputs[0]]
            return len(size.shape) == 4 and mean.elements == size.shape[0] * size.shape[3] < size.elements
        if readers[0].kind not in ("ADD", "RELU", "RELU6"):
            return False
        tensor = readers[0].outputs[0]


def _kept_rows(target: Array, outputs: Array | None, kind: str) -> tuple[Array | None, Array]:
    """Return the groups and the rows of the original that write the channels which are kept."""
    if outputs is None:
        return None, target
    groups, rows, _ = target.shape
    if kind == "DEPTHWISE_CONV_2D":
        chosen = np.unique(outputs // rows)
        return chosen, target[chosen]
    return None, np.stack([target[g][outputs[outputs // rows == g] - g * rows] for g in range(groups)])


def _inputs(walk: Walk, piece: range, op: Operator) -> Iterator[Array]:
    kept = walk.values(op_input(op))
    if kept is not None:
        yield from kept
    else:
        for views in walk.run(piece, [op_input(op)], keep=False):
            yield views[0]


def _added(walk: Walk, op: Operator) -> int | None:
    """Return the tensor that a layer's output is added to, if that is all that happens to it and it is there already."""
    if op.options is None or op.options.fused_activation_function != "NONE" or op.kind == "FULLY_CONNECTED":
        return None
    output = op.outputs[0]
    readers = [other for other in walk.operators if output in other.inputs]
    if len(readers) != 1 or readers[0].kind != "ADD" or output in walk.graph().outputs:
        return None
    other = next((t for t in readers[0].inputs if t != output), None)
    if other is None or walk.values(other) is None or walk.tensors[other].shape != walk.tensors[output].shape:
        return None
    return other


def _difference(
    before: Walk, after: Walk, tensor: int, sample: int, places: Array, kept: Mapping[int, Array], groups: int
) -> Array:
    """Return how far the changed model is off in another tensor at some positions: (group, position, row)."""
    old, new = before.values(tensor), after.values(tensor)
    assert old is not None
    assert new is not None
    reference = old[sample].reshape(-1, old[sample].shape[-1])[places].astype(np.float32)
    if tensor in kept:
        reference = reference[:, kept[tensor]]
    found = reference - new[sample].reshape(-1, new[sample].shape[-1])[places].astype(np.float32)
    split: Array = found.reshape(len(places), groups, -1).transpose(1, 0, 2)
    return split


def input_moments(
    model: Model, subgraph: int, samples: Sequence[Feed], layers: Sequence[int], *, seed: int = 0
) -> dict[int, Moments]:
    """Return the moments of what layers read in one pass over the samples, and of what they write."""
    from litesmith.model._expose import expose

    graph = model.subgraphs[subgraph]
    tensors = list(dict.fromkeys(op_input(graph.operators[i]) for i in layers))
    runner = GraphRunner(
        expose(model, [t for t in tensors if t not in graph.inputs], subgraph=subgraph), subgraph=subgraph
    )
    tools = {}
    for index in layers:
        op = graph.operators[index]
        weight = graph.tensors[op.inputs[1]]
        groups = groups_of(op.kind, weight.shape, graph.tensors[op_input(op)].shape[-1])
        rows = to_matrices(weight.array(), op.kind, groups)
        tools[index] = op, Window(op, weight.shape), rows, Gathering(Moments.empty(*rows.shape))
    for sample, feed in enumerate(samples):
        runner.run(feed)
        for index, (op, window, rows, gathering) in tools.items():
            values = feed[op_input(op)] if op_input(op) in feed else runner.view(op_input(op))
            share = positions_a_sample(rows.shape[2], len(samples), rows.shape[0])
            total = int(np.prod(window.spots(values)))
            places = chosen_places(total, share, np.random.default_rng((seed, index, sample)))
            gathering.add(window.columns(values, places))
    found = {}
    for index, (_, _, rows, gathering) in tools.items():
        moments = found[index] = gathering.done()
        moments.y = np.einsum("grk,gk->gr", rows, moments.x)
        moments.yx = rows @ moments.xx
        moments.yy = np.einsum("grk,grk->gr", rows, moments.yx)
    return found
