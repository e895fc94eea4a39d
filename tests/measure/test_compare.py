# SPDX-License-Identifier: Apache-2.0
"""Two results: is the difference real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import UsageError
from litesmith.measure import Bench, Comparison, MachineFacts, bench, compare
from litesmith.measure._compare import parse_bound
from litesmith.model import Model


@pytest.fixture(scope="module")
def measured(tiny: Path) -> Bench:
    return bench(tiny, runs=20, seconds=0.1, memory=False)


def _with(result: Bench, factor: float, seed: int) -> Bench:
    samples = tuple(np.random.default_rng(seed).normal(factor, 0.01, 300))
    return replace(result, latencies=(replace(result.latencies[0], samples_ms=samples),))


def test_a_real_difference_is_significant_and_a_false_one_is_not(measured: Bench) -> None:
    same = compare(_with(measured, 1.0, 0), _with(measured, 1.0, 1)).change("latency")
    slower = compare(_with(measured, 1.0, 0), _with(measured, 1.2, 1)).change("latency")

    assert not same.significant
    assert slower.significant
    assert slower.ratio == pytest.approx(1.2, abs=0.02)
    assert slower.low < slower.ratio < slower.high


def test_results_are_compared_from_their_files(measured: Bench, tmp_path: Path) -> None:
    _with(measured, 1.0, 0).to_json(tmp_path / "a.json")
    _with(measured, 0.5, 1).to_json(tmp_path / "b.json")

    result = compare(tmp_path / "a.json", tmp_path / "b.json")

    assert result.change("latency").ratio == pytest.approx(0.5, abs=0.02)
    assert not result.interleaved
    assert "different times" in result.warnings[0]
    assert Comparison.from_json(result.to_json()) == result
    assert result.plot().data


def test_two_models_are_measured_now_and_interleaved(tiny_model: Model) -> None:
    result = compare(tiny_model, tiny_model, seconds=0.1)

    assert result.interleaved
    assert result.complete
    assert result.change("size").ratio == 1
    assert not result.change("size").significant


def test_results_of_different_machines_are_refused(measured: Bench, other_machine: MachineFacts) -> None:
    other = replace(measured, machine=other_machine)

    with pytest.raises(UsageError, match="different machines"):
        compare(measured, other)

    assert "different machines" in compare(measured, other, allow_other_machine=True).warnings[0]


def test_other_versions_are_said(measured: Bench) -> None:
    other = replace(measured, machine=replace(measured.machine, versions={"litesmith": "0"}))

    assert any("versions differ" in warning for warning in compare(measured, other).warnings)


def test_a_bound_breaks_only_beyond_doubt(measured: Bench) -> None:
    before = _with(measured, 1.0, 0)

    assert compare(before, _with(measured, 1.1, 1), fail_if="latency>+3%").broken == ("latency>+3%",)
    assert compare(before, _with(measured, 1.0, 1), fail_if="latency>+3%").broken == ()
    assert compare(before, _with(measured, 0.9, 1), fail_if=("latency>-20%", "size>0%")).broken == ("latency>-20%",)


@pytest.mark.parametrize("text", ["latency", "latency>3", "speed>3%", "latency>>3%", ""])
def test_a_bound_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="bound"):
        parse_bound(text)


def test_a_bound_on_what_was_not_measured_is_refused(measured: Bench) -> None:
    with pytest.raises(UsageError, match="memory"):
        compare(measured, measured, fail_if="memory>0%")


def test_one_of_each_kind_is_refused(measured: Bench, tiny: Path) -> None:
    with pytest.raises(UsageError, match="not one of each"):
        compare(measured, tiny)


def test_files_that_are_no_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")

    with pytest.raises(UsageError, match="kind"):
        compare(tmp_path / "x.json", tmp_path / "x.json")
    with pytest.raises(UsageError, match="cannot be read"):
        compare(tmp_path / "none.json", tmp_path / "none.json")
