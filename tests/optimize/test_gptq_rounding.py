# SPDX-License-Identifier: Apache-2.0
"""GPTQ and learned rounding lose less than rounding to nearest, in LiteRT, on samples they did not see."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import run, sqnr_db

from litesmith.errors import MissingExtraError, OptimizeError
from litesmith.model import Builder, Model
from litesmith.optimize import quantize
from litesmith.optimize._gptq import round_rows

Array = np.ndarray[Any, Any]


def _model() -> Model:
    b = Builder(seed=4)
    x = b.conv2d(b.input("x", (1, 12, 12, 4)), 16, kernel=3, stride=2, activation="RELU", name="first")
    x = b.depthwise_conv2d(x, activation="RELU", name="depthwise")
    x = b.conv2d(x, 24, activation="RELU", name="project")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    return b.build({"y": b.fully_connected(x, 6, name="head")})


def _samples(count: int, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    mixed = random.standard_normal((count, 1, 12, 12, 2)) @ np.random.default_rng(7).standard_normal((2, 4))
    return list((mixed + 0.1 * random.standard_normal(mixed.shape)).astype(np.float32))


@pytest.mark.parametrize("scheme", ["weights4", "int8w4", "dynamic4"])
@pytest.mark.parametrize("name", ["gptq", "rounding"])
def test_it_loses_less_than_rounding_to_nearest(scheme: str, name: str) -> None:
    model, samples, unseen = _model(), _samples(24, 0), _samples(24, 1)
    expected = run(model, unseen)
    nearest, better = (
        quantize(model, scheme=scheme, data=samples, recover=recover, weight_ranges="mse", min_weight_elements=0).model
        for recover in ((), (name,))
    )
    assert sqnr_db(expected, run(better, unseen)) > sqnr_db(expected, run(nearest, unseen)) + 0.5
    assert len(better.to_bytes()) == len(nearest.to_bytes())


@pytest.mark.parametrize("scheme", ["int16x8", "weights8"])
def test_eight_bits_gain_by_default_where_activations_are_finer(scheme: str) -> None:
    model, samples, unseen = _model(), _samples(24, 0), _samples(24, 1)
    expected = run(model, unseen)
    nearest, better = (
        run(quantize(model, scheme=scheme, data=samples, recover=recover).model, unseen) for recover in ((), None)
    )
    assert sqnr_db(expected, better) > sqnr_db(expected, nearest) + 1


def test_inputs_that_do_not_depend_on_each_other_round_to_nearest() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 300))
    scales = np.full(5, 0.3)
    got = round_rows(rows, scales, np.eye(300)[None], 4)
    np.testing.assert_array_equal(got, np.clip(np.rint(rows / 0.3), -7, 7))


def test_the_next_weights_make_up_for_the_error() -> None:
    random = np.random.default_rng(0)
    columns = random.standard_normal((400, 3)) @ random.standard_normal((3, 200)) + 0.1 * random.standard_normal(
        (400, 200)
    )
    rows, scales = random.standard_normal((8, 200)), np.full(8, 0.3)
    got = round_rows(rows, scales, (columns.T @ columns)[None] / 400, 4) * 0.3
    nearest = np.clip(np.rint(rows / 0.3), -7, 7) * 0.3
    assert np.sum(((rows - got) @ columns.T) ** 2) < 0.3 * np.sum(((rows - nearest) @ columns.T) ** 2)


def test_zeros_stay_zeros() -> None:
    random = np.random.default_rng(0)
    columns, rows = random.standard_normal((200, 40)) + 1, random.standard_normal((6, 40))
    rows[:, ::3] = 0
    got = round_rows(rows, np.full(6, 0.3), (columns.T @ columns)[None] / 200, 4)
    assert not got[rows == 0].any()


def test_dead_inputs_do_no_harm() -> None:
    h = np.zeros((1, 4, 4))
    assert np.isfinite(round_rows(np.ones((2, 4)), np.ones(2), h, 4)).all()


@pytest.mark.parametrize("name", ["gptq", "rounding"])
def test_it_needs_samples(name: str) -> None:
    with pytest.raises(OptimizeError, match="needs samples"):
        quantize(_model(), scheme="weights4", recover=(name,))


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"litesmith\[train\]"):
        quantize(_model(), scheme="weights4", data=_samples(2, 0), recover=("rounding",))
