# SPDX-License-Identifier: Apache-2.0
"""YOLOv3 (arXiv:1804.02767): the Darknet-53 backbone and detection heads at strides 32, 16 and 8.

The outputs are the raw predictions of each cell, three anchors of ``5 + classes`` numbers, as in yolov3.cfg of
pjreddie/darknet; decoding boxes and suppressing overlaps is left to the application.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size
from litesmith.zoo._net import BRANCH, Net

_BACKBONE = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))
_HEADS = ((512, 32), (256, 16), (128, 8))  # narrow channels, stride
_LEAKY = "LEAKY_RELU_0.1"


def _yolo_v3(net: Net, size: Size) -> Mapping[str, Value]:
    def conv(x: Value, channels: int, kernel: int, name: str, stride: int = 1) -> Value:
        return net.conv(x, size.rounded(channels), kernel, stride, activation=_LEAKY, name=name)

    x = conv(net.image(size.resolution), 32, 3, "stem")
    stages = []
    for stage, (channels, units) in enumerate(_BACKBONE):
        x = conv(x, channels, 3, f"stage{stage}/down", 2)
        for unit in range(units):
            name = f"stage{stage}/unit{unit}"
            y = conv(x, channels // 2, 1, f"{name}/conv1")
            y = net.conv(
                y, size.rounded(channels), 3, activation=_LEAKY, deviation=BRANCH, mean=0, name=f"{name}/conv2"
            )
            x = net.add(x, y, name=f"{name}/add")
        stages.append(x)

    outputs = {}
    for head, (channels, stride) in enumerate(_HEADS):
        if head:
            x = conv(x, channels, 1, f"head{head}/lateral")
            x = _upsample(net, x, f"head{head}/upsample")
            x = net.concat([x, stages[-1 - head]], name=f"head{head}/join")
        for n in range(5):
            x = conv(x, channels * (1 + n % 2), 1 + n % 2 * 2, f"head{head}/conv{n}")
        y = conv(x, channels * 2, 3, f"head{head}/conv5")
        outputs[f"stride{stride}"] = net.conv(y, 3 * (5 + size.classes), name=f"head{head}/predictions")
    return outputs


def _upsample(net: Net, x: Value, name: str) -> Value:
    target = np.array([2 * x.shape[1], 2 * x.shape[2]], np.int32)
    return net.op("RESIZE_NEAREST_NEIGHBOR", x, target, name=name, spread=net.spread(x))


ARCHITECTURES = (Architecture("yolo_v3", _yolo_v3, 416, 80, multiple=32),)
