# SPDX-License-Identifier: Apache-2.0
"""Learned rounding: for each weight of the worst layers, up or down is learned, not taken by distance.

With W the weights, s their scales, X the columns that the layer reads and f its activation, V is learned in

    min ‖f(W X + b) − f(Ŵ X + b)‖² / ‖f(W X + b) − f(W₀ X + b)‖²  +  λ · mean(1 − |2 h(V) − 1|^β),
    Ŵ = s · clip(L + h(V)),      h(V) = clip(1.2 · sigmoid(V) − 0.1, 0, 1),

where L is the integer below W / s, and β falls from 20 to 2, which drives h to 0 or 1 (Nagel et al., AdaRound,
arXiv:2004.10568). W₀ is the better of rounding to nearest and GPTQ; h starts near it, and L moves where GPTQ has gone
further than a step, so that few steps of learning are enough. Of the three, a layer keeps the one with the least error
on columns that nothing was learned from.

Cost: two passes of the float model over at most ``_SAMPLES`` samples, and ``_STEPS`` steps on ``_BATCH`` columns for
each of the ``_WORST`` layers whose output suffers most by rounding to nearest, relative to its size.
Scope: integer weights with a scale a channel, of CONV_2D, FULLY_CONNECTED and DEPTHWISE_CONV_2D. It needs PyTorch
(the extra ``train``) and samples, no labels. It takes the place of what GPTQ made of those layers; it does not learn
scales, biases or activations, nor layers together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import MissingExtraError, OptimizeError
from litesmith.model import ABSENT, Model
from litesmith.optimize._arithmetic import largest_integer
from litesmith.optimize._gptq import hessian, layer_scales, round_rows, split_columns
from litesmith.optimize._layer_inputs import LayerInputs, layers_with_inputs
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._run import Data
from litesmith.optimize._weights import Overrides, WeightOverride
from litesmith.progress import task

if TYPE_CHECKING:
    from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]
STAGE = "weights"
_SAMPLES = 64
_WORST = 8
_STEPS = 500
_BATCH = 1024
_RATE = 0.1
_WARM_UP = 0.2
_COMMITMENT = 30.0
_OPEN = 0.3
"""How far from the first guess a weight starts."""
_STRETCH = 1.2
_ACTIVATIONS = {"NONE": (-np.inf, np.inf), "RELU": (0.0, np.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


def apply(model: Model, request: Request, ranges: Ranges | None, data: Data | None) -> Overrides:
    """Return the weights of the worst layers, with learned rounding."""
    _torch()
    if data is None:
        raise OptimizeError("learned rounding needs samples; give data, or leave 'rounding' out of the recovery passes")
    losses = {
        layer.key: _loss_of_nearest(layer, request)
        for layer in layers_with_inputs(model, request, ranges, data, samples=_SAMPLES)
    }
    worst = set(sorted(losses, key=lambda key: -losses[key])[:_WORST])
    found: dict[tuple[int, int], WeightOverride] = {}
    with task("Learning to round", total=len(worst)) as advance:
        for layer in layers_with_inputs(model, request, ranges, data, samples=_SAMPLES):
            if (
                layer.key in worst
                and (override := learn(layer, layer_scales(layer, request, request.weight_ranges))) is not None
            ):
                found[layer.key] = override
                layer.replace(layer.rows(override.integers) * override.scales.reshape(-1, 1))
            advance(layer.key in worst)
    return found


def learn(layer: LayerInputs, scales: Array, *, steps: int = _STEPS) -> WeightOverride | None:
    """Return the weights of one layer with learned rounding, None where it is no better than to the nearest."""
    held_out, seen = split_columns(layer)
    bits = layer.scheme.bits
    steps_of = scales.reshape(-1, 1)
    nearest = layer.nearest(scales).astype(np.float64)
    compensated = round_rows(layer.values, scales, hessian(layer, seen), bits)
    first = min((nearest, compensated), key=lambda rows: _loss(layer, rows * steps_of, seen))
    learned = _learned(layer, scales, first, seen, largest_integer(bits), steps)
    best = min((nearest, compensated, learned), key=lambda rows: _loss(layer, rows * steps_of, held_out))
    return None if best is nearest else layer.override(best, scales)


def _learned(layer: LayerInputs, scales: Array, first_guess: Array, seen: Array, limit: int, steps: int) -> Array:
    torch = _torch()
    random = np.random.default_rng(1)
    real = torch.tensor(layer.values / scales.reshape(-1, 1), dtype=torch.float32)
    size = torch.tensor(scales.reshape(-1, 1), dtype=torch.float32)
    first = torch.tensor(first_guess, dtype=torch.float32)
    floor = torch.minimum(torch.maximum(torch.floor(real), first - 1), first)
    start = torch.where(first > floor, 1 - _OPEN, _OPEN)
    variable = torch.logit((start + (_STRETCH - 1) / 2) / _STRETCH).requires_grad_()
    optimizer = torch.optim.Adam([variable], lr=_RATE)
    bias = torch.tensor(_bias(layer), dtype=torch.float32)
    batch = min(_BATCH // 4 if layer.is_depthwise else _BATCH, len(seen))
    for step in range(steps if float(torch.abs(real - first).max()) > 0 else 0):
        picked = seen[random.integers(0, len(seen), batch)]
        columns = torch.from_numpy(layer.columns[picked])
        wanted = _outputs(torch, layer, columns, real * size, bias)
        usual = torch.mean((_outputs(torch, layer, columns, first * size, bias) - wanted) ** 2)
        up = torch.clamp(_STRETCH * torch.sigmoid(variable) - (_STRETCH - 1) / 2, 0, 1)
        got = _outputs(torch, layer, columns, torch.clamp(floor + up, -limit, limit) * size, bias)
        loss = torch.mean((got - wanted) ** 2) / (usual + 1e-12)
        progress = (step / steps - _WARM_UP) / (1 - _WARM_UP)
        if progress > 0:
            beta = 2 + 18 * (1 - progress)
            loss = loss + _COMMITMENT * torch.mean(1 - torch.abs(2 * up - 1) ** beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    final = torch.clamp(floor + (variable.detach() >= 0), -limit, limit) * (real != 0)  # what was pruned stays so
    return np.asarray(final.numpy(), np.float64)


def _outputs(torch: Any, layer: LayerInputs, columns: Any, rows: Any, bias: Any) -> Any:
    if layer.is_depthwise:
        linear = (columns * rows.T).sum(1)
    else:
        linear = columns @ rows.T
    return torch.clamp(linear + bias, *_bounds(layer))


def _bounds(layer: LayerInputs) -> tuple[float, float]:
    options = layer.op.options
    return _ACTIVATIONS.get(options.fused_activation_function if options else "NONE", _ACTIVATIONS["NONE"])


def _bias(layer: LayerInputs) -> Array:
    index = layer.op.inputs[2] if len(layer.op.inputs) > 2 else ABSENT
    tensor = layer.walk.tensors[index] if index != ABSENT else None
    if tensor is None or tensor.buffer is None:
        return np.zeros(len(layer.values))
    return tensor.array().reshape(-1)


def _loss_of_nearest(layer: LayerInputs, request: Request) -> float:
    """Return the error of the outputs with weights rounded to nearest, relative to the outputs."""
    scales = layer_scales(layer, request, request.weight_ranges)
    rounded = layer.nearest(scales) * scales.reshape(-1, 1)
    places = np.arange(min(len(layer.columns), 2 * _BATCH))
    size = _loss(layer, np.zeros_like(layer.values), places)
    return _loss(layer, rounded, places) / max(size, 1e-30)


def _loss(layer: LayerInputs, rows: Array, places: Array) -> float:
    columns, bias, bounds = layer.columns[places], _bias(layer), _bounds(layer)
    path = "ntc,ct->nc" if layer.is_depthwise else "nt,ct->nc"
    got, wanted = (
        np.clip(np.einsum(path, columns, r.astype(np.float32), optimize=True) + bias, *bounds)
        for r in (rows, layer.values)
    )
    return float(np.mean((got - wanted) ** 2))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "train", "learned rounding") from None
    return torch
