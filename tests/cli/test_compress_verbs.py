# SPDX-License-Identifier: Apache-2.0
"""`litesmith prune`, `channels`, `cluster`, `fold` and `recipe`: the files they write, what they say, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Command

from litesmith import zoo
from litesmith.model import Model
from litesmith.optimize import ChannelsCoverage, ClusterCoverage, FoldCoverage, PruneCoverage, RecipeCoverage
from litesmith.samples import path as sample_path

DATA = ("--data", sample_path("fashion-train.npz"), "--preprocess", "scale=1/255", "--samples", 40)


def test_prune_by_magnitude(litesmith: Command, tmp_path: Path) -> None:
    done = litesmith("prune", sample_path(), "--sparsity", 0.8, "--pattern", "4x1", "-o", "p.tflite")
    assert done.returncode == 0, done.stderr
    for word in ("80.", "4x1", "magnitude", "brotli", "none on x86", "the first layer"):
        assert word in done.stdout
    assert any(op.kind == "DENSIFY" for op in Model.load(tmp_path / "p.tflite").main.operators)


def test_prune_on_data(litesmith: Command) -> None:
    done = litesmith(
        "prune", sample_path(), "--sparsity", 0.5, *DATA, "--no-bench", "--no-sizes", "--json", "-o", "p.tflite"
    )
    assert done.returncode == 0, done.stderr
    coverage = PruneCoverage.from_json(done.stdout)
    assert coverage.method == "second-order"
    assert coverage.reached == pytest.approx(0.5, abs=0.01)


def test_channels(litesmith: Command, tmp_path: Path) -> None:
    done = litesmith("channels", sample_path(), "--max-macs", "60%", *DATA, "-o", "c.tflite")
    assert done.returncode == 0, done.stderr
    assert "fitted anew" in done.stdout
    assert Model.load(tmp_path / "c.tflite").cost().macs <= 0.6 * Model.load(sample_path()).cost().macs
    again = litesmith("channels", sample_path(), "--keep", 0.75, "--json", "-o", "k.tflite")
    assert ChannelsCoverage.from_json(again.stdout).removed


def test_cluster(litesmith: Command) -> None:
    done = litesmith("cluster", sample_path(), "--clusters", 16, "-o", "s.tflite")
    assert done.returncode == 0, done.stderr
    assert "16 values for each layer" in done.stdout
    again = litesmith("cluster", sample_path(), "--clusters", 8, "--per-channel", "--json", "-o", "t.tflite")
    assert ClusterCoverage.from_json(again.stdout).per_channel


def test_fold(litesmith: Command, tmp_path: Path) -> None:
    zoo.build("resnet_8").save(tmp_path / "thin.tflite")
    done = litesmith("fold", "thin.tflite", "-o", "wide.tflite")
    assert done.returncode == 0, done.stderr
    assert "8 operators, to at most 64 channels" in done.stdout
    assert Model.load(tmp_path / "wide.tflite").cost().macs > Model.load(tmp_path / "thin.tflite").cost().macs
    again = litesmith("fold", "thin.tflite", "--width", 32, "--json", "-o", "wide.tflite")
    assert max(layer.pixels for layer in FoldCoverage.from_json(again.stdout).layers) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("fold", "--width", 1), 2, "2 or more channels, not 1"),
        (("fold", "--width", 4), 1, "no layer can be folded to 4 channels"),
        (("prune", "--sparsity", 1.2), 2, "below 1, not 1.2"),
        (("prune", "--pattern", "3x3"), 2, "no pattern"),
        (("prune", "--rule", "skip:nosuchlayer"), 1, "matches no layer"),
        (("channels",), 2, "give one of keep"),
        (("channels", "--keep", 0.001), 1, "would empty"),
        (("channels", "--max-macs", "many"), 2, "no number of multiply-accumulates"),
        (("cluster", "--clusters", 1), 2, "2 clusters or more"),
    ],
)
def test_mistakes_write_nothing(
    litesmith: Command, tmp_path: Path, arguments: tuple[object, ...], code: int, words: str
) -> None:
    done = litesmith(arguments[0], sample_path(), *arguments[1:], "-o", "no.tflite")
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "no.tflite").exists()


def test_a_recipe(litesmith: Command, tmp_path: Path) -> None:
    steps = "int8(samples=40) -> prune(0.6, magnitude) -> cluster(16, fit=no)"
    done = litesmith("recipe", sample_path(), steps, *DATA[:4], "-o", "small.tflite")
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "Step 1: prune(0.6, magnitude)" in words
    assert "prune(0.6, magnitude) → cluster(16, fit=no) → int8(samples=40)" in words
    for word in ("16 values for each layer", "27 quantized", "brotli", "in which none undoes another, not as given"):
        assert word in words
    assert any(t.dtype == "int8" for t in Model.load(tmp_path / "small.tflite").main.tensors)
    (tmp_path / "steps.toml").write_text('[[step]]\nname = "prune"\nsparsity = 0.9\n\n[[step]]\nname = "sparse"\n')
    again = litesmith("recipe", sample_path(), "steps.toml", "--no-sizes", "--json", "-o", "sparse.tflite")
    assert [step.step for step in RecipeCoverage.from_json(again.stdout).steps] == ["prune(0.9)", "sparse"]


def test_prune_says_that_values_were_rounded(litesmith: Command) -> None:
    done = litesmith("prune", sample_path(), "--store", "sparse16", "--no-bench", "--no-sizes", "-o", "p.tflite")
    assert "rounded to float16" in " ".join(done.stdout.split())
