# SPDX-License-Identifier: Apache-2.0
"""`litesmith diagnose`: the layers that lose the accuracy, in each format."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from tests.accuracy.conftest import quantize_by_aeq
from tests.cli.conftest import Command

from litesmith.accuracy import LayerReport, diagnose
from litesmith.cli.diagnose import command


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    samples = np.random.default_rng(0).normal(size=(24, 16, 16, 3)).astype(np.float32)
    folder = tmp_path_factory.mktemp("pair")
    quantize_by_aeq(tiny, samples, "static_wi8_ai8").save(folder / "int8.tflite")
    np.savez(folder / "samples.npz", x=samples)
    return tiny, folder / "int8.tflite", folder / "samples.npz"


def test_options_are_the_functions_arguments() -> None:
    options, arguments = (inspect.signature(f).parameters for f in (command, diagnose))
    own, library_only = {"json", "csv", "html"}, {"time_us"}
    assert {name: p.default for name, p in options.items() if name not in own} == {
        name: p.default for name, p in arguments.items() if name not in library_only
    }


def test_every_format(litesmith: Command, pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    real, quantized, data = pair
    done = litesmith("diagnose", real, quantized, "--data", data, "--csv", "layers.csv", "--html", "layers.html")
    assert done.returncode == 0, done.stderr
    assert "The layers that cost most" in done.stdout
    assert "What to change" in done.stdout
    result = LayerReport.from_json(litesmith("diagnose", real, quantized, "--data", data, "--json").stdout)
    rows = (tmp_path / "layers.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(result.layers) == 5
    page = (tmp_path / "layers.html").read_text(encoding="utf-8")
    assert all(layer.kind in page for layer in result.layers)
    assert f"{100 * result.worst[0].share:.1f} %" in page


def test_mistakes_are_explained(litesmith: Command, pair: tuple[Path, Path, Path]) -> None:
    real, quantized, data = pair
    done = litesmith("diagnose", quantized, real, "--data", data)
    assert done.returncode == 1
    assert "The order is float, quantized" in done.stderr
