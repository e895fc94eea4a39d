# SPDX-License-Identifier: Apache-2.0
"""Bias correction takes mean errors away, layer by layer, as LiteRT's integer kernels make them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import KERNELS, run, sqnr_db

from litesmith.errors import OptimizeError
from litesmith.model import Builder, Model
from litesmith.model._expose import expose
from litesmith.optimize import quantize
from litesmith.optimize._bias import correct
from litesmith.optimize._segments import Walk, affordable_samples, spread_samples

Array = np.ndarray[Any, Any]


def _model(*, bias: bool = True) -> Model:
    b = Builder(seed=4)
    x = b.input("x", (1, 12, 12, 3))
    x = b.conv2d(x, 16, kernel=3, activation="RELU6", name="first")
    y = b.depthwise_conv2d(x, activation="RELU6", name="depthwise")
    y = b.conv2d(y, 16, name="project")
    x = b.op("ADD", x, y, name="sum")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    return b.build({"y": b.fully_connected(x, 6, name="head", bias=bias)})


def _samples(count: int, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((1, 12, 12, 3)).astype(np.float32) + 0.5 for _ in range(count)]


def _feeds(model: Model, samples: list[Array]) -> list[dict[int, Array]]:
    return [{model.main.inputs[0]: sample} for sample in samples]


def _shifted(quantized: Model, model: Model, operator: int, by: float) -> Model:
    """Return the quantized model with the integer bias of a layer moved by ``by``, in units of the output."""
    output = model.main.operators[operator].outputs[0]
    op = next(o for o in quantized.main.operators if output in o.outputs)
    tensor = quantized.main.tensors[op.inputs[2]]
    assert tensor.quantization is not None
    moved = tensor.array() + np.rint(by / np.asarray(tensor.quantization.scale)).astype(np.int32)
    tensors = list(quantized.main.tensors)
    tensors[op.inputs[2]] = tensor.with_array(moved.astype(np.int32))
    return quantized.with_main(replace(quantized.main, tensors=tuple(tensors)))


@pytest.mark.parametrize("operator", [0, 1, 2])
def test_a_shifted_bias_is_put_right(operator: int) -> None:
    model, samples = _model(), _samples(24)
    expected = run(model, _samples(16, seed=1))
    good = quantize(model, data=samples, recover=()).model
    broken = _shifted(good, model, operator, 0.3)
    repaired = correct(model, broken, _feeds(model, samples))
    quality = [sqnr_db(expected, run(m, _samples(16, seed=1))) for m in (good, broken, repaired)]

    assert quality[1] < quality[0] - 3
    assert quality[2] > quality[0] - 1


@pytest.mark.parametrize("kernels", KERNELS)
def test_mean_errors_shrink(kernels: str) -> None:
    model, samples, unseen = _model(), _samples(32), _samples(32, seed=1)
    plain = quantize(model, scheme="int8w4", data=samples, recover=()).model
    corrected = quantize(model, scheme="int8w4", data=samples, recover=("bias",)).model
    tensor = model.main.operators[2].outputs[0]

    def mean_error(quantized: Model) -> float:
        real = np.mean([o[-1] for o in run(expose(model, [tensor]), unseen)], axis=(0, 1, 2, 3))
        stored = quantized.main.tensors[tensor].quantization
        assert stored is not None
        integers = [o[-1] for o in run(expose(quantized, [tensor]), unseen, kernels=kernels)]
        means = (np.mean(integers, axis=(0, 1, 2, 3), dtype=np.float64) - stored.zero_point[0]) * stored.scale[0]
        return float(np.sqrt(np.mean((means - real) ** 2)))

    assert mean_error(corrected) < 0.3 * mean_error(plain)


@pytest.mark.parametrize(
    ("scheme", "io"), [("int8", "float"), ("int8", "int8"), ("int16x8", "float"), ("weights4", "float")]
)
def test_every_scheme_keeps_its_structure(scheme: str, io: str) -> None:
    model, samples = _model(), _samples(8)
    plain = quantize(model, scheme=scheme, data=samples, recover=(), io=io).model
    corrected = quantize(model, scheme=scheme, data=samples, recover=("bias",), io=io).model

    assert [o.kind for o in corrected.main.operators] == [o.kind for o in plain.main.operators]
    for before, after in zip(plain.main.tensors, corrected.main.tensors, strict=True):
        assert replace(before, buffer=None) == replace(after, buffer=None)


@pytest.mark.parametrize(("scheme", "head"), [("int8", "same"), ("int8", "auto"), ("weights4", "auto")])
def test_a_layer_without_a_bias_gets_one(scheme: str, head: str) -> None:
    model, samples, unseen = _model(bias=False), _samples(24), _samples(16, seed=1)
    expected = run(model, unseen)
    plain = quantize(model, scheme=scheme, data=samples, recover=(), head=head).model
    corrected = quantize(model, scheme=scheme, data=samples, recover=("bias",), head=head).model
    last = next(op for op in corrected.main.operators if op.kind == "FULLY_CONNECTED")

    assert corrected.main.tensors[last.inputs[2]].array().any()
    assert sqnr_db(expected, run(corrected, unseen)) > sqnr_db(expected, run(plain, unseen)) - 0.5


def test_it_needs_samples() -> None:
    with pytest.raises(OptimizeError, match="needs samples"):
        quantize(_model(), recover=("bias",))


def test_the_result_is_the_same_each_time() -> None:
    model, samples = _model(), _samples(8)
    first, second = (quantize(model, data=samples, recover=("bias",)).model.to_bytes() for _ in range(2))
    assert first == second


def test_a_walk_gives_what_the_whole_model_gives() -> None:
    model, samples = _model(), _samples(3)
    quantized = quantize(model, data=samples, recover=()).model
    output = quantized.main.outputs[0]
    walk = Walk(quantized, 0, _feeds(quantized, samples))
    pieces = walk.pieces(range(len(quantized.main.operators)))
    assert len(pieces) > 4
    for piece in pieces[:-1]:
        assert sum(1 for _ in walk.run(piece, keep=True)) == len(samples)
    got = [views[0].copy() for views in walk.run(pieces[-1], [output], keep=False)]
    for (expected,), walked in zip(run(quantized, samples), got, strict=True):
        np.testing.assert_array_equal(walked, expected)


def test_samples_come_from_all_over_the_data() -> None:
    model = _model()
    samples = [np.full((1, 12, 12, 3), i, np.float32) for i in range(10)]
    chosen = [int(next(iter(feed.values())).flat[0]) for feed in spread_samples(model, samples, 4)]
    assert chosen == [0, 3, 6, 9]


def test_memory_bounds_the_samples() -> None:
    graph = _model().main
    largest = 4 * (12 * 12 * 16) * 3  # the sum and both of its operands
    assert affordable_samples(graph, 10 * largest) == 10
    assert affordable_samples(graph, 1) == 1


def test_mobilenet_v2_mean_errors_shrink(assets: Path) -> None:
    from PIL import Image

    model = Model.load(assets / "vision" / "mobilenet_v2_float.tflite")
    files = sorted((assets / "vision" / "photos").glob("*.jpg"))
    mean, deviation = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    photos = [
        ((np.asarray(Image.open(f).convert("RGB")) - mean) / deviation).astype(np.float32)[None] for f in files[::16]
    ]
    unseen = [
        ((np.asarray(Image.open(f).convert("RGB")) - mean) / deviation).astype(np.float32)[None] for f in files[5::20]
    ]
    logits = next(op for op in model.main.operators if op.kind == "FULLY_CONNECTED").outputs[0]
    expected = [o[-1:] for o in run(expose(model, [logits]), unseen)]
    plain, corrected = (
        sqnr_db(expected, [o[-1:] for o in run(expose(made, [logits]), unseen)])
        for made in (
            quantize(model, data=photos, method="minmax", recover=recover, check=False).model
            for recover in (("equalize",), ("equalize", "bias"))
        )
    )
    assert corrected > plain + 0.5
