# SPDX-License-Identifier: Apache-2.0
"""ResNet-8 of MLPerf Tiny, ResNet-50, and ResNet-v2-101, whose normalizations come before the convolutions.

ResNet-8: mlcommons/tiny, benchmark/training/image_classification/keras_model.py. ResNet-50: arXiv:1512.03385, with the
stride in the 3 × 3 convolution as in torchvision and MLPerf ("v1.5"). ResNet-v2-101: arXiv:1603.05027 as TF-Slim builds
it, with the stride in the last unit of a stage. Its normalization at the head of a unit has a ReLU behind it and so
cannot be folded into the next convolution: it is a MUL and an ADD with the ReLU fused. Those behind the first two
convolutions of a unit are folded.
"""

from __future__ import annotations

from collections.abc import Mapping

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size
from litesmith.zoo._net import BRANCH, Net

_STAGES_50 = ((64, 3), (128, 4), (256, 6), (512, 3))
_STAGES_101 = ((64, 3), (128, 4), (256, 23), (512, 3))


def _resnet_8(net: Net, size: Size) -> Mapping[str, Value]:
    x = net.conv(net.image(size.resolution), size.rounded(16), 3, activation="RELU", name="stem")
    for n, channels in enumerate((16, 32, 64)):
        name, filters, stride = f"block{n}", size.rounded(channels), 1 if n == 0 else 2
        y = net.conv(x, filters, 3, stride, activation="RELU", name=f"{name}/conv1")
        y = net.conv(y, filters, 3, deviation=BRANCH, name=f"{name}/conv2")
        if stride > 1:
            x = net.conv(x, filters, 1, stride, mean=1.0, name=f"{name}/shortcut")
        x = net.add(x, y, activation="RELU", name=f"{name}/add")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


def _resnet_50(net: Net, size: Size) -> Mapping[str, Value]:
    x = net.conv(net.image(size.resolution), size.rounded(64), 7, 2, activation="RELU", name="stem")
    x = net.max_pool(x, 3, 2, positive=True, name="stem/pool")
    for stage, (channels, units) in enumerate(_STAGES_50):
        for unit in range(units):
            name, stride = f"stage{stage}/unit{unit}", 2 if stage and unit == 0 else 1
            y = net.conv(x, size.rounded(channels), activation="RELU", name=f"{name}/conv1")
            y = net.conv(y, size.rounded(channels), 3, stride, activation="RELU", name=f"{name}/conv2")
            y = net.conv(y, size.rounded(4 * channels), deviation=BRANCH, name=f"{name}/conv3")
            if unit == 0:
                x = net.conv(x, size.rounded(4 * channels), 1, stride, mean=1.0, name=f"{name}/shortcut")
            x = net.add(x, y, activation="RELU", name=f"{name}/add")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


def _resnet_v2_101(net: Net, size: Size) -> Mapping[str, Value]:
    x = net.conv(net.image(size.resolution), size.rounded(64), 7, 2, name="stem")
    x = net.max_pool(x, 3, 2, name="stem/pool")
    for stage, (channels, units) in enumerate(_STAGES_101):
        for unit in range(units):
            name, stride = f"stage{stage}/unit{unit}", 2 if stage < 3 and unit == units - 1 else 1
            active = net.affine(x, activation="RELU", name=f"{name}/preact")
            y = net.conv(active, size.rounded(channels), activation="RELU", name=f"{name}/conv1")
            y = net.conv(y, size.rounded(channels), 3, stride, activation="RELU", name=f"{name}/conv2")
            y = net.conv(y, size.rounded(4 * channels), deviation=BRANCH, name=f"{name}/conv3")
            if unit == 0:
                x = net.conv(active, size.rounded(4 * channels), 1, stride, name=f"{name}/shortcut")
            elif stride > 1:
                x = net.max_pool(x, 1, stride, name=f"{name}/shortcut")
            x = net.add(x, y, name=f"{name}/add")
    x = net.global_pool(net.affine(x, activation="RELU", name="postnorm"))
    return {"logits": net.dense(x, size.classes, name="logits")}


ARCHITECTURES = (
    Architecture("resnet_8", _resnet_8, 32, 10, smallest=4),
    Architecture("resnet_50", _resnet_50, 224, 1000),
    Architecture("resnet_v2_101", _resnet_v2_101, 299, 1001),
)
