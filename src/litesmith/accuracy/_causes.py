# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a layer, and the change to the recipe that repairs it, with its predicted gain and cost.

Each finding says how much of the layer's own error its repair leaves, from what was measured:

- saturation: float values lie beyond the range; a range that holds them removes the clipping.
- outlier: the range is several times wider than where 99.9 % of the values lie; rounding shrinks with its square.
- channel spread: channels differ much in their largest value but share a scale; equalized ones each use it fully.
- shared scale: the same for inputs of a concatenation, which could keep their own as separate outputs.
- coarse: nothing is wrong with the range; 8 bits are too few, and 16 leave nothing of the rounding.
- weights: the error is in the weights.
- shift: the error has the same sign throughout a channel, which a corrected bias removes.
- dead: a scale so large that all values become one integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from litesmith.accuracy._moves import MOVES
from litesmith.accuracy._noise import Noise, real_constant
from litesmith.model import Operator, Subgraph, Tensor

if TYPE_CHECKING:
    from litesmith.accuracy._errors_per_layer import LayerErrors

_OUTLIER = 4.0
_SPREAD = 8.0
_UNLIKE = 8.0
_WORTH_SHARE = 0.2
_SHIFT_SHARE = 0.25
_COST = 0.3
"""A repair that changes the kernel must remove this much more of a layer's error to come before one that does not."""
_TAIL = 0.0005
_KERNEL_16 = "int16x8 kernel: leaves XNNPACK, and is a reference kernel in stock LiteRT"
_SAME_KERNEL = "same kernel"
_FLOAT_KERNEL = "float kernel"
_METHODS = ("minmax", "percentile")


@dataclass(frozen=True)
class Cause:
    """What is wrong with a layer.

    Attributes:
        kind: saturation, outlier, channel-spread, shared-scale, coarse, weights, shift, ties or dead.
        detail: the numbers, in words.
    """

    kind: str
    detail: str


@dataclass(frozen=True)
class Repair:
    """A change to the recipe.

    Attributes:
        change: what to change, in words, and the operator it is for.
        recipe: the same as a word or rules of a recipe: "equalize", "minmax", "int16x8:#12-13"; rules count operators of
            the float model.
        gain_db: predicted, of the signal-to-error ratio at the output, if this alone is changed.
        extra_bytes: what it adds to the file.
        kernel: what it means for the kernel that runs the layer.
    """

    change: str
    recipe: str
    gain_db: float
    extra_bytes: int
    kernel: str

    @property
    def option(self) -> str:
        """The same as an option of ``litesmith quantize``."""
        if ":" in self.recipe:
            return " ".join(f"--rule {rule}" for rule in self.recipe.split(" + "))
        if "=" in self.recipe:
            return "--per-channel"
        return f"--{'method' if self.recipe in _METHODS else 'recover'} {self.recipe}"


@dataclass(frozen=True)
class Finding:
    """A cause, its repair in words and in a recipe, and how much of the layer's own error the repair leaves."""

    cause: Cause
    change: str
    recipe: str
    left: float
    extra_bytes: int
    kernel: str


def findings(real: Subgraph, graph: Subgraph, layer: LayerErrors, noise: Noise) -> list[Finding]:
    """Return what is wrong with a layer, the repair to try first in front."""
    if noise.own <= 0:
        return []
    operator = graph.operators[layer.match.operator]
    tensor = graph.tensors[layer.match.tensor]
    where = f"operator {layer.match.operator} ({operator.kind})"
    found = [
        _dead(layer, tensor, where),
        _saturation(layer, noise, where),
        _outlier(layer, noise, where),
        _spread(graph, operator, layer, noise, where),
        _shift(layer, where),
        _weights(graph, operator, layer, noise, where),
        _coarse(real, graph, operator, tensor, layer, noise, where),
    ]
    return sorted((f for f in found if f is not None), key=lambda f: f.left + _COST * (f.kernel != _SAME_KERNEL))


def repair(finding: Finding, noise: Noise) -> Repair:
    """Return a finding's repair with what it gains at the output."""
    removed = noise.share * max(0.0, 1 - finding.left)
    gain = -10 * math.log10(max(1 - removed, 1e-6))
    return Repair(finding.change, finding.recipe, gain, finding.extra_bytes, finding.kernel)


def ties_at_output(layer: LayerErrors, operator: Operator, share: float) -> Finding:
    """Return the finding of an output whose highest values are often equal."""
    where = f"operator {layer.match.operator} ({operator.kind})"
    return Finding(
        Cause("ties", f"{100 * share:.2g} % of the samples tie at the top of the output"),
        f"float for {where}, so that classes are told apart, and a range that holds the scores it reads",
        _rule("float", layer),
        0.0,
        0,
        _FLOAT_KERNEL,
    )


def _rule(scheme: str, layer: LayerErrors) -> str:
    return f"{scheme}:#{layer.match.float_operator}"


def _spans(scheme: str, operators: Sequence[int]) -> str:
    """Return rules for some operators, neighbours in one."""
    spans: list[list[int]] = []
    for index in sorted(set(operators)):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return " + ".join(f"{scheme}:#{first}" + (f"-{last}" if last > first else "") for first, last in spans)


def _dead(layer: LayerErrors, tensor: Tensor, where: str) -> Finding | None:
    quantization = tensor.quantization
    if quantization is not None and quantization.scale and not all(s > 0 for s in quantization.scale):
        return Finding(Cause("dead", "a scale of 0"), f"calibrate {where} again", "minmax", 0.0, 0, _SAME_KERNEL)
    used = int(np.count_nonzero(layer.levels))
    if used == 1 and layer.accumulated.signal > 0 and tensor.dtype != "int16":
        size = max(abs(layer.low), abs(layer.high))
        detail = f"all values become one integer: they reach {size:.3g}, and a step is {_scale(tensor):.3g}"
        return Finding(
            Cause("dead", detail), f"tighter range for {where}: calibrate again", "minmax", 0.0, 0, _SAME_KERNEL
        )
    return None


def _saturation(layer: LayerErrors, noise: Noise, where: str) -> Finding | None:
    share = noise.clipping / noise.own
    if share < _WORTH_SHARE:
        return None
    clipped = 100 * layer.clipped / max(1, layer.accumulated.count)
    detail = f"{clipped:.2g} % of the values lie beyond the range, up to {layer.high:.4g} and down to {layer.low:.4g}"
    change = f"wider range for {where}: ranges minmax, or more calibration samples"
    return Finding(Cause("saturation", detail), change, "minmax", 1 - share, 0, _SAME_KERNEL)


def _outlier(layer: LayerErrors, noise: Noise, where: str) -> Finding | None:
    ratio = _unused_range(layer)
    if ratio < _OUTLIER or noise.rounding < _WORTH_SHARE * noise.own:
        return None
    left = 1 - noise.rounding / noise.own * (1 - 1 / ratio**2)
    detail = f"99.9 % of the values lie in 1/{ratio:.0f} of the range"
    return Finding(
        Cause("outlier", detail), f"ranges percentile or mse for {where}", "percentile", left, 0, _SAME_KERNEL
    )


def _spread(graph: Subgraph, operator: Operator, layer: LayerErrors, noise: Noise, where: str) -> Finding | None:
    peaks = layer.channel_peak[layer.channel_peak > 0]
    if len(peaks) < 2 or noise.rounding < _WORTH_SHARE * noise.own:
        return None
    ratio = float(peaks.max() / np.median(peaks))
    if operator.kind == "CONCATENATION" or (layer.match.tensor in graph.outputs and operator.kind in MOVES):
        ratio = float(peaks.max() / peaks.min())
        kind, change, limit = "shared-scale", f"float for {where}, so that each part keeps its scale", _UNLIKE
        recipe, kernel = _rule("float", layer), _FLOAT_KERNEL
    else:
        kind, change, limit = "channel-spread", f"equalize {where} with the layer behind it", _SPREAD
        recipe, kernel = "equalize", _SAME_KERNEL
    if ratio < limit:
        return None
    kept = float(np.mean(np.square(peaks)) / peaks.max() ** 2)
    left = 1 - noise.rounding / noise.own * (1 - kept)
    detail = (
        f"the widest channel reaches {peaks.max():.3g}, the median one {np.median(peaks):.3g}, and they share a scale"
    )
    return Finding(Cause(kind, detail), change, recipe, left, 0, kernel)


def _shift(layer: LayerErrors, where: str) -> Finding | None:
    rows = max(1, layer.shape_rows)
    energy = float(np.mean(np.square(layer.channel_shift / rows)))
    share = energy / layer.accumulated.mean_error if layer.accumulated.mean_error else 0.0
    if share < _SHIFT_SHARE or rows < 16:
        return None
    detail = f"{100 * min(share, 1):.0f} % of the accumulated error is a constant shift of the channels"
    return Finding(Cause("shift", detail), f"bias correction of {where}", "bias", 1 - min(share, 1), 0, _SAME_KERNEL)


def _weights(graph: Subgraph, operator: Operator, layer: LayerErrors, noise: Noise, where: str) -> Finding | None:
    share = noise.weights / noise.own
    if share < 0.5 or len(operator.inputs) < 2 or operator.inputs[1] < 0:
        return None
    tensor = graph.tensors[_stored(graph, operator.inputs[1])]
    weights = real_constant(tensor)
    if weights is None or tensor.quantization is None or not tensor.quantization.scale:
        return None
    axis = weights.ndim - 1 if operator.kind == "DEPTHWISE_CONV_2D" else 0
    peaks = np.abs(weights).max(axis=tuple(i for i in range(weights.ndim) if i != axis))
    if not tensor.quantization.per_channel and len(peaks) > 1:
        kept = float(np.mean(np.square(peaks)) / max(float(peaks.max()) ** 2, 1e-30))
        apart = peaks.max() / max(float(np.median(peaks)), 1e-30)
        detail = f"the weights share one scale, and their channels differ by {apart:.0f}×"
        change = f"per-channel weights for {where}"
        left = 1 - share * (1 - kept)
        return Finding(Cause("weights", detail), change, "per_channel=yes", left, 8 * len(peaks), _SAME_KERNEL)
    detail = f"{100 * share:.0f} % of the layer's own error comes from {tensor.dtype} weights"
    extra = 3 * weights.size if tensor.dtype == "int8" else int(3.5 * weights.size)
    change = f"float for {where}; or, without cost, some of it by the passes gptq (few bits) or rounding"
    return Finding(Cause("weights", detail), change, _rule("float", layer), 1 - share, extra, _FLOAT_KERNEL)


def _stored(graph: Subgraph, index: int) -> int:
    """Return the constant behind a tensor that is only its conversion."""
    producer = graph.producers().get(index)
    return index if producer is None else graph.operators[producer].inputs[0]


def _coarse(
    real: Subgraph,
    graph: Subgraph,
    operator: Operator,
    tensor: Tensor,
    layer: LayerErrors,
    noise: Noise,
    where: str,
) -> Finding | None:
    share = noise.rounding / noise.own
    if tensor.dtype not in ("int8", "uint8") or share < _WORTH_SHARE:
        return None
    bias = graph.tensors[operator.inputs[2]].elements if len(operator.inputs) > 2 and operator.inputs[2] >= 0 else 0
    detail = f"{100 * share:.0f} % of the layer's own error is rounding to a step of {_scale(tensor):.3g}"
    left = 1 - share * (1 - 2.0**-16)
    readers = real.consumers().get(layer.match.float_tensor, [])  # an int8 reader would round its input all the same
    rules = _spans("int16x8", [layer.match.float_operator, *readers])
    change = f"int16x8 for {where}" + (" and what reads it" if readers else "")
    return Finding(Cause("coarse", detail), change, rules, left, 4 * bias, _KERNEL_16)


def _unused_range(layer: LayerErrors) -> float:
    """Return by how much the range exceeds what holds 99.9 % of the values."""
    total = int(layer.levels.sum())
    if not total:
        return 1.0
    below = np.cumsum(layer.levels) / total
    first = int(np.searchsorted(below, _TAIL, side="right"))
    last = int(np.searchsorted(below, 1 - _TAIL, side="left"))
    return len(layer.levels) / max(1, last - first + 1)


def _scale(tensor: Tensor) -> float:
    return float(tensor.quantization.scale[0]) if tensor.quantization and tensor.quantization.scale else math.nan
