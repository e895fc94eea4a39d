# SPDX-License-Identifier: Apache-2.0
"""Equalization computes the same in float, makes channels alike, and leaves alone what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import run, sqnr_db

from litesmith.model import Builder, Model
from litesmith.optimize import calibrate, quantize
from litesmith.optimize._channel_groups import channel_groups
from litesmith.optimize._equalize import equalize

Array = np.ndarray[Any, Any]


def _spread(shape: tuple[int, ...], axis: int, *, seed: int = 0, factor: float = 1.5) -> Array:
    """Return weights whose channels along ``axis`` differ by orders of magnitude."""
    random = np.random.default_rng(seed)
    sizes = np.exp(random.normal(0, factor, shape[axis])).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (random.standard_normal(shape) * sizes * 0.3).astype(np.float32)


def _chain(activation: str) -> Model:
    b = Builder(seed=1)
    x = b.input("x", (1, 8, 8, 3))
    x = b.conv2d(x, 16, kernel=3, activation=activation, name="first", weight=_spread((16, 3, 3, 3), 0))
    x = b.op("PAD", x, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), name="pad")
    x = b.depthwise_conv2d(x, padding="VALID", activation=activation, name="depthwise")
    y = b.conv2d(x, 12, name="project")
    z = b.conv2d(y, 12, activation=activation, name="branch")
    y = b.op("ADD", y, z, name="sum")
    y = b.op("MEAN", y, np.array([1, 2], np.int32), name="pool")
    return b.build({"y": b.fully_connected(y, 5, name="head")})


def _samples(shape: tuple[int, ...], count: int = 12, *, seed: int = 5, scale: float = 1.0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [(scale * random.standard_normal(shape)).astype(np.float32) for _ in range(count)]


def _feeds(model: Model, samples: list[Array]) -> list[dict[int, Array]]:
    return [{model.main.inputs[0]: sample} for sample in samples]


def _assert_same_in_float(model: Model, changed: Model, samples: list[Array]) -> None:
    for expected, got in zip(run(model, samples), run(changed, samples), strict=True):
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-4 * float(np.abs(expected[0]).max()))


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_the_float_model_computes_the_same(activation: str, per_channel: bool) -> None:
    model = _chain(activation)
    samples = _samples((1, 8, 8, 3), scale=0.3)
    changed = equalize(model, _feeds(model, samples), per_channel=per_channel)

    assert any(a != b for a, b in zip(model.main.tensors, changed.main.tensors, strict=True))
    assert changed.main.operators == model.main.operators
    _assert_same_in_float(model, changed, samples)


def test_without_relu6_it_holds_for_any_input() -> None:
    model = _chain("RELU")
    changed = equalize(model, _feeds(model, _samples((1, 8, 8, 3))))
    _assert_same_in_float(model, changed, _samples((1, 8, 8, 3), seed=6, scale=50.0))


def test_channels_become_alike() -> None:
    model = _chain("RELU")
    samples = _samples((1, 8, 8, 3))
    changed = equalize(model, _feeds(model, samples))
    tensor = model.main.operators[0].outputs[0]

    def spread(of: Model) -> float:
        found = calibrate(of, samples, channels=True).find(tensor)
        assert found is not None
        assert found.channel_high is not None
        high = np.asarray(found.channel_high)
        return float(high.max() / np.median(high))

    assert spread(model) > 3
    assert spread(changed) < 1.5


def test_a_channel_at_the_cut_of_relu6_keeps_its_scale() -> None:
    b = Builder()
    weight = np.zeros((4, 1, 1, 2), np.float32)
    weight[:, 0, 0, 0] = [0.01, 0.1, 1.0, 20.0]
    y = b.conv2d(b.input("x", (1, 2, 2, 2)), 4, activation="RELU6", weight=weight, bias=np.zeros(4, np.float32))
    model = b.build({"y": b.conv2d(y, 3, name="second")})
    changed = equalize(model, _feeds(model, _samples((1, 2, 2, 2))))
    factors = changed.main.tensors[model.main.operators[0].inputs[1]].array()[:, 0, 0, 0] / weight[:, 0, 0, 0]

    assert factors[3] == 1
    assert factors[1] > 1.5


def test_without_data_ranges_of_weights_are_balanced() -> None:
    model = _chain("RELU")
    changed = equalize(model, [])
    first, depthwise = (changed.main.tensors[changed.main.operators[i].inputs[1]].array() for i in (0, 2))

    np.testing.assert_allclose(np.abs(first).max(axis=(1, 2, 3)), np.abs(depthwise).max(axis=(0, 1, 2)), rtol=0.2)
    _assert_same_in_float(model, changed, _samples((1, 8, 8, 3)))


def test_without_data_nothing_moves_behind_relu6() -> None:
    b = Builder()
    y = b.conv2d(b.input("x", (1, 4, 4, 2)), 4, activation="RELU6")
    model = b.build({"y": b.conv2d(y, 3, name="second")})
    assert equalize(model, []) == model


def test_what_others_see_is_left_alone() -> None:
    b = Builder()
    seen = b.conv2d(b.input("x", (1, 4, 4, 2)), 4, activation="RELU", name="seen")
    bent = b.op("TANH", b.conv2d(seen, 4, name="bent"), name="tanh")
    grouped = b.conv2d(b.conv2d(bent, 4, name="before"), 4, groups=2, name="grouped")
    shared = b.constant(np.ones((4, 1, 1, 4), np.float32), "shared")
    one = b.op("CONV_2D", grouped, shared, None, padding="SAME", stride_h=1, stride_w=1)
    two = b.op("CONV_2D", one, shared, None, padding="SAME", stride_h=1, stride_w=1)
    flat = b.fully_connected(b.conv2d(two, 2, name="last"), 3)
    model = b.build({"seen": seen, "y": flat})
    assert channel_groups(model.main) == []
    assert equalize(model, _feeds(model, _samples((1, 4, 4, 2)))) is model


def test_a_residual_sum_is_one_group() -> None:
    graph = _chain("RELU").main
    groups = {group.tensors: group for group in channel_groups(graph)}
    total = next(group for tensors, group in groups.items() if len(tensors) == 4)  # project, branch, sum, pool
    assert [graph.operators[i].kind for i in total.writers] == ["CONV_2D", "CONV_2D"]
    assert [graph.operators[i].kind for i in total.readers] == ["CONV_2D", "FULLY_CONNECTED"]


def test_int8_loses_less() -> None:
    b = Builder(seed=1)
    weight = _spread((16, 3, 3, 3), 0)
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 16, kernel=3, activation="RELU", weight=weight)
    reverse = b.random.standard_normal((1, 3, 3, 16)) / np.abs(weight).max(axis=(1, 2, 3))
    x = b.depthwise_conv2d(x, weight=reverse.astype(np.float32), activation="RELU")
    model = b.build({"y": b.conv2d(x, 8, name="last")})
    samples = _samples((1, 8, 8, 3), 32)
    unseen = _samples((1, 8, 8, 3), 24, seed=9)
    expected = run(model, unseen)
    plain, better = (
        sqnr_db(expected, run(quantize(model, data=samples, recover=recover, method="minmax").model, unseen))
        for recover in ((), ("equalize",))
    )
    assert better > plain + 6


def test_a_depth_multiplier_repeats_scales() -> None:
    b = Builder(seed=2)
    x = b.conv2d(b.input("x", (1, 6, 6, 3)), 4, activation="RELU", name="first", weight=_spread((4, 1, 1, 3), 0))
    x = b.depthwise_conv2d(x, multiplier=2, activation="RELU", name="depthwise")
    model = b.build({"y": b.conv2d(x, 3, name="last")})
    samples = _samples((1, 6, 6, 3))
    changed = equalize(model, _feeds(model, samples))
    assert changed != model
    _assert_same_in_float(model, changed, samples)


def test_mobilenet_v2_computes_the_same(assets: Path) -> None:
    model = Model.load(assets / "vision" / "mobilenet_v2_float.tflite")
    samples = _samples((1, 224, 224, 3), 3)
    changed = equalize(model, _feeds(model, samples))
    assert len(channel_groups(model.main)) > 30
    _assert_same_in_float(model, changed, samples)
