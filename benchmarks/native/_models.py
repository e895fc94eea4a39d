# SPDX-License-Identifier: Apache-2.0
"""The networks that the delegate is measured on: zoo architectures, quantized to int16x8 and int8, or pruned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from litesmith import quantize
from litesmith.model import Buffer, Model
from litesmith.zoo import build


def float_model(name: str) -> Model:
    return build(name)


def quantized(model: Model, scheme: str) -> Model:
    """Quantize on noise: the time does not depend on the values."""
    return quantize(model, scheme=scheme, check=False).model


def pruned(model: Model, zeros: float, block: int) -> Model:
    """Set a share of the weights of 1x1 convolutions and the classifier to zero, in blocks of ``block`` outputs."""
    random = np.random.default_rng(0)
    main = model.main
    tensors = list(main.tensors)
    for operator in main.operators:
        if operator.kind not in ("CONV_2D", "FULLY_CONNECTED"):
            continue
        weight = tensors[operator.inputs[1]]
        outputs = weight.shape[0]
        if weight.shape[1:-1] not in ((1, 1), ()):
            continue
        keep = np.repeat(random.random((-(-outputs // block), *weight.shape[1:])) >= zeros, block, 0)[:outputs]
        values = np.where(keep, weight.array(), 0).astype(np.float32)
        tensors[operator.inputs[1]] = replace(weight, buffer=Buffer(values.tobytes()))
    return model.with_main(replace(main, tensors=tuple(tensors)))
