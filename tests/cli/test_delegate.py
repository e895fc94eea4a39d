# SPDX-License-Identifier: Apache-2.0
"""`--delegate` is on every verb that chooses kernels, and turns Litesmith's delegate off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from litesmith import quantize
from litesmith.cli._app import command_line
from litesmith.runtime import native_tier
from litesmith.zoo import build


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int16") / "q.tflite"
    quantize(build("ds_cnn"), scheme="int16x8", check=False).model.save(path)
    return path


@pytest.mark.parametrize(
    "verb", ["run", "bench", "profile", "trace", "threads", "copies", "compare", "evaluate", "diagnose"]
)
def test_the_option_is_there(verb: str) -> None:
    result = CliRunner().invoke(command_line(), [verb, "--help"], env={"COLUMNS": "200"})
    assert "--delegate" in result.output


@pytest.mark.skipif(not native_tier(), reason="Litesmith was installed without its kernels")
@pytest.mark.parametrize(("choice", "expected"), [("auto", {"Litesmith"}), ("off", {"built-in"})])
def test_it_decides_who_runs_the_model(model: Path, choice: str, expected: set[str]) -> None:
    arguments = ["profile", str(model), "--runs", "2", "--json", "--delegate", choice]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == 0, result.output
    assert {operator["delegate"] for operator in json.loads(result.stdout)["operators"]} == expected


def test_bench_takes_it_for_all_its_kernels(model: Path) -> None:
    arguments = ["bench", str(model), "--runs", "2", "--no-memory", "--json", "--delegate", "off"]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == 0, result.output
    (latency,) = json.loads(result.stdout)["latencies"]
    assert latency["configuration"]["kernels"] == "xnnpack"


@pytest.mark.skipif(not native_tier(), reason="Litesmith was installed without its kernels")
def test_copies_holds_them_against_the_kernels_asked_for(model: Path) -> None:
    latencies = []
    for choice in ("auto", "off"):
        arguments = ["copies", str(model), "--seconds", "0.01", "--json", "--delegate", choice]
        result = CliRunner().invoke(command_line(), arguments)
        assert result.exit_code == 0, result.output
        latencies.append(json.loads(result.stdout)["latency_ms"])
    assert latencies[0] < latencies[1], "LiteRT's own int16 kernels are many times slower"


def test_compare_measures_both_with_the_kernels_asked_for(model: Path) -> None:
    arguments = ["compare", str(model), str(model), "--seconds", "0.02", "--json", "--delegate", "off"]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == 0, result.output
    assert "xnnpack" in json.loads(result.stdout)["before"]
