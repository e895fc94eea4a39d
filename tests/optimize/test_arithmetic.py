# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of quantization holds for any numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from litesmith.errors import UsageError
from litesmith.model import constant
from litesmith.optimize._arithmetic import (
    LARGEST_BIAS,
    affine,
    channel_scales,
    dequantize_array,
    quantize_array,
    quantize_weights,
)
from litesmith.optimize._weight_ranges import WEIGHT_METHODS, weight_scales
from litesmith.optimize._weights import layer_weights

Array = np.ndarray[Any, Any]
reals = st.floats(-1e6, 1e6, width=32)
matrices = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-100, 100, width=32)
)


@given(reals, reals, st.sampled_from(["int8", "int16"]))
def test_a_range_is_represented_and_zero_exactly(a: float, b: float, dtype: str) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    parameters = affine(low, high, dtype)

    least, most = parameters.limits()
    slack = parameters.scale * 1.01
    assert least <= low + slack
    assert most >= high - slack
    assert parameters.scale > 0
    assert quantize_array(np.zeros(1), parameters)[0] == parameters.zero_point


@given(hnp.arrays(np.float32, st.integers(1, 50), elements=reals), st.sampled_from(["int8", "int16"]))
def test_rounding_loses_at_most_half_a_step(values: Array, dtype: str) -> None:
    parameters = affine(float(values.min()), float(values.max()), dtype)

    back = dequantize_array(quantize_array(values, parameters), parameters.quantization())

    assert np.all(np.abs(back - values) <= parameters.scale * 1.01 + 1e-6 * np.abs(values))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("bad", [(0.0, 0.0), (float("nan"), 1.0), (-float("inf"), float("inf")), (1e-38, 1e-38)])
def test_degenerate_ranges_give_a_usable_scale(dtype: str, bad: tuple[float, float]) -> None:
    parameters = affine(*bad, dtype)

    assert np.isfinite(parameters.scale)
    assert parameters.scale > 0
    assert -32768 <= parameters.zero_point <= 127


def test_what_is_not_a_number_saturates_or_becomes_zero() -> None:
    parameters = affine(-1.0, 1.0, "int8")

    integers = quantize_array(np.array([np.nan, np.inf, -np.inf, 99.0]), parameters)

    assert integers.tolist() == [parameters.zero_point, 127, -128, 127]


@given(matrices, st.sampled_from(WEIGHT_METHODS), st.sampled_from([4, 8]))
def test_weight_scales_never_lose_more_than_they_must(values: Array, method: str, bits: int) -> None:
    scales = weight_scales(values, 0, bits, method=method)

    integers = quantize_weights(values, scales, 0, bits)
    limit = 127 if bits == 8 else 7
    assert np.all(np.isfinite(scales))
    assert np.all(scales > 0)
    assert np.abs(integers).max() <= limit
    if method == "mse":
        plain = weight_scales(values, 0, bits)
        error = np.sum((integers * scales[:, None] - values) ** 2)
        assert error <= np.sum((quantize_weights(values, plain, 0, bits) * plain[:, None] - values) ** 2) * 1.01 + 1e-9


def test_clipping_helps_few_bits_with_outliers() -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((4, 500)).astype(np.float32)
    values[:, 0] = 9.0

    def error(method: str) -> float:
        scales = weight_scales(values, 0, 4, method=method)
        return float(np.sum((quantize_weights(values, scales, 0, 4) * scales[:, None] - values) ** 2))

    assert error("mse") < 0.8 * error("minmax")
    assert error("octav") < 0.8 * error("minmax")


def test_unknown_weight_method() -> None:
    with pytest.raises(UsageError, match="choose one of minmax"):
        weight_scales(np.ones((2, 2)), 0, 8, method="best")


def test_dead_channels_take_the_scale_of_the_largest() -> None:
    assert channel_scales(np.array([0.0, 2.54]), 8).tolist() == pytest.approx([0.02, 0.02])
    assert channel_scales(np.zeros(3), 8).min() > 0


@pytest.mark.parametrize(("dtype", "bias"), [("int32", 1e9), ("int64", 1e9), ("int32", -3e5)])
def test_a_bias_always_fits(dtype: str, bias: float) -> None:
    weight = constant("w", np.full((2, 3), 1e-6, np.float32))
    biases = constant("b", np.array([bias, 0.5], np.float32))

    layer = layer_weights(
        weight, biases, axis=0, bits=8, input_scale=1e-4, output_scale=0.1, bias_dtype=dtype, method="minmax"
    )

    assert layer.bias is not None
    assert np.abs(layer.bias.astype(np.int64)).max() <= LARGEST_BIAS[dtype]
    assert layer.bias * layer.bias_scales == pytest.approx(np.array([bias, 0.5]), rel=1e-3)


@given(hnp.arrays(np.float32, (3, 3, 3, 2), elements=st.floats(-10, 10, width=32)))
def test_sums_along_taps_are_kept(values: Array) -> None:
    scales = weight_scales(values, 0, 8)

    integers = quantize_weights(values, scales, 0, 8, taps=(1, 2))

    steps = values.astype(np.float64) / scales.astype(np.float64)[:, None, None, None]
    assert np.all(np.abs(integers - steps) <= 1.0 + 1e-6)
    full = np.abs(integers).max(axis=(1, 2)) < 127  # a weight at the limit cannot be rounded away from zero
    assert np.all(np.abs((integers - steps).sum(axis=(1, 2)))[full] <= 0.5 + 1e-6)


def test_a_difference_filter_still_cancels() -> None:
    values = np.array([15.0, -6.13, -8.87], np.float32).reshape(1, 3, 1, 1)
    scales = weight_scales(values, 0, 8)

    plain = quantize_weights(values, scales, 0, 8)
    kept = quantize_weights(values, scales, 0, 8, taps=(1, 2))

    assert abs(int(kept.sum())) <= abs(int(plain.sum()))
    assert kept.sum() == 0
