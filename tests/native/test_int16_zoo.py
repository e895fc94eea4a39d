# SPDX-License-Identifier: Apache-2.0
"""The convolutional networks of the zoo, Wav2Letter and MobileBERT, made int16x8 by ``quantize``: integer throughout,
run by the delegate in one or two pieces, and equal to the stock kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from litesmith import zoo
from litesmith.model import Model
from litesmith.optimize import Quantized, quantize

SMALL: dict[str, tuple[int, float]] = {  # resolution and width: the layers are the same, and a test is quick
    "ds_cnn": (2, 0.25),
    "efficientnet_lite0": (32, 0.35),
    "inception_v3": (75, 0.35),
    "mobilebert": (2, 0.25),
    "mobilenet_v1": (32, 0.35),
    "mobilenet_v2": (32, 0.35),
    "mobilenet_v3_large": (32, 0.35),
    "mobilenet_v3_large_minimalistic": (32, 0.35),
    "mobilenet_v3_small": (32, 0.35),
    "mobilenet_v3_small_minimalistic": (32, 0.35),
    "resnet_50": (32, 0.25),
    "resnet_8": (4, 0.25),
    "resnet_v2_101": (32, 0.25),
    "wav2letter": (2, 0.25),
    "yolo_v3": (32, 0.35),
}
LARGER = {"efficientnet_lite1", "efficientnet_lite2", "efficientnet_lite3", "efficientnet_lite4"}  # more of the same
RECURRENT = {"deepspeech"}


def random_samples(model: Model, count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    inputs = [model.main.tensors[i] for i in model.main.inputs]

    def values(dtype: str, shape: tuple[int, ...]) -> Any:
        return random.uniform(-1, 1, shape).astype(np.float32) if dtype == "float32" else random.integers(0, 2, shape)

    return [{t.name: values(t.dtype, t.shape).astype(t.dtype) for t in inputs} for _ in range(count)]


def as_int16x8(name: str) -> Quantized:
    resolution, width = SMALL[name]
    model = zoo.build(name, resolution=resolution, width=width)
    return quantize(model, scheme="int16x8", data=random_samples(model, 2), recover=(), check=False)


def outputs(run: Any, model: Model) -> list[Any]:
    for detail, values in zip(run.interpreter.get_input_details(), random_samples(model, 1)[0].values(), strict=True):
        run.interpreter.set_tensor(detail["index"], values)
    run.interpreter.invoke()
    return list(run.outputs())


def test_every_network_is_looked_at() -> None:
    assert set(SMALL) | LARGER | RECURRENT == set(zoo.names())


@pytest.mark.parametrize("name", SMALL)
def test_at_most_two_partitions(name: str, stock: Any, delegated: Any) -> None:
    quantized = as_int16x8(name)
    assert all("constants only" in op.reason or op.kind == "CAST" for op in quantized.coverage.left_float)
    data = quantized.model.to_bytes()
    spread = 0.0 if name == "mobilebert" else 1.0  # its inputs are indices
    ours = delegated(data, spread=spread)
    partitions = [op for op in ours.interpreter._get_ops_details() if op["op_name"] == "DELEGATE"]
    kinds = {(d["op"], d["note"]) for d in ours.decisions() if not d["taken"]}
    assert len(partitions) <= (2 if name == "mobilebert" else 1), kinds
    for want, got in zip(
        outputs(stock(data, spread=spread), quantized.model), outputs(ours, quantized.model), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_hard_swish_becomes_operators_that_litert_runs_in_int16() -> None:
    quantized = as_int16x8("mobilenet_v3_small")
    kinds = [op.kind for op in quantized.model.main.operators]
    assert "HARD_SWISH" not in kinds
    assert kinds.count("QUANTIZE") == kinds.count("DEQUANTIZE") == 1
    assert any("HARD_SWISH as ADD, MUL and MUL" in note for note in quantized.coverage.notes)
