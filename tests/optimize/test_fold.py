# SPDX-License-Identifier: Apache-2.0
"""Pixels folded into channels: the layers are wide, the outputs the same, and what cannot be folded is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litesmith
from litesmith.errors import OptimizeError, RecipeError, UsageError
from litesmith.model import Builder, Model
from litesmith.optimize import Recipe, fold
from litesmith.optimize._equal import difference
from litesmith.optimize._fold import thin_layers
from litesmith.runtime import Session


def _net(kernel: Any = 3, stride: Any = 1, size: tuple[int, int] = (10, 16), **options: Any) -> Model:
    b = Builder(seed=2)
    x = b.input("x", (1, *size, 3))
    bias = np.linspace(-1, 1, 8).astype(np.float32)
    return b.build({"y": b.conv2d(x, 8, kernel=kernel, stride=stride, bias=bias, **options)})


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 7, (3, 1), (1, 5)])
@pytest.mark.parametrize("stride", [1, 2, (2, 1), (1, 2), 4])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_folded_convolution_gives_the_same_outputs(kernel: Any, stride: Any, width: int) -> None:
    model = _net(kernel, stride)

    folded = fold(model, width=width)

    assert difference(model, folded.model) <= 1e-6
    steps = stride if isinstance(stride, int) else stride[1]
    (layer,) = folded.coverage.layers
    assert layer.pixels == min(width // 8, 16 // steps)
    (made,) = [op for op in folded.model.main.operators if op.kind == "CONV_2D"]
    assert folded.model.main.tensors[made.outputs[0]].shape[3] == 8 * layer.pixels


def test_a_convolution_of_one_pixel_without_padding_is_folded_too() -> None:
    model = _net(kernel=1, padding="VALID")

    assert difference(model, fold(model).model) <= 1e-6


def _sound(columns: int, kernel: Any, stride: Any, filters: int = 64, channels: int = 1) -> Model:
    b = Builder(seed=5)
    x = b.input("x", (1, 12, columns, channels))
    return b.build(
        {"y": b.conv2d(x, filters, kernel=kernel, stride=stride, bias=np.linspace(-1, 1, filters).astype(np.float32))}
    )


@pytest.mark.parametrize("columns", [6, 8, 10])
@pytest.mark.parametrize("kernel", [(10, 4), (3, 5), (1, 7)])
@pytest.mark.parametrize("stride", [1, 2, (2, 1), (1, 2)])
def test_a_row_of_one_channel_becomes_one_pixel_under_a_layer_that_is_wide_already(
    columns: int, kernel: Any, stride: Any
) -> None:
    model = _sound(columns, kernel, stride)

    folded = fold(model)

    assert difference(model, folded.model) <= 1e-6
    steps = stride if isinstance(stride, int) else stride[1]
    (layer,) = folded.coverage.layers
    assert layer.pixels == columns // steps
    (made,) = [op for op in folded.model.main.operators if op.kind == "CONV_2D"]
    assert folded.model.main.tensors[made.inputs[1]].shape[1:] == (kernel[0], 1, columns)


@pytest.mark.parametrize(
    ("columns", "kernel", "stride", "channels"),
    [
        (10, (10, 2), 2, 1),  # two taps of four lanes each, a row would take twelve
        (10, (10, 4), 2, 4),  # no lane is idle
        (9, (3, 5), 2, 1),  # an odd row is no whole number of steps
        (80, (3, 31), 1, 1),  # a row that is wider than an output may be
    ],
)
def test_a_row_stays_where_folding_it_saves_nothing(columns: int, kernel: Any, stride: int, channels: int) -> None:
    assert thin_layers(_sound(columns, kernel, stride, channels=channels)) == {}


def _residual(batch: int = 1) -> Model:
    b = Builder(seed=3)
    x = b.input("x", (batch, 8, 16, 3))
    stem = b.conv2d(x, 8, kernel=3, activation="RELU", name="stem")
    y = b.op("ADD", b.conv2d(stem, 8, kernel=3, name="again"), stem, fused_activation_function="RELU", name="sum")
    half = b.conv2d(y, 16, kernel=3, stride=2, activation="RELU", name="half")
    scores = b.fully_connected(b.op("MEAN", half, np.array([1, 2], np.int32)), 5)
    return b.build({"scores": scores, "inner": y})


def test_what_follows_stays_folded_and_outputs_are_unfolded() -> None:
    model = _residual()

    made = fold(model).model

    kinds = [op.kind for op in made.main.operators]
    assert kinds.count("RESHAPE") == 3, "the input, the inner output, and the image before MEAN"
    assert [made.main.tensors[i].shape for i in made.main.outputs] == [(1, 5), (1, 8, 16, 8)]
    assert {s.key for s in made.signatures} == {s.key for s in model.signatures}
    assert [made.main.tensors[i].name for i in made.main.outputs] == [
        model.main.tensors[i].name for i in model.main.outputs
    ]
    assert difference(model, made) <= 1e-6


def _shared(reader: str) -> Model:
    """A tensor that a thin convolution and something else read: pooled, or the input itself."""
    b = Builder(seed=4)
    x = b.input("x", (1, 8, 16, 8))
    before = x if reader == "input" else b.op(
        "MAX_POOL_2D", x, padding="SAME", stride_h=1, stride_w=1, filter_height=2, filter_width=2, name="pooled"
    )  # fmt: skip
    y = b.conv2d(before, 8, kernel=3, name="thin")
    if reader == "output":
        return b.build({"y": y, "pooled": before})
    return b.build({"y": b.op("CONCATENATION", y, before, axis=3, fused_activation_function="NONE")})


@pytest.mark.parametrize("reader", ["input", "pool", "output"])
def test_what_is_read_folded_and_as_it_was_keeps_its_one_writer(reader: str) -> None:
    model = _shared(reader)
    made = fold(model).model
    assert difference(model, made) <= 1e-6
    assert [op.kind for op in made.main.operators].count("RESHAPE") == 2, "into the convolution, and out of it"


def test_several_entries_are_refused() -> None:
    one = _net()
    key = replace(one.signatures[0], key="other", subgraph_index=1)
    two = replace(one, subgraphs=(one.main, one.main), signatures=(*one.signatures, key))
    assert thin_layers(two) == {}
    with pytest.raises(OptimizeError, match="only a model with one entry"):
        fold(two)


def test_any_batch_still_runs() -> None:
    model = _residual(batch=-1)
    made = fold(model).model
    x = np.random.default_rng(0).standard_normal((3, 8, 16, 3)).astype(np.float32)

    with Session(model) as old, Session(made) as new:
        for session in (old, new):
            session.resize({"x": x.shape})
        expected = {name: np.array(value) for name, value in old.run({"x": x}).items()}
        for name, value in new.run({"x": x}).items():
            np.testing.assert_allclose(value, expected[name], atol=1e-5)


def test_integers_of_a_folded_model_are_as_close_to_the_float_one() -> None:
    model = _residual()
    data = [{"x": np.random.default_rng(i).standard_normal((1, 8, 16, 3)).astype(np.float32)} for i in range(8)]
    quantized = [litesmith.quantize(m, scheme="int8", data=data, recover=()).model for m in (model, fold(model).model)]

    def scores(of: Model) -> Any:
        with Session(of) as session:
            return np.array([session.run(sample)["scores"].copy() for sample in data])

    expected = scores(model)
    plain, wide = (float(np.abs(scores(m) - expected).mean()) for m in quantized)

    assert wide <= 1.5 * plain
    assert wide <= 0.02 * np.ptp(expected)


def test_a_folded_layer_is_not_taken_for_a_clustered_one() -> None:
    model = fold(_net(), width=64).model
    small = litesmith.quantize(model, scheme="int8").model

    weight = next(t for t in small.main.tensors if "weight" in t.name)

    assert weight.quantization is not None
    assert len(set(weight.quantization.scale)) == 8, "a scale for each channel of the thin layer"


def test_zeros_and_shared_values_stay() -> None:
    model = Recipe.parse("prune(0.5, method=magnitude) → cluster(8, fit=no)").apply(_residual())
    made = fold(model).model

    def values(of: Model, name: str) -> set[float]:
        return {float(v) for t in of.main.tensors if name in t.name and t.buffer is not None for v in t.array().ravel()}

    assert values(made, "again/weight") == values(model, "again/weight") | {0.0}
    assert len(values(model, "again/weight")) <= 9


def test_a_recipe_folds_after_channels_and_before_integers() -> None:
    recipe = Recipe.parse("fix(xnnpack) → fold(32) → dynamic")

    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert recipe.steps[1].get("width") == 32
    recipe.check_order()
    for wrong in ("int8 → fold", "fold → channels(0.5)", "fold → prune(0.5)", "fold → fix(xnnpack)"):
        with pytest.raises(RecipeError, match="first"):
            Recipe.parse(wrong).check_order()


def _bad() -> dict[str, Model]:
    b = Builder()
    depthwise = b.build({"y": b.depthwise_conv2d(b.input("x", (1, 8, 8, 4)))})
    quantized = litesmith.quantize(_residual(), scheme="float16").model
    empty = _net()
    none = tuple(replace(t, shape=(1, 10, 0, 3)) if t.name == "x" else t for t in empty.main.tensors)
    return {
        "odd width": _net(size=(8, 15)),
        "no padding": _net(padding="VALID"),
        "dilated": _net(dilation=2),
        "wide already": _sound(16, 3, 1, channels=8),
        "depthwise": depthwise,
        "16-bit weights": quantized,
        "no columns": empty.with_main(replace(empty.main, tensors=none)),
    }


@pytest.mark.parametrize("name", list(_bad()))
def test_what_cannot_be_folded_is_said(name: str) -> None:
    model = _bad()[name]

    assert thin_layers(model) == {}
    with pytest.raises(OptimizeError, match="no layer can be folded to 64 channels"):
        fold(model)


@pytest.mark.parametrize("width", [1, 0, -4])
def test_a_width_of_nothing_is_refused(width: int) -> None:
    with pytest.raises(UsageError, match="2 or more channels"):
        fold(_net(), width=width)


@pytest.mark.parametrize("name", ["cifar10/resnet20_float", "mlperf_tiny/ic_resnet8_float"])
def test_real_networks_are_folded_and_agree(name: str, assets: Path) -> None:
    model = Model.load(assets / f"{name}.tflite")

    folded = fold(model)

    assert max(layer.pixels for layer in folded.coverage.layers) == 4
    assert folded.coverage.macs[1] > folded.coverage.macs[0]
    assert difference(model, Model.from_bytes(folded.model.to_bytes())) <= 1e-5
