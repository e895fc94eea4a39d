# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-Lite0 to 4: EfficientNet (arXiv:1905.11946) without gates, with ReLU6, stem and head at a fixed width.

Source of the tables: tensorflow/tpu, models/official/efficientnet, lite/efficientnet_lite_builder.py and
efficientnet_builder.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size, divisible
from litesmith.zoo._mobilenet import inverted_residual
from litesmith.zoo._net import Net


class _Stage(NamedTuple):
    repeats: int
    kernel: int
    stride: int
    factor: int
    channels: int


class _Scaling(NamedTuple):
    width: float
    depth: float
    resolution: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
_SCALINGS = (
    _Scaling(1.0, 1.0, 224),
    _Scaling(1.0, 1.1, 240),
    _Scaling(1.1, 1.2, 260),
    _Scaling(1.2, 1.4, 280),
    _Scaling(1.4, 1.8, 300),
)


def _lite(net: Net, size: Size, *, scaling: _Scaling) -> Mapping[str, Value]:
    x = net.conv(net.image(size.resolution), size.divisible(32), 3, 2, activation="RELU6", name="stem")
    n = 0
    for stage in _STAGES:
        outermost = stage in (_STAGES[0], _STAGES[-1])  # their depth is not scaled
        for i in range(stage.repeats if outermost else math.ceil(stage.repeats * scaling.depth)):
            x = inverted_residual(
                net,
                x,
                expanded=stage.factor * x.shape[-1],
                channels=divisible(size.scaled(stage.channels) * scaling.width),
                kernel=stage.kernel,
                stride=stage.stride if i == 0 else 1,
                name=f"block{n}",
            )
            n += 1
    x = net.conv(x, size.divisible(1280), activation="RELU6", name="head")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


ARCHITECTURES = tuple(
    Architecture(f"efficientnet_lite{n}", functools.partial(_lite, scaling=scaling), scaling.resolution, 1000)
    for n, scaling in enumerate(_SCALINGS)
)
