# SPDX-License-Identifier: Apache-2.0
"""What the builder writes, LiteRT runs."""

from __future__ import annotations

import numpy as np
import pytest

from litesmith.model import Builder
from litesmith.runtime import Session


@pytest.mark.parametrize("kernels", ["delegate", "builtin"])
@pytest.mark.parametrize("layer", ["conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv"])
def test_layers_without_bias_run(layer: str, kernels: str) -> None:
    b = Builder(seed=1)
    x = b.input("x", (1, 8, 8, 4))
    y = b.depthwise_conv2d(x, bias=False) if layer == "depthwise_conv2d" else getattr(b, layer)(x, 6, bias=False)
    with Session(b.build({"y": y}), kernels=kernels) as session:
        assert not session(np.zeros((1, 8, 8, 4), np.float32))["y"].any()
        assert session(np.ones((1, 8, 8, 4), np.float32))["y"].any()
