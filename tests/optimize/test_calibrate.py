# SPDX-License-Identifier: Apache-2.0
"""Calibration sees what is there, whatever the order, and its ranges can be kept and edited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from litesmith.data import Dataset
from litesmith.errors import DataError, ModelError, UsageError
from litesmith.model import ABSENT, Builder, Model, constant
from litesmith.model._expose import expose
from litesmith.optimize import Ranges, calibrate, data_free_ranges
from litesmith.optimize._calibrate import observed_tensors
from litesmith.optimize._range_methods import METHODS
from litesmith.optimize._run import GraphRunner
from litesmith.optimize._statistics import Histogram, TensorStatistics

Array = np.ndarray[Any, Any]


def _observed(model: Model, samples: list[Array]) -> dict[int, tuple[float, float]]:
    wanted = observed_tensors(model.main)
    runner = GraphRunner(expose(model, wanted), kernels="builtin")
    found: dict[int, tuple[float, float]] = {}
    for sample in samples:
        runner.run({model.main.inputs[0]: sample})
        for tensor in wanted:
            values = sample if tensor in model.main.inputs else runner.view(tensor)
            low, high = found.get(tensor, (np.inf, -np.inf))
            found[tensor] = min(low, float(values.min())), max(high, float(values.max()))
    return found


def test_min_max_is_exact(convnet: Model, images: list[Array]) -> None:
    ranges = calibrate(convnet, images, method="minmax")

    for tensor, (low, high) in _observed(convnet, images).items():
        entry = ranges.find(tensor)
        assert entry is not None
        assert min(entry.low, 0) == pytest.approx(min(low, 0), abs=1e-5)
        assert entry.high == pytest.approx(high, rel=1e-5)
    assert ranges.samples == len(images)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "average"])
def test_order_does_not_matter(convnet: Model, images: list[Array], method: str) -> None:
    assert calibrate(convnet, images, method=method) == calibrate(convnet, images[::-1], method=method)


def test_a_small_memory_budget_changes_nothing_but_the_runs(convnet: Model, images: list[Array]) -> None:
    assert calibrate(convnet, images, memory_budget_bytes=4096).entries == calibrate(convnet, images).entries


def test_methods_are_inside_what_was_seen(convnet: Model, images: list[Array]) -> None:
    for method in METHODS:
        for entry in calibrate(convnet, images, method=method).entries:
            assert min(entry.seen_low, 0) - 1e-6 <= entry.low <= entry.high <= max(entry.seen_high, 0) + 1e-6


def test_dataset_iterator_and_limit(convnet: Model, images: list[Array]) -> None:
    stacked = np.concatenate(images)
    spread = calibrate(convnet, [images[i] for i in (0, 3, 6, 8, 11)])  # data may be sorted

    assert calibrate(convnet, Dataset.from_arrays(stacked), samples=5) == spread
    assert calibrate(convnet, stacked, samples=5) == spread
    assert calibrate(convnet, iter(images), samples=5) == calibrate(convnet, images[:5])
    with pytest.raises(UsageError, match="0 samples"):
        calibrate(convnet, images, samples=0)


def test_channel_statistics(convnet: Model, images: list[Array]) -> None:
    entry = calibrate(convnet, images, channels=True).find(convnet.main.inputs[0])

    assert entry is not None
    everything = np.concatenate(images).reshape(-1, 3)
    assert entry.channel_mean == pytest.approx(everything.mean(axis=0), abs=1e-5)
    assert entry.channel_high == pytest.approx(everything.max(axis=0))


def test_ranges_are_saved_loaded_and_edited(convnet: Model, images: list[Array], tmp_path: Path) -> None:
    ranges = calibrate(convnet, images)
    path = tmp_path / "ranges.json"
    ranges.to_json(path)

    edited = Ranges.from_json(path).with_range("resid*", -1.0, 2.5)

    assert Ranges.from_json(path) == ranges
    changed = [e for e in edited.entries if (e.low, e.high) == (-1.0, 2.5)]
    assert [e.name for e in changed] == ["residual"]
    with pytest.raises(UsageError, match="no tensor"):
        ranges.with_range("nothing", 0, 1)
    with pytest.raises(UsageError, match="not a range"):
        ranges.with_range("*", 2, 1)


def test_mistakes_are_named(convnet: Model, images: list[Array]) -> None:
    with pytest.raises(UsageError, match="no range method 'best'"):
        calibrate(convnet, images, method="best")
    with pytest.raises(UsageError, match="tail"):
        calibrate(convnet, images, tail=0.7)
    with pytest.raises(DataError, match="no samples"):
        calibrate(convnet, [])
    with pytest.raises(DataError, match="does not fit"):
        calibrate(convnet, [np.zeros((1, 8, 8, 3), np.float32)])
    with pytest.raises(DataError, match="2 arrays"):
        calibrate(convnet, [(images[0], images[1])])
    with pytest.raises(DataError, match="'image'"):
        calibrate(convnet, [{"picture": images[0]}])
    with pytest.raises(ModelError, match="constant"):
        expose(convnet, [convnet.main.operators[0].inputs[1]])


def test_not_finite_values_are_left_out() -> None:
    statistics = TensorStatistics()
    statistics.update(np.array([1.0, np.nan, -2.0, np.inf], np.float32))

    assert (statistics.seen_low, statistics.seen_high, statistics.not_finite) == (-2.0, 1.0, 2)


def test_the_tail_of_a_sample_is_close_to_its_percentile() -> None:
    values = np.random.default_rng(0).standard_normal(300_000).astype(np.float32)
    statistics = TensorStatistics(tail=1e-4)
    statistics.update(values)

    assert statistics.tail_high == pytest.approx(np.quantile(values, 0.9999), abs=0.05)
    assert statistics.tail_low == pytest.approx(np.quantile(values, 0.0001), abs=0.05)


@pytest.mark.parametrize("tail", [0.02, 0.1, 0.49])
@pytest.mark.parametrize("size", [40, 3001])
def test_a_long_tail_is_exact(tail: float, size: int) -> None:
    values = np.random.default_rng(0).permutation(size).astype(np.float32)
    statistics = TensorStatistics(tail=tail)
    statistics.update(values)

    assert statistics.tail_high == size - 1 - int(size * tail)
    assert statistics.tail_low == int(size * tail)


@given(
    st.lists(
        hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e4, 1e4, width=32)), min_size=1, max_size=6
    )
)
def test_a_histogram_does_not_depend_on_order(parts: list[Array]) -> None:
    forward, backward = Histogram(), Histogram()
    for part in parts:
        forward.update(part)
    for part in reversed(parts):
        backward.update(part)

    assert forward.counts.sum() == sum(part.size for part in parts)
    assert forward.exponent == backward.exponent
    assert np.array_equal(forward.counts, backward.counts)


def test_data_free_ranges_cover_what_gaussian_inputs_reach(convnet: Model, images: list[Array]) -> None:
    ranges = data_free_ranges(convnet)

    assert ranges.data_free
    for entry in calibrate(convnet, images, method="minmax").entries:
        guess = ranges.find(entry.tensor)
        assert guess is not None
        assert guess.low <= entry.low + 0.5
        assert guess.high >= 0.5 * entry.high
    first = ranges.find(convnet.main.operators[0].outputs[0])
    assert first is not None
    assert (first.low, first.high) == (0.0, 6.0) or first.high < 6.0


def test_data_free_ranges_know_that_a_bias_may_be_absent() -> None:
    found = []
    for last in (0.0, 1e6):
        b = Builder("plain")
        x = b.op("FULLY_CONNECTED", b.input("x", (1, 4)), np.ones((3, 4), np.float32), None, name="y")
        model = b.build({"y": x})
        tensors = (*model.main.tensors, constant("unused", np.full(3, last, np.float32)))
        op = replace(model.main.operators[0], inputs=(*model.main.operators[0].inputs[:2], ABSENT))
        entry = data_free_ranges(model.with_main(replace(model.main, tensors=tensors, operators=(op,)))).find(
            op.outputs[0]
        )
        assert entry is not None
        found.append((entry.low, entry.high))
    assert found[0] == found[1]


def test_inputs_of_any_length() -> None:
    b = Builder("dynamic")
    x = b.input("x", (-1, 6))
    model = b.build({"y": b.fully_connected(x, 3)})

    ranges = calibrate(model, [np.ones((n, 6), np.float32) * n for n in (1, 4, 2)])

    entry = ranges.find(model.main.inputs[0])
    assert entry is not None
    assert entry.high == 4.0
