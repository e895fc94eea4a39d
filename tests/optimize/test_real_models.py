# SPDX-License-Identifier: Apache-2.0
"""Real files, in every scheme: nothing fails to load or run, and the accuracy is kept."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import KERNELS, run, sqnr_db

from litesmith.errors import LitesmithError, ModelError, OptimizeError, SessionError
from litesmith.model import Model, numpy_dtype
from litesmith.optimize import dequantize, quantize
from litesmith.optimize._run import GraphRunner, feeds, input_names

Array = np.ndarray[Any, Any]
LARGEST_FILE = 300_000
LARGEST_TENSOR = 500_000
SCHEMES = ("int8", "int16x8", "dynamic", "float16")
PARTS = 8


def _small_files(assets: Path) -> list[Path]:
    with (assets / "corpus" / "index.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ran" and int(row["bytes"]) <= LARGEST_FILE]
    return [assets / "corpus" / row["file"] for row in rows]


def _entry(model: Model) -> int:
    return model.signatures[0].subgraph_index if model.signatures else 0


def _samples(model: Model, count: int = 2) -> list[dict[str, Array]]:
    random = np.random.default_rng(0)

    def draw(index: int) -> Array:
        tensor = model.subgraphs[_entry(model)].tensors[index]
        if tensor.dtype == "float32":
            return np.asarray(random.standard_normal(tensor.shape), np.float32)
        return np.zeros(tensor.shape, numpy_dtype(tensor.dtype))

    return [{name: draw(i) for name, i in input_names(model).items()} for _ in range(count)]


def _run(model: Model, samples: list[dict[str, Array]], kernels: str) -> list[list[Array]]:
    model = Model.from_bytes(model.to_bytes())
    runner = GraphRunner(model, subgraph=_entry(model), kernels=kernels)
    outputs = [t for _, t in model.signatures[0].outputs] if model.signatures else model.main.outputs
    results = []
    for feed in feeds(model, samples):
        runner.run(feed)
        results.append([np.array(runner.view(t)) for t in outputs])
    return results


@pytest.mark.parametrize("part", range(PARTS))
def test_corpus_in_every_scheme(assets: Path, part: int) -> None:
    tried = 0
    for path in _small_files(assets)[part::PARTS]:
        model = Model.load(path)
        tensors = [t for graph in model.subgraphs for t in graph.tensors]
        if any(t.dtype == "string" or t.elements > LARGEST_TENSOR for t in tensors):
            continue
        samples = _samples(model)
        for scheme in SCHEMES:
            try:
                quantized = quantize(model, scheme=scheme, data=samples).model
            except OptimizeError as error:
                if "quantized already" not in str(error):
                    raise
                break
            reference = _run(model, samples, "builtin")
            for kernels in KERNELS:
                outputs = _run(quantized, samples, kernels)
                if all(np.all(np.isfinite(a)) and a.dtype == np.float32 for out in reference for a in out):
                    assert sqnr_db(reference, outputs) > 5, (path.name, scheme, kernels)
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("part", range(PARTS))
def test_corpus_dequantized(assets: Path, part: int) -> None:
    undone = 0
    for path in _small_files(assets)[part::PARTS]:
        model = Model.load(path)
        try:
            quantize(model, scheme="float16", check=False)
            continue
        except (OptimizeError, ModelError) as error:
            if "quantized already" not in str(error):
                continue
        back = dequantize(model)
        try:
            GraphRunner(model)
        except SessionError:
            continue
        _run(back, _samples(back, 1), "builtin")
        undone += 1
    assert undone > 0


def _accuracy(model: Model, samples: Array, labels: Array, kernels: str) -> float:
    runner = GraphRunner(model, kernels=kernels)
    hits = 0
    for sample, label in zip(samples, labels, strict=True):
        runner.run({model.main.inputs[0]: sample})
        hits += int(np.argmax(runner.view(model.main.outputs[0])) == label)
    return 100 * hits / len(labels)


def _task(assets: Path, name: str) -> tuple[Model, Array, Array, Array]:
    """Return a model, samples to calibrate with, and samples with labels to score on."""
    model = Model.load(assets / f"{name}_float.tflite")
    shape = model.main.tensors[model.main.inputs[0]].shape
    if name.endswith("kws_dscnn"):
        calibration = np.load(assets / "mlperf_tiny/kws_calib200.npz")["x"]
        scored = np.load(assets / "mlperf_tiny/kws_test800.npz")
        x, y = scored["x"], scored["y"]
    elif name.startswith("mnist"):
        scored = np.load(assets / "mnist/test.npz")
        pixels = scored["x"].astype(np.float32) / 255
        calibration, x, y = pixels[-100:], pixels[:800], scored["y"][:800]
    else:
        scored = np.load(assets / "cifar10/test.npz")
        pixels = scored["x"].astype(np.float32)
        calibration, x, y = pixels[-100:], pixels[:800], scored["y"][:800]
    return model, calibration.reshape(-1, *shape).astype(np.float32), x.reshape(-1, *shape).astype(np.float32), y


@pytest.mark.parametrize("name", ["mlperf_tiny/ic_resnet8", "mlperf_tiny/kws_dscnn", "mnist/resnet", "mnist/lstm"])
def test_accuracy_is_kept(assets: Path, name: str) -> None:
    model, calibration, samples, labels = _task(assets, name)
    base = _accuracy(model, samples, labels, "delegate")

    for kernels in KERNELS:
        small = quantize(model, data=list(calibration), recover=()).model
        assert _accuracy(small, samples, labels, kernels) >= base - 1.0
    wide = quantize(model, scheme="int16x8", data=list(calibration)).model
    few = samples[:250], labels[:250]
    assert _accuracy(wide, *few, "builtin") >= _accuracy(model, *few, "delegate") - 1.0  # two of 250 samples


def test_mobilenet_v2_agrees_with_float(assets: Path) -> None:
    from PIL import Image

    mean, deviation = np.array([123.675, 116.28, 103.53], np.float32), np.array([58.395, 57.12, 57.375], np.float32)
    paths = sorted((assets / "vision" / "photos").glob("*.jpg"))[:160]
    photos = [((np.asarray(Image.open(p), np.float32) - mean) / deviation)[None] for p in paths]
    calibration, rest = photos[::4], [photo for i, photo in enumerate(photos) if i % 4]
    model = Model.load(assets / "vision" / "mobilenet_v2_float.tflite")
    expected = [int(np.argmax(out[0])) for out in run(model, rest)]

    def agreement(scheme: str) -> float:
        outputs = run(quantize(model, scheme=scheme, data=calibration).model, rest)
        return float(np.mean([int(np.argmax(out[0])) == e for out, e in zip(outputs, expected, strict=True)]))

    assert agreement("int8") >= 0.85
    assert agreement("dynamic") >= 0.93
    coverage = quantize(model, scheme="dynamic").coverage
    assert coverage.actual_partitions == 1


def test_files_that_cannot_be_quantized_say_so(assets: Path) -> None:
    for path in sorted((assets / "corpus").glob("*edgetpu*.tflite"))[:3]:
        with pytest.raises(LitesmithError):
            quantize(Model.load(path), data=[np.zeros(1)])
