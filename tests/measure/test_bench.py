# SPDX-License-Identifier: Apache-2.0
"""Latency with its spread."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litesmith.data import Dataset
from litesmith.errors import DataError, ModelError, SessionError, UsageError
from litesmith.measure import Bench, _timing, bench
from litesmith.measure._timing import Timed, measure, warm_up
from litesmith.model import Builder, Model


def test_a_model_is_measured_with_all_that_the_figure_depends_on(tiny: Path) -> None:
    result = bench(tiny, runs=20, seconds=0.1)

    (latency,) = result.latencies
    assert len(latency.samples_ms) == latency.summary.count == 20
    assert all(sample > 0 for sample in latency.samples_ms)
    assert latency.configuration.label == "tiny"
    assert latency.size_bytes == tiny.stat().st_size
    assert latency.compile_ms > 0
    assert latency.first_ms > 0
    assert latency.warmup_runs > 2
    assert latency.throughput == pytest.approx(1000 * 20 / sum(latency.samples_ms))
    assert latency.memory is not None
    assert latency.memory.peak_bytes >= latency.memory.steady_bytes > latency.memory.model_bytes
    assert result.machine.cpu
    assert result.machine.versions["ai-edge-litert"]
    assert result.complete
    assert Bench.from_json(result.to_json()) == result
    assert len(result.plot().data) == 1


def test_each_model_with_each_setting_is_measured(tiny: Path, tiny_model: Model) -> None:
    result = bench(
        tiny, tiny_model, threads=(1, 2), kernels=("delegate", "reference"), runs=10, seconds=0.1, memory=False
    )

    labels = [latency.configuration.label for latency in result.latencies]
    assert len(set(itertools.product(range(2), labels))) == 2 * len(set(labels))
    assert "tiny (2 threads, reference)" in labels
    assert {len(latency.samples_ms) for latency in result.latencies} == {10}


@pytest.mark.parametrize("kind", ["int16_model", "int64_model", "where_model"])
def test_any_input_type_is_measured(kind: str, request: pytest.FixtureRequest) -> None:
    result = bench(request.getfixturevalue(kind), runs=10, seconds=0.1, memory=False)

    assert len(result.latencies[0].samples_ms) == 10


def test_real_inputs_are_fed_each_in_turn(tiny: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(0).random((6, 32, 32, 3), np.float32))

    result = bench(tiny, data=Dataset.open(tmp_path / "x.npz"), runs=10, seconds=0.1, memory=False)

    assert result.inputs == "given"
    assert len(result.latencies[0].samples_ms) == 10


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"picture": np.zeros((1, 32, 32, 3), np.float32)}, "image"),
        ({"image": np.zeros((1, 32, 32, 3))}, "float64"),
        ({"image": np.zeros((1, 32, 32, 3), np.float32), "more": np.zeros(1)}, "more"),
    ],
)
def test_inputs_that_do_not_fit_are_told(tiny: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(DataError, match=said):
        bench(tiny, data=arrays, runs=10, seconds=0.1)


@pytest.mark.parametrize("options", [{"runs": 0}, {"seconds": 0}, {"seconds": -1.0}])
def test_counts_that_make_no_sense_are_refused(tiny: Path, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        bench(tiny, **options)  # type: ignore[arg-type]


def test_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="no model"):
        bench()


def test_a_missing_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no file"):
        bench(tmp_path / "none.tflite")


def test_a_model_that_does_not_compile_is_told_with_its_operator() -> None:
    b = Builder()
    x = b.input("x", (1, 4))
    y = b.op("CUSTOM", x, outputs=[((1, 4), "float32")], custom_code="Mystery")

    with pytest.raises(SessionError, match="Mystery"):
        bench(b.build({"y": y}), runs=10, seconds=0.1)


def test_ctrl_c_keeps_what_was_measured(tiny: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_timing, "time_for", 4)

    result = bench(tiny, runs=10, seconds=0.10)

    (latency,) = result.latencies
    assert not result.complete
    assert 0 < len(latency.samples_ms) < 100
    assert latency.memory is None


def test_ctrl_c_before_the_first_sample_is_passed_on(tiny: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_timing, "time_for", 1)

    with pytest.raises(KeyboardInterrupt):
        bench(tiny, runs=10, seconds=0.10, memory=False)


def test_subjects_are_interleaved() -> None:
    order: list[str] = []
    subjects = [Timed(name, lambda name=name: order.append(name)) for name in "ab"]  # type: ignore[misc]

    for subject in subjects:
        subject.prepare = None
    complete = measure(subjects, runs=40, seconds=0.001)

    measured = order[-80:]
    assert complete
    assert measured.count("a") == measured.count("b") == 40
    changes = sum(one != other for one, other in itertools.pairwise(measured))
    assert changes >= 9, "ten rounds of each, not one after the other"


def test_the_warm_up_keeps_the_first_run_apart() -> None:
    calls: list[int] = []
    subject = Timed("x", lambda: calls.append(1))

    warm_up(subject, limit_s=0.5)

    assert subject.warmup_runs == len(calls)
    assert subject.first_ms >= 0
    assert subject.samples_ms == []


def test_an_unstable_figure_says_so_and_what_to_do(tiny: Path) -> None:
    (latency,) = bench(tiny, runs=20, seconds=0.1, memory=False).latencies
    wild = tuple(1.0 if i % 3 else 5.0 for i in range(200))

    doubts = replace(latency, samples_ms=wild, steady=False).doubts()
    calm = replace(latency, samples_ms=(1.0,) * 200, steady=True).doubts()

    assert any("--seconds" in doubt for doubt in doubts)
    assert any("stop other programs" in doubt for doubt in doubts)
    assert calm == ()
