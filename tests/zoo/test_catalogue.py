# SPDX-License-Identifier: Apache-2.0
"""The zoo against what is published: parameters, multiply-accumulates and file sizes within 1 %."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from litesmith import zoo
from litesmith.errors import UsageError
from litesmith.model import Model

ENTRIES = zoo.catalogue()
FILES_MB = {"mobilenet_v1": 16.9, "mobilenet_v2": 14.0, "inception_v3": 95.7, "resnet_v2_101": 178.3}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.variant}-{e.dataset}")
def test_cost_is_within_one_percent_of_the_published(entry: zoo.Entry) -> None:
    model = entry.build()
    cost = model.cost()
    if entry.params is not None:
        assert entry.params.agrees(cost.parameters), (cost.parameters, entry.params)
    if entry.macs is not None:
        counted = cost.macs if entry.dataset != "GLUE" else _floating_point_operations(model) / 2
        assert entry.macs.agrees(counted), (counted, entry.macs)
    if entry.size is not None:
        assert entry.size.agrees(len(model.to_bytes())), entry.size


def _floating_point_operations(model: Model) -> int:
    """Two for each multiply-accumulate, one for each value that an element-wise operator, bias or ReLU touches."""
    touched = {"ADD": 1, "MUL": 1, "SUB": 1, "SOFTMAX": 3, "FULLY_CONNECTED": 1}
    main = model.main
    others = 0
    for operator in main.operators:
        elements = math.prod(main.tensors[operator.outputs[0]].shape)
        fused = getattr(operator.options, "fused_activation_function", "NONE") != "NONE"
        others += elements * (touched.get(operator.kind, 0) + fused)
    return 2 * model.cost().macs + others


@pytest.mark.parametrize(("name", "megabytes"), FILES_MB.items())
def test_files_have_the_published_size(name: str, megabytes: float) -> None:
    assert len(zoo.build(name).to_bytes()) / 1e6 == pytest.approx(megabytes, rel=0.01)


@pytest.mark.parametrize(
    ("file", "variant"),
    [
        ("ic_resnet8_float", "resnet_8_1.0_32"),
        ("kws_dscnn_float", "ds_cnn_1.0_49"),
        ("vww_mobilenetv1_float", "mobilenet_v1_0.25_96"),
    ],
)
def test_the_mlperf_tiny_networks_cost_what_their_reference_files_cost(assets: Path, file: str, variant: str) -> None:
    reference = Model.load(assets / "mlperf_tiny" / f"{file}.tflite").cost()
    entry = next(e for e in ENTRIES if e.variant == variant)
    ours = entry.build().cost()
    assert (ours.parameters, ours.macs) == (reference.parameters, reference.macs)
    assert entry.params is not None
    assert entry.macs is not None
    assert (entry.params.value, entry.macs.value) == (reference.parameters, reference.macs)


def test_each_architecture_has_a_published_variant_with_its_source() -> None:
    assert {e.name for e in ENTRIES} == set(zoo.names())
    assert len({(e.variant, e.dataset) for e in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry.source.startswith("https://")
        assert entry.cost_source.startswith("https://")
        assert entry.licence
        assert entry.accuracy is not None or entry.accuracy_int8 is not None
        assert all(a is None or 0 < a < 100 for a in (entry.accuracy, entry.accuracy_int8))


def test_the_image_classifiers_of_the_field_are_there_with_accuracies() -> None:
    count = {n: sum(e.accuracy is not None for e in ENTRIES if e.name == n) for n in zoo.names()}
    assert count["mobilenet_v1"] == 16
    assert count["mobilenet_v2"] == 22
    assert all(count[f"efficientnet_lite{n}"] == 1 for n in range(5))
    assert all(e.accuracy_int8 is not None for e in ENTRIES if e.family == "EfficientNet-Lite")


def test_an_error_rate_is_better_when_lower() -> None:
    better = {e.name: e.higher_is_better for e in ENTRIES}
    assert better["mobilenet_v2"]
    assert not better["wav2letter"]


def test_a_figure_knows_what_would_be_printed_like_it() -> None:
    figure = zoo.Figure.parse("569M")
    assert (figure.value, figure.lowest, figure.highest) == (569e6, 568.5e6, 569.5e6)
    assert figure.agrees(569.5e6 * 1.0099)
    assert not figure.agrees(569.5e6 * 1.011)
    assert not figure.agrees(568.5e6 * 0.989)
    assert zoo.Figure.parse("77,706").highest == 77706
    assert zoo.Figure.parse("18M", truncated=True).lowest == 18e6
    assert zoo.Figure.parse("16 × 0.0472G").value == pytest.approx(755.2e6)
    assert zoo.Figure.parse("65.984G").halved().value == pytest.approx(32.992e9)


@pytest.mark.parametrize("text", ["", "many", "4.24 M", "4.24T", "-3M"])
def test_a_figure_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a figure"):
        zoo.Figure.parse(text)
