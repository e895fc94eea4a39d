# SPDX-License-Identifier: Apache-2.0
"""How much of the error at the output each layer is to blame for.

The error of a layer's values is r, the rounding and clipping of these very values, and m, all the rest. The rest is
what the layer does wrong itself, own; what the rounding of its inputs does to it, t; and what it passes on of the
layers p that it reads. In squares:

    m = own + t + g · sum over p of m_p

All but the gain g are measured, on values that are rounded alike, so that errors which clipping hides do not count. The
gain follows, and the equation holds at every layer. Followed back from the outputs it divides their error among the
layers; what r does in the layer behind is measured, not modelled, so that the clipping of values that do not matter,
such as low scores before a softmax, is not held against a layer. The shares add up to 1. Errors are taken as
independent: where they cancel or add up, that is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from litesmith.accuracy._moves import hands_on
from litesmith.model import ABSENT, Subgraph, Tensor

if TYPE_CHECKING:
    from litesmith.accuracy._errors_per_layer import LayerErrors


@dataclass(frozen=True)
class Noise:
    """The mean squared error of a layer's values, by where it comes from, and what it does at the output.

    Attributes:
        own: what the layer adds: ``rounding`` of its output, ``clipping`` of what its output cannot express, and the
            rest, mostly of the ``weights``.
        share: of the error at the outputs that this layer is to blame for.
    """

    own: float
    rounding: float
    clipping: float
    weights: float
    share: float


def attribute(graph: Subgraph, layers: Sequence[LayerErrors]) -> list[Noise]:
    """Return the error that each layer adds, and its share of the error at the outputs."""
    parts = [_own(graph, layer) for layer in layers]
    position = {layer.match.tensor: number for number, layer in enumerate(layers)}
    flows: list[_Flow] = []
    for layer, sources in zip(layers, _sources(graph, layers, position), strict=True):
        size = graph.tensors[layer.match.tensor].elements
        moves = hands_on(graph, graph.operators[layer.match.operator])
        flows.append(_flow(layer, size, [(s, flows[s]) for s in sources if s < len(flows)], moves=moves))
    blame = _blame(flows, _output_weights(graph, layers, position))
    total = sum(blame)
    return [replace(part, share=b / total if total > 0 else 0.0) for part, b in zip(parts, blame, strict=True)]


@dataclass(frozen=True)
class _Flow:
    """The squared errors of a layer's values, summed, and how they come about.

    Attributes:
        rounding: r; ``rest``: m; ``own``: what of m the layer does wrong itself.
        gain: g; ``rounding_gain``: by what r of the layers it reads is multiplied on its way into m.
        moves: whether it hands values on, so that their rounding stays just that.
        sources: the layers that it reads.
    """

    rounding: float
    rest: float
    own: float
    gain: float
    rounding_gain: float
    moves: bool
    sources: tuple[int, ...]


def _flow(layer: LayerErrors, size: int, read: Sequence[tuple[int, _Flow]], *, moves: bool) -> _Flow:
    sources = tuple(number for number, _ in read)
    rounding, rest = layer.rounding.mean_error * size, layer.passed.mean_error * size
    rounding_before, rest_before = sum(flow.rounding for _, flow in read), sum(flow.rest for _, flow in read)
    if moves and read:
        gain = rest / rest_before if rest_before > 0 else 0.0
        rounding_gain = rounding / rounding_before if rounding_before > 0 else 0.0
        return _Flow(rounding, rest, 0.0, gain, rounding_gain, True, sources)
    own, from_inputs = layer.own.mean_error * size, layer.from_inputs.mean_error * size
    if not layer.own.count:  # it cannot be run alone: what it adds to what it reads is its own
        own = max(0.0, rest - rest_before)
    if rounding_before <= 0:  # what comes in is rounded here first, as at the input of the model
        own, from_inputs = own + from_inputs, 0.0
    if own + from_inputs > rest or rest_before <= 0:
        known = own + from_inputs
        own, from_inputs = (own * rest / known, from_inputs * rest / known) if known > 0 else (rest, 0.0)
    return _Flow(
        rounding=rounding,
        rest=rest,
        own=own,
        gain=(rest - own - from_inputs) / rest_before if rest_before > 0 else 0.0,
        rounding_gain=from_inputs / rounding_before if rounding_before > 0 else 0.0,
        moves=False,
        sources=sources,
    )


def _blame(flows: Sequence[_Flow], at_output: Mapping[int, float]) -> list[float]:
    """Return the error at the outputs that each layer causes, going back from them."""
    weight = [at_output.get(number, 0.0) for number in range(len(flows))]
    rounding_weight = list(weight)
    for number in reversed(range(len(flows))):
        flow = flows[number]
        for source in flow.sources:
            weight[source] += weight[number] * flow.gain
            rounding_weight[source] += (rounding_weight if flow.moves else weight)[number] * flow.rounding_gain
    return [
        (0.0 if flow.moves else flow.rounding * rounding_weight[number]) + flow.own * weight[number]
        for number, flow in enumerate(flows)
    ]


def _output_weights(graph: Subgraph, layers: Sequence[LayerErrors], position: Mapping[int, int]) -> dict[int, float]:
    """Return how the errors of the outputs are added: each relative to its signal, so that all count alike."""
    weights: dict[int, float] = {}
    producers = graph.producers()
    for tensor in graph.outputs:
        for number in _nearest(graph, tensor, position, producers):
            energies = layers[number].accumulated
            signal = energies.signal / max(1, energies.count) * graph.tensors[layers[number].match.tensor].elements
            weights[number] = weights.get(number, 0.0) + (1 / signal if signal else 0.0)
    return weights


def _own(graph: Subgraph, layer: LayerErrors) -> Noise:
    """Return what a layer adds, divided by its cause."""
    if hands_on(graph, graph.operators[layer.match.operator]):
        return Noise(0.0, 0.0, 0.0, 0.0, 0.0)
    at_output = layer.rounding.mean_error
    clipping = min(at_output, layer.clip_error / max(1, layer.accumulated.count))
    weights = (layer.own if layer.own.count else layer.passed).mean_error
    return Noise(at_output + weights, at_output - clipping, clipping, weights, 0.0)


def real_constant(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    """Return the reals that a constant stands for; None where it is no plain constant."""
    if (
        tensor.buffer is None
        or tensor.sparsity is not None
        or tensor.dtype not in ("float32", "float16", "int8", "int4")
    ):
        return None
    values = tensor.array().astype(np.float32)
    quantization = tensor.quantization
    if quantization is None or not quantization.scale:
        return values
    shape = [1] * values.ndim
    if quantization.per_channel:
        shape[quantization.axis] = -1
    scale = np.array(quantization.scale, np.float32).reshape(shape)
    zero = np.array(quantization.zero_point or (0,), np.float32)
    return (values - (zero.reshape(shape) if zero.size > 1 else zero)) * scale


def _sources(graph: Subgraph, layers: Sequence[LayerErrors], position: Mapping[int, int]) -> list[list[int]]:
    """Return, for each layer, the layers that it is computed from, without another between."""
    producers = graph.producers()
    result = []
    for layer in layers:
        read = graph.operators[layer.match.operator].inputs
        found = {n for t in read if t != ABSENT for n in _nearest(graph, t, position, producers)}
        result.append(sorted(found))
    return result


def _nearest(graph: Subgraph, tensor: int, position: Mapping[int, int], producers: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        if current in position:
            found.add(position[current])
        elif current in producers and current not in seen:
            seen.add(current)
            waiting += [t for t in graph.operators[producers[current]].inputs if t != ABSENT]
    return found
