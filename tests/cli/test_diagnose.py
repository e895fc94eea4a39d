# SPDX-License-Identifier: Apache-2.0
"""`litesmith diagnose`: the layers that lose the accuracy, in each format."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.accuracy.conftest import quantize_by_aeq
from tests.cli.conftest import Command

from litesmith.accuracy import Cause, Layer, LayerReport, OutputError, Repair, diagnose
from litesmith.cli.diagnose import _times, command, show
from litesmith.cli.profile import command as profile_command
from litesmith.errors import MeasureError


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    samples = np.random.default_rng(0).normal(size=(24, 16, 16, 3)).astype(np.float32)
    folder = tmp_path_factory.mktemp("pair")
    quantize_by_aeq(tiny, samples, "static_wi8_ai8").save(folder / "int8.tflite")
    np.savez(folder / "samples.npz", x=samples)
    return tiny, folder / "int8.tflite", folder / "samples.npz"


def test_options_are_the_functions_arguments() -> None:
    options, arguments = (inspect.signature(f).parameters for f in (command, diagnose))
    own = {"json", "time", "top", "csv", "html", "model_explorer", "plot", "save"}
    measured = {"time_us"}  # by the verb itself, with --time
    assert {name: p.default for name, p in options.items() if name not in own} == {
        name: p.default for name, p in arguments.items() if name not in measured
    }


def test_formats_are_those_of_profile() -> None:
    ours, theirs = (inspect.signature(f).parameters for f in (command, profile_command))
    formats = {"json", "top", "csv", "html", "model_explorer", "plot", "save"}
    assert formats <= ours.keys() & theirs.keys()
    assert {n: p.annotation for n, p in ours.items() if n in ("save", "json", "html", "model_explorer")} == {
        n: p.annotation for n, p in theirs.items() if n in ("save", "json", "html", "model_explorer")
    }


def test_every_format(litesmith: Command, pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    real, quantized, data = pair
    files = ["--csv", "layers.csv", "--html", "layers.html", "--plot", "plot.html", "--save", "layers.json"]
    done = litesmith("diagnose", real, quantized, "--data", data, *files, "--model-explorer", "nodes.json")
    assert done.returncode == 0, done.stderr
    assert "The layers that cost most" in done.stdout
    assert "What to change" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    result = LayerReport.from_json(tmp_path / "layers.json")
    rows = (tmp_path / "layers.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(result.layers) == 5
    page = (tmp_path / "layers.html").read_text(encoding="utf-8")
    assert all(layer.kind in page for layer in result.layers)
    assert f"{100 * result.worst[0].share:.1f} %" in page
    assert "Plotly.newPlot" in (tmp_path / "plot.html").read_text(encoding="utf-8")
    nodes = json.loads((tmp_path / "nodes.json").read_text(encoding="utf-8"))["main"]["results"]
    assert list(nodes) == [str(layer.index) for layer in result.layers]


def test_time_is_measured_unless_it_is_not_wanted(litesmith: Command, pair: tuple[Path, Path, Path]) -> None:
    real, quantized, data = pair
    result = LayerReport.from_json(litesmith("diagnose", real, quantized, "--data", data, "--json").stdout)
    assert all(layer.time_us is not None and layer.time_us > 0 for layer in result.layers)
    text = litesmith("diagnose", real, quantized, "--data", data, "--no-time", "--top", 1).stdout
    assert "time" not in text
    table = text.partition("The layers that cost most")[2].partition("SQNR in dB")[0]
    assert sum(f"{layer.index} {layer.kind}" in table for layer in result.layers) == 1


def test_a_repair_is_shown_with_its_gain_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = "int16x8 kernel: leaves XNNPACK"
    repairs = (
        Repair("int16x8 for operator 2", "int16x8:#1", 0.91, 1280, kernel),
        Repair("equalize operator 2", "equalize", 0.5, 0, "same kernel"),
    )
    layer = Layer(
        2, "CONV_2D", "conv", "int8", (1, 8), 64, 256, 12.0, 20.0, 0.99, 0.01, 20.0, 0.99, 0.01, 1.0, -1.0, 1.0,
        -1.0, 1.0, (Cause("coarse", "rounding"),), repairs
    )  # fmt: skip
    output = OutputError("y", 20.0, 0.99, None, None, None)
    result = LayerReport("f", "q", "data", 1, "delegate", (output,), (layer,), (), 8, 0.1)
    show(result)
    text = " ".join(capsys.readouterr().out.split())
    assert "+0.91 dB +1.3 kB, int16x8 kernel" in text
    assert "leaves XNNPACK" in text
    assert "+0.50 dB same kernel" in text

    show(replace(result, narrower=("3 ADD",)))  # then no layer can be blamed, and no change be promised
    text = " ".join(capsys.readouterr().out.split())
    assert "1 compared, 1 narrower: not compared" in text
    assert "not compared: 3 ADD" in text
    assert "What to change" not in text


def test_a_model_that_cannot_be_timed_is_diagnosed_all_the_same(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise MeasureError("it has no profiler")

    monkeypatch.setattr("litesmith.cli.diagnose.profile", refuse)
    assert _times(tiny, "delegate", 1, 0) == ({}, ("no times: it has no profiler",))


def test_mistakes_are_explained(litesmith: Command, pair: tuple[Path, Path, Path]) -> None:
    real, quantized, data = pair
    done = litesmith("diagnose", quantized, real, "--data", data)
    assert done.returncode == 1
    assert "The order is float, quantized" in done.stderr
