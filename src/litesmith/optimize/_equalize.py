# SPDX-License-Identifier: Apache-2.0
"""Cross-layer equalization: rescale channels between layers, so that quantization treats them alike.

A layer y = f(W₁x + b₁) and its reader W₂y compute the same with S = diag(s), s > 0, between them, as long as
f(s·u) = s·f(u):

    W₂ S⁻¹ · f(S W₁ x + S b₁) = W₂ · f(W₁ x + b₁)                       (Nagel et al., arXiv:1906.04721, eq. 7)

They choose s = √(r₂/r₁), where r₁ and r₂ are the ranges of each channel in W₁ and W₂. That is done here too where
weights have one scale for all channels, or where there is no data; it is repeated until it no longer moves.

With a scale for each output channel of the weights, rows of W₁ cost nothing and the activation is what suffers: small
channels share the steps of the largest one. With data, s is therefore chosen between the peaks p of the activation and
the columns k of W₂, as s = k^(1-α) / p^α; α is the one of a few with the least noise behind the readers,

    Σ over rows r of  ( Σ_c (W₂[r,c]/s_c)² · Δ²  +  δ_r² · Σ_c s_c² E[y_c²] ) / E[(W₂ y)_r²],

Δ and δ_r being the steps of activation and weights. A depthwise reader has a scale for each channel, hence α = 1.

Scope: chains of convolutions, depthwise and transposed ones and fully connected layers, through what commutes with s
(see ``_channel_groups``), residual sums included. Behind RELU6 a channel is rescaled only where the samples leave it
clear of the cut before and after; there, equality holds for what is not far beyond the samples, else for everything.
A peak below 1/8 of the largest counts as that, which leaves room to channels that the samples hardly show.

Cost: one pass of the float model. It does not change the structure, absorb biases, or touch shared weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.model import Model, Operator, Subgraph, Tensor
from litesmith.model._channel_scales import ChannelScales, rescaled, rescaled_layers
from litesmith.model._expose import expose
from litesmith.optimize._arithmetic import largest_integer
from litesmith.optimize._calibrate import MEMORY_BUDGET_BYTES, entry_points, within_budget
from litesmith.optimize._channel_groups import ChannelGroup, channel_groups
from litesmith.optimize._plan import wanted_schemes
from litesmith.optimize._rules import RULES
from litesmith.optimize._run import Data, Feed, GraphRunner
from litesmith.optimize._scheme import SCHEMES, Scheme
from litesmith.optimize._segments import spread_samples
from litesmith.optimize._shared_constants import shared_places
from litesmith.progress import task

if TYPE_CHECKING:
    from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]
Scales = dict[ChannelGroup, Array]
STAGE = "model"
_SAMPLES = 128
_CLEAR = 1.25
"""How far from the cut of RELU6 the samples must leave a channel."""
_LEAST_PEAK = 1 / 8
_EXPONENTS = (0.25, 0.5, 0.75, 1.0)
_SWEEPS = 50
_STILL = 1e-3


def apply(model: Model, request: Request, data: Data | None) -> Model:
    """Return the model with equalized channels; it computes the same."""
    for signature, subgraph in entry_points(model):
        schemes = _rounding_schemes(model, subgraph, request)
        if not schemes:
            continue
        samples = [] if data is None else spread_samples(model, data, _SAMPLES, signature=signature)
        model = equalize(model, samples, subgraph=subgraph, scheme=schemes, per_channel=request.per_channel)
    return model


def _rounding_schemes(model: Model, subgraph: int, request: Request) -> dict[int, Scheme]:
    """Return the schemes of the operators whose weights or results are rounded to integers."""
    wanted = wanted_schemes(model, subgraph, request.scheme, request.rules)
    return {index: scheme for index, scheme in enumerate(wanted) if scheme.bits <= 8}


def equalize(
    model: Model,
    samples: Sequence[Feed],
    *,
    subgraph: int = 0,
    scheme: Scheme | Mapping[int, Scheme] = SCHEMES["int8"],
    per_channel: bool = True,
) -> Model:
    """Return the model with equalized channels in one subgraph; without samples, by its weights alone.

    ``scheme`` is that of all operators, or of some by index; channels that none of those writes or reads stay as they are.
    """
    graph = model.subgraphs[subgraph]
    schemes = scheme if isinstance(scheme, Mapping) else dict.fromkeys(range(len(graph.operators)), scheme)
    found = channel_groups(graph, {index for number, index in shared_places(model) if number == subgraph})
    groups = [group for group in found if any(index in schemes for index in (*group.readers, *group.writers))]
    if not groups:
        return model
    seen = _observe(model, subgraph, [t for group in groups for t in group.tensors], samples) if samples else {}
    if seen and per_channel:
        chosen = {group: _by_activations(graph, group, seen, _first_scheme(group, schemes)) for group in groups}
    else:
        chosen = _by_weights(graph, groups, seen)
    return rescaled(model, (ChannelScales.nearest(subgraph, g.writers, g.readers, s) for g, s in chosen.items()))


def _first_scheme(group: ChannelGroup, schemes: Mapping[int, Scheme]) -> Scheme:
    return next(schemes[index] for index in (*group.readers, *group.writers) if index in schemes)


@dataclass
class _Channels:
    """What the samples show of the channels of a tensor: the largest magnitude, and the sum of mean squares."""

    peak: Array
    power: Array


def _observe(model: Model, subgraph: int, tensors: list[int], samples: Sequence[Feed]) -> dict[int, _Channels]:
    graph = model.subgraphs[subgraph]
    producers = graph.producers()
    tensors = [t for t in tensors if graph.operators[producers[t]].kind not in ("PAD", "RESHAPE", "SQUEEZE")]
    parts = within_budget(graph, tensors, MEMORY_BUDGET_BYTES)
    seen: dict[int, _Channels] = {}
    with task("Equalizing", total=len(parts) * len(samples)) as advance:
        for part in parts:
            runner = GraphRunner(expose(model, part, subgraph=subgraph), subgraph=subgraph)
            for feed in samples:
                runner.run(feed)
                for tensor in part:
                    values = runner.view(tensor)
                    rows = values.reshape(-1, values.shape[-1])
                    peak = np.nan_to_num(np.maximum(rows.max(axis=0), -rows.min(axis=0)))
                    power = np.nan_to_num(np.einsum("ij,ij->j", rows, rows) / len(rows))
                    known = seen.setdefault(tensor, _Channels(np.zeros(len(peak)), np.zeros(len(peak))))
                    known.peak, known.power = np.maximum(known.peak, peak), known.power + power
                advance(1)
    for known in seen.values():
        known.power /= len(samples)
    return seen


def _by_activations(graph: Subgraph, group: ChannelGroup, seen: Mapping[int, _Channels], scheme: Scheme) -> Array:
    """Return the scale of each channel with which the readers see the least noise."""
    observed = [seen[t] for t in group.tensors if t in seen]
    peak = np.max([o.peak for o in observed], axis=0)
    power = np.mean([o.power for o in observed], axis=0)
    still = np.ones(len(peak))
    if peak.max() <= 0:
        return still
    fixed = _near_cut(group, peak)
    peak = np.maximum(peak, _LEAST_PEAK * peak.max())
    dense = [columns for i in group.readers if (columns := _columns(graph, i)) is not None]
    if not dense:
        return _limited(group, 1 / peak, peak, fixed)
    reach = np.max([_relative_columns(columns) for columns in dense], axis=0)
    candidates = [still, *(_limited(group, reach ** (1 - a) / peak**a, peak, fixed) for a in _EXPONENTS)]
    return min(candidates, key=lambda scales: _noise(dense, scales, peak, power, scheme))


def _near_cut(group: ChannelGroup, peak: Array) -> Array:
    return peak >= np.inf if group.cut is None else peak >= group.cut / _CLEAR


def _limited(group: ChannelGroup, scales: Array, peak: Array, fixed: Array) -> Array:
    """Return scales after which the tensor reaches as far as before, clear of the cut; fixed channels keep theirs."""
    free = ~fixed
    if not free.any():
        return np.ones(len(peak))
    limit = peak.max() if group.cut is None else min(peak.max(), group.cut / _CLEAR)
    scaled = scales * (limit / (scales * peak)[free].max())
    return np.where(fixed, 1.0, scaled)


def _columns(graph: Subgraph, operator: int) -> Array | None:
    """Return a reader's weights as (channel, row, position); None for a depthwise one."""
    op = graph.operators[operator]
    if op.kind == "DEPTHWISE_CONV_2D":
        return None
    weights = _weights(graph.tensors, op)
    return np.moveaxis(weights, -1, 0).reshape(weights.shape[-1], weights.shape[0], -1)


def _relative_columns(columns: Array) -> Array:
    """Return how large a channel's weights are at most, beside the largest of their row."""
    size = np.abs(columns).max(axis=2)
    largest: Array = (size / np.maximum(size.max(axis=0), 1e-30)).max(axis=1)
    return np.maximum(largest, 1e-3)


def _noise(readers: Sequence[Array], scales: Array, peak: Array, power: Array, scheme: Scheme) -> float:
    rounded = scheme.is_static or scheme.hybrid
    step = (scales * peak).max() / (65535 if scheme.domain == "int16" else 255) * rounded
    limit = largest_integer(scheme.bits)
    total = 0.0
    for columns in readers:
        scaled = columns / scales[:, None, None]
        signal = np.einsum("crk,c->r", columns**2, power) + 1e-30
        of_activation = np.sum(scaled**2, axis=(0, 2)) * step**2
        steps = np.abs(scaled).max(axis=(0, 2)) / limit
        of_weights = steps**2 * np.sum(scales**2 * power) * columns.shape[2]
        total += float(np.mean((of_activation + of_weights) / signal))
    return total


def _by_weights(graph: Subgraph, groups: Sequence[ChannelGroup], seen: Mapping[int, _Channels]) -> Scales:
    """Return scales that make the ranges of writers' rows and readers' columns equal, as far as they can be."""
    total = {group: np.ones(graph.tensors[group.tensors[0]].shape[-1]) for group in groups}
    current = graph
    for _ in range(_SWEEPS):
        moved = 0.0
        for group in groups:
            fixed, cap = _freedom(group, seen)
            scales = np.where(fixed, 1.0, _balance(current, group))
            scales = np.minimum(total[group] * scales, cap) / total[group]
            total[group] = total[group] * scales
            current = rescaled_layers(
                current, dict.fromkeys(group.writers, scales), dict.fromkeys(group.readers, scales)
            )
            moved = max(moved, float(np.abs(np.log(scales)).max()))
        if moved < _STILL:
            break
    return total


def _freedom(group: ChannelGroup, seen: Mapping[int, _Channels]) -> tuple[Any, Any]:
    """Return which channels must stay, and the largest scale of each."""
    if group.cut is None:
        return False, np.inf
    observed = [seen[t].peak for t in group.tensors if t in seen]
    if not observed:
        return True, np.inf  # nothing says that the cut is out of reach
    peak = np.max(observed, axis=0)
    return _near_cut(group, peak), np.maximum(group.cut / _CLEAR / np.maximum(peak, 1e-6), 1.0)


def _balance(graph: Subgraph, group: ChannelGroup) -> Array:
    rows = [np.abs(_weights(graph.tensors, graph.operators[i])) for i in group.writers]
    written = np.max(
        [
            w.max(axis=(0, 1, 2))
            if graph.operators[i].kind == "DEPTHWISE_CONV_2D"
            else w.reshape(len(w), -1).max(axis=1)
            for i, w in zip(group.writers, rows, strict=True)
        ],
        axis=0,
    )
    read = np.zeros(len(written))
    for index in group.readers:
        weights = np.abs(_weights(graph.tensors, graph.operators[index]))
        largest = weights.reshape(-1, weights.shape[-1]).max(axis=0)
        read = np.maximum(read, largest.reshape(len(written), -1).max(axis=1))
    usable = (written > 0) & (read > 0)
    return np.where(usable, np.sqrt(np.where(usable, read, 1.0) / np.where(usable, written, 1.0)), 1.0)


def _weights(tensors: Sequence[Tensor], op: Operator) -> Array:
    return np.asarray(tensors[op.inputs[RULES[op.kind].weight or 0]].array(), np.float64)
