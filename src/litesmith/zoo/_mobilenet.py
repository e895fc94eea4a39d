# SPDX-License-Identifier: Apache-2.0
"""MobileNet V1, V2 and V3: depthwise separable convolutions, then inverted residuals, then gates and hard-swish.

Sources of the tables: arXiv:1704.04861 (table 1), arXiv:1801.04381 (table 2), arXiv:1905.02244 (tables 1 and 2). Widths
follow TF-Slim: V1 multiplies and truncates, V2 and V3 round to multiples of 8, and a width below 1 leaves the last
layers as they are. The minimalistic V3 has no gates, no hard-swish and no 5 × 5 kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size, divisible
from litesmith.zoo._net import BRANCH, Net

_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class _V3Block(NamedTuple):
    kernel: int
    expanded: int
    channels: int
    gated: bool
    activation: str
    stride: int


_H, _R = "HARD_SWISH", "RELU"
_V3 = {
    "large": tuple(
        _V3Block(*row)
        for row in (
            (3, 16, 16, False, _R, 1),
            (3, 64, 24, False, _R, 2),
            (3, 72, 24, False, _R, 1),
            (5, 72, 40, True, _R, 2),
            (5, 120, 40, True, _R, 1),
            (5, 120, 40, True, _R, 1),
            (3, 240, 80, False, _H, 2),
            (3, 200, 80, False, _H, 1),
            (3, 184, 80, False, _H, 1),
            (3, 184, 80, False, _H, 1),
            (3, 480, 112, True, _H, 1),
            (3, 672, 112, True, _H, 1),
            (5, 672, 160, True, _H, 2),
            (5, 960, 160, True, _H, 1),
            (5, 960, 160, True, _H, 1),
        )
    ),
    "small": tuple(
        _V3Block(*row)
        for row in (
            (3, 16, 16, True, _R, 2),
            (3, 72, 24, False, _R, 2),
            (3, 88, 24, False, _R, 1),
            (5, 96, 40, True, _H, 2),
            (5, 240, 40, True, _H, 1),
            (5, 240, 40, True, _H, 1),
            (5, 120, 48, True, _H, 1),
            (5, 144, 48, True, _H, 1),
            (5, 288, 96, True, _H, 2),
            (5, 576, 96, True, _H, 1),
            (5, 576, 96, True, _H, 1),
        )
    ),
}
_V3_LAST = {"large": 1280, "small": 1024}


def inverted_residual(
    net: Net,
    x: Value,
    *,
    expanded: int,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    gated: bool = False,
    activation: str = "RELU6",
    name: str,
) -> Value:
    """Add a block that widens, filters each channel, gates, and narrows again, with a shortcut where shapes allow."""
    shortcut = stride == 1 and x.shape[-1] == channels
    y = x
    if expanded != x.shape[-1]:
        y = net.conv(y, expanded, activation=activation, name=f"{name}/expand")
    y = net.depthwise(y, kernel, stride, activation=activation, name=f"{name}/depthwise")
    if gated:
        y = _gate(net, y, name=f"{name}/gate")
    y = net.conv(y, channels, deviation=BRANCH if shortcut else 1.0, name=f"{name}/project")
    return net.add(x, y, name=f"{name}/add") if shortcut else y


def _gate(net: Net, x: Value, *, name: str) -> Value:
    """Squeeze and excite (arXiv:1709.01507): scale each channel by a number in 0 to 1 that depends on all channels."""
    channels = x.shape[-1]
    y = net.global_pool(x, keep_dims=True, name=f"{name}/pool")
    y = net.conv(y, divisible(channels / 4), activation="RELU", name=f"{name}/squeeze")
    y = net.conv(y, channels, mean=1.0, name=f"{name}/excite")
    gate = net.spread(y).through("HARD_SIGMOID")
    three, sixth = np.array(3, np.float32), np.array(1 / 6, np.float32)
    y = net.op("ADD", y, three, fused_activation_function="RELU6", name=f"{name}/plus3", spread=gate)
    y = net.op("MUL", y, sixth, name=f"{name}/hard_sigmoid", spread=gate)
    return net.mul(x, y, name=name)


def _v1(net: Net, size: Size) -> Mapping[str, Value]:
    def depth(channels: int) -> int:
        return max(int(size.scaled(channels)), 8)

    x = net.conv(net.image(size.resolution), depth(32), 3, 2, activation="RELU6", name="stem")
    for n, (channels, stride) in enumerate(_V1):
        x = net.depthwise(x, 3, stride, activation="RELU6", name=f"block{n}/depthwise")
        x = net.conv(x, depth(channels), activation="RELU6", name=f"block{n}/pointwise")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


def _v2(net: Net, size: Size) -> Mapping[str, Value]:
    x = net.conv(net.image(size.resolution), size.divisible(32), 3, 2, activation="RELU6", name="stem")
    blocks = [(t, c, s if i == 0 else 1) for t, c, repeats, s in _V2 for i in range(repeats)]
    for n, (factor, channels, stride) in enumerate(blocks):
        expanded = factor * x.shape[-1]
        x = inverted_residual(
            net, x, expanded=expanded, channels=size.divisible(channels), stride=stride, name=f"block{n}"
        )
    x = net.conv(x, divisible(1280 * max(size.width, 1.0)), activation="RELU6", name="head")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


def _v3(net: Net, size: Size, *, kind: str, minimalistic: bool) -> Mapping[str, Value]:
    def activation(wanted: str) -> str:
        return "RELU" if minimalistic else wanted

    x = net.conv(net.image(size.resolution), size.divisible(16), 3, 2, activation=activation(_H), name="stem")
    before = 16
    for n, block in enumerate(_V3[kind]):
        x = inverted_residual(
            net,
            x,
            expanded=divisible(block.expanded * x.shape[-1] / before),  # the factor of the table, on what is there
            channels=size.divisible(block.channels),
            kernel=3 if minimalistic else block.kernel,
            stride=block.stride,
            gated=block.gated and not minimalistic,
            activation=activation(block.activation),
            name=f"block{n}",
        )
        before = block.channels
    x = net.conv(x, size.divisible(_V3[kind][-1].expanded), activation=activation(_H), name="head")
    last = divisible(_V3_LAST[kind] * max(size.width, 1.0))
    x = net.dense(net.global_pool(x), last, activation=activation(_H), name="hidden")
    return {"logits": net.dense(x, size.classes, name="logits")}


ARCHITECTURES = (
    Architecture("mobilenet_v1", _v1, 224, 1001),
    Architecture("mobilenet_v2", _v2, 224, 1001),
    *(
        Architecture(
            f"mobilenet_v3_{kind}{'_minimalistic' if minimalistic else ''}",
            functools.partial(_v3, kind=kind, minimalistic=minimalistic),
            224,
            1001,
        )
        for kind in _V3
        for minimalistic in (False, True)
    ),
)
